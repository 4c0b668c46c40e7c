"""The parts of a task's memory that write their changes down, and are made again from what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers.core.entries import Entry, Tier
from langmem_tiers.core.long_term import EntryFilters
from langmem_tiers.core.memory_store import MemoryWrite, NewEntry
from langmem_tiers.retrieval.memory_search import terms_for
from langmem_tiers.tiers.task.context_store import ContextStore
from langmem_tiers.tiers.task.navigation import snapshot_from_dict, snapshot_to_dict
from langmem_tiers.tiers.task.patterns import LongTermMemory, pattern_from_dict, pattern_to_dict
from langmem_tiers.tiers.task.working import WorkingMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.tasks import LearnedPattern, StateSnapshot
    from langmem_tiers.tiers.memory_parts import LastingParts

_ALL = 10_000


class TaskWorkingMemory(WorkingMemory):
    """Working memory that survives the process."""

    def __init__(
        self, token_budget: int, now: Callable[[], float], note: Callable[[str, object], None]
    ) -> None:
        self._note = note
        super().__init__(token_budget, now)

    def set_goal(self, goal: str) -> None:
        """What the task is."""
        super().set_goal(goal)
        self._note("goal", goal)

    def record_navigation(self, snapshot: StateSnapshot) -> None:
        """A state to go back to."""
        super().record_navigation(snapshot)
        self._note("navigation", snapshot_to_dict(snapshot))

    def backtrack(self, steps: int = 1) -> StateSnapshot | None:
        """Go back along the path."""
        found = super().backtrack(steps)
        if found is not None:
            self._note("backtrack", steps)
        return found

    def set_scratch(self, key: str, value: object) -> None:
        """Keep something for later."""
        super().set_scratch(key, value)
        self._note("scratch", [key, value])

    def delete_scratch(self, key: str) -> bool:
        """Keep it no longer."""
        there = super().delete_scratch(key)
        if there:
            self._note("no scratch", key)
        return there

    def store_page_map(self, url: str, page_map: object) -> None:
        """What is where on a page."""
        super().store_page_map(url, page_map)
        self._note("page map", [url, page_map])


class TaskContextStore(ContextStore):
    """A context store that survives the process."""

    def __init__(self, now: Callable[[], float], note: Callable[[str, object], None]) -> None:
        self._write = note
        super().__init__(now)

    def set_user_context(self, context: Mapping[str, Any]) -> None:
        """What the user said about the task."""
        super().set_user_context(context)
        self._write("user context", dict(context))

    def add_inferred(self, key: str, value: object, source: str = "") -> None:
        """What was found out on the way."""
        super().add_inferred(key, value, source)
        self._write("inferred", [key, value, source])

    def cache_extraction(self, key: str, data: object) -> None:
        """Keep what was extracted."""
        super().cache_extraction(key, data)
        self._write("extraction", [key, data])


class TaskPatterns(LongTermMemory):
    """Learned patterns, shared by all tasks of a namespace: entries of its procedural tier."""

    def __init__(
        self, max_patterns: int, now: Callable[[], float], parts: LastingParts, namespace: NamespacePath
    ) -> None:
        super().__init__(max_patterns, now)
        self._parts = parts
        self._namespace = namespace
        kept = parts.store.page(namespace, Tier.PROCEDURAL, EntryFilters(), limit=_ALL)
        self._saved = {one.entry.id: pattern_from_dict(one.details) for one in reversed(kept)}
        for pattern in self._saved.values():
            super().learn(pattern)

    def learn(self, pattern: LearnedPattern) -> None:
        """Keep steps that worked."""
        super().learn(pattern)
        self._save()

    def record_usage(self, pattern_id: str, *, success: bool) -> LearnedPattern:
        """Count how it went."""
        used = super().record_usage(pattern_id, success=success)
        self._save()
        return used

    def remove_pattern(self, pattern_id: str) -> bool:
        """Keep it no longer."""
        there = super().remove_pattern(pattern_id)
        if hasattr(self, "_saved"):
            self._save()
        return there

    def _save(self) -> None:
        held = {pattern.pattern_id: pattern for pattern in self.patterns}
        changed = [one for name, one in held.items() if self._saved.get(name) != one]
        gone = self._saved.keys() - held.keys()
        if changed:
            put = tuple(self._entry(pattern) for pattern in changed)
            self._parts.store.commit(self._namespace, MemoryWrite(put=put), self._parts.now())
        if gone:
            self._parts.store.erase(self._namespace, sorted(gone))
        self._saved = held

    def _entry(self, pattern: LearnedPattern) -> NewEntry:
        now = self._parts.now()
        entry = Entry(
            id=pattern.pattern_id,
            namespace=self._namespace,
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


def replay(working: WorkingMemory, context: ContextStore, kind: str, value: Any) -> bool:  # noqa: ANN401 - JSON
    """Do again what was written down; whether it was a change of these parts."""
    doing: dict[str, Callable[[], object]] = {
        "goal": lambda: working.set_goal(value),
        "navigation": lambda: working.record_navigation(snapshot_from_dict(value)),
        "backtrack": lambda: working.backtrack(value),
        "scratch": lambda: working.set_scratch(*value),
        "no scratch": lambda: working.delete_scratch(value),
        "page map": lambda: working.store_page_map(*value),
        "user context": lambda: context.set_user_context(value),
        "inferred": lambda: context.add_inferred(*value),
        "extraction": lambda: context.cache_extraction(*value),
    }
    if kind in doing:
        doing[kind]()
    return kind in doing
