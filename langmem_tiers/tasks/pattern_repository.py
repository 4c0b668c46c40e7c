"""Learned patterns as they are kept: shared by all tasks of a namespace, in its procedural tier."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from langmem_tiers.common.entries import Entry, Tier
from langmem_tiers.errors import InvalidInputError, StorageBusyError, StorageError
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.long_term.records import MemoryWrite, NewEntry
from langmem_tiers.recall.entry_search import terms_for
from langmem_tiers.tasks.action_sequences import Stretch, stretch_from_dict, stretch_to_dict, stretches_of
from langmem_tiers.tasks.pattern_learning import lessons_of
from langmem_tiers.tasks.patterns import LongTermMemory, pattern_from_dict, pattern_to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.dependencies import LastingParts
    from langmem_tiers.long_term.records import KeptEntry
    from langmem_tiers.tasks.models import LearnedPattern, MemoryEntry


MOST_AT_SITE = 10
"""Stretches of one site that are kept, or of none."""
MOST_STEPS = 500
"""Steps of all of them together."""
_LONGEST = 100  # steps of one of them: its last
_MOST_CHARACTERS = 60_000  # of one of them
_STATUS = {"status": "candidate"}


@dataclass(frozen=True, slots=True)
class Tried:
    """A stretch, and the session of the task that it is from."""

    stretch: Stretch
    session_key: int | None

    @property
    def name(self) -> str:
        """The id of its entry: that of no other, whatever is cut off behind its first step."""
        return f"tried_{self.stretch.steps[0].cycle}"

    def details(self) -> dict[str, Any]:
        """As it is kept."""
        return {**_STATUS, "session": self.session_key, **stretch_to_dict(self.stretch)}


class TriedStretches:
    """The stretches of a namespace, beside its patterns."""

    def __init__(self, namespace: NamespacePath) -> None:
        self._namespace = namespace
        self._stored: dict[str, Any] = {}
        self._held: dict[str, Tried] = {}

    def read(self, kept: Iterable[KeptEntry]) -> Sequence[KeptEntry]:
        """Take them out of all that is kept; the others."""
        others: list[KeptEntry] = []
        self._stored, self._held = {}, {}
        for one in kept:
            if one.details.get("status") != _STATUS["status"]:
                others.append(one)
                continue
            self._stored[one.entry.id] = one.details
            with suppress(LookupError, TypeError, ValueError, AttributeError):  # what is damaged is dropped
                self._held[one.entry.id] = Tried(stretch_from_dict(one.details), one.details.get("session"))
        return others

    def without(self, cycles: Container[str]) -> list[Tried]:
        """All of them, but for what some cycles did."""
        return [
            Tried(rest, one.session_key) for one in self._held.values() for rest in one.stretch.rest(cycles)
        ]

    def keep(self, tried: Iterable[Tried]) -> None:
        """Keep these in place of all, as far as there is room: the newest first."""
        at_site: Counter[str] = Counter()
        steps = 0
        self._held = {}
        for one in sorted(tried, key=_last, reverse=True):
            cut = Tried(_cut(one.stretch), one.session_key)
            site, size = cut.stretch.site, len(cut.stretch.steps)
            has_room = at_site[site] < MOST_AT_SITE and steps + size <= MOST_STEPS
            if has_room and len(json.dumps(cut.details())) <= _MOST_CHARACTERS:
                at_site[site] += 1
                steps += size
                self._held[cut.name] = cut

    def changed(self, now: datetime) -> list[NewEntry]:
        """What has to be written."""
        return [
            NewEntry(
                entry=Entry(
                    id=name,
                    namespace=self._namespace,
                    tier=Tier.PROCEDURAL,
                    kind="tried_steps",
                    content=f"Steps that worked {f'at {one.stretch.site}' if one.stretch.site else 'once'}",
                    created_at=now,
                    importance=0.0,
                    category=one.stretch.site or None,
                ),
                terms="",  # nobody looks for them by words
                session_key=one.session_key,
                details=one.details(),
            )
            for name, one in self._held.items()
            if self._stored.get(name) != one.details()
        ]

    def gone(self) -> set[str]:
        """Ids of what has to be erased."""
        return self._stored.keys() - self._held.keys()


def _last(one: Tried) -> tuple[float, str]:
    last = one.stretch.steps[-1]
    return last.timestamp, last.cycle  # at the same moment, the later cycle has the later id


def _cut(stretch: Stretch) -> Stretch:
    return Stretch(stretch.site, stretch.steps[-_LONGEST:], is_fresh=False)


_ALL = 10_000
_TRIES = 20  # until it is said that others change the patterns all the time
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LearnedFrom:
    """What became of some cycles."""

    patterns: tuple[LearnedPattern, ...]
    """Those that are new, and those that have more placeholders than before."""
    open_cycles: frozenset[str]
    """Ids of the last cycles, if they may go on to be a pattern: to be handed in again with those that follow."""


class TaskPatterns(LongTermMemory):
    """Learned patterns, shared by all tasks of a namespace: entries of its procedural tier.

    Beside them stand the last stretches that worked and are no pattern yet: what is done once in each of several tasks
    is learned from these. Safe to share between threads, and to change from several processes.

    Args:
        max_patterns: As for ``LongTermMemory``.
        now: Seconds since 1970.
        parts: Where they are kept.
        namespace: Whose.
    """

    def __init__(
        self, max_patterns: int, now: Callable[[], float], parts: LastingParts, namespace: NamespacePath
    ) -> None:
        super().__init__(max_patterns, now)
        self.namespace = namespace
        self._parts = parts
        self._lock = threading.RLock()
        self._is_changing = False
        self._saved: dict[str, LearnedPattern] = {}
        self._tried = TriedStretches(namespace)
        self.refresh()

    @property
    def patterns(self) -> list[LearnedPattern]:
        """All patterns, in the order in which they were learned."""
        with self._lock:
            return super().patterns

    def get_patterns_for_domain(self, domain: str) -> list[LearnedPattern]:
        """What worked at a site, the best first; at none, if the domain is empty."""
        with self._lock:
            return super().get_patterns_for_domain(domain)

    def refresh(self) -> None:
        """Take over what others of the namespace learned meanwhile."""
        with self._lock:
            kept = self._parts.store.page(self.namespace, Tier.PROCEDURAL, EntryFilters(), limit=_ALL)
            before, self._is_changing = self._is_changing, True
            try:
                super().clear()
                for one in reversed(self._tried.read(kept)):
                    with suppress(InvalidInputError):  # a procedure that somebody else stored is no pattern
                        super().learn(pattern_from_dict(one.details))
            finally:
                self._is_changing = before
            # What a smaller cap leaves out is not in sight here, and stays for others.
            self._saved = dict(self._patterns)

    def learn(self, pattern: LearnedPattern) -> None:
        """Keep steps that worked."""
        self._change(partial(super().learn, pattern))

    def learn_from(self, cycles: Sequence[MemoryEntry], session_key: int | None = None) -> LearnedFrom:
        """Learn what worked more than once, here and in the tasks before, and count uses of what is known.

        Args:
            cycles: Of one task in their order, each handed in only once unless it was left open.
            session_key: The session of the task: what is kept of it for later goes with it.
        """
        return self._change(partial(self._learn_from, cycles, session_key))

    def record_usage(self, pattern_id: str, *, success: bool) -> LearnedPattern:
        """Count how it went."""
        return self._change(partial(super().record_usage, pattern_id, success=success))

    def remove_pattern(self, pattern_id: str) -> bool:
        """Keep it no longer, whoever learned it."""
        return self._change(partial(super().remove_pattern, pattern_id))

    def clear(self) -> None:
        """Keep none of them, nor what they might be learned from."""
        with self._lock:
            self._change(partial(self._clear, super().clear))

    def _clear(self, clear: Callable[[], None]) -> None:
        clear()
        self._tried.keep(())

    def _learn_from(self, cycles: Sequence[MemoryEntry], session_key: int | None) -> LearnedFrom:
        fresh = stretches_of(cycles)
        before = self._tried.without({entry.entry_id for entry in cycles})
        lessons = lessons_of([*(one.stretch for one in before), *fresh], self._patterns.values())
        for pattern in lessons.used.values():
            self._put(pattern)
        for pattern in lessons.learned:
            LongTermMemory.learn(self, pattern)
        old = (Tried(rest, one.session_key) for one in before for rest in one.stretch.rest())
        new = (Tried(rest, session_key) for one in fresh for rest in one.rest())
        self._tried.keep(chain(old, new))
        widened = (lessons.used[name] for name in lessons.widened)
        is_open = bool(cycles) and bool(fresh) and fresh[-1].steps[-1].cycle == cycles[-1].entry_id
        return LearnedFrom((*lessons.learned, *widened), frozenset(_open(fresh[-1]) if is_open else ()))

    def _change(self, work: Callable[[], _T]) -> _T:
        """Do something to what is kept now; once more, if others were faster."""
        with self._lock:
            if self._is_changing:
                return work()
            for _ in range(_TRIES):
                revision = self._parts.store.revision(self.namespace)
                self.refresh()
                self._is_changing = True
                try:
                    result = work()
                finally:
                    self._is_changing = False
                try:
                    if self._is_written(revision):
                        return result
                except StorageError:
                    self._take_back()
                    raise
            raise StorageBusyError(
                "others change the patterns of this namespace all the time: try again later"
            )

    def _take_back(self) -> None:
        """What could not be kept is not in sight either."""
        self._is_changing = True
        try:
            super().clear()
            for pattern in self._saved.values():
                self._put(pattern)
        finally:
            self._is_changing = False

    def _is_written(self, revision: int) -> bool:
        held = dict(self._patterns)
        changed = [self._entry(one) for name, one in held.items() if self._saved.get(name) != one]
        now = self._parts.now()
        put = (*changed, *self._tried.changed(now))
        if put and not self._parts.store.commit(self.namespace, MemoryWrite(put=put, revision=revision), now):
            return False
        gone = sorted({*(self._saved.keys() - held.keys()), *self._tried.gone()})
        if gone:
            self._parts.store.erase(self.namespace, gone)
        self._saved = held
        return True

    def _entry(self, pattern: LearnedPattern) -> NewEntry:
        now = self._parts.now()
        entry = Entry(
            id=pattern.pattern_id,
            namespace=self.namespace,
            tier=Tier.PROCEDURAL,
            kind=pattern.pattern_type,
            content=pattern.description or pattern.pattern_id,
            created_at=now,
            importance=pattern.success_rate,
            token_count=self._parts.counter.count(pattern.description),
            category=pattern.domain or None,
            valid_from=now,
            last_access_at=now,
        )
        words = [entry.content, pattern.pattern_type.replace("_", " "), pattern.domain]
        return NewEntry(entry=entry, terms=terms_for(words), details=pattern_to_dict(pattern))


def _open(stretch: Stretch) -> Iterable[str]:
    """The cycles at the end of a stretch that are part of no pattern."""
    for step, is_free in zip(reversed(stretch.steps), reversed(stretch.is_free), strict=True):
        if not is_free:
            return
        yield step.cycle
