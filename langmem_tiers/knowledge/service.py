"""Knowledge across sessions: keys and values with a confidence that use raises and time lowers."""

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
    from langmem_tiers.display.tables import DisplayContent
    from langmem_tiers.knowledge.repository import KnowledgeRepository

_DECAY_BATCH_SIZE = 500
_MAX_SEARCH_TERMS = 128  # more terms of a long text make a search slower, but not better


class KnowledgeBase(NotebookDisplayable):
    """Knowledge of one namespace, shared by all its sessions. Get it from ``namespace.knowledge``."""

    def __init__(
        self, store: KnowledgeRepository, namespace: NamespacePath, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._now = now

    def __repr__(self) -> str:
        return f"KnowledgeBase({'/'.join(self._namespace)!r})"

    def _to_display(self) -> DisplayContent:
        return build_list_display(repr(self), self.page(limit=MAX_TABLE_ROWS), "knowledge")

    def store(
        self,
        category: str,
        key: str,
        value: str,
        *,
        confidence: float = INITIAL_CONFIDENCE,
        source: str | None = None,
    ) -> KnowledgeReport:
        """Store a value under a category and a key.

        Storing the same value again raises its confidence by 0.1. A different value supersedes the current
        one, which moves to the history.

        Args:
            category: A ``KnowledgeCategory`` or any other name.
            key: Subject of the knowledge.
            value: The knowledge itself.
            confidence: Initial confidence of a new value, from 0 to 1. Default: 0.5.
            source: Origin of the knowledge, for example a message id.
        """
        fresh = self._build_knowledge(category, key, value, confidence, source)
        report = self._change(fresh, lambda old: apply_store(old, fresh))
        assert report is not None  # noqa: S101 - storing always leaves a value
        return report

    def note(
        self, text: str, *, confidence: float = INITIAL_CONFIDENCE, source: str | None = None
    ) -> KnowledgeReport:
        """Store a sentence that has no key. Storing the same sentence again raises its confidence.

        Args:
            text: The sentence.
            confidence: Initial confidence of a new sentence, from 0 to 1. Default: 0.5.
            source: Origin of the sentence, for example a message id.

        Returns:
            The stored knowledge. Pass its ``category`` and ``key`` to ``correct`` or ``remove``.
        """
        _check_value(text)
        # A note's key is the hash of its sentence. If the sentence under that key was corrected later, the key is
        # occupied by other text: try the hash with the next salt.
        keys = (_build_note_key(text, attempt) for attempt in count())
        reports = (
            self._try_note(self._build_knowledge(NOTE_CATEGORY, key, text, confidence, source))
            for key in keys
        )
        return next(report for report in reports if report is not None)

    def correct(
        self, category: str, key: str, value: str, *, source: str | None = None
    ) -> KnowledgeReport | None:
        """Replace the value of a key. The old value moves to the history.

        Returns:
            The new knowledge, or None if the key has no value; then nothing is stored.
        """
        fresh = self._build_knowledge(category, key, value, INITIAL_CONFIDENCE, source)
        return self._change(fresh, lambda old: apply_correction(old, fresh))

    def get(self, category: str, key: str, *, use: bool = True) -> Knowledge | None:
        """Return the knowledge under a key, or None. Reading counts as a use unless ``use`` is False."""
        found = self._store.get(self._namespace, check_name(category, "category"), check_name(key, "key"))
        return found if found is None or not use else self._record_use([found])[0]

    def recall(
        self, text: str, *, category: str | None = None, limit: int = 10, use: bool = True
    ) -> tuple[KnowledgeHit, ...]:
        """Return knowledge that shares at least one word with a text, best first.

        Args:
            text: A question or keywords.
            category: Category to search. Default: all.
            limit: Maximum number of results.
            use: True counts a use of each result, which raises its confidence.
        """
        check_limit(limit)
        if not isinstance(text, str):
            raise InvalidInputError(
                f"recall() expects a str, got {type(text).__name__}: pass the words to search for"
            )
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
        """Return knowledge sorted by category and key.

        Args:
            category: Category to list. Default: all.
            after: Last item of the previous page, or its category and key.
            limit: Maximum number of items.
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
        """Return the former values of a key, oldest first."""
        name = check_name(category, "category"), check_name(key, "key")
        return DisplayableTuple(self._store.list_history(self._namespace, *name))

    def past_at(self, moment: datetime, *, limit: int = 1000) -> tuple[Knowledge, ...]:
        """Return knowledge that was valid at a time but is not any more, by category and key.

        The confidence is the one that each value had at its end.
        """
        check_limit(limit)
        past = self._store.list_past_at(self._namespace, check_time(moment), limit=limit)
        return tuple(
            Knowledge(
                category=former.category,
                key=former.key,
                value=former.value,
                confidence=former.confidence,
                created_at=former.valid_from,
                updated_at=former.valid_from,
                fresh_at=former.valid_from,
                source=former.source,
            )
            for former in past
        )

    def valid_at(self, moment: datetime) -> tuple[Knowledge, ...]:
        """Return all knowledge that was valid at a time, by category and key."""
        since = check_time(moment)
        # Values that were superseded or removed since then are only in the history.
        known = [item for item in self if item.created_at <= since]
        return tuple(
            sorted(
                (*known, *self.past_at(since, limit=MAX_LIMIT)), key=lambda item: (item.category, item.key)
            )
        )

    def use(self, items: Sequence[Knowledge], *, since: datetime | None = None) -> None:
        """Count a use of each item. A use raises the confidence by 0.05.

        Args:
            items: Knowledge that was used.
            since: Skip items whose last counted use is at this time or later.
        """
        if items:
            self._record_use(items, since)

    def remove(self, category: str, key: str) -> bool:
        """Remove the value of a key and keep it in the history. Return True if there was a value."""
        now = self._now()
        name = (check_name(category, "category"), check_name(key, "key"))
        (change,) = self._store.update(self._namespace, [name], lambda old: apply_removal(old, now), now)
        return change.past is not None

    def decay(self) -> DecayReport:
        """Lower the confidence of unused knowledge by 0.1 per 30 days, and prune values below 0.1.

        The result does not depend on how often this is called.
        """
        now = self._now()
        decayed = pruned = 0
        before = now - UNUSED_PERIOD
        while stale := self._store.list_stale(
            self._namespace,
            before=before,
            below=MIN_CONFIDENCE,
            limit=_DECAY_BATCH_SIZE,
            # Aging moves every stale item out of this list or deletes it, so the loop ends.
        ):
            names = [(item.category, item.key) for item in stale]
            for change in self._store.update(self._namespace, names, lambda old: apply_aging(old, now), now):
                decayed += 1
                pruned += change.knowledge is None
        return DecayReport(decayed=decayed, pruned=pruned)

    def _build_knowledge(
        self, category: str, key: str, value: str, confidence: float, source: str | None
    ) -> Knowledge:
        check_name(category, "category")
        check_name(key, "key")
        check_score(confidence, "confidence")
        _check_value(value)
        if source is not None and not isinstance(source, str):
            raise InvalidInputError(f"a source must be a str, got {type(source).__name__}: name it as text")
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
        # Another text under the key: the caller tries the next key. Differences in spaces do not count.
        return (
            None
            if report is None or collapse_spaces(report.knowledge.value) != collapse_spaces(fresh.value)
            else report
        )

    def _change(
        self, fresh: Knowledge, rule: Callable[[Knowledge | None], KnowledgeUpdate]
    ) -> KnowledgeReport | None:
        # The store may call the rule again after a conflict. Only the value of its last call was replaced.
        seen: list[Knowledge | None] = []

        def decide(old: Knowledge | None) -> KnowledgeUpdate:
            seen[:] = [old]
            return rule(old)

        name = (fresh.category, fresh.key)
        (change,) = self._store.update(self._namespace, [name], decide, fresh.created_at)
        if change.knowledge is None:
            return None
        return KnowledgeReport(knowledge=change.knowledge, is_new=seen[-1] is None, superseded=change.past)

    def _record_use(self, items: Sequence[Knowledge], since: datetime | None = None) -> list[Knowledge]:
        now = self._now()
        changes = self._store.update(
            self._namespace, _get_names(items), lambda old: apply_use(old, now, since), now
        )
        return [change.knowledge or item for change, item in zip(changes, items, strict=True)]


def _get_names(items: Sequence[Knowledge]) -> list[tuple[str, str]]:
    for item in items:
        if not isinstance(item, Knowledge):
            raise InvalidInputError(
                f"expected a Knowledge, got {type(item).__name__}: pass a result of get() or recall()"
            )
    return [(item.category, item.key) for item in items]


def _check_value(value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        got = "one that is empty or only spaces" if isinstance(value, str) else f"a {type(value).__name__}"
        raise InvalidInputError(f"a value must contain text, got {got}: pass the knowledge as a str")


def _build_note_key(text: str, attempt: int) -> str:
    normalized = collapse_spaces(text).encode("utf-8", "replace")
    return hashlib.blake2b(normalized, digest_size=8, salt=attempt.to_bytes(8, "big")).hexdigest()
