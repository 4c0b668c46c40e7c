"""Cross-session knowledge: key and value with a confidence that use raises and time lowers."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.core.config import check_limit
from langmem_tiers.core.entries import check_score
from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.knowledge import (
    DecayReport,
    Kept,
    Knowledge,
    KnowledgeHit,
    KnowledgeReport,
    PastKnowledge,
)
from langmem_tiers.core.names import check_name
from langmem_tiers.scoring.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.ports import KnowledgeStore

INITIAL_CONFIDENCE = 0.5
STORED_AGAIN = 0.1
USED = 0.05
UNUSED = -0.1
UNUSED_AFTER = timedelta(days=30)
PRUNED_BELOW = 0.1
_BATCH = 500
_MAX_TERMS = 128  # of a search; the rest of a long text adds cost, not sense
_SPACE = re.compile(r"\s+")


class KnowledgeBase:
    """What is known in one namespace, whatever the session. Get it from ``namespace.knowledge``."""

    def __init__(self, store: KnowledgeStore, namespace: NamespacePath, now: Callable[[], datetime]) -> None:
        self._store = store
        self._namespace = namespace
        self._now = now

    def __repr__(self) -> str:
        return f"KnowledgeBase({'/'.join(self._namespace)!r})"

    def store(
        self,
        category: str,
        key: str,
        value: str,
        *,
        confidence: float = INITIAL_CONFIDENCE,
        source: str | None = None,
    ) -> KnowledgeReport:
        """Remember a value under a category and a key.

        The same value again raises its confidence by 0.1. Another value supersedes the one in
        force, which stays in the history.

        Args:
            category: A ``KnowledgeCategory`` or a name of your own.
            key: What it is about.
            value: What is known.
            confidence: Of a value that is new.
            source: Where it comes from.
        """
        check_name(category, "category")
        check_name(key, "key")
        check_score(confidence, "confidence")
        _check_value(value)
        if source is not None and not isinstance(source, str):
            raise InvalidInputError(f"a source must be a str, got a {type(source).__name__}: name it as text")
        now = self._now()
        fresh = Knowledge(
            category=str(category),
            key=key,
            value=value,
            confidence=confidence,
            created_at=now,
            updated_at=now,
            fresh_at=now,
            source=source,
        )
        known: list[Knowledge | None] = []

        def decide(old: Knowledge | None) -> Kept:
            known[:] = [old]
            return stored(old, fresh)

        (kept,) = self._store.change(self._namespace, [(fresh.category, key)], decide, now)
        return KnowledgeReport(
            knowledge=kept.knowledge or fresh, is_new=known[-1] is None, superseded=kept.past
        )

    def get(self, category: str, key: str, *, use: bool = True) -> Knowledge | None:
        """What is known under a key. Reading it counts as use, unless you say otherwise."""
        found = self._store.get(self._namespace, check_name(category, "category"), check_name(key, "key"))
        return found if found is None or not use else self._used([found])[0]

    def recall(
        self, text: str, *, category: str | None = None, limit: int = 10, use: bool = True
    ) -> tuple[KnowledgeHit, ...]:
        """What answers a text, best first: any of its words in a key or a value.

        Args:
            text: A question, or words.
            category: Of this category only.
            limit: How many at most.
            use: Whether it counts as use, which raises the confidence of what is found.
        """
        check_limit(limit)
        if not isinstance(text, str):
            raise InvalidInputError(f"recall() takes words as a str, got a {type(text).__name__}")
        category = None if category is None else check_name(category, "category")
        terms = list(dict.fromkeys(terms_of(text)))[:_MAX_TERMS]
        if not terms:
            return ()
        found = self._store.search(self._namespace, terms, category=category, limit=limit)
        if not use or not found:
            return found
        used = self._used([hit.knowledge for hit in found])
        return tuple(replace(hit, knowledge=item) for hit, item in zip(found, used, strict=True))

    def page(
        self, category: str | None = None, *, after: Knowledge | None = None, limit: int = 100
    ) -> tuple[Knowledge, ...]:
        """What is known, by category and key; pass the last one as ``after`` for the next page."""
        check_limit(limit)
        category = None if category is None else check_name(category, "category")
        name = None if after is None else _names([after])[0]
        return self._store.page(self._namespace, category, after=name, limit=limit)

    def __iter__(self) -> Iterator[Knowledge]:
        last: Knowledge | None = None
        while page := self.page(after=last):
            yield from page
            last = page[-1]

    def history(self, category: str, key: str) -> tuple[PastKnowledge, ...]:
        """Values that held before, oldest first."""
        return self._store.history(self._namespace, check_name(category, "category"), check_name(key, "key"))

    def use(self, items: Sequence[Knowledge], *, since: datetime | None = None) -> None:
        """Count a use of each, which raises its confidence by 0.05.

        Args:
            items: What was used.
            since: Those used since then already are not counted again.
        """
        if items:
            self._used(items, since)

    def remove(self, category: str, key: str) -> bool:
        """Take a value out of force; the history keeps it. Says whether there was one."""
        now = self._now()
        name = (check_name(category, "category"), check_name(key, "key"))

        def decide(old: Knowledge | None) -> Kept:
            return Kept(None, None if old is None else _past(old, now, "removed"))

        (kept,) = self._store.change(self._namespace, [name], decide, now)
        return kept.past is not None

    def decay(self) -> DecayReport:
        """Lower what was not used for 30 days by 0.1 for each 30 days, and prune what falls below 0.1.

        The result does not depend on how often it is called.
        """
        now = self._now()
        decayed = pruned = 0
        before = now - UNUSED_AFTER
        while stale := self._store.stale(self._namespace, before=before, below=PRUNED_BELOW, limit=_BATCH):
            names = [(item.category, item.key) for item in stale]
            for kept in self._store.change(self._namespace, names, lambda old: aged(old, now), now):
                decayed += 1
                pruned += kept.knowledge is None
        return DecayReport(decayed=decayed, pruned=pruned)

    def _used(self, items: Sequence[Knowledge], since: datetime | None = None) -> list[Knowledge]:
        now = self._now()
        kept = self._store.change(self._namespace, _names(items), lambda old: used(old, now, since), now)
        return [one.knowledge or item for one, item in zip(kept, items, strict=True)]


def _names(items: Sequence[Knowledge]) -> list[tuple[str, str]]:
    for item in items:
        if not isinstance(item, Knowledge):
            raise InvalidInputError(
                f"a {type(item).__name__} is no Knowledge: pass what get() or recall() gave"
            )
    return [(item.category, item.key) for item in items]


def _check_value(value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        got = "one without words" if isinstance(value, str) else f"a {type(value).__name__}"
        raise InvalidInputError(f"a value must say something, got {got}: pass what is known as text")


def stored(old: Knowledge | None, fresh: Knowledge) -> Kept:
    """What is known after a value was stored."""
    if old is None:
        return Kept(fresh)
    if _plain(old.value) != _plain(fresh.value):
        return Kept(fresh, _past(old, fresh.created_at, "superseded"))
    return Kept(
        replace(
            fresh,
            confidence=_moved(old.confidence, STORED_AGAIN),
            created_at=old.created_at,
            last_used_at=old.last_used_at,
            use_count=old.use_count,
            store_count=old.store_count + 1,
            source=old.source if fresh.source is None else fresh.source,
        )
    )


def used(old: Knowledge | None, now: datetime, since: datetime | None) -> Kept:
    """What is known after it was used."""
    if old is None or (since is not None and old.last_used_at is not None and old.last_used_at >= since):
        return Kept(old)
    confidence = _moved(old.confidence, USED)
    return Kept(
        replace(
            old,
            confidence=confidence,
            use_count=old.use_count + 1,
            last_used_at=now,
            fresh_at=max(old.fresh_at, now),  # a clock that is set back makes nothing older
        )
    )


def aged(old: Knowledge | None, now: datetime) -> Kept:
    """What is left of something that was not used."""
    if old is None:
        return Kept(None)
    periods = max(0, (now - old.fresh_at) // UNUSED_AFTER)
    confidence = _moved(old.confidence, UNUSED * periods)
    if confidence < PRUNED_BELOW:
        return Kept(None, _past(old, now, "pruned"))
    return Kept(replace(old, confidence=confidence, fresh_at=old.fresh_at + periods * UNUSED_AFTER))


def _moved(confidence: float, by: float) -> float:
    # Rounded, so that ten steps of 0.05 are a half.
    return round(max(0.0, min(1.0, confidence + by)), 6)


def _past(old: Knowledge, until: datetime, reason: str) -> PastKnowledge:
    return PastKnowledge(
        category=old.category,
        key=old.key,
        value=old.value,
        confidence=old.confidence,
        valid_from=old.created_at,
        valid_until=until,
        reason=reason,
    )


def _plain(value: str) -> str:
    return _SPACE.sub(" ", value).strip()  # not the case: it matters to selectors, paths and passwords
