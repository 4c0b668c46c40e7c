"""Long-term entries, episodes and chunks as hits beside messages."""

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
"""What an entry scores that answers a query in full, and what its importance, decayed, adds to that."""
_ONE_MICROSECOND = timedelta(microseconds=1)
LONG_TERM_SIGNAL, EPISODE_SIGNAL = "long_term", "episode"
_SIGNAL_BY_TIER = {Tier.LONG_TERM: LONG_TERM_SIGNAL, Tier.EPISODIC: EPISODE_SIGNAL, Tier.SHORT_TERM: CHUNK}
_TIERS_BY_PRIORITY = (Tier.LONG_TERM, Tier.EPISODIC, Tier.SHORT_TERM)  # of two that say the same
MAX_MEMORY_HITS_PER_CONTEXT = 50
"""Hits of this kind that are looked at for a context, at most."""
_MIN_CHUNK_OVERLAP = 0.7
_MAX_LENGTH_RATIO = 2


def find_memory_hits(
    parts: EngineServices,
    namespace: NamespacePath,
    wish: RecallRequest,
    *,
    counts: bool = True,
    most: int | None = None,
) -> list[Hit]:
    """What answers a wish of all that was made of messages, scored so that it can stand among them.

    Args:
        parts: The stores and workers.
        namespace: Whose memory.
        wish: What is asked for.
        counts: Whether what is found counts as used.
        most: How many at most, if not as many as are asked for.
    """
    tiers = _select_tiers(wish)
    if not tiers or not wish.query.terms or not parts.long_term.search.has_entries(namespace):
        return []
    now = parts.now()
    sought = EntrySearchRequest(
        namespace=namespace,
        text=wish.query.text,
        tiers=tiers,
        filters=_build_entry_filters(wish.filters, now),
        limit=wish.limit if most is None else min(wish.limit, most),
    )
    if wish.strategy is Strategy.TF_IDF:
        found = _search_by_tf_idf(parts, sought)
    else:
        seen = parts.long_term.access_counter.with_pending_accesses
        found = [
            _build_hit(parts, seen(one.stored), max(0.0, min(1.0, one.score)), now)
            for one in parts.long_term.search.find(sought)
        ]
    if counts:
        parts.long_term.access_counter.record(namespace, [kept.key for kept, _ in found], now)
    return [hit for _, hit in found]


def build_message_request(wish: RecallRequest) -> RecallRequest:
    """What messages are asked for: at a time, only what was said by then."""
    filters = wish.filters
    if filters is None or filters.valid_at is None:
        return wish
    by_then = filters.valid_at + _ONE_MICROSECOND
    until = by_then if filters.until is None else min(filters.until, by_then)
    if filters.since is not None and filters.since >= until:
        return replace(wish, filters=replace(filters, kinds=frozenset({"nothing"})))
    return replace(wish, filters=replace(filters, until=until))


def find_repeated_hits(hits: Sequence[Hit], said: Iterable[str] = ()) -> dict[int, Hit | None]:
    """Hits that only say again what others among them say, or what is in sight: a context tells nothing twice.

    An episode or an entry is one where a message holds its words and is not much longer, an episode also where an
    entry says it, and a chunk where the messages that it sums up are there for the most part.

    Args:
        hits: All hits.
        said: Texts that are in sight already.

    Returns:
        For each of them, by ``id()``, the hit that says it; None for a text in sight.
    """
    lasting = [hit for hit in hits if is_memory_hit(hit)]
    if not lasting:
        return {}
    in_sight = [normalize_text(text) for text in said]
    others = [(hit, normalize_text(hit.entry.content)) for hit in hits if not is_memory_hit(hit)]
    found: dict[int, Hit | None] = {}
    for hit in sorted(lasting, key=lambda one: _TIERS_BY_PRIORITY.index(one.entry.tier)):
        text = normalize_text(hit.entry.content)
        if any(text in other for other in in_sight):
            found[id(hit)] = None
        elif (by := _find_original(hit, text, others)) is not None:
            found[id(hit)] = by
        else:
            others.append((hit, text))
    return found


def is_memory_hit(hit: Hit) -> bool:
    """Whether it is an entry, an episode or a chunk."""
    return hit.message is None and hit.knowledge is None


def _find_original(hit: Hit, text: str, others: Sequence[tuple[Hit, str]]) -> Hit | None:
    if hit.entry.kind == CHUNK:
        words = set(extract_terms(text))
        own = [
            (one, words.intersection(extract_terms(other)))
            for one, other in others
            if one.session == hit.session
        ]
        there = set[str]().union(*(shared for _, shared in own))
        return (
            max(own, key=lambda pair: len(pair[1]))[0]
            if len(there) >= _MIN_CHUNK_OVERLAP * len(words) > 0
            else None
        )
    is_retold = hit.entry.tier is Tier.EPISODIC
    return next(
        (
            one
            for one, other in others
            if text in other and (is_retold or len(other) <= _MAX_LENGTH_RATIO * len(text))
        ),
        None,
    )


def normalize_text(text: str) -> str:
    """The text in small letters, with every run of spaces as one."""
    return " ".join(text.casefold().split())


def _select_tiers(wish: RecallRequest) -> frozenset[Tier]:
    filters = RecallFilters() if wish.filters is None else wish.filters
    if filters.roles is not None or filters.kinds == {"message"}:
        return frozenset()
    tiers = {Tier.LONG_TERM} | ({Tier.EPISODIC} if filters.episodic else set())
    tiers |= {Tier.SHORT_TERM} if filters.chunks else set()
    if filters.tiers is not None:
        tiers &= filters.tiers
    is_named = (filters.kinds, filters.tiers, filters.categories, filters.tags) != (None, None, None, None)
    return frozenset(tiers) if is_named or wish.strategy in (Strategy.BEST, Strategy.TF_IDF) else frozenset()


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
    parts: EngineServices, kept: StoredEntry, score: float, now: datetime
) -> tuple[StoredEntry, Hit]:
    entry = kept.entry
    standing = entry.importance * compute_entry_decay(entry, now, parts.config.learning.half_life_days)
    name = _SIGNAL_BY_TIER[entry.tier]
    # As with knowledge: one word of many may be there by chance, so a score counts by its square.
    signals = {name: TEXT_MATCH_WEIGHT * score**2, "standing": DECAYED_IMPORTANCE_WEIGHT * standing}
    found = replace(entry, relevance=score)
    return kept, Hit(entry=found, score=sum(signals.values()), signals=signals, found_by=name)


def _search_by_tf_idf(parts: EngineServices, sought: EntrySearchRequest) -> list[tuple[StoredEntry, Hit]]:
    weights = parts.config.recall.tf_idf
    found = parts.long_term.search.find_by_tf_idf(
        sought, weights, parts.now(), parts.long_term.access_counter.with_pending_accesses
    )
    return [(one.stored, _build_scored_hit(one.stored.entry, one.score, signals)) for one, signals in found]


def _build_scored_hit(entry: Entry, score: float, signals: dict[str, float]) -> Hit:
    return Hit(entry=entry, score=score, signals=signals, found_by=max(signals, key=signals.__getitem__))
