"""Parts of a task that record their changes in the journal and are rebuilt from it."""

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
from langmem_tiers.tasks.working_state import WorkingState, build_page_key

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Mapping

    from langmem_tiers.tasks.models import NavigationSnapshot

NoteWriter: TypeAlias = Callable[[str, object], None]
"""Records a change in the journal: its kind, and its value as plain JSON."""


@synchronize_methods
class JournaledRecentCycles(RecentCycles):
    """Recent cycles of a task. Only ``clear`` is recorded; the journal contains the cycles themselves."""

    def __init__(self, max_entries: int, note: NoteWriter, lock: threading.RLock) -> None:
        self._lock = lock
        # The base class calls clear() in its constructor, which must not be recorded as a change.
        self._write_note: NoteWriter | None = None
        super().__init__(max_entries)
        self._write_note = note

    def clear(self) -> None:
        """Remove all cycles, failed actions and action counts."""
        if self._write_note is not None:
            self._write_note("no short term", None)
        super().clear()


@synchronize_methods
class JournaledGuard(Guard):
    """Guard of a task that records resets and accepted answers."""

    def __init__(self, exempt: Collection[str], note: NoteWriter, lock: threading.RLock) -> None:
        self._lock = lock
        # The base class calls reset() in its constructor, which must not be recorded as a change.
        self._write_note: NoteWriter | None = None
        super().__init__(exempt=exempt)
        self._write_note = note

    def reset(self) -> None:
        """Clear all state."""
        if self._write_note is not None:
            self._write_note("no guard", None)
        super().reset()

    def answer(self, reason: str) -> bool:
        """Lift the blocks for a reason; return True if it was accepted."""
        if not self.would_accept(reason):
            return False
        if self._write_note is not None:
            self._write_note("answer", str(reason))
        return super().answer(reason)


@synchronize_methods
class JournaledWorkingState(WorkingState):
    """Working state that records its changes.

    Each method first applies the change to an empty trial state, which raises if the arguments are invalid, then
    records it, then applies it. An invalid change is therefore never recorded, and a change that could not be recorded
    is not applied.
    """

    def __init__(
        self, token_budget: int, now: Callable[[], float], note: NoteWriter, lock: threading.RLock
    ) -> None:
        self._lock = lock
        # The base class calls clear() in its constructor, which must not be recorded as a change.
        self._write_note: NoteWriter | None = None
        super().__init__(token_budget, now)
        self._write_note = note

    def clear(self) -> None:
        """Clear the state; the token budget is kept."""
        if self._write_note is not None:
            self._write_note("no working memory", None)
        super().clear()

    def set_goal(self, goal: str) -> None:
        """Set the goal of the task."""
        self._make_trial().set_goal(goal)
        self._record_change("goal", goal)
        super().set_goal(goal)

    def set_active(self, thought: Thought | None = None, action: AgentAction | None = None) -> None:
        """Set the current thought and the planned action."""
        self._make_trial().set_active(thought, action)
        thought_text = None if thought is None else thought.content
        self._record_change("active", [thought_text, None if action is None else action_to_dict(action)])
        super().set_active(thought, action)

    def clear_active(self) -> None:
        """Clear the current thought and the planned action."""
        self._record_change("active", [None, None])
        super().clear_active()

    def record_navigation(self, snapshot: NavigationSnapshot) -> None:
        """Add a new current state to the navigation path."""
        self._make_trial().record_navigation(snapshot)
        self._record_change("navigation", snapshot_to_dict(snapshot))
        super().record_navigation(snapshot)

    def backtrack(self, steps: int = 1) -> NavigationSnapshot | None:
        """Go back a number of steps and return the new state; None, without any change, if too many."""
        if check_whole(steps, 1, "steps") < len(self.get_navigation_history()):
            self._record_change("backtrack", steps)
        return super().backtrack(steps)

    def set_scratch(self, key: str, value: object) -> None:
        """Store a scratch value."""
        self._make_trial().set_scratch(key, value)
        self._record_change("scratch", [key, value])
        super().set_scratch(key, value)

    def delete_scratch(self, key: str) -> bool:
        """Remove a scratch value; return False if it does not exist."""
        if key in self.scratch_keys:
            self._record_change("no scratch", key)
        return super().delete_scratch(key)

    def store_page_map(self, url: str, page_map: object) -> None:
        """Store a page map."""
        # The trial state also converts the page map to plain JSON for the journal.
        trial = self._make_trial()
        trial.store_page_map(url, page_map)
        self._record_change("page map", [url, trial.to_dict()["page_maps"][build_page_key(url)]])
        super().store_page_map(url, page_map)

    def _make_trial(self) -> WorkingState:
        return WorkingState(self.token_budget, self._now)

    def _record_change(self, kind: str, value: object) -> None:
        if self._write_note is not None:
            self._write_note(kind, value)


@synchronize_methods
class JournaledTaskContext(TaskContext):
    """Task context that records its changes, see `JournaledWorkingState`."""

    def __init__(self, now: Callable[[], float], note: NoteWriter, lock: threading.RLock) -> None:
        self._write_note = note
        self._lock = lock
        super().__init__(now)

    def set_user_context(self, context: Mapping[str, Any]) -> None:
        """Replace the user context."""
        self._make_trial().set_user_context(context)
        self._write_note("user context", dict(context))
        super().set_user_context(context)

    def add_inferred(self, key: str, value: object, source: str = "") -> None:
        """Store inferred context and its source."""
        self._make_trial().add_inferred(key, value, source)
        self._write_note("inferred", [key, value, source])
        super().add_inferred(key, value, source)

    def cache_extraction(self, key: str, data: object) -> None:
        """Cache extracted data as plain JSON."""
        trial = self._make_trial()
        trial.cache_extraction(key, data)
        (extraction,) = trial.extractions()
        self._write_note("extraction", [key, extraction.data])
        super().cache_extraction(key, extraction.data)

    def cache_journaled_extraction(self, key: str, data: object) -> None:
        """Cache extracted data that the journal contains with its cycle, without recording it again."""
        super().cache_extraction(key, data)

    def get_cached_extraction(self, key: str, max_age_seconds: float = MAX_EXTRACTION_AGE_SECONDS) -> Any:  # noqa: ANN401 - any JSON value
        """Return cached data, or None if it is missing or older than ``max_age_seconds``."""
        # Reading may remove an expired entry, which is a change and must be recorded.
        was_cached = key in self._extractions
        data = super().get_cached_extraction(key, max_age_seconds)
        if was_cached and key not in self._extractions:
            self._write_note("no extraction", key)
        return data

    def delete_extraction(self, key: str) -> None:
        """Remove cached data without recording it; used to replay the journal."""
        self._extractions.pop(key, None)

    def clear(self, *, keep_user: bool = True) -> None:
        """Remove inferred context and extractions, and the user context too unless ``keep_user`` is set."""
        self._write_note("no context", keep_user)
        super().clear(keep_user=keep_user)

    def _make_trial(self) -> TaskContext:
        return TaskContext(self._now)


def replay_change(working: WorkingState, context: JournaledTaskContext, kind: str, value: Any) -> bool:  # noqa: ANN401 - JSON
    """Apply a recorded change; return False if the kind belongs to neither of these parts."""
    replayers: dict[str, Callable[[], object]] = {
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
    if kind in replayers:
        replayers[kind]()
    return kind in replayers


def _parse_active(thought: str | None, action: object) -> tuple[Thought | None, AgentAction | None]:
    return None if thought is None else Thought(thought), None if action is None else action_from_dict(action)
