"""The way of an agent from state to state, with what it went back from."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.context_files.checks import (
    check_list,
    check_not_empty,
    check_number,
    check_object,
    check_text,
    check_unix_seconds,
)
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.cycles import check_json_object
from langmem_tiers.tasks.models import StateSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SNAPSHOTS = 500
"""Of the way, and of abandoned branches together; beyond, the oldest leave."""


class NavigationPath:
    """A way that can be gone back."""

    def __init__(self) -> None:
        self._path: deque[StateSnapshot] = deque(maxlen=MAX_SNAPSHOTS)
        self._undone: deque[StateSnapshot] = deque(maxlen=MAX_SNAPSHOTS)  # gone back from, nothing new since
        self._abandoned: deque[tuple[StateSnapshot, ...]] = deque()

    @property
    def current(self) -> StateSnapshot | None:
        """The state where the agent is."""
        return self._path[-1] if self._path else None

    def record(self, snapshot: StateSnapshot) -> None:
        """Go on to a state; what was gone back from before is an abandoned branch from now on."""
        snapshot = snapshot_from_dict(snapshot_to_dict(snapshot))
        if self._undone:
            self._abandon(tuple(self._undone))
            self._undone.clear()
        self._path.append(snapshot)

    def get_history(self, n: int | None = None) -> list[StateSnapshot]:
        """The way to the current state, or the last ``n`` of it, the oldest first."""
        path = list(self._path)
        return path if n is None else path[max(0, len(path) - check_whole(n, 0, "n")) :]

    def can_go_back(self) -> bool:
        """Whether there is a state before the current one."""
        return len(self._path) > 1

    def backtrack(self, steps: int) -> StateSnapshot | None:
        """Go back; the state where that leads, or ``None``, and nothing changed, if the way is not that long."""
        if check_whole(steps, 1, "steps") >= len(self._path):
            return None
        for _ in range(steps):
            self._undone.appendleft(self._path.pop())
        return self._path[-1]

    def get_abandoned(self) -> list[list[StateSnapshot]]:
        """The branches that were gone back from, each in the order of its way, the newest branch last."""
        return [list(branch) for branch in (*self._abandoned, tuple(self._undone)) if branch]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "path": [snapshot_to_dict(one) for one in self._path],
            "ahead": [snapshot_to_dict(one) for one in self._undone],
            "abandoned": [[snapshot_to_dict(one) for one in branch] for branch in self._abandoned],
        }

    @classmethod
    def from_dict(cls, value: object) -> NavigationPath:
        """The way that ``to_dict`` wrote."""
        data = check_json_object(value, "navigation")
        way = cls()
        way._path.extend(_parse_snapshots(data.get("path", []), "path"))
        way._undone.extend(_parse_snapshots(data.get("ahead", []), "ahead"))
        for index, branch in enumerate(check_list(data.get("abandoned", []), "abandoned")):
            way._abandon(tuple(_parse_snapshots(branch, f"abandoned[{index}]")))
        return way

    def _abandon(self, branch: tuple[StateSnapshot, ...]) -> None:
        self._abandoned.append(branch)
        while sum(map(len, self._abandoned)) > MAX_SNAPSHOTS:
            self._abandoned.popleft()


def snapshot_to_dict(snapshot: StateSnapshot) -> dict[str, Any]:
    """A state as plain JSON."""
    return {
        "snapshot_id": snapshot.snapshot_id,
        "timestamp": snapshot.timestamp,
        "url": snapshot.url,
        "page_title": snapshot.page_title,
        "visible_elements_summary": snapshot.visible_elements_summary,
        "form_state": to_plain_value(snapshot.form_state),
        "scroll_position": list(snapshot.scroll_position),
        "associated_entry_id": snapshot.associated_entry_id,
    }


def snapshot_from_dict(value: object, where: str = "snapshot") -> StateSnapshot:
    """The state that plain JSON stands for; what is missing gets what is usual."""
    data = check_json_object(value, where)
    entry_id, summary = data.get("associated_entry_id"), data.get("visible_elements_summary", "")
    return StateSnapshot(
        snapshot_id=check_not_empty(data.get("snapshot_id"), f"{where}.snapshot_id"),
        timestamp=check_unix_seconds(data.get("timestamp"), f"{where}.timestamp"),
        url=check_text(data.get("url"), f"{where}.url"),
        page_title=check_text(data.get("page_title", ""), f"{where}.page_title"),
        visible_elements_summary=check_text(summary, f"{where}.visible_elements_summary"),
        form_state=check_object(data.get("form_state", {}), f"{where}.form_state"),
        scroll_position=_parse_scroll_position(
            data.get("scroll_position", [0, 0]), f"{where}.scroll_position"
        ),
        associated_entry_id=None
        if entry_id is None
        else check_text(entry_id, f"{where}.associated_entry_id"),
    )


def _parse_scroll_position(value: object, where: str) -> tuple[int, int]:
    both = check_list(value, where)
    if len(both) != 2:
        raise InvalidInputError(f"{where} must be x and y, got {len(both)} numbers")
    return int(check_number(both[0], where)), int(check_number(both[1], where))


def _parse_snapshots(value: object, where: str) -> Iterator[StateSnapshot]:
    for index, one in enumerate(check_list(value, where)):
        yield snapshot_from_dict(one, f"{where}[{index}]")
