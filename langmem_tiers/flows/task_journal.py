"""The journal of a task: every cycle and every change, on the disk before the next is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers.compression.extraction_budget import head_and_tail
from langmem_tiers.core.messages import MessageDraft, Role
from langmem_tiers.core.tasks import Observation, plain_value
from langmem_tiers.tiers.task.cycles import entry_from_dict, entry_to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.tasks import MemoryEntry
    from langmem_tiers.flows.session import Session

KEPT_CHARACTERS = 100_000
"""Of an observation that are kept; of a longer one its beginning and its end."""
_TOLD_CHARACTERS = 8_000
"""Of an observation that recall looks at."""
_NOTES = ": notes"


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
        self._cycles = open_session(namespace, task)
        self._notes = open_session(namespace, f"{task}{_NOTES}")

    def append(self, entry: MemoryEntry) -> None:
        """Keep a cycle."""
        if self.is_replaying:
            return
        told = [entry.thought.content, f"{entry.action.tool_name} {entry.action.parameters_json}"]
        if entry.observation is not None:
            told.append(head_and_tail(entry.observation.text, _TOLD_CHARACTERS))
        draft = MessageDraft(
            Role.ASSISTANT,
            "\n".join(filter(None, told)) or entry.action.tool_name,
            id=entry.entry_id,
            payload={"cycle": entry_to_dict(entry)},
        )
        self._cycles.add(draft)

    def note(self, kind: str, value: object) -> None:
        """Keep a change."""
        if not self.is_replaying:
            payload = {"note": kind, "value": plain_value(value)}
            self._notes.add(MessageDraft(Role.SYSTEM, f"{self.task}: {kind}", payload=payload))

    def cycles(self) -> Iterator[MemoryEntry]:
        """All cycles, oldest first."""
        for message in self._cycles.messages():
            payload = message.payload
            if isinstance(payload, dict) and isinstance(payload.get("cycle"), dict):
                yield entry_from_dict(payload["cycle"])

    def notes(self) -> Iterator[tuple[str, Any, float]]:
        """All changes, oldest first, each with its time in seconds since 1970."""
        for message in self._notes.messages():
            payload: Any = message.payload
            if isinstance(payload, dict) and isinstance(payload.get("note"), str):
                yield payload["note"], payload.get("value"), message.created_at.timestamp()


def kept(observation: Observation) -> Observation:
    """The observation as it is kept: of a very long one its beginning and its end."""
    if len(observation.raw_output) <= KEPT_CHARACTERS:
        return observation
    return Observation(head_and_tail(observation.raw_output, KEPT_CHARACTERS), observation.summary)
