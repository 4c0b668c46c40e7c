"""Cross-session knowledge: key and value with a confidence that use raises and time lowers."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import check_score
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.config import MAX_LIMIT, check_limit
from langmem_tiers.display.displayable import DisplayableTuple, NotebookDisplayable, build_list_display
from langmem_tiers.display.tables import MAX_TABLE_ROWS
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.knowledge.confidence import (
    INITIAL_CONFIDENCE,
    MIN_CONFIDENCE,
    UNUSED_PERIOD,
    apply_aging,
    apply_correction,
    apply_note,
    apply_removal,
    apply_store,
    apply_use,
    collapse_spaces,
)
from langmem_tiers.knowledge.models import (
    NOTE_CATEGORY,
    DecayReport,
    Knowledge,
    KnowledgeHit,
    KnowledgeReport,
    KnowledgeUpdate,
    PastKnowledge,
)
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import KnowledgeStore
    from langmem_tiers.display.tables import DisplayContent

_DECAY_BATCH_SIZE = 500
_MAX_SEARCH_TERMS = 128  # of a search; the rest of a long text adds cost, not sense


class KnowledgeBase(NotebookDisplayable):
    """What is known in one namespace, whatever the session. Get it from ``namespace.knowledge``."""

    def __init__(self, store: KnowledgeStore, namespace: NamespacePath, now: Callable[[], datetime]) -> None:
        self._store = store
        self._namespace = namespace
        self._now = now

    def __repr__(self) -> str:
        return f"KnowledgeBase({'/'.join(self._namespace)!r})"

    def _to_display(self) -> DisplayContent:
        return build_list_display(repr(self), self.page(limit=MAX_TABLE_ROWS), "what is known")

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
        fresh = self._build_knowledge(category, key, value, confidence, source)
        report = self._change(fresh, lambda old: apply_store(old, fresh))
        assert report is not None  # noqa: S101 - what is stored is known
        return report

    def note(
        self, text: str, *, confidence: float = INITIAL_CONFIDENCE, source: str | None = None
    ) -> KnowledgeReport:
        """Remember a sentence that has no key of its own. The same sentence again raises its confidence.

        Args:
            text: What is known.
            confidence: Of a sentence that is new.
            source: Where it comes from.

        Returns:
            What is known now. Its ``category`` and ``key`` are what ``correct`` and ``remove`` take.
        """
        _check_value(text)
        # Another place, where the first holds what a sentence was corrected to.
        places = (_build_note_key(text, place) for place in count())
        tried = (
            self._try_note(self._build_knowledge(NOTE_CATEGORY, key, text, confidence, source))
            for key in places
        )
        return next(report for report in tried if report is not None)

    def correct(
        self, category: str, key: str, value: str, *, source: str | None = None
    ) -> KnowledgeReport | None:
        """Give what is known under a key another value; the history keeps the one before.

        Returns:
            None, with nothing stored, if nothing is known under the key.
        """
        fresh = self._build_knowledge(category, key, value, INITIAL_CONFIDENCE, source)
        return self._change(fresh, lambda old: apply_correction(old, fresh))

    def get(self, category: str, key: str, *, use: bool = True) -> Knowledge | None:
        """What is known under a key. Reading it counts as use, unless you say otherwise."""
        found = self._store.get(self._namespace, check_name(category, "category"), check_name(key, "key"))
        return found if found is None or not use else self._record_use([found])[0]

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
        terms = list(dict.fromkeys(extract_terms(text)))[:_MAX_SEARCH_TERMS]
        if not terms:
            return ()
        found = self._store.search(self._namespace, terms, category=category, limit=limit)
        if not use or not found:
            return DisplayableTuple(found)
        used = self._record_use([hit.knowledge for hit in found])
        return DisplayableTuple(replace(hit, knowledge=item) for hit, item in zip(found, used, strict=True))

    def page(
        self,
        category: str | None = None,
        *,
        after: Knowledge | tuple[str, str] | None = None,
        limit: int = 100,
    ) -> tuple[Knowledge, ...]:
        """What is known, by category and key.

        Args:
            category: Of this category only.
            after: The last one of the page before, or its category and key.
            limit: How many at most.
        """
        check_limit(limit)
        category = None if category is None else check_name(category, "category")
        name = after if after is None or isinstance(after, tuple) else _get_names([after])[0]
        return DisplayableTuple(self._store.list_page(self._namespace, category, after=name, limit=limit))

    def __iter__(self) -> Iterator[Knowledge]:
        last: Knowledge | None = None
        while page := self.page(after=last):
            yield from page
            last = page[-1]

    def history(self, category: str, key: str) -> tuple[PastKnowledge, ...]:
        """Values that held before, oldest first."""
        name = check_name(category, "category"), check_name(key, "key")
        return DisplayableTuple(self._store.list_history(self._namespace, *name))

    def past_at(self, moment: datetime, *, limit: int = 1000) -> tuple[Knowledge, ...]:
        """What was known at a time and is not any more, by category and key, as it was at its end."""
        check_limit(limit)
        past = self._store.list_past_at(self._namespace, check_time(moment), limit=limit)
        return tuple(
            Knowledge(
                category=one.category,
                key=one.key,
                value=one.value,
                confidence=one.confidence,
                created_at=one.valid_from,
                updated_at=one.valid_from,
                fresh_at=one.valid_from,
                source=one.source,
            )
            for one in past
        )

    def valid_at(self, moment: datetime) -> tuple[Knowledge, ...]:
        """All that was known at a time, by category and key."""
        since = check_time(moment)
        known = [item for item in self if item.created_at <= since]
        return tuple(
            sorted((*known, *self.past_at(since, limit=MAX_LIMIT)), key=lambda one: (one.category, one.key))
        )

    def use(self, items: Sequence[Knowledge], *, since: datetime | None = None) -> None:
        """Count a use of each, which raises its confidence by 0.05.

        Args:
            items: What was used.
            since: Those used since then already are not counted again.
        """
        if items:
            self._record_use(items, since)

    def remove(self, category: str, key: str) -> bool:
        """Take a value out of force; the history keeps it. Says whether there was one."""
        now = self._now()
        name = (check_name(category, "category"), check_name(key, "key"))
        (kept,) = self._store.update(self._namespace, [name], lambda old: apply_removal(old, now), now)
        return kept.past is not None

    def decay(self) -> DecayReport:
        """Lower what was not used for 30 days by 0.1 for each 30 days, and prune what falls below 0.1.

        The result does not depend on how often it is called.
        """
        now = self._now()
        decayed = pruned = 0
        before = now - UNUSED_PERIOD
        while stale := self._store.list_stale(
            self._namespace, before=before, below=MIN_CONFIDENCE, limit=_DECAY_BATCH_SIZE
        ):
            names = [(item.category, item.key) for item in stale]
            for kept in self._store.update(self._namespace, names, lambda old: apply_aging(old, now), now):
                decayed += 1
                pruned += kept.knowledge is None
        return DecayReport(decayed=decayed, pruned=pruned)

    def _build_knowledge(
        self, category: str, key: str, value: str, confidence: float, source: str | None
    ) -> Knowledge:
        check_name(category, "category")
        check_name(key, "key")
        check_score(confidence, "confidence")
        _check_value(value)
        if source is not None and not isinstance(source, str):
            raise InvalidInputError(f"a source must be a str, got a {type(source).__name__}: name it as text")
        now = self._now()
        return Knowledge(
            category=str(category),
            key=key,
            value=value,
            confidence=confidence,
            created_at=now,
            updated_at=now,
            fresh_at=now,
            source=source,
        )

    def _try_note(self, fresh: Knowledge) -> KnowledgeReport | None:
        report = self._change(fresh, lambda old: apply_note(old, fresh))
        return (
            None
            if report is None or collapse_spaces(report.knowledge.value) != collapse_spaces(fresh.value)
            else report
        )

    def _change(
        self, fresh: Knowledge, rule: Callable[[Knowledge | None], KnowledgeUpdate]
    ) -> KnowledgeReport | None:
        known: list[Knowledge | None] = []

        def decide(old: Knowledge | None) -> KnowledgeUpdate:
            known[:] = [old]
            return rule(old)

        name = (fresh.category, fresh.key)
        (kept,) = self._store.update(self._namespace, [name], decide, fresh.created_at)
        if kept.knowledge is None:
            return None
        return KnowledgeReport(knowledge=kept.knowledge, is_new=known[-1] is None, superseded=kept.past)

    def _record_use(self, items: Sequence[Knowledge], since: datetime | None = None) -> list[Knowledge]:
        now = self._now()
        kept = self._store.update(
            self._namespace, _get_names(items), lambda old: apply_use(old, now, since), now
        )
        return [one.knowledge or item for one, item in zip(kept, items, strict=True)]


def _get_names(items: Sequence[Knowledge]) -> list[tuple[str, str]]:
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


def _build_note_key(text: str, place: int) -> str:
    said = collapse_spaces(text).encode("utf-8", "replace")
    return hashlib.blake2b(said, digest_size=8, salt=place.to_bytes(8, "big")).hexdigest()
