"""The parts of a task's memory that write their changes down, and are made again from what was written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.core.entries import Entry, Tier
from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.long_term import EntryFilters
from langmem_tiers.core.memory_store import MemoryWrite, NewEntry
from langmem_tiers.core.tasks import Action, Thought
from langmem_tiers.retrieval.memory_search import terms_for
from langmem_tiers.tiers.task.context_store import EXTRACTION_SECONDS, ContextStore
from langmem_tiers.tiers.task.cycles import action_from_dict, action_to_dict
from langmem_tiers.tiers.task.navigation import snapshot_from_dict, snapshot_to_dict
from langmem_tiers.tiers.task.page_maps import page_key
from langmem_tiers.tiers.task.patterns import LongTermMemory, pattern_from_dict, pattern_to_dict
from langmem_tiers.tiers.task.working import WorkingMemory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.tasks import LearnedPattern, StateSnapshot
    from langmem_tiers.tiers.memory_parts import LastingParts
    from langmem_tiers.tiers.task.context_store import Extraction

Note: TypeAlias = Callable[[str, object], None]
"""Writes a change down: its kind, and the value as plain JSON."""
_ALL = 10_000


class TaskWorkingMemory(WorkingMemory):
    """Working memory that survives the process; its changes are made one at a time."""

    def __init__(
        self, token_budget: int, now: Callable[[], float], note: Note, lock: threading.RLock
    ) -> None:
        self._note: Note | None = None  # what is cleared before there is anything is no change
        self._lock = lock
        super().__init__(token_budget, now)
        self._note = note

    def clear(self) -> None:
        """Forget all of it; the budget stays."""
        with self._lock:
            super().clear()
            if self._note is not None:
                self._note("no working memory", None)

    def set_goal(self, goal: str) -> None:
        """What the task is."""
        with self._lock:
            super().set_goal(goal)
            self._write("goal", goal)

    def set_active(self, thought: Thought | None = None, action: Action | None = None) -> None:
        """What the agent thinks and is about to do."""
        with self._lock:
            super().set_active(thought, action)
            told = None if thought is None else thought.content
            self._write("active", [told, None if action is None else action_to_dict(action)])

    def clear_active(self) -> None:
        """Say that the action is done, or given up."""
        with self._lock:
            super().clear_active()
            self._write("active", [None, None])

    def record_navigation(self, snapshot: StateSnapshot) -> None:
        """A state to go back to."""
        with self._lock:
            super().record_navigation(snapshot)
            self._write("navigation", snapshot_to_dict(snapshot))

    def backtrack(self, steps: int = 1) -> StateSnapshot | None:
        """Go back along the path."""
        with self._lock:
            found = super().backtrack(steps)
            if found is not None:
                self._write("backtrack", steps)
            return found

    def set_scratch(self, key: str, value: object) -> None:
        """Keep something for later."""
        with self._lock:
            super().set_scratch(key, value)
            self._write("scratch", [key, value])

    def delete_scratch(self, key: str) -> bool:
        """Keep it no longer."""
        with self._lock:
            there = super().delete_scratch(key)
            if there:
                self._write("no scratch", key)
            return there

    def store_page_map(self, url: str, page_map: object) -> None:
        """What is where on a page."""
        with self._lock:
            super().store_page_map(url, page_map)
            self._write("page map", [url, self._pages.to_dict()[page_key(url)]])

    def _write(self, kind: str, value: object) -> None:
        if self._note is not None:
            self._note(kind, value)


class TaskContextStore(ContextStore):
    """A context store that survives the process; its changes are made one at a time."""

    def __init__(self, now: Callable[[], float], note: Note, lock: threading.RLock) -> None:
        self._write = note
        self._lock = lock
        super().__init__(now)

    def set_user_context(self, context: Mapping[str, Any]) -> None:
        """What the user said about the task."""
        with self._lock:
            super().set_user_context(context)
            self._write("user context", dict(context))

    def add_inferred(self, key: str, value: object, source: str = "") -> None:
        """What was found out on the way."""
        with self._lock:
            super().add_inferred(key, value, source)
            self._write("inferred", [key, value, source])

    def cache_extraction(self, key: str, data: object) -> None:
        """Keep what was extracted."""
        with self._lock:
            super().cache_extraction(key, data)
            self._write("extraction", [key, data])

    def hold_extraction(self, key: str, data: object) -> None:
        """Keep what was extracted, and is written down with its cycle."""
        with self._lock:
            super().cache_extraction(key, data)

    def get_cached_extraction(self, key: str, max_age_seconds: float = EXTRACTION_SECONDS) -> Any:  # noqa: ANN401 - any JSON value
        """What was extracted, unless it is older than that; what is too old for anybody is dropped."""
        with self._lock:
            was_there = key in self._extractions
            found = super().get_cached_extraction(key, max_age_seconds)
            if was_there and key not in self._extractions:
                self._write("no extraction", key)
            return found

    def drop_extraction(self, key: str) -> None:
        """Keep it no longer."""
        with self._lock:
            self._extractions.pop(key, None)

    def extractions(self, max_age_seconds: float | None = None) -> list[Extraction]:
        """What is held, the newest first."""
        with self._lock:
            return super().extractions(max_age_seconds)

    def clear(self, *, keep_user: bool = True) -> None:
        """Forget what was found out and extracted, and what the user said unless it is kept."""
        with self._lock:
            super().clear(keep_user=keep_user)
            self._write("no context", keep_user)

    def _all(self) -> dict[str, Any]:
        with self._lock:
            return super()._all()


class TaskPatterns(LongTermMemory):
    """Learned patterns, shared by all tasks of a namespace: entries of its procedural tier."""

    def __init__(
        self, max_patterns: int, now: Callable[[], float], parts: LastingParts, namespace: NamespacePath
    ) -> None:
        super().__init__(max_patterns, now)
        self._parts = parts
        self._namespace = namespace
        self._lock = threading.RLock()
        self._is_saving = True
        self._saved: dict[str, LearnedPattern] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take over what others of the namespace learned meanwhile."""
        with self._saved_later():
            super().clear()
            kept = self._parts.store.page(self._namespace, Tier.PROCEDURAL, EntryFilters(), limit=_ALL)
            for one in reversed(kept):
                with suppress(InvalidInputError):  # a procedure that somebody else stored is no pattern
                    super().learn(pattern_from_dict(one.details))
            # What a smaller cap leaves out is not in sight here, and stays for others.
            self._saved = dict(self._patterns)

    def learn(self, pattern: LearnedPattern) -> None:
        """Keep steps that worked."""
        with self._saved_later():
            self.refresh()
            super().learn(pattern)
        self._save()

    def record_usage(self, pattern_id: str, *, success: bool) -> LearnedPattern:
        """Count how it went."""
        with self._saved_later():
            self.refresh()
            used = super().record_usage(pattern_id, success=success)
        self._save()
        return used

    def remove_pattern(self, pattern_id: str) -> bool:
        """Keep it no longer."""
        there = super().remove_pattern(pattern_id)
        self._save()
        return there

    def clear(self) -> None:
        """Keep none of them."""
        with self._saved_later():
            self.refresh()
            super().clear()
        self._save()

    @contextmanager
    def _saved_later(self) -> Iterator[None]:
        with self._lock:
            before, self._is_saving = self._is_saving, False
            try:
                yield
            finally:
                self._is_saving = before

    def _save(self) -> None:
        with self._lock:
            if self._is_saving:
                self._write_changes()

    def _write_changes(self) -> None:
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


def replay(working: WorkingMemory, context: TaskContextStore, kind: str, value: Any) -> bool:  # noqa: ANN401 - JSON
    """Do again what was written down; whether it was a change of these parts."""
    doing: dict[str, Callable[[], object]] = {
        "goal": lambda: working.set_goal(value),
        "active": lambda: working.set_active(*_active(*value)),
        "no working memory": working.clear,
        "navigation": lambda: working.record_navigation(snapshot_from_dict(value)),
        "backtrack": lambda: working.backtrack(value),
        "scratch": lambda: working.set_scratch(*value),
        "no scratch": lambda: working.delete_scratch(value),
        "page map": lambda: working.store_page_map(*value),
        "user context": lambda: context.set_user_context(value),
        "inferred": lambda: context.add_inferred(*value),
        "extraction": lambda: context.cache_extraction(*value),
        "no extraction": lambda: context.drop_extraction(value),
        "no context": lambda: context.clear(keep_user=bool(value)),
    }
    if kind in doing:
        doing[kind]()
    return kind in doing


def _active(thought: str | None, action: object) -> tuple[Thought | None, Action | None]:
    return None if thought is None else Thought(thought), None if action is None else action_from_dict(action)
