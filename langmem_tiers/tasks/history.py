"""Recorded tasks of a namespace and their cycles, in pages of constant cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.config import check_limit
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError, NotFoundError
from langmem_tiers.tasks.cycles import cycle_from_dict
from langmem_tiers.tasks.journal import NOTES_SUFFIX, check_task_name
from langmem_tiers.tasks.loop_detection.detector import DEFAULT_LOOP_THRESHOLD, LoopTracker, Step

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.models import SessionInfo
    from langmem_tiers.sessions.repository import SessionRepository
    from langmem_tiers.sessions.service import SessionDependencies
    from langmem_tiers.tasks.loop_detection.detector import Loop
    from langmem_tiers.tasks.models import Cycle

_MAX_SCANNED_SESSIONS = 1_000
"""Maximum number of sessions that are scanned for a page of tasks."""
LOOP_LOOKBACK_STEPS = 200
"""Number of cycles before a page that are read to detect loops that began there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo(Displayable):
    """A recorded task."""

    task: str
    cycles: int
    started_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage(Displayable):
    """A page of tasks, newest first. It may contain fewer tasks than requested even if more pages follow."""

    tasks: tuple[TaskInfo, ...]
    next_before: int | None
    """Value of ``before`` for the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class CyclePlace:
    """Start of a page of cycles."""

    after: str | None = None
    """Id of the cycle after which reading starts; None for the first cycle."""
    lookback_steps: int = 0
    """Number of cycles from there that precede the page and are read only for loop detection."""
    number: int = 0
    """Number of cycles before the page."""

    def __post_init__(self) -> None:
        if not 0 <= self.lookback_steps <= LOOP_LOOKBACK_STEPS or self.number < self.lookback_steps:
            raise InvalidInputError(f"{self!r} is not a valid place in a task: use the next_place of a page")


@dataclass(frozen=True, slots=True)
class TaskCycle(Displayable):
    """A cycle of a task."""

    number: int
    """Number of the cycle, from 1."""
    entry: Cycle
    loop: Loop | None
    """The loop that the cycle belongs to, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePage(Displayable):
    """A page of the cycles of a task, oldest first."""

    cycles: tuple[TaskCycle, ...]
    next_place: CyclePlace | None
    """Start of the next page; None on the last page."""


def load_task_page(
    sessions: SessionRepository, namespace: NamespacePath, *, before: int | None, limit: int
) -> TaskPage:
    """Return a page of the recorded tasks, newest first.

    Args:
        sessions: Repository of the sessions.
        namespace: Namespace of the tasks.
        before: ``next_before`` of the previous page; None for the first page.
        limit: Maximum number of tasks.
    """
    check_limit(limit)
    # Tasks are recognized by their session of notes. A namespace may also contain many ordinary sessions, so the scan
    # is limited; the next page continues after the last scanned session.
    scanned = sessions.list_sessions(namespace, before=before, limit=_MAX_SCANNED_SESSIONS + 1)
    notes = [info for info in scanned[:_MAX_SCANNED_SESSIONS] if info.name.endswith(NOTES_SUFFIX)]
    next_before = notes[limit - 1].key if len(notes) > limit else None
    if next_before is None and len(scanned) > _MAX_SCANNED_SESSIONS:
        next_before = scanned[_MAX_SCANNED_SESSIONS - 1].key
    names = [info.name.removesuffix(NOTES_SUFFIX) for info in notes[:limit]]
    runs = {info.name: info for info in sessions.list_by_name(namespace, names)} if names else {}
    pairs = zip(names, notes, strict=False)
    # A task may be deleted between the two queries.
    tasks = tuple(_to_task_info(runs[name], note_info) for name, note_info in pairs if name in runs)
    return TaskPage(tasks=tasks, next_before=next_before)


def _to_task_info(run: SessionInfo, notes: SessionInfo) -> TaskInfo:
    return TaskInfo(
        task=run.name,
        cycles=run.message_count,
        started_at=min(run.created_at, notes.created_at),
        updated_at=max(run.updated_at, notes.updated_at),
    )


def load_cycle_page(
    dependencies: SessionDependencies, namespace: NamespacePath, task: str, *, place: CyclePlace, limit: int
) -> CyclePage:
    """Return a page of the cycles of a task, oldest first.

    Args:
        dependencies: Repositories of the sessions and their messages.
        namespace: Namespace of the task.
        task: Name of the task.
        place: Start of the page.
        limit: Maximum number of cycles.

    Raises:
        NotFoundError: The task does not exist.
    """
    check_limit(limit)
    sessions = {
        info.name: info
        for info in dependencies.sessions.list_by_name(
            namespace, [check_task_name(task), f"{task}{NOTES_SUFFIX}"]
        )
    }
    # A session without notes is an ordinary session, not a task.
    if len(sessions) < 2:
        raise NotFoundError(f"no task {task!r}: use a name that tasks() returned")
    # Read the cycles before the page too, so that loops which began there are detected. One more message than needed
    # tells if another page follows.
    read_count = place.lookback_steps + limit
    messages = dependencies.messages.list_after(sessions[task].key, after=place.after, limit=read_count + 1)
    tracker = LoopTracker(place.number - place.lookback_steps)
    cycles = [_track_cycle(tracker, message) for message in messages[:read_count]]
    return CyclePage(
        cycles=tuple(cycle for cycle in cycles[place.lookback_steps :] if cycle is not None),
        next_place=_find_next_place(place, messages, read_count) if len(messages) > read_count else None,
    )


def _find_next_place(place: CyclePlace, messages: tuple[Message, ...], read_count: int) -> CyclePlace:
    lookback = min(LOOP_LOOKBACK_STEPS, read_count)
    after = place.after if lookback == read_count else messages[read_count - lookback - 1].id
    return CyclePlace(after, lookback, place.number + read_count - place.lookback_steps)


def parse_cycle_message(message: Message) -> Cycle | None:
    """Return the cycle that a message of a task contains, or None."""
    payload: Any = message.payload
    if not isinstance(payload, dict) or not isinstance(payload.get("cycle"), dict):
        return None
    return cycle_from_dict({**payload["cycle"], "entry_id": message.id})


def _track_cycle(tracker: LoopTracker, message: Message) -> TaskCycle | None:
    cycle = parse_cycle_message(message)
    if cycle is None:
        return None
    observed = cycle.observation
    step = Step(
        tool=cycle.action.tool_name,
        parameters=cycle.action.parameters,
        url=cycle.url,
        observation="" if observed is None else observed.raw_output or observed.text,
        failed=cycle.outcome.is_failure,
    )
    loop = tracker.add(step)
    shown_loop = loop if loop is not None and loop.score >= DEFAULT_LOOP_THRESHOLD else None
    return TaskCycle(tracker.step_count, cycle, shown_loop)
