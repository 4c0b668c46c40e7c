"""The parts of a task's memory that write their changes down, and are made again from what was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.lock_wrapper import synchronize_methods
from langmem_tiers.tasks.context_store import MAX_EXTRACTION_AGE_SECONDS, TaskContext
from langmem_tiers.tasks.cycles import RecentCycles, action_from_dict, action_to_dict
from langmem_tiers.tasks.guard import Guard
from langmem_tiers.tasks.models import AgentAction, Thought
from langmem_tiers.tasks.navigation import snapshot_from_dict, snapshot_to_dict
from langmem_tiers.tasks.page_layouts import build_page_key
from langmem_tiers.tasks.working_state import WorkingState

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Mapping

    from langmem_tiers.tasks.models import StateSnapshot

NoteWriter: TypeAlias = Callable[[str, object], None]
"""Writes a change down: its kind, and the value as plain JSON."""


@synchronize_methods
class JournaledRecentCycles(RecentCycles):
    """The newest cycles of a task; each is written down by itself before it comes here."""

    def __init__(self, max_entries: int, note: NoteWriter, lock: threading.RLock) -> None:
        self._lock = lock
        self._write_note: NoteWriter | None = None  # what is cleared before there is anything is no change
        super().__init__(max_entries)
        self._write_note = note

    def clear(self) -> None:
        """Forget all, failures and frequencies included."""
        if self._write_note is not None:
            self._write_note("no short term", None)
        super().clear()


@synchronize_methods
class JournaledGuard(Guard):
    """The guard of a task; what it was answered survives the process."""

    def __init__(self, exempt: Collection[str], note: NoteWriter, lock: threading.RLock) -> None:
        self._lock = lock
        self._write_note: NoteWriter | None = None
        super().__init__(exempt=exempt)
        self._write_note = note

    def reset(self) -> None:
        """Forget everything."""
        if self._write_note is not None:
            self._write_note("no guard", None)
        super().reset()

    def answer(self, reason: str) -> bool:
        """Lift the blocks for a reason."""
        if not self.would_accept(reason):
            return False
        if self._write_note is not None:
            self._write_note("answer", str(reason))
        return super().answer(reason)


@synchronize_methods
class JournaledWorkingState(WorkingState):
    """Working memory that survives the process: a change is tried, then written down, then made."""

    def __init__(
        self, token_budget: int, now: Callable[[], float], note: NoteWriter, lock: threading.RLock
    ) -> None:
        self._lock = lock
        self._write_note: NoteWriter | None = None
        super().__init__(token_budget, now)
        self._write_note = note

    def clear(self) -> None:
        """Forget all of it; the budget stays."""
        if self._write_note is not None:
            self._write_note("no working memory", None)
        super().clear()

    def set_goal(self, goal: str) -> None:
        """What the task is."""
        self._make_trial().set_goal(goal)
        self._record_change("goal", goal)
        super().set_goal(goal)

    def set_active(self, thought: Thought | None = None, action: AgentAction | None = None) -> None:
        """What the agent thinks and is about to do."""
        self._make_trial().set_active(thought, action)
        told = None if thought is None else thought.content
        self._record_change("active", [told, None if action is None else action_to_dict(action)])
        super().set_active(thought, action)

    def clear_active(self) -> None:
        """Say that the action is done, or given up."""
        self._record_change("active", [None, None])
        super().clear_active()

    def record_navigation(self, snapshot: StateSnapshot) -> None:
        """A state to go back to."""
        self._make_trial().record_navigation(snapshot)
        self._record_change("navigation", snapshot_to_dict(snapshot))
        super().record_navigation(snapshot)

    def backtrack(self, steps: int = 1) -> StateSnapshot | None:
        """Go back along the path."""
        if check_whole(steps, 1, "steps") < len(self.get_navigation_history()):
            self._record_change("backtrack", steps)
        return super().backtrack(steps)

    def set_scratch(self, key: str, value: object) -> None:
        """Keep something for later."""
        self._make_trial().set_scratch(key, value)
        self._record_change("scratch", [key, value])
        super().set_scratch(key, value)

    def delete_scratch(self, key: str) -> bool:
        """Keep it no longer."""
        if key in self.scratch_keys:
            self._record_change("no scratch", key)
        return super().delete_scratch(key)

    def store_page_map(self, url: str, page_map: object) -> None:
        """What is where on a page."""
        tried = self._make_trial()
        tried.store_page_map(url, page_map)
        self._record_change("page map", [url, tried.to_dict()["page_maps"][build_page_key(url)]])
        super().store_page_map(url, page_map)

    def _make_trial(self) -> WorkingState:
        return WorkingState(self.token_budget, self._now)

    def _record_change(self, kind: str, value: object) -> None:
        if self._write_note is not None:
            self._write_note(kind, value)


@synchronize_methods
class JournaledTaskContext(TaskContext):
    """A context store that survives the process: a change is tried, then written down, then made."""

    def __init__(self, now: Callable[[], float], note: NoteWriter, lock: threading.RLock) -> None:
        self._write_note = note
        self._lock = lock
        super().__init__(now)

    def set_user_context(self, context: Mapping[str, Any]) -> None:
        """What the user said about the task."""
        self._make_trial().set_user_context(context)
        self._write_note("user context", dict(context))
        super().set_user_context(context)

    def add_inferred(self, key: str, value: object, source: str = "") -> None:
        """What was found out on the way."""
        self._make_trial().add_inferred(key, value, source)
        self._write_note("inferred", [key, value, source])
        super().add_inferred(key, value, source)

    def cache_extraction(self, key: str, data: object) -> None:
        """Keep what was extracted."""
        tried = self._make_trial()
        tried.cache_extraction(key, data)
        (held,) = tried.extractions()
        self._write_note("extraction", [key, held.data])
        super().cache_extraction(key, held.data)

    def cache_journaled_extraction(self, key: str, data: object) -> None:
        """Keep what was extracted, and is written down with its cycle."""
        super().cache_extraction(key, data)

    def get_cached_extraction(self, key: str, max_age_seconds: float = MAX_EXTRACTION_AGE_SECONDS) -> Any:  # noqa: ANN401 - any JSON value
        """What was extracted, unless it is older than that; what is too old for anybody is dropped."""
        was_there = key in self._extractions
        found = super().get_cached_extraction(key, max_age_seconds)
        if was_there and key not in self._extractions:
            self._write_note("no extraction", key)
        return found

    def delete_extraction(self, key: str) -> None:
        """Keep it no longer."""
        self._extractions.pop(key, None)

    def clear(self, *, keep_user: bool = True) -> None:
        """Forget what was found out and extracted, and what the user said unless it is kept."""
        self._write_note("no context", keep_user)
        super().clear(keep_user=keep_user)

    def _make_trial(self) -> TaskContext:
        return TaskContext(self._now)


def replay_change(working: WorkingState, context: JournaledTaskContext, kind: str, value: Any) -> bool:  # noqa: ANN401 - JSON
    """Do again what was written down; whether it was a change of these parts."""
    doing: dict[str, Callable[[], object]] = {
        "goal": lambda: working.set_goal(value),
        "active": lambda: working.set_active(*_parse_active(*value)),
        "no working memory": working.clear,
        "navigation": lambda: working.record_navigation(snapshot_from_dict(value)),
        "backtrack": lambda: working.backtrack(value),
        "scratch": lambda: working.set_scratch(*value),
        "no scratch": lambda: working.delete_scratch(value),
        "page map": lambda: working.store_page_map(*value),
        "user context": lambda: context.set_user_context(value),
        "inferred": lambda: context.add_inferred(*value),
        "extraction": lambda: context.cache_extraction(*value),
        "no extraction": lambda: context.delete_extraction(value),
        "no context": lambda: context.clear(keep_user=bool(value)),
    }
    if kind in doing:
        doing[kind]()
    return kind in doing


def _parse_active(thought: str | None, action: object) -> tuple[Thought | None, AgentAction | None]:
    return None if thought is None else Thought(thought), None if action is None else action_from_dict(action)
