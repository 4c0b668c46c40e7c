"""Journal of a task: stores every cycle and every change, in order, before the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import MessageDraft, Role
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.compression.tool_output.budget import keep_head_and_tail
from langmem_tiers.errors import InvalidNameError
from langmem_tiers.tasks.cycles import cycle_from_dict, cycle_to_dict
from langmem_tiers.tasks.models import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.session import Session
    from langmem_tiers.tasks.models import Cycle

MAX_OBSERVATION_CHARACTERS = 100_000
"""Maximum stored length of an observation. Of a longer one, the beginning and the end are stored."""
_MAX_INDEXED_CHARACTERS = 8_000
"""Maximum length of an observation in the content of the message, which recall searches."""
NOTES_SUFFIX = ": notes"
"""Suffix of the session that contains the changes of a task."""


@dataclass(frozen=True, slots=True)
class StoredCycle:
    """A cycle read from the journal."""

    cycle: Cycle
    extraction: str | None
    """Extracted data, if it differs from the observation."""


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A change read from the journal."""

    kind: str
    value: Any
    timestamp: float
    """Seconds since 1970."""
    cycles_before: int
    """Number of cycles stored before the change."""


class TaskJournal:
    """Writes and reads the journal of a task.

    Cycles are messages of a session with the name of the task, so recall finds them. All other changes are messages of
    a second session, the notes.

    Args:
        open_session: Returns a session by its name; creates it if necessary.
        namespace: Namespace of the task.
        task: Name of the task.
    """

    def __init__(
        self, open_session: Callable[[NamespacePath, str], Session], namespace: NamespacePath, task: str
    ) -> None:
        self.task = task
        self.is_replaying = False
        self._cycle_session = open_session(namespace, task)
        self._note_session = open_session(namespace, f"{task}{NOTES_SUFFIX}")
        self._cycle_count = 0

    @property
    def is_empty(self) -> bool:
        """True if the journal contains neither cycles nor notes."""
        return not self._cycle_session.info().message_count and not self._note_session.info().message_count

    def append(self, cycle: Cycle, extraction: str | None = None) -> Cycle:
        """Store a cycle with its extracted data, and return it with the id of its message."""
        # The content is text for recall; the payload is the complete cycle.
        lines = [cycle.thought.content, f"{cycle.action.tool_name} {cycle.action.parameters_json}"]
        if cycle.observation is not None:
            lines.append(keep_head_and_tail(cycle.observation.text, _MAX_INDEXED_CHARACTERS))
        # Empty values are left out, because they equal the defaults; the id is that of the message.
        payload: dict[str, Any] = {
            "cycle": {name: value for name, value in cycle_to_dict(cycle).items() if value}
        }
        del payload["cycle"]["entry_id"]
        if extraction is not None:
            payload["extraction"] = extraction
        draft = MessageDraft(Role.ASSISTANT, "\n".join(filter(None, lines)), payload=payload)
        (message,) = self._cycle_session.add(draft).stored
        self._cycle_count += 1
        # The cycle is frozen, but no other code has a reference to it yet.
        object.__setattr__(cycle, "entry_id", message.id)
        return cycle

    def append_note(self, kind: str, value: object) -> None:
        """Store a change. The value must be validated plain JSON; it is not truncated."""
        # While the journal is replayed, the same methods run again and must not write their notes twice.
        if not self.is_replaying:
            payload = {"note": kind, "value": value, "after": self._cycle_count}
            self._note_session.add(MessageDraft(Role.SYSTEM, f"{self.task}: {kind}", payload=payload))

    def iterate_events(self) -> Iterator[StoredCycle | StoredNote]:
        """Yield all cycles and changes in their original order; the journal can be continued afterwards."""
        # Merge both sessions: each note names the number of cycles before it.
        self._cycle_count = 0
        notes = self._load_notes()
        note = next(notes, None)
        for cycle in self._load_cycles():
            while note is not None and note.cycles_before <= self._cycle_count:
                yield note
                note = next(notes, None)
            self._cycle_count += 1
            yield cycle
        if note is not None:
            yield note
        yield from notes

    def _load_cycles(self) -> Iterator[StoredCycle]:
        for message in self._cycle_session.messages():
            payload: Any = message.payload
            if isinstance(payload, dict) and isinstance(payload.get("cycle"), dict):
                cycle = cycle_from_dict({**payload["cycle"], "entry_id": message.id})
                yield StoredCycle(cycle, payload.get("extraction"))

    def _load_notes(self) -> Iterator[StoredNote]:
        for message in self._note_session.messages():
            payload: Any = message.payload
            if isinstance(payload, dict) and isinstance(payload.get("note"), str):
                at = message.created_at.timestamp()
                yield StoredNote(payload["note"], payload.get("value"), at, payload.get("after", 0))


def check_task_name(task: str) -> str:
    """Return a valid task name, or raise an error that explains why it is invalid."""
    name = check_name(task, "task")
    if name.endswith(NOTES_SUFFIX):
        raise InvalidNameError(
            f"a task name must not end with {NOTES_SUFFIX!r}, got {name[-80:]!r}: use another name"
        )
    # The name of the notes session is longer and must not exceed the limit either.
    check_name(f"{name}{NOTES_SUFFIX}", "task")
    return name


def truncate_observation(observation: Observation) -> Observation:
    """Truncate an observation for storage: of a very long one, the beginning and the end remain."""
    summary = observation.summary
    return Observation(
        keep_head_and_tail(observation.raw_output, MAX_OBSERVATION_CHARACTERS),
        None if summary is None else keep_head_and_tail(summary, MAX_OBSERVATION_CHARACTERS),
    )
