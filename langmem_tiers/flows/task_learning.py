"""What a task teaches: its cycles are looked at once, when it ends or when somebody asks."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.tasks import LearnedPattern, MemoryEntry
    from langmem_tiers.flows.session import Session
    from langmem_tiers.flows.task_journal import TaskJournal
    from langmem_tiers.flows.task_patterns import TaskPatterns

LEARNED_NOTE = "learned"
"""The kind of the note that says up to which cycle a task was learned from."""
_LEARNED_FROM = 500  # cycles that are looked at, at once


class TaskLearning:
    """Learns from the cycles of one task, from each of them once.

    Args:
        patterns: Where it is learned to.
        journal: Of the task: how far it was learned from is noted there.
        open_session: Gets a session by its name.
    """

    def __init__(
        self,
        patterns: TaskPatterns,
        journal: TaskJournal,
        open_session: Callable[[NamespacePath, str], Session],
    ) -> None:
        self._patterns = patterns
        self._journal = journal
        self._open_session = open_session
        self._cycles: deque[MemoryEntry] = deque(maxlen=_LEARNED_FROM)
        self._is_news = False

    def take(self, entry: MemoryEntry) -> None:
        """See a cycle that was written down, now or in another process."""
        self._cycles.append(replace(entry, observation=None))
        self._is_news = True

    def replay(self, last: object) -> None:
        """Pass over the cycles up to that one: they were learned from."""
        if any(entry.entry_id == last for entry in self._cycles):
            while self._cycles.popleft().entry_id != last:
                pass

    def learn(self) -> list[LearnedPattern]:
        """Learn from what was done since the last time; what is new, or has more placeholders than before.

        What worked last stays in sight until it is part of a pattern or something fails: it may go on.
        """
        if not self._is_news:
            return []
        cycles = list(self._cycles)
        session = self._open_session(self._patterns.namespace, self._journal.task)
        found = self._patterns.learn_from(cycles, session.info().key)
        settled = [entry.entry_id for entry in cycles if entry.entry_id not in found.open_cycles]
        if settled:
            self._journal.note(LEARNED_NOTE, settled[-1])
            self.replay(settled[-1])
        self._is_news = False
        return list(found.patterns)
