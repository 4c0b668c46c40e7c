"""What an agent has in mind while it works: its goal, what it is about to do, its way, its notes, its pages."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.context_files.checks import (
    check_count,
    check_not_empty,
    check_object,
    check_text,
    check_unix_seconds,
)
from langmem_tiers.tasks.context_store import get_wall_seconds
from langmem_tiers.tasks.cycles import (
    action_from_dict,
    action_to_dict,
    build_action_label,
    check_json_object,
    to_one_line,
)
from langmem_tiers.tasks.models import AgentAction, StateSnapshot, Thought
from langmem_tiers.tasks.navigation import NavigationPath
from langmem_tiers.tasks.page_layouts import PageMaps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_LINE_CHARACTERS = 300  # characters of a line of a prompt
_MAX_SHOWN_PAGES = 10
_MAX_SHOWN_STATES = 5  # of the way, before the current one


class WorkingState:
    """The state of a task in work.

    The way is bounded to 500 snapshots and the page maps to 200; the oldest leave. Notes are plain JSON and
    copied both ways: change one and set it again.
    """

    def __init__(self, token_budget: int = 4000, now: Callable[[], float] = get_wall_seconds) -> None:
        self.token_budget = check_whole(token_budget, 0, "token_budget")
        self._now = now
        self.clear()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkingState) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment] # it changes

    def clear(self) -> None:
        """Forget all of it; the budget stays."""
        self._goal: str | None = None
        self._goal_set_at: float | None = None
        self._active_thought: Thought | None = None
        self._active_action: AgentAction | None = None
        self._cycle_count = 0
        self._navigation = NavigationPath()
        self._scratch: dict[str, Any] = {}
        self._page_maps = PageMaps()

    def set_goal(self, goal: str) -> None:
        """Set what the task is for."""
        self._goal, self._goal_set_at = check_text(goal, "goal"), self._now()

    @property
    def current_goal(self) -> str | None:
        """What the task is for."""
        return self._goal

    @property
    def elapsed_seconds(self) -> float:
        """Since the goal was set; 0 without one."""
        return 0.0 if self._goal_set_at is None else max(0.0, self._now() - self._goal_set_at)

    def set_active(self, thought: Thought | None = None, action: AgentAction | None = None) -> None:
        """Set what the agent thinks and is about to do."""
        if thought is not None:
            thought = Thought(check_text(thought.content, "thought"))
        held = None if action is None else action_from_dict(action_to_dict(action))
        self._active_thought, self._active_action = thought, held

    def clear_active(self) -> None:
        """Say that the action is done, or given up."""
        self._active_thought = self._active_action = None

    @property
    def active_thought(self) -> Thought | None:
        """What the agent thinks."""
        return self._active_thought

    @property
    def active_action(self) -> AgentAction | None:
        """What the agent is about to do."""
        return self._active_action

    @property
    def cycle_count(self) -> int:
        """Cycles of this task so far."""
        return self._cycle_count

    def count_cycle(self) -> int:
        """Count one more cycle; how many there are now."""
        self._cycle_count += 1
        return self._cycle_count

    def record_navigation(self, snapshot: StateSnapshot) -> None:
        """Go on to a state; what was gone back from before is an abandoned branch from now on."""
        self._navigation.record(snapshot)

    def get_navigation_history(self, n: int | None = None) -> list[StateSnapshot]:
        """The way to the current state, or the last ``n`` of it, the oldest first."""
        return self._navigation.get_history(n)

    @property
    def current_snapshot(self) -> StateSnapshot | None:
        """The state where the agent is."""
        return self._navigation.current

    def can_go_back(self) -> bool:
        """Whether there is a state before the current one."""
        return self._navigation.can_go_back()

    def backtrack(self, steps: int = 1) -> StateSnapshot | None:
        """Go back along the way; the state where that leads, or ``None`` if the way is not that long.

        What lies ahead is kept: see ``get_abandoned``.
        """
        return self._navigation.backtrack(steps)

    def get_abandoned(self) -> list[list[StateSnapshot]]:
        """The branches that were gone back from, each in the order of its way, the newest branch last."""
        return self._navigation.get_abandoned()

    def set_scratch(self, key: str, value: object) -> None:
        """Note something; what is no plain JSON is refused by name."""
        check_not_empty(key, "the key of a scratch value")
        self._scratch.update(check_object({key: value}, "scratch"))

    def get_scratch(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON value
        """What was noted, copied, or the default."""
        return check_object({key: self._scratch[key]}, "scratch")[key] if key in self._scratch else default

    def delete_scratch(self, key: str) -> bool:
        """Drop a note; whether there was one."""
        return self._scratch.pop(key, self) is not self

    @property
    def scratch_keys(self) -> list[str]:
        """The keys of all notes, in the order in which they were first set."""
        return list(self._scratch)

    def store_page_map(self, url: str, page_map: object) -> None:
        """Keep what a page looks like: a mapping, a text or any object; the last one of an address counts.

        ``get_page_map`` gives back the very object as long as the process lives, and its plain JSON
        after ``from_dict``.
        """
        self._page_maps.put(url, page_map)

    def has_page_map(self, url: str) -> bool:
        """Whether the page is known; fragments and slashes at the end make no difference."""
        return url in self._page_maps

    def get_page_map(self, url: str) -> Any:  # noqa: ANN401 - whatever was handed in
        """What the page looks like, or ``None``."""
        return self._page_maps.get(url)

    def get_all_page_maps(self) -> dict[str, Any]:
        """All pages by their normal addresses, the one that was stored last at the end."""
        return self._page_maps.get_all()

    def get_page_summary(self, url: str) -> str | None:
        """What is on the page in one line, or ``None`` if it is not known."""
        return self._page_maps.get_summary(url)

    def format(self, max_tokens: int, count: Callable[[str], int]) -> str:
        """The state as text for a prompt, of at most so many tokens and never more than the budget.

        Lines that do not fit are left out; if not even the goal fits, its beginning is shown.

        Args:
            max_tokens: How many there is room for.
            count: Tells how many tokens a text takes.
        """
        most = min(max_tokens, self.token_budget)
        text = ""
        for line in self._iterate_lines():
            text = _append_line(text, line, most, count)
        return text

    def _iterate_lines(self) -> Iterator[str]:
        # What is needed most comes first.
        if self._goal:
            yield f"Goal: {to_one_line(self._goal, _MAX_LINE_CHARACTERS)}"
        if self._navigation.current is not None:
            yield f"Current page: {_format_snapshot(self._navigation.current)}"
        if self._active_action is not None:
            yield f"About to do: {build_action_label(self._active_action)}"
        if self._active_thought is not None and self._active_thought.content:
            yield f"Thinking: {to_one_line(self._active_thought.content, _MAX_LINE_CHARACTERS)}"
        if self._cycle_count:
            yield f"Cycle: {self._cycle_count}"
        for key, value in islice(self._scratch.items(), 50):
            yield to_one_line(f"Note {key}: {json.dumps(value, ensure_ascii=False)}", _MAX_LINE_CHARACTERS)
        for snapshot in reversed(self._navigation.get_history(_MAX_SHOWN_STATES + 1)[:-1]):
            yield f"Came from: {_format_snapshot(snapshot)}"
        for url in islice(reversed(self._page_maps.get_all()), _MAX_SHOWN_PAGES):
            yield f"Page {to_one_line(url, _MAX_LINE_CHARACTERS)}: {self._page_maps.get_summary(url)}"

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        thought, action = self._active_thought, self._active_action
        return {
            "token_budget": self.token_budget,
            "goal": self._goal,
            "goal_set_at": self._goal_set_at,
            "active_thought": None if thought is None else thought.content,
            "active_action": None if action is None else action_to_dict(action),
            "cycle_count": self._cycle_count,
            "navigation": self._navigation.to_dict(),
            "scratch": dict(self._scratch),
            "page_maps": self._page_maps.to_dict(),
        }

    @classmethod
    def from_dict(cls, value: object, now: Callable[[], float] = get_wall_seconds) -> WorkingState:
        """The memory that ``to_dict`` wrote; ``InvalidInputError`` names what is wrong with it."""
        data = check_json_object(value, "working memory")
        memory = cls(data.get("token_budget", 4000), now)
        if data.get("goal") is not None:
            memory._goal = check_text(data["goal"], "goal")
        if data.get("goal_set_at") is not None:
            memory._goal_set_at = check_unix_seconds(data["goal_set_at"], "goal_set_at")
        if data.get("active_thought") is not None:
            memory._active_thought = Thought(check_text(data["active_thought"], "active_thought"))
        if data.get("active_action") is not None:
            memory._active_action = action_from_dict(data["active_action"], "active_action")
        memory._cycle_count = check_count(data.get("cycle_count", 0), "cycle_count")
        memory._navigation = NavigationPath.from_dict(data.get("navigation", {}))
        memory._scratch = check_object(data.get("scratch", {}), "scratch")
        memory._page_maps = PageMaps.from_dict(data.get("page_maps", {}))
        return memory


def _format_snapshot(snapshot: StateSnapshot) -> str:
    title = f" ({to_one_line(snapshot.page_title, 80)})" if snapshot.page_title else ""
    return f"{to_one_line(snapshot.url, _MAX_LINE_CHARACTERS)}{title}"


def _append_line(text: str, line: str, most: int, count: Callable[[str], int]) -> str:
    longer = f"{text}\n{line}" if text else line
    if count(longer) <= most:
        return longer
    if text:
        return text
    short, long = 0, len(line)  # the longest beginning that fits, as far as counts grow with the text
    while long - short > 1:
        middle = (short + long) // 2
        short, long = (middle, long) if count(line[:middle]) <= most else (short, middle)
    return line[:short].rstrip() if count(line[:short].rstrip()) <= most else ""
