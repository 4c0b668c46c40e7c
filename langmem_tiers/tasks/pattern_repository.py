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
from langmem_tiers.recall.entry_search import build_search_terms
from langmem_tiers.tasks.action_sequences import (
    ActionSequence,
    find_sequences,
    sequence_from_dict,
    sequence_to_dict,
)
from langmem_tiers.tasks.pattern_learning import learn_from_sequences
from langmem_tiers.tasks.patterns import PatternMemory, pattern_from_dict, pattern_to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.tasks.models import LearnedPattern, MemoryEntry


MAX_SEQUENCES_PER_SITE = 10
"""Stretches of one site that are kept, or of none."""
MAX_CANDIDATE_STEPS = 500
"""Steps of all of them together."""
_MAX_SEQUENCE_STEPS = 100  # steps of one of them: its last
_MAX_SEQUENCE_CHARACTERS = 60_000  # of one of them
_CANDIDATE_STATUS = {"status": "candidate"}


@dataclass(frozen=True, slots=True)
class CandidateSequence:
    """A stretch, and the session of the task that it is from."""

    sequence: ActionSequence
    session_key: int | None

    @property
    def entry_id(self) -> str:
        """The id of its entry: that of no other, whatever is cut off behind its first step."""
        return f"tried_{self.sequence.steps[0].cycle_id}"

    def to_details(self) -> dict[str, Any]:
        """As it is kept."""
        return {**_CANDIDATE_STATUS, "session": self.session_key, **sequence_to_dict(self.sequence)}


class CandidateSequenceSet:
    """The stretches of a namespace, beside its patterns."""

    def __init__(self, namespace: NamespacePath) -> None:
        self._namespace = namespace
        self._stored_details: dict[str, Any] = {}
        self._candidates: dict[str, CandidateSequence] = {}

    def load(self, kept: Iterable[StoredEntry]) -> Sequence[StoredEntry]:
        """Take them out of all that is kept; the others."""
        others: list[StoredEntry] = []
        self._stored_details, self._candidates = {}, {}
        for one in kept:
            if one.details.get("status") != _CANDIDATE_STATUS["status"]:
                others.append(one)
                continue
            self._stored_details[one.entry.id] = one.details
            with suppress(LookupError, TypeError, ValueError, AttributeError):  # what is damaged is dropped
                self._candidates[one.entry.id] = CandidateSequence(
                    sequence_from_dict(one.details), one.details.get("session")
                )
        return others

    def list_without(self, cycles: Container[str]) -> list[CandidateSequence]:
        """All of them, but for what some cycles did."""
        return [
            CandidateSequence(rest, one.session_key)
            for one in self._candidates.values()
            for rest in one.sequence.split_unlearned(cycles)
        ]

    def replace_all(self, tried: Iterable[CandidateSequence]) -> None:
        """Keep these in place of all, as far as there is room: the newest first."""
        at_site: Counter[str] = Counter()
        steps = 0
        self._candidates = {}
        for one in sorted(tried, key=_last_step_key, reverse=True):
            cut = CandidateSequence(_truncate(one.sequence), one.session_key)
            site, size = cut.sequence.site, len(cut.sequence.steps)
            has_room = at_site[site] < MAX_SEQUENCES_PER_SITE and steps + size <= MAX_CANDIDATE_STEPS
            if has_room and len(json.dumps(cut.to_details())) <= _MAX_SEQUENCE_CHARACTERS:
                at_site[site] += 1
                steps += size
                self._candidates[cut.entry_id] = cut

    def build_changed_entries(self, now: datetime) -> list[NewEntry]:
        """What has to be written."""
        return [
            NewEntry(
                entry=Entry(
                    id=name,
                    namespace=self._namespace,
                    tier=Tier.PROCEDURAL,
                    kind="tried_steps",
                    content=f"Steps that worked {f'at {one.sequence.site}' if one.sequence.site else 'once'}",
                    created_at=now,
                    importance=0.0,
                    category=one.sequence.site or None,
                ),
                terms="",  # nobody looks for them by words
                session_key=one.session_key,
                details=one.to_details(),
            )
            for name, one in self._candidates.items()
            if self._stored_details.get(name) != one.to_details()
        ]

    def find_removed_ids(self) -> set[str]:
        """Ids of what has to be erased."""
        return self._stored_details.keys() - self._candidates.keys()


def _last_step_key(one: CandidateSequence) -> tuple[float, str]:
    last = one.sequence.steps[-1]
    return last.timestamp, last.cycle_id  # at the same moment, the later cycle has the later id


def _truncate(stretch: ActionSequence) -> ActionSequence:
    return ActionSequence(stretch.site, stretch.steps[-_MAX_SEQUENCE_STEPS:], is_fresh=False)


_MAX_ENTRIES = 10_000
_MAX_ATTEMPTS = 20  # until it is said that others change the patterns all the time
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PatternLearnResult:
    """What became of some cycles."""

    patterns: tuple[LearnedPattern, ...]
    """Those that are new, and those that have more placeholders than before."""
    open_cycle_ids: frozenset[str]
    """Ids of the last cycles, if they may go on to be a pattern: to be handed in again with those that follow."""


class PatternRepository(PatternMemory):
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
        self,
        max_patterns: int,
        now: Callable[[], float],
        parts: LongTermDependencies,
        namespace: NamespacePath,
    ) -> None:
        super().__init__(max_patterns, now)
        self.namespace = namespace
        self._dependencies = parts
        self._lock = threading.RLock()
        self._is_changing = False
        self._saved_patterns: dict[str, LearnedPattern] = {}
        self._candidates = CandidateSequenceSet(namespace)
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
            kept = self._dependencies.store.list_entries(
                self.namespace, Tier.PROCEDURAL, EntryFilters(), limit=_MAX_ENTRIES
            )
            before, self._is_changing = self._is_changing, True
            try:
                super().clear()
                for one in reversed(self._candidates.load(kept)):
                    with suppress(InvalidInputError):  # a procedure that somebody else stored is no pattern
                        super().learn(pattern_from_dict(one.details))
            finally:
                self._is_changing = before
            # What a smaller cap leaves out is not in sight here, and stays for others.
            self._saved_patterns = dict(self._patterns)

    def learn(self, pattern: LearnedPattern) -> None:
        """Keep steps that worked."""
        self._retry_change(partial(super().learn, pattern))

    def learn_from(self, cycles: Sequence[MemoryEntry], session_key: int | None = None) -> PatternLearnResult:
        """Learn what worked more than once, here and in the tasks before, and count uses of what is known.

        Args:
            cycles: Of one task in their order, each handed in only once unless it was left open.
            session_key: The session of the task: what is kept of it for later goes with it.
        """
        return self._retry_change(partial(self._learn_from, cycles, session_key))

    def record_usage(self, pattern_id: str, *, success: bool) -> LearnedPattern:
        """Count how it went."""
        return self._retry_change(partial(super().record_usage, pattern_id, success=success))

    def remove_pattern(self, pattern_id: str) -> bool:
        """Keep it no longer, whoever learned it."""
        return self._retry_change(partial(super().remove_pattern, pattern_id))

    def clear(self) -> None:
        """Keep none of them, nor what they might be learned from."""
        with self._lock:
            self._retry_change(partial(self._clear, super().clear))

    def _clear(self, clear: Callable[[], None]) -> None:
        clear()
        self._candidates.replace_all(())

    def _learn_from(self, cycles: Sequence[MemoryEntry], session_key: int | None) -> PatternLearnResult:
        fresh = find_sequences(cycles)
        before = self._candidates.list_without({entry.entry_id for entry in cycles})
        lessons = learn_from_sequences([*(one.sequence for one in before), *fresh], self._patterns.values())
        for pattern in lessons.used_patterns.values():
            self._put(pattern)
        for pattern in lessons.new_patterns:
            PatternMemory.learn(self, pattern)
        old = (
            CandidateSequence(rest, one.session_key)
            for one in before
            for rest in one.sequence.split_unlearned()
        )
        new = (CandidateSequence(rest, session_key) for one in fresh for rest in one.split_unlearned())
        self._candidates.replace_all(chain(old, new))
        widened = (lessons.used_patterns[name] for name in lessons.widened_ids)
        is_open = bool(cycles) and bool(fresh) and fresh[-1].steps[-1].cycle_id == cycles[-1].entry_id
        return PatternLearnResult(
            (*lessons.new_patterns, *widened), frozenset(_find_open_cycles(fresh[-1]) if is_open else ())
        )

    def _retry_change(self, work: Callable[[], _T]) -> _T:
        """Do something to what is kept now; once more, if others were faster."""
        with self._lock:
            if self._is_changing:
                return work()
            for _ in range(_MAX_ATTEMPTS):
                revision = self._dependencies.store.get_revision(self.namespace)
                self.refresh()
                self._is_changing = True
                try:
                    result = work()
                finally:
                    self._is_changing = False
                try:
                    if self._try_write(revision):
                        return result
                except StorageError:
                    self._roll_back()
                    raise
            raise StorageBusyError(
                "others change the patterns of this namespace all the time: try again later"
            )

    def _roll_back(self) -> None:
        """What could not be kept is not in sight either."""
        self._is_changing = True
        try:
            super().clear()
            for pattern in self._saved_patterns.values():
                self._put(pattern)
        finally:
            self._is_changing = False

    def _try_write(self, revision: int) -> bool:
        held = dict(self._patterns)
        changed = [self._to_entry(one) for name, one in held.items() if self._saved_patterns.get(name) != one]
        now = self._dependencies.now()
        put = (*changed, *self._candidates.build_changed_entries(now))
        if put and not self._dependencies.store.commit(
            self.namespace, MemoryWrite(put=put, revision=revision), now
        ):
            return False
        gone = sorted({*(self._saved_patterns.keys() - held.keys()), *self._candidates.find_removed_ids()})
        if gone:
            self._dependencies.store.delete(self.namespace, gone)
        self._saved_patterns = held
        return True

    def _to_entry(self, pattern: LearnedPattern) -> NewEntry:
        now = self._dependencies.now()
        entry = Entry(
            id=pattern.pattern_id,
            namespace=self.namespace,
            tier=Tier.PROCEDURAL,
            kind=pattern.pattern_type,
            content=pattern.description or pattern.pattern_id,
            created_at=now,
            importance=pattern.success_rate,
            token_count=self._dependencies.token_counter.count(pattern.description),
            category=pattern.domain or None,
            valid_from=now,
            last_access_at=now,
        )
        words = [entry.content, pattern.pattern_type.replace("_", " "), pattern.domain]
        return NewEntry(entry=entry, terms=build_search_terms(words), details=pattern_to_dict(pattern))


def _find_open_cycles(stretch: ActionSequence) -> Iterable[str]:
    """The cycles at the end of a stretch that are part of no pattern."""
    for step, is_free in zip(reversed(stretch.steps), reversed(stretch.free_flags), strict=True):
        if not is_free:
            return
        yield step.cycle_id
