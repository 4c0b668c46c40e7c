"""The journal of a task: every cycle and every change, on the disk before the next is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import MessageDraft, Role
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.compression.tool_output.budget import keep_head_and_tail
from langmem_tiers.errors import InvalidNameError
from langmem_tiers.tasks.cycles import entry_from_dict, entry_to_dict
from langmem_tiers.tasks.models import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.session import Session
    from langmem_tiers.tasks.models import MemoryEntry

MAX_OBSERVATION_CHARACTERS = 100_000
"""Of an observation that are kept; of a longer one its beginning and its end."""
_MAX_INDEXED_CHARACTERS = 8_000
"""Of an observation that recall looks at."""
NOTES_SUFFIX = ": notes"
"""Behind the name of a task: the session in which its changes are written down."""


@dataclass(frozen=True, slots=True)
class StoredCycle:
    """A cycle as it was written down."""

    entry: MemoryEntry
    extraction: str | None
    """What was extracted, where that is not the observation as it is."""


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A change as it was written down."""

    kind: str
    value: Any
    timestamp: float
    """Seconds since 1970."""
    cycles_before: int
    """Cycles that were written down before it."""


class TaskJournal:
    """Writes down what happens at one task, and reads it again.

    Cycles are the messages of a session that is called like the task, so recall finds them; what else changes stands
    in a session beside it.

    Args:
        open_session: Gets a session by its name, or creates it.
        namespace: Whose.
        task: What the task is called.
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
        """Whether nothing was ever written down."""
        return not self._cycle_session.info().message_count and not self._note_session.info().message_count

    def append(self, entry: MemoryEntry, extraction: str | None = None) -> MemoryEntry:
        """Keep a cycle, and what was extracted with it; the cycle with its id, which is that of its message."""
        told = [entry.thought.content, f"{entry.action.tool_name} {entry.action.parameters_json}"]
        if entry.observation is not None:
            told.append(keep_head_and_tail(entry.observation.text, _MAX_INDEXED_CHARACTERS))
        # What is empty is what a cycle has that says nothing of it, and the id is that of the message.
        payload: dict[str, Any] = {"cycle": {name: one for name, one in entry_to_dict(entry).items() if one}}
        del payload["cycle"]["entry_id"]
        if extraction is not None:
            payload["extraction"] = extraction
        draft = MessageDraft(Role.ASSISTANT, "\n".join(filter(None, told)), payload=payload)
        (message,) = self._cycle_session.add(draft).stored
        self._cycle_count += 1
        object.__setattr__(entry, "entry_id", message.id)  # nobody has seen it yet
        return entry

    def append_note(self, kind: str, value: object) -> None:
        """Keep a change: plain JSON that was checked, and that is kept whole."""
        if not self.is_replaying:
            payload = {"note": kind, "value": value, "after": self._cycle_count}
            self._note_session.add(MessageDraft(Role.SYSTEM, f"{self.task}: {kind}", payload=payload))

    def iterate_cycles(self) -> Iterator[MemoryEntry]:
        """All cycles, oldest first."""
        return (kept_as.entry for kept_as in self._load_cycles())

    def iterate_events(self) -> Iterator[StoredCycle | StoredNote]:
        """All cycles and changes in the order in which they were made, to go on behind them."""
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
                entry = entry_from_dict({**payload["cycle"], "entry_id": message.id})
                yield StoredCycle(entry, payload.get("extraction"))

    def _load_notes(self) -> Iterator[StoredNote]:
        for message in self._note_session.messages():
            payload: Any = message.payload
            if isinstance(payload, dict) and isinstance(payload.get("note"), str):
                at = message.created_at.timestamp()
                yield StoredNote(payload["note"], payload.get("value"), at, payload.get("after", 0))


def check_task_name(task: str) -> str:
    """The name of a task, or an error that says why it is none."""
    name = check_name(task, "task")
    if name.endswith(NOTES_SUFFIX):
        raise InvalidNameError(
            f"a task must not end with {NOTES_SUFFIX!r}, got {name[-80:]!r}: call it otherwise"
        )
    check_name(f"{name}{NOTES_SUFFIX}", "task")
    return name


def truncate_observation(observation: Observation) -> Observation:
    """The observation as it is kept: of a very long one its beginning and its end."""
    summary = observation.summary
    return Observation(
        keep_head_and_tail(observation.raw_output, MAX_OBSERVATION_CHARACTERS),
        None if summary is None else keep_head_and_tail(summary, MAX_OBSERVATION_CHARACTERS),
    )
