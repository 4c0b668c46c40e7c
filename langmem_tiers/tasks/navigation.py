"""Navigation path of an agent, with abandoned branches."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.json_values import to_plain_value
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
from langmem_tiers.tasks.models import NavigationSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SNAPSHOTS = 500
"""Maximum number of states in the path, and in all abandoned branches. The oldest are dropped first."""


class NavigationPath:
    """Path of visited states, with backtracking."""

    def __init__(self) -> None:
        self._path: deque[NavigationSnapshot] = deque(maxlen=MAX_SNAPSHOTS)
        # States after the current one, since the last backtrack. They become a branch with the next new state.
        self._undone: deque[NavigationSnapshot] = deque(maxlen=MAX_SNAPSHOTS)
        self._abandoned: deque[tuple[NavigationSnapshot, ...]] = deque()

    @property
    def current(self) -> NavigationSnapshot | None:
        """The current state, or None."""
        return self._path[-1] if self._path else None

    def record(self, snapshot: NavigationSnapshot) -> None:
        """Add a new current state. States after the previous one become an abandoned branch."""
        # The round trip validates the snapshot and copies its form state.
        snapshot = snapshot_from_dict(snapshot_to_dict(snapshot))
        if self._undone:
            self._abandon(tuple(self._undone))
            self._undone.clear()
        self._path.append(snapshot)

    def get_history(self, n: int | None = None) -> list[NavigationSnapshot]:
        """Return the path to the current state, or its last ``n`` states, oldest first."""
        path = list(self._path)
        return path if n is None else path[max(0, len(path) - check_whole(n, 0, "n")) :]

    def can_go_back(self) -> bool:
        """Return True if there is a state before the current one."""
        return len(self._path) > 1

    def backtrack(self, steps: int) -> NavigationSnapshot | None:
        """Go back a number of steps and return the new state; None, without any change, if too many."""
        if check_whole(steps, 1, "steps") >= len(self._path):
            return None
        for _ in range(steps):
            self._undone.appendleft(self._path.pop())
        return self._path[-1]

    def get_abandoned(self) -> list[list[NavigationSnapshot]]:
        """Return the abandoned branches, newest last, each in the order of its path."""
        return [list(branch) for branch in (*self._abandoned, tuple(self._undone)) if branch]

    def to_dict(self) -> dict[str, Any]:
        """Convert the path to plain JSON values."""
        return {
            "path": [snapshot_to_dict(snapshot) for snapshot in self._path],
            "ahead": [snapshot_to_dict(snapshot) for snapshot in self._undone],
            "abandoned": [[snapshot_to_dict(snapshot) for snapshot in branch] for branch in self._abandoned],
        }

    @classmethod
    def from_dict(cls, value: object) -> NavigationPath:
        """Restore a path from ``to_dict``."""
        data = check_json_object(value, "navigation")
        navigation = cls()
        navigation._path.extend(_parse_snapshots(data.get("path", []), "path"))
        navigation._undone.extend(_parse_snapshots(data.get("ahead", []), "ahead"))
        for index, branch in enumerate(check_list(data.get("abandoned", []), "abandoned")):
            navigation._abandon(tuple(_parse_snapshots(branch, f"abandoned[{index}]")))
        return navigation

    def _abandon(self, branch: tuple[NavigationSnapshot, ...]) -> None:
        self._abandoned.append(branch)
        while sum(map(len, self._abandoned)) > MAX_SNAPSHOTS:
            self._abandoned.popleft()


def snapshot_to_dict(snapshot: NavigationSnapshot) -> dict[str, Any]:
    """Convert a state to plain JSON values."""
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


def snapshot_from_dict(value: object, where: str = "snapshot") -> NavigationSnapshot:
    """Restore a state from plain JSON values; missing values get their defaults."""
    data = check_json_object(value, where)
    entry_id, summary = data.get("associated_entry_id"), data.get("visible_elements_summary", "")
    return NavigationSnapshot(
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
    coordinates = check_list(value, where)
    if len(coordinates) != 2:
        raise InvalidInputError(f"{where} must be x and y, got {len(coordinates)} numbers: pass two")
    return int(check_number(coordinates[0], where)), int(check_number(coordinates[1], where))


def _parse_snapshots(value: object, where: str) -> Iterator[NavigationSnapshot]:
    for index, item in enumerate(check_list(value, where)):
        yield snapshot_from_dict(item, f"{where}[{index}]")
