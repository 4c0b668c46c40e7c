"""Long-term entries, episodes and chunks as hits beside messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.chunks.service import KIND as CHUNK
from langmem_tiers.common.decay import decay_of
from langmem_tiers.common.entries import Tier
from langmem_tiers.common.recall_strategy import Strategy
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.recall.entry_search import Sought
from langmem_tiers.recall.models import Hit, RecallFilters
from langmem_tiers.text.tokenize import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.records import KeptEntry
    from langmem_tiers.recall.retriever import Wish
    from langmem_tiers.services import MemoryParts

BY_TEXT, BY_STANDING = 0.6, 0.1
"""What an entry scores that answers a query in full, and what its importance, decayed, adds to that."""
_MOMENT = timedelta(microseconds=1)
LONG_TERM, EPISODE = "long_term", "episode"
_SIGNALS = {Tier.LONG_TERM: LONG_TERM, Tier.EPISODIC: EPISODE, Tier.SHORT_TERM: CHUNK}
_TOLD_FIRST = (Tier.LONG_TERM, Tier.EPISODIC, Tier.SHORT_TERM)  # of two that say the same
IN_CONTEXTS = 50
"""Hits of this kind that are looked at for a context, at most."""
_MOSTLY = 0.7
_SHORT = 2


def lasting_hits(
    parts: MemoryParts, namespace: NamespacePath, wish: Wish, *, counts: bool = True, most: int | None = None
) -> list[Hit]:
    """What answers a wish of all that was made of messages, scored so that it can stand among them.

    Args:
        parts: The stores and workers.
        namespace: Whose memory.
        wish: What is asked for.
        counts: Whether what is found counts as used.
        most: How many at most, if not as many as are asked for.
    """
    tiers = _tiers(wish)
    if not tiers or not wish.query.terms or not parts.lasting.search.holds_something(namespace):
        return []
    now = parts.now()
    sought = Sought(
        namespace=namespace,
        text=wish.query.text,
        tiers=tiers,
        filters=_filters(wish.filters, now),
        limit=wish.limit if most is None else min(wish.limit, most),
    )
    if wish.strategy is Strategy.TF_IDF:
        found = _by_tf_idf(parts, sought)
    else:
        seen = parts.lasting.uses.seen
        found = [
            _hit(parts, seen(one.kept), max(0.0, min(1.0, one.score)), now)
            for one in parts.lasting.search.find(sought)
        ]
    if counts:
        parts.lasting.uses.note(namespace, [kept.key for kept, _ in found], now)
    return [hit for _, hit in found]


def messages_wish(wish: Wish) -> Wish:
    """What messages are asked for: at a time, only what was said by then."""
    filters = wish.filters
    if filters is None or filters.valid_at is None:
        return wish
    by_then = filters.valid_at + _MOMENT
    until = by_then if filters.until is None else min(filters.until, by_then)
    if filters.since is not None and filters.since >= until:
        return replace(wish, filters=replace(filters, kinds=frozenset({"nothing"})))
    return replace(wish, filters=replace(filters, until=until))


def echoes_in(hits: Sequence[Hit], said: Iterable[str] = ()) -> dict[int, Hit | None]:
    """Hits that only say again what others among them say, or what is in sight: a context tells nothing twice.

    An episode or an entry is one where a message holds its words and is not much longer, an episode also where an
    entry says it, and a chunk where the messages that it sums up are there for the most part.

    Args:
        hits: All hits.
        said: Texts that are in sight already.

    Returns:
        For each of them, by ``id()``, the hit that says it; None for a text in sight.
    """
    lasting = [hit for hit in hits if is_lasting(hit)]
    if not lasting:
        return {}
    in_sight = [plain_text(text) for text in said]
    others = [(hit, plain_text(hit.entry.content)) for hit in hits if not is_lasting(hit)]
    found: dict[int, Hit | None] = {}
    for hit in sorted(lasting, key=lambda one: _TOLD_FIRST.index(one.entry.tier)):
        text = plain_text(hit.entry.content)
        if any(text in other for other in in_sight):
            found[id(hit)] = None
        elif (by := _said_by(hit, text, others)) is not None:
            found[id(hit)] = by
        else:
            others.append((hit, text))
    return found


def is_lasting(hit: Hit) -> bool:
    """Whether it is an entry, an episode or a chunk."""
    return hit.message is None and hit.knowledge is None


def _said_by(hit: Hit, text: str, others: Sequence[tuple[Hit, str]]) -> Hit | None:
    if hit.entry.kind == CHUNK:
        words = set(terms_of(text))
        own = [
            (one, words.intersection(terms_of(other))) for one, other in others if one.session == hit.session
        ]
        there = set[str]().union(*(shared for _, shared in own))
        return max(own, key=lambda pair: len(pair[1]))[0] if len(there) >= _MOSTLY * len(words) > 0 else None
    is_retold = hit.entry.tier is Tier.EPISODIC
    return next(
        (one for one, other in others if text in other and (is_retold or len(other) <= _SHORT * len(text))),
        None,
    )


def plain_text(text: str) -> str:
    """The text in small letters, with every run of spaces as one."""
    return " ".join(text.casefold().split())


def _tiers(wish: Wish) -> frozenset[Tier]:
    filters = RecallFilters() if wish.filters is None else wish.filters
    if filters.roles is not None or filters.kinds == {"message"}:
        return frozenset()
    tiers = {Tier.LONG_TERM} | ({Tier.EPISODIC} if filters.episodic else set())
    tiers |= {Tier.SHORT_TERM} if filters.chunks else set()
    if filters.tiers is not None:
        tiers &= filters.tiers
    is_named = (filters.kinds, filters.tiers, filters.categories, filters.tags) != (None, None, None, None)
    return frozenset(tiers) if is_named or wish.strategy in (Strategy.BEST, Strategy.TF_IDF) else frozenset()


def _filters(filters: RecallFilters | None, now: datetime) -> EntryFilters:
    if filters is None:
        return EntryFilters(valid_at=now)
    return EntryFilters(
        kinds=_frozen(filters.kinds),
        categories=_frozen(filters.categories),
        tags=_frozen(filters.tags),
        sessions=_frozen(filters.sessions),
        valid_at=now if filters.valid_at is None else filters.valid_at,
        since=filters.since,
        until=filters.until,
        min_importance=filters.min_importance,
    )


def _frozen(names: object) -> frozenset[str] | None:
    return names if isinstance(names, frozenset) else None


def _hit(parts: MemoryParts, kept: KeptEntry, score: float, now: datetime) -> tuple[KeptEntry, Hit]:
    entry = kept.entry
    standing = entry.importance * decay_of(entry, now, parts.config.learning.half_life_days)
    name = _SIGNALS[entry.tier]
    # As with knowledge: one word of many may be there by chance, so a score counts by its square.
    signals = {name: BY_TEXT * score**2, "standing": BY_STANDING * standing}
    found = replace(entry, relevance=score)
    return kept, Hit(entry=found, score=sum(signals.values()), signals=signals, found_by=name)


def _by_tf_idf(parts: MemoryParts, sought: Sought) -> list[tuple[KeptEntry, Hit]]:
    weights = parts.config.recall.tf_idf
    found = parts.lasting.search.by_tf_idf(sought, weights, parts.now(), parts.lasting.uses.seen)
    return [(one.kept, _scored(one.kept.entry, one.score, signals)) for one, signals in found]


def _scored(entry: Entry, score: float, signals: dict[str, float]) -> Hit:
    return Hit(entry=entry, score=score, signals=signals, found_by=max(signals, key=signals.__getitem__))
