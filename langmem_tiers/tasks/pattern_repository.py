"""Storage of learned patterns, shared by all tasks of a namespace, in its procedural tier."""

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
from langmem_tiers.errors import InvalidInputError, StorageError
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.long_term.records import MemoryWrite, NewEntry
from langmem_tiers.recall.entry_search import build_search_terms
from langmem_tiers.storage.retry_write import retry_on_conflict
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
    from langmem_tiers.tasks.models import Cycle, LearnedPattern


MAX_SEQUENCES_PER_SITE = 10
"""Maximum number of candidate sequences per site."""
MAX_CANDIDATE_STEPS = 500
"""Maximum number of steps of all candidate sequences together."""
# Maximum number of steps of a candidate sequence; the last ones are kept.
_MAX_SEQUENCE_STEPS = 100
# Maximum size of the JSON of a candidate sequence; a larger one is not kept.
_MAX_SEQUENCE_CHARACTERS = 60_000
_CANDIDATE_STATUS = {"status": "candidate"}


@dataclass(frozen=True, slots=True)
class CandidateSequence:
    """A sequence from which a pattern may be learned later, and the session of its task."""

    sequence: ActionSequence
    session_key: int | None

    @property
    def entry_id(self) -> str:
        """Id of the entry. It depends only on the first step, so it stays the same if the end is cut off."""
        return f"tried_{self.sequence.steps[0].cycle_id}"

    def to_details(self) -> dict[str, Any]:
        """Convert the candidate to the details of its entry."""
        return {**_CANDIDATE_STATUS, "session": self.session_key, **sequence_to_dict(self.sequence)}


class CandidateSequenceSet:
    """Candidate sequences of a namespace, stored next to its patterns."""

    def __init__(self, namespace: NamespacePath) -> None:
        self._namespace = namespace
        self._stored_details: dict[str, Any] = {}
        self._candidates: dict[str, CandidateSequence] = {}

    def load(self, kept: Iterable[StoredEntry]) -> Sequence[StoredEntry]:
        """Load the candidates from the stored entries and return the other entries."""
        pattern_entries: list[StoredEntry] = []
        self._stored_details, self._candidates = {}, {}
        for stored in kept:
            if stored.details.get("status") != _CANDIDATE_STATUS["status"]:
                pattern_entries.append(stored)
                continue
            # A damaged candidate is in _stored_details only, so find_removed_ids() returns it and it gets deleted.
            self._stored_details[stored.entry.id] = stored.details
            with suppress(LookupError, TypeError, ValueError, AttributeError):
                self._candidates[stored.entry.id] = CandidateSequence(
                    sequence_from_dict(stored.details), stored.details.get("session")
                )
        return pattern_entries

    def list_without(self, cycles: Container[str]) -> list[CandidateSequence]:
        """Return all candidates without the steps of the given cycles."""
        return [
            CandidateSequence(rest, candidate.session_key)
            for candidate in self._candidates.values()
            for rest in candidate.sequence.split_unlearned(cycles)
        ]

    def replace_all(self, candidates: Iterable[CandidateSequence]) -> None:
        """Replace all candidates, newest first, as far as the limits allow."""
        count_by_site: Counter[str] = Counter()
        steps = 0
        self._candidates = {}
        for candidate in sorted(candidates, key=_last_step_key, reverse=True):
            truncated = CandidateSequence(_truncate(candidate.sequence), candidate.session_key)
            site, size = truncated.sequence.site, len(truncated.sequence.steps)
            has_room = count_by_site[site] < MAX_SEQUENCES_PER_SITE and steps + size <= MAX_CANDIDATE_STEPS
            if has_room and len(json.dumps(truncated.to_details())) <= _MAX_SEQUENCE_CHARACTERS:
                count_by_site[site] += 1
                steps += size
                self._candidates[truncated.entry_id] = truncated

    def build_changed_entries(self, now: datetime) -> list[NewEntry]:
        """Return the entries of new and changed candidates."""
        return [
            NewEntry(
                entry=Entry(
                    id=name,
                    namespace=self._namespace,
                    tier=Tier.PROCEDURAL,
                    kind="tried_steps",
                    content="Steps that worked "
                    f"{f'at {candidate.sequence.site}' if candidate.sequence.site else 'once'}",
                    created_at=now,
                    importance=0.0,
                    category=candidate.sequence.site or None,
                ),
                # Candidates must not appear in searches, so they have no search terms.
                terms="",
                session_key=candidate.session_key,
                details=candidate.to_details(),
            )
            for name, candidate in self._candidates.items()
            if self._stored_details.get(name) != candidate.to_details()
        ]

    def find_removed_ids(self) -> set[str]:
        """Return the ids of stored candidates that must be deleted."""
        return self._stored_details.keys() - self._candidates.keys()


def _last_step_key(candidate: CandidateSequence) -> tuple[float, str]:
    # Ids increase with time, so they order cycles of the same moment.
    last = candidate.sequence.steps[-1]
    return last.timestamp, last.cycle_id


def _truncate(sequence: ActionSequence) -> ActionSequence:
    return ActionSequence(sequence.site, sequence.steps[-_MAX_SEQUENCE_STEPS:], is_fresh=False)


_MAX_ENTRIES = 10_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PatternLearnResult:
    """Result of learning from the cycles of a task."""

    patterns: tuple[LearnedPattern, ...]
    """New patterns, and known patterns with additional placeholders."""
    open_cycle_ids: frozenset[str]
    """Ids of the last cycles, if later cycles may complete a pattern with them. Pass these cycles again."""


class PatternRepository(PatternMemory):
    """Learned patterns of a namespace, stored as entries of its procedural tier.

    Recent successful sequences that are not a pattern yet are stored too, as candidates: steps that are performed only
    once per task become a pattern when another task repeats them. Threads can share an instance, and several processes
    can change the same namespace.

    Args:
        max_patterns: Maximum number of patterns, see ``PatternMemory``.
        now: Returns the current time in seconds since 1970.
        dependencies: Dependencies of the long-term tiers.
        namespace: Namespace of the patterns.
    """

    def __init__(
        self,
        max_patterns: int,
        now: Callable[[], float],
        dependencies: LongTermDependencies,
        namespace: NamespacePath,
    ) -> None:
        super().__init__(max_patterns, now)
        self.namespace = namespace
        self._dependencies = dependencies
        self._lock = threading.RLock()
        self._is_changing = False
        self._saved_patterns: dict[str, LearnedPattern] = {}
        self._candidates = CandidateSequenceSet(namespace)
        self.refresh()

    @property
    def patterns(self) -> list[LearnedPattern]:
        """All patterns in the order in which they were learned."""
        with self._lock:
            return super().patterns

    def get_patterns_for_domain(self, domain: str) -> list[LearnedPattern]:
        """Return the patterns of a site, best first; for an empty domain, those without a site."""
        with self._lock:
            return super().get_patterns_for_domain(domain)

    def refresh(self) -> None:
        """Load the patterns that other processes of the namespace have changed."""
        with self._lock:
            kept = self._dependencies.store.list_entries(
                self.namespace, Tier.PROCEDURAL, EntryFilters(), limit=_MAX_ENTRIES
            )
            # While _is_changing is set, the overridden methods that PatternMemory calls work in memory only.
            before, self._is_changing = self._is_changing, True
            try:
                super().clear()
                for stored in reversed(self._candidates.load(kept)):
                    # The procedural tier may contain entries of other origin, which are not patterns.
                    with suppress(InvalidInputError):
                        super().learn(pattern_from_dict(stored.details))
            finally:
                self._is_changing = before
            # Patterns beyond max_patterns are neither visible nor "saved" here, so they are not deleted: another
            # process with a higher maximum may use them.
            self._saved_patterns = dict(self._patterns)

    def learn(self, pattern: LearnedPattern) -> None:
        """Store a pattern."""
        self._retry_change(partial(super().learn, pattern))

    def learn_from(self, cycles: Sequence[Cycle], session_key: int | None = None) -> PatternLearnResult:
        """Learn patterns from cycles and from candidates of earlier tasks, and count uses of known patterns.

        Args:
            cycles: Cycles of a task in order. Pass each cycle only once, unless it was returned as open.
            session_key: Session of the task. Candidates from the cycles are deleted with it.
        """
        return self._retry_change(partial(self._learn_from, cycles, session_key))

    def record_usage(self, pattern_id: str, *, success: bool) -> LearnedPattern:
        """Count a use of a pattern and return the updated pattern."""
        return self._retry_change(partial(super().record_usage, pattern_id, success=success))

    def remove_pattern(self, pattern_id: str) -> bool:
        """Delete a pattern for all tasks of the namespace; return False if it does not exist."""
        return self._retry_change(partial(super().remove_pattern, pattern_id))

    def clear(self) -> None:
        """Delete all patterns and candidates of the namespace."""
        with self._lock:
            self._retry_change(partial(self._clear, super().clear))

    def _clear(self, clear: Callable[[], None]) -> None:
        clear()
        self._candidates.replace_all(())

    def _learn_from(self, cycles: Sequence[Cycle], session_key: int | None) -> PatternLearnResult:
        fresh = find_sequences(cycles)
        # Open cycles are passed again; leave them out of the candidates, or they would count twice.
        earlier = self._candidates.list_without({entry.entry_id for entry in cycles})
        result = learn_from_sequences(
            [*(candidate.sequence for candidate in earlier), *fresh], self._patterns.values()
        )
        for pattern in result.used_patterns.values():
            self._put(pattern)
        for pattern in result.new_patterns:
            PatternMemory.learn(self, pattern)
        old = (
            CandidateSequence(rest, candidate.session_key)
            for candidate in earlier
            for rest in candidate.sequence.split_unlearned()
        )
        new = (
            CandidateSequence(rest, session_key) for sequence in fresh for rest in sequence.split_unlearned()
        )
        self._candidates.replace_all(chain(old, new))
        widened = (result.used_patterns[name] for name in result.widened_ids)
        # The last sequence is open if it reaches to the last cycle: the next cycle may continue it.
        is_open = bool(cycles) and bool(fresh) and fresh[-1].steps[-1].cycle_id == cycles[-1].entry_id
        return PatternLearnResult(
            (*result.new_patterns, *widened), frozenset(_find_open_cycles(fresh[-1]) if is_open else ())
        )

    def _retry_change(self, work: Callable[[], _T]) -> _T:
        """Apply a change to the stored patterns; reload and repeat it if another process was faster."""
        with self._lock:
            # A method of PatternMemory has called an overridden method; the outer call writes the change.
            if self._is_changing:
                return work()
            (result,) = retry_on_conflict(
                lambda: self._try_change(work),
                "the patterns of this namespace are being modified concurrently: try again later; "
                "nothing was written",
            )
            return result

    def _try_change(self, work: Callable[[], _T]) -> tuple[_T] | None:
        # Read the revision before the entries: a change in between makes the commit fail, and is not lost.
        revision = self._dependencies.store.get_revision(self.namespace)
        self.refresh()
        self._is_changing = True
        try:
            result = work()
        finally:
            self._is_changing = False
        try:
            return (result,) if self._try_write(revision) else None  # a tuple, because the result may be None
        except StorageError:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        """Restore the patterns of the last successful load or write."""
        self._is_changing = True
        try:
            super().clear()
            for pattern in self._saved_patterns.values():
                self._put(pattern)
        finally:
            self._is_changing = False

    def _try_write(self, revision: int) -> bool:
        patterns = dict(self._patterns)
        changed = [
            self._to_entry(pattern)
            for name, pattern in patterns.items()
            if self._saved_patterns.get(name) != pattern
        ]
        now = self._dependencies.now()
        put = (*changed, *self._candidates.build_changed_entries(now))
        if put and not self._dependencies.store.commit(
            self.namespace, MemoryWrite(put=put, revision=revision), now
        ):
            return False
        # Delete after the commit: if the process dies in between, an entry too many remains, but none is lost.
        removed_ids = sorted(
            {*(self._saved_patterns.keys() - patterns.keys()), *self._candidates.find_removed_ids()}
        )
        if removed_ids:
            self._dependencies.store.delete(self.namespace, removed_ids)
        self._saved_patterns = patterns
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


def _find_open_cycles(sequence: ActionSequence) -> Iterable[str]:
    """Yield the ids of the last cycles of a sequence that do not belong to a pattern."""
    for step, is_free in zip(reversed(sequence.steps), reversed(sequence.free_flags), strict=True):
        if not is_free:
            return
        yield step.cycle_id
