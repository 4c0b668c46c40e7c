"""The recorded tasks of a namespace, and the steps of one, in pages that cost the same wherever they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.config import check_limit
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError, NotFoundError
from langmem_tiers.tasks.cycles import entry_from_dict
from langmem_tiers.tasks.journal import NOTES_SUFFIX, check_task_name
from langmem_tiers.tasks.loop_detection.detector import DEFAULT_LOOP_THRESHOLD, LoopTracker, Step

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.models import SessionInfo
    from langmem_tiers.tasks.loop_detection.detector import Loop
    from langmem_tiers.tasks.models import MemoryEntry

_MAX_SCANNED_SESSIONS = 1_000
"""Sessions that are looked through for a page of tasks."""
LOOP_LOOKBACK_STEPS = 200
"""Steps before a page in which a loop may have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo(Displayable):
    """A recorded task."""

    task: str
    cycles: int
    started_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage(Displayable):
    """Some of the tasks, newest first; there may be fewer than were asked for, or none, before the last page."""

    tasks: tuple[TaskInfo, ...]
    next_before: int | None
    """Pass it as ``before`` to get the next page; None on the last one."""


@dataclass(frozen=True, slots=True)
class CyclePlace:
    """Where a page of steps begins."""

    after: str | None = None
    """Id of the step behind which reading begins."""
    lookback_steps: int = 0
    """Steps from there that only tell whether those of the page are part of a loop."""
    number: int = 0
    """Steps before the page."""

    def __post_init__(self) -> None:
        if not 0 <= self.lookback_steps <= LOOP_LOOKBACK_STEPS or self.number < self.lookback_steps:
            raise InvalidInputError(f"{self!r} is no place in a task: use the next_place of a page")


@dataclass(frozen=True, slots=True)
class TaskCycle(Displayable):
    """A step, and the loop that it is part of, if it is."""

    number: int
    entry: MemoryEntry
    loop: Loop | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePage(Displayable):
    """Some of the steps of a task, oldest first."""

    cycles: tuple[TaskCycle, ...]
    next_place: CyclePlace | None


def load_task_page(
    parts: EngineServices, namespace: NamespacePath, *, before: int | None, limit: int
) -> TaskPage:
    """The recorded tasks, newest first.

    Args:
        parts: The stores and workers.
        namespace: Whose.
        before: ``next_before`` of the page before.
        limit: How many at most.
    """
    check_limit(limit)
    store = parts.short_term.sessions
    looked_at = store.list_sessions(namespace, before=before, limit=_MAX_SCANNED_SESSIONS + 1)
    notes = [info for info in looked_at[:_MAX_SCANNED_SESSIONS] if info.name.endswith(NOTES_SUFFIX)]
    rest = notes[limit - 1].key if len(notes) > limit else None
    if rest is None and len(looked_at) > _MAX_SCANNED_SESSIONS:
        rest = looked_at[_MAX_SCANNED_SESSIONS - 1].key
    names = [info.name.removesuffix(NOTES_SUFFIX) for info in notes[:limit]]
    runs = {info.name: info for info in store.list_by_name(namespace, names)} if names else {}
    pairs = zip(names, notes, strict=False)
    tasks = tuple(_to_task_info(runs[name], beside) for name, beside in pairs if name in runs)
    return TaskPage(tasks=tasks, next_before=rest)


def _to_task_info(run: SessionInfo, notes: SessionInfo) -> TaskInfo:
    return TaskInfo(
        task=run.name,
        cycles=run.message_count,
        started_at=min(run.created_at, notes.created_at),
        updated_at=max(run.updated_at, notes.updated_at),
    )


def load_cycle_page(
    parts: EngineServices, namespace: NamespacePath, task: str, *, place: CyclePlace, limit: int
) -> CyclePage:
    """The steps of a task, oldest first.

    Raises:
        NotFoundError: There is no such task.
    """
    check_limit(limit)
    store = parts.short_term.sessions
    there = {
        info.name: info
        for info in store.list_by_name(namespace, [check_task_name(task), f"{task}{NOTES_SUFFIX}"])
    }
    if len(there) < 2:
        raise NotFoundError(f"there is no task {task!r}: use a name that tasks() gave")
    wanted = place.lookback_steps + limit
    found = parts.short_term.messages.list_after(there[task].key, after=place.after, limit=wanted + 1)
    tracker = LoopTracker(place.number - place.lookback_steps)
    seen = [_track_cycle(tracker, message) for message in found[:wanted]]
    return CyclePage(
        cycles=tuple(one for one in seen[place.lookback_steps :] if one is not None),
        next_place=_find_next_place(place, found, wanted) if len(found) > wanted else None,
    )


def _find_next_place(place: CyclePlace, found: tuple[Message, ...], wanted: int) -> CyclePlace:
    back = min(LOOP_LOOKBACK_STEPS, wanted)
    after = place.after if back == wanted else found[wanted - back - 1].id
    return CyclePlace(after, back, place.number + wanted - place.lookback_steps)


def parse_cycle_message(message: Message) -> MemoryEntry | None:
    """The step that a message of a task stands for, if it stands for one."""
    payload: Any = message.payload
    if not isinstance(payload, dict) or not isinstance(payload.get("cycle"), dict):
        return None
    return entry_from_dict({**payload["cycle"], "entry_id": message.id})


def _track_cycle(tracker: LoopTracker, message: Message) -> TaskCycle | None:
    entry = parse_cycle_message(message)
    if entry is None:
        return None
    observed = entry.observation
    step = Step(
        tool=entry.action.tool_name,
        parameters=entry.action.parameters,
        url=entry.url,
        observation="" if observed is None else observed.raw_output or observed.text,
        failed=entry.outcome.is_failure,
    )
    loop = tracker.add(step)
    told = loop if loop is not None and loop.score >= DEFAULT_LOOP_THRESHOLD else None
    return TaskCycle(tracker.step_count, entry, told)
