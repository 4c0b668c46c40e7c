"""Long-term entries, episodes and chunks as recall hits among messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.chunks.service import CHUNK_KIND as CHUNK
from langmem_tiers.common.decay import compute_entry_decay
from langmem_tiers.common.entries import Tier
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.recall.entry_search import EntrySearchRequest
from langmem_tiers.recall.models import Hit, RecallFilters
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.recall.retriever import RecallRequest
    from langmem_tiers.services import EngineServices

TEXT_MATCH_WEIGHT, DECAYED_IMPORTANCE_WEIGHT = 0.6, 0.1
"""Score of an entry that matches a query completely, and the maximum that its decayed importance adds."""
_ONE_MICROSECOND = timedelta(microseconds=1)
LONG_TERM_SIGNAL, EPISODE_SIGNAL = "long_term", "episode"
_SIGNAL_BY_TIER = {Tier.LONG_TERM: LONG_TERM_SIGNAL, Tier.EPISODIC: EPISODE_SIGNAL, Tier.SHORT_TERM: CHUNK}
# Of two hits with the same text, the one of the earlier tier is kept.
_TIERS_BY_PRIORITY = (Tier.LONG_TERM, Tier.EPISODIC, Tier.SHORT_TERM)
MAX_MEMORY_HITS_PER_CONTEXT = 50
"""Maximum number of hits of these kinds that are considered for a context."""
# Share of a chunk's words that other hits of its session must contain for the chunk to be redundant.
_MIN_CHUNK_OVERLAP = 0.7
# A text replaces an entry that it contains unless it is longer than the entry by more than this factor.
_MAX_LENGTH_RATIO = 2


def find_memory_hits(
    services: EngineServices,
    namespace: NamespacePath,
    request: RecallRequest,
    *,
    counts: bool = True,
    max_hits: int | None = None,
) -> list[Hit]:
    """Find long-term entries, episodes and chunks that answer a request, scored for comparison with messages.

    Args:
        services: Services of the engine.
        namespace: The namespace.
        request: The recall request.
        counts: Count the found memories as used.
        max_hits: Maximum number of hits. Default: the limit of the request.
    """
    tiers = _select_tiers(request)
    if not tiers or not request.query.terms or not services.long_term.search.has_entries(namespace):
        return []
    now = services.now()
    search = EntrySearchRequest(
        namespace=namespace,
        text=request.query.text,
        tiers=tiers,
        filters=_build_entry_filters(request.filters, now),
        limit=request.limit if max_hits is None else min(request.limit, max_hits),
    )
    if request.strategy is Strategy.TF_IDF:
        found = _search_by_tf_idf(services, search)
    else:
        with_pending = services.long_term.access_counter.with_pending_accesses
        found = [
            _build_hit(services, with_pending(match.stored), max(0.0, min(1.0, match.score)), now)
            for match in services.long_term.search.find(search)
        ]
    if counts:
        services.long_term.access_counter.record(namespace, [stored.key for stored, _ in found], now)
    return [hit for _, hit in found]


def build_message_request(request: RecallRequest) -> RecallRequest:
    """Return the request for messages: with ``valid_at``, it finds only messages written by that time."""
    filters = request.filters
    if filters is None or filters.valid_at is None:
        return request
    # ``until`` is exclusive and ``valid_at`` inclusive: times have a resolution of one microsecond.
    end = filters.valid_at + _ONE_MICROSECOND
    until = end if filters.until is None else min(filters.until, end)
    if filters.since is not None and filters.since >= until:
        # The range is empty, which filters reject. A kind that does not exist finds nothing either.
        return replace(request, filters=replace(filters, kinds=frozenset({"nothing"})))
    return replace(request, filters=replace(filters, until=until))


def find_repeated_hits(hits: Sequence[Hit], known_texts: Iterable[str] = ()) -> dict[int, Hit | None]:
    """Find memories that only repeat other hits or visible texts, so that a context contains nothing twice.

    An entry or an episode is a repetition if a message contains its text and is not much longer. An episode is one
    also if an entry contains its text, and a chunk if the messages that it summarizes are mostly among the hits.

    Args:
        hits: All hits.
        known_texts: Texts that are visible anyway.

    Returns:
        For each repetition, by ``id()``, the hit that contains its text; None if a visible text does.
    """
    memory_hits = [hit for hit in hits if is_memory_hit(hit)]
    if not memory_hits:
        return {}
    visible_texts = [normalize_text(text) for text in known_texts]
    texts = [(hit, normalize_text(hit.entry.content)) for hit in hits if not is_memory_hit(hit)]
    found: dict[int, Hit | None] = {}
    # By priority of the tiers: a hit that is kept becomes one that later hits may repeat.
    for hit in sorted(memory_hits, key=lambda memory_hit: _TIERS_BY_PRIORITY.index(memory_hit.entry.tier)):
        text = normalize_text(hit.entry.content)
        if any(text in visible for visible in visible_texts):
            found[id(hit)] = None
        elif (original := _find_original(hit, text, texts)) is not None:
            found[id(hit)] = original
        else:
            texts.append((hit, text))
    return found


def is_memory_hit(hit: Hit) -> bool:
    """Return True if the hit is a long-term entry, an episode or a chunk."""
    return hit.message is None and hit.knowledge is None


def _find_original(hit: Hit, text: str, texts: Sequence[tuple[Hit, str]]) -> Hit | None:
    if hit.entry.kind == CHUNK:
        # A chunk has a summary of its own, so compare words: most of them must occur in hits of its session.
        words = set(extract_terms(text))
        same_session = [
            (other, words.intersection(extract_terms(other_text)))
            for other, other_text in texts
            if other.session == hit.session
        ]
        covered = set[str]().union(*(shared for _, shared in same_session))
        return (
            max(same_session, key=lambda pair: len(pair[1]))[0]
            if len(covered) >= _MIN_CHUNK_OVERLAP * len(words) > 0
            else None
        )
    # An episode repeats a conversation, so any text that contains it will do. An entry is a statement of its own
    # that a much longer message may bury.
    is_episode = hit.entry.tier is Tier.EPISODIC
    return next(
        (
            other
            for other, other_text in texts
            if text in other_text and (is_episode or len(other_text) <= _MAX_LENGTH_RATIO * len(text))
        ),
        None,
    )


def normalize_text(text: str) -> str:
    """Return the text in lower case, with each run of whitespace replaced by one space."""
    return " ".join(text.casefold().split())


def _select_tiers(request: RecallRequest) -> frozenset[Tier]:
    filters = RecallFilters() if request.filters is None else request.filters
    # Only messages have a role.
    if filters.roles is not None or filters.kinds == {"message"}:
        return frozenset()
    tiers = {Tier.LONG_TERM} | ({Tier.EPISODIC} if filters.episodic else set())
    tiers |= {Tier.SHORT_TERM} if filters.chunks else set()
    if filters.tiers is not None:
        tiers &= filters.tiers
    is_named = (filters.kinds, filters.tiers, filters.categories, filters.tags) != (None, None, None, None)
    # The other strategies rank messages only, unless a filter names kinds, tiers, categories or tags.
    return (
        frozenset(tiers) if is_named or request.strategy in (Strategy.BEST, Strategy.TF_IDF) else frozenset()
    )


def _build_entry_filters(filters: RecallFilters | None, now: datetime) -> EntryFilters:
    if filters is None:
        return EntryFilters(valid_at=now)
    return EntryFilters(
        kinds=_to_frozenset(filters.kinds),
        categories=_to_frozenset(filters.categories),
        tags=_to_frozenset(filters.tags),
        sessions=_to_frozenset(filters.sessions),
        valid_at=now if filters.valid_at is None else filters.valid_at,
        since=filters.since,
        until=filters.until,
        min_importance=filters.min_importance,
    )


def _to_frozenset(names: object) -> frozenset[str] | None:
    return names if isinstance(names, frozenset) else None


def _build_hit(
    services: EngineServices, stored: StoredEntry, score: float, now: datetime
) -> tuple[StoredEntry, Hit]:
    entry = stored.entry
    importance = entry.importance * compute_entry_decay(entry, now, services.config.learning.half_life_days)
    name = _SIGNAL_BY_TIER[entry.tier]
    # As for knowledge: one matching word of many may be a coincidence. Squaring keeps such matches low.
    signals = {name: TEXT_MATCH_WEIGHT * score**2, "standing": DECAYED_IMPORTANCE_WEIGHT * importance}
    scored = replace(entry, relevance=score)
    return stored, Hit(entry=scored, score=sum(signals.values()), signals=signals, found_by=name)


def _search_by_tf_idf(services: EngineServices, search: EntrySearchRequest) -> list[tuple[StoredEntry, Hit]]:
    weights = services.config.recall.tf_idf
    matches = services.long_term.search.find_by_tf_idf(
        search, weights, services.now(), services.long_term.access_counter.with_pending_accesses
    )
    return [
        (match.stored, _build_scored_hit(match.stored.entry, match.score, signals))
        for match, signals in matches
    ]


def _build_scored_hit(entry: Entry, score: float, signals: dict[str, float]) -> Hit:
    return Hit(entry=entry, score=score, signals=signals, found_by=max(signals, key=signals.__getitem__))
