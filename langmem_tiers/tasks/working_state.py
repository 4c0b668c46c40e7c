"""Working state of a task: goal, current thought and action, navigation path, scratch values, page maps."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.json_values import to_plain_value
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
from langmem_tiers.tasks.models import AgentAction, NavigationSnapshot, Thought
from langmem_tiers.tasks.navigation import NavigationPath
from langmem_tiers.text.urls import normalize_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


MAX_PAGE_MAPS = 200
"""Maximum number of page maps per task. The one stored first is dropped first."""
_MAX_DEPTH = 30
# Maximum number of containers that are copied from one page map.
_MAX_CONTAINERS = 20_000
_MAX_SUMMARY_CHARACTERS = 300
_MAX_NAMED_SECTIONS = 8
# Attributes that are read from a page map object even if they are properties.
_PAGE_FIELDS = ("title", "summary", "sections", "elements")
_NAME_KEYS = ("name", "title", "heading", "label", "type", "id")


class PageMaps:
    """Page maps by address: each as the original object and as plain JSON."""

    def __init__(self) -> None:
        # No SizedLruCache: the order is that of writing, and saved with the task. Reading must not change it.
        self._pages: OrderedDict[str, tuple[object, Any]] = OrderedDict()

    def __contains__(self, url: str) -> bool:
        return build_page_key(url) in self._pages

    def put(self, url: str, page_map: object) -> None:
        """Store a page map; it replaces an earlier one of the same address."""
        key = build_page_key(check_not_empty(url, "url"))
        plain = check_object(
            {"page_map": _to_plain(page_map, 0, iter(range(_MAX_CONTAINERS)))}, "the page map"
        )
        self._put(key, page_map, plain["page_map"])

    def get(self, url: str) -> Any:  # noqa: ANN401 - any object
        """Return the page map of an address, or None."""
        return self._pages.get(build_page_key(url), (None, None))[0]

    def get_all(self) -> dict[str, Any]:
        """Return all page maps by normalized address, the one stored last at the end."""
        return {key: page_map for key, (page_map, _) in self._pages.items()}

    def get_summary(self, url: str) -> str | None:
        """Return a one-line summary of a page map, or None if there is none."""
        key = build_page_key(url)
        return _build_summary(self._pages[key][1]) if key in self._pages else None

    def clear(self) -> None:
        """Remove all page maps."""
        self._pages.clear()

    def to_dict(self) -> dict[str, Any]:
        """Convert all page maps to plain JSON values by address."""
        return {key: plain for key, (_, plain) in self._pages.items()}

    @classmethod
    def from_dict(cls, value: object) -> PageMaps:
        """Restore page maps from ``to_dict``."""
        pages = cls()
        for key, plain in check_json_object(value, "page_maps").items():
            page_map = check_object({"page_map": plain}, f"page_maps[{key[:80]!r}]")["page_map"]
            pages._put(key, page_map, page_map)
        return pages

    def _put(self, key: str, page_map: object, plain: object) -> None:
        self._pages[key] = (page_map, plain)
        self._pages.move_to_end(key)
        if len(self._pages) > MAX_PAGE_MAPS:
            self._pages.popitem(last=False)


def build_page_key(url: str) -> str:
    """Return the key of a page: its normalized address, or the text without fragment and trailing slash."""
    return normalize_url(url) or str(url).strip().partition("#")[0].rstrip("/") or str(url)


def _to_plain(value: object, depth: int, containers_left: Iterator[int]) -> Any:  # noqa: ANN401 - any JSON value
    # Page objects may refer to their parents and siblings, and thus to a whole browser. Two limits bound the copy:
    # the depth, and the number of containers, counted by an iterator that all recursive calls share.
    if value is None or isinstance(value, str | int | float | Enum):
        return to_plain_value(value.value if isinstance(value, Enum) else value)
    if depth >= _MAX_DEPTH or next(containers_left, None) is None:
        return "..."
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item, depth + 1, containers_left) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_plain(item, depth + 1, containers_left) for item in value]
    fields = _read_fields(value)
    if not fields:
        return to_plain_value(value)
    return {name: _to_plain(item, depth + 1, containers_left) for name, item in fields.items()}


def _read_fields(value: object) -> dict[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    attributes = {
        name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")
    }
    for name in _PAGE_FIELDS:
        try:
            attribute = getattr(value, name, None)
        except Exception:  # noqa: BLE001, S112 - a property of a foreign object may raise anything
            continue
        if attribute is not None and not callable(attribute):
            attributes[name] = attribute
    return attributes


def _build_summary(plain: object) -> str:
    if not isinstance(plain, dict):
        return to_one_line(str(plain), _MAX_SUMMARY_CHARACTERS)
    title, summary = (_to_line(plain.get(name)) for name in ("title", "summary"))
    counts = [text for name in ("sections", "elements") if (text := _format_count(name, plain.get(name)))]
    heading = ": ".join(filter(None, (title, summary)))
    parts = f"{heading} [{'; '.join(counts)}]".strip() if counts else heading
    # A page map without any known field is summarized by its keys.
    return to_one_line(parts or ", ".join(plain), _MAX_SUMMARY_CHARACTERS)


def _format_count(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value} {name}"
    if not isinstance(value, list | dict) or not value:
        return ""
    if name != "sections":
        return f"{len(value)} {name}"
    names = list(value) if isinstance(value, dict) else [_get_section_name(section) for section in value]
    shown_names = ", ".join(filter(None, names[:_MAX_NAMED_SECTIONS]))
    return f"{len(value)} sections: {shown_names}" if shown_names else f"{len(value)} sections"


def _get_section_name(section: object) -> str:
    if isinstance(section, dict):
        return next((text for name in _NAME_KEYS if (text := _to_line(section.get(name)))), "")
    return _to_line(section)


def _to_line(value: object) -> str:
    return to_one_line(value, _MAX_SUMMARY_CHARACTERS) if isinstance(value, str) else ""


_MAX_LINE_CHARACTERS = 300
_MAX_SHOWN_PAGES = 10
# States of the navigation path that are shown in addition to the current one.
_MAX_SHOWN_STATES = 5


class WorkingState:
    """Working state of a task.

    The navigation path is limited to 500 states and the page maps to 200; the oldest are dropped. Scratch values are
    plain JSON and are copied when set and when read, so changes to a returned value have no effect: set it again.
    """

    def __init__(self, token_budget: int = 4000, now: Callable[[], float] = get_wall_seconds) -> None:
        self.token_budget = check_whole(token_budget, 0, "token_budget")
        self._now = now
        self.clear()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkingState) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment] # mutable

    def clear(self) -> None:
        """Clear the state; the token budget is kept."""
        self._goal: str | None = None
        self._goal_set_at: float | None = None
        self._active_thought: Thought | None = None
        self._active_action: AgentAction | None = None
        self._cycle_count = 0
        self._navigation = NavigationPath()
        self._scratch: dict[str, Any] = {}
        self._page_maps = PageMaps()

    def set_goal(self, goal: str) -> None:
        """Set the goal of the task."""
        self._goal, self._goal_set_at = check_text(goal, "goal"), self._now()

    @property
    def current_goal(self) -> str | None:
        """Goal of the task, or None."""
        return self._goal

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the goal was set; 0 without a goal."""
        return 0.0 if self._goal_set_at is None else max(0.0, self._now() - self._goal_set_at)

    def set_active(self, thought: Thought | None = None, action: AgentAction | None = None) -> None:
        """Set the current thought and the planned action."""
        if thought is not None:
            thought = Thought(check_text(thought.content, "thought"))
        # The round trip validates the action and copies its parameters.
        copied_action = None if action is None else action_from_dict(action_to_dict(action))
        self._active_thought, self._active_action = thought, copied_action

    def clear_active(self) -> None:
        """Clear the current thought and the planned action."""
        self._active_thought = self._active_action = None

    @property
    def active_thought(self) -> Thought | None:
        """Current thought of the agent, or None."""
        return self._active_thought

    @property
    def active_action(self) -> AgentAction | None:
        """Planned action of the agent, or None."""
        return self._active_action

    @property
    def cycle_count(self) -> int:
        """Number of cycles of the task so far."""
        return self._cycle_count

    def count_cycle(self) -> int:
        """Count another cycle and return the new number."""
        self._cycle_count += 1
        return self._cycle_count

    def record_navigation(self, snapshot: NavigationSnapshot) -> None:
        """Add a new current state. States after the previous one become an abandoned branch."""
        self._navigation.record(snapshot)

    def get_navigation_history(self, n: int | None = None) -> list[NavigationSnapshot]:
        """Return the path to the current state, or its last ``n`` states, oldest first."""
        return self._navigation.get_history(n)

    @property
    def current_snapshot(self) -> NavigationSnapshot | None:
        """The current state, or None."""
        return self._navigation.current

    def can_go_back(self) -> bool:
        """Return True if there is a state before the current one."""
        return self._navigation.can_go_back()

    def backtrack(self, steps: int = 1) -> NavigationSnapshot | None:
        """Go back a number of steps and return the new state; None, without any change, if too many.

        The states after it are kept, see ``get_abandoned``.
        """
        return self._navigation.backtrack(steps)

    def get_abandoned(self) -> list[list[NavigationSnapshot]]:
        """Return the abandoned branches, newest last, each in the order of its path."""
        return self._navigation.get_abandoned()

    def set_scratch(self, key: str, value: object) -> None:
        """Store a scratch value. It must be plain JSON; an ``InvalidInputError`` names anything else."""
        check_not_empty(key, "the key of a scratch value")
        self._scratch.update(check_object({key: value}, "scratch"))

    def get_scratch(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON value
        """Return a copy of a scratch value, or the default."""
        return check_object({key: self._scratch[key]}, "scratch")[key] if key in self._scratch else default

    def delete_scratch(self, key: str) -> bool:
        """Remove a scratch value; return False if it does not exist."""
        # ``self`` cannot be a stored value, so it serves as the default that means "missing".
        return self._scratch.pop(key, self) is not self

    @property
    def scratch_keys(self) -> list[str]:
        """Keys of all scratch values in the order in which they were first set."""
        return list(self._scratch)

    def store_page_map(self, url: str, page_map: object) -> None:
        """Store a page map (a mapping, a string or any object) in place of an earlier one of the address.

        Within the process, ``get_page_map`` returns the same object; after ``from_dict``, its plain JSON.
        """
        self._page_maps.put(url, page_map)

    def has_page_map(self, url: str) -> bool:
        """Return True if a page map is stored for the address, ignoring fragment and trailing slash."""
        return url in self._page_maps

    def get_page_map(self, url: str) -> Any:  # noqa: ANN401 - any object
        """Return the page map of an address, or None."""
        return self._page_maps.get(url)

    def get_all_page_maps(self) -> dict[str, Any]:
        """Return all page maps by normalized address, the one stored last at the end."""
        return self._page_maps.get_all()

    def get_page_summary(self, url: str) -> str | None:
        """Return a one-line summary of a page map, or None if there is none."""
        return self._page_maps.get_summary(url)

    def format(self, max_tokens: int, count: Callable[[str], int]) -> str:
        """Format the state for a prompt, within ``max_tokens`` and the token budget.

        Lines that do not fit are left out. If even the first line does not fit, its beginning is included.

        Args:
            max_tokens: Maximum tokens.
            count: Returns the number of tokens of a text.
        """
        token_limit = min(max_tokens, self.token_budget)
        text = ""
        for line in self._iterate_lines():
            text = _append_line(text, line, token_limit, count)
        return text

    def _iterate_lines(self) -> Iterator[str]:
        # Most important lines first: later lines are left out if the text gets too long.
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
        """Convert the state to plain JSON values."""
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
        """Restore the state from ``to_dict``; an ``InvalidInputError`` names damaged values."""
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


def _format_snapshot(snapshot: NavigationSnapshot) -> str:
    title = f" ({to_one_line(snapshot.page_title, 80)})" if snapshot.page_title else ""
    return f"{to_one_line(snapshot.url, _MAX_LINE_CHARACTERS)}{title}"


def _append_line(text: str, line: str, token_limit: int, count: Callable[[str], int]) -> str:
    longer = f"{text}\n{line}" if text else line
    if count(longer) <= token_limit:
        return longer
    if text:
        return text
    # Find the longest beginning of the first line that fits by bisection. Token counts need not grow with every
    # character, so the result is checked again below.
    low, high = 0, len(line)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(line[:middle]) <= token_limit else (low, middle)
    return line[:low].rstrip() if count(line[:low].rstrip()) <= token_limit else ""
