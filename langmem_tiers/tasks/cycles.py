"""The cycles of the task at hand: what was done, what failed, and what goes round in circles."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.context_files.checks import (
    check_count,
    check_list,
    check_not_empty,
    check_number,
    check_object,
    check_text,
    check_unix_seconds,
)
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.loop_detection.weights import VISITING_TOOLS
from langmem_tiers.tasks.models import (
    AgentAction,
    ExecutionOutcome,
    MemoryEntry,
    MemoryPriority,
    Observation,
    Thought,
    compute_action_signature,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_Choice = TypeVar("_Choice", ExecutionOutcome, MemoryPriority)

LOOP_WINDOW_ACTIONS = 10
"""Actions that loop warnings look back on."""
_MAX_REMEMBERED_SIGNATURES = (
    100_000  # signatures, of failures and of frequencies each; beyond, the oldest are forgotten
)
_MAX_SHOWN_CHARACTERS = 200  # characters of the parameters, and of a result, in a history
_MAX_LABEL_CHARACTERS = 60
_LABEL_PARAMETERS = (
    "selector",
    "url",
    "text",
    "query",
    "xpath",
    "element",
    "path",
    "command",
    "key",
    "name",
    "index",
)
_UNINFORMATIVE_PARAMETERS = frozenset(
    {"direction", "amount", "pixels", "timeout", "seconds", "duration", "times"}
)


class RecentCycles:
    """The newest cycles, in their order.

    Beyond ``max_entries`` the cycle of the lowest priority leaves: LOW before NORMAL before HIGH, of these
    the oldest. CRITICAL ones never leave, and neither does a cycle because of its own arrival, since an agent
    has to see what it did last: where all others are CRITICAL, more than ``max_entries`` are held. That
    something failed, and how often it was done, is remembered for what has left, too.
    """

    def __init__(self, max_entries: int = 50) -> None:
        self.max_entries = check_whole(max_entries, 1, "max_entries")
        self.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecentCycles) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment] # it changes

    @property
    def entries(self) -> list[MemoryEntry]:
        """All cycles that are held, the oldest first."""
        return list(self._entries.values())

    def clear(self) -> None:
        """Forget all, failures and frequencies included."""
        self._entries: dict[int, MemoryEntry] = {}
        self._prunable_numbers: tuple[deque[int], ...] = (
            deque(),
            deque(),
            deque(),
        )  # by rank, the oldest first
        self._failed_signatures: OrderedDict[str, None] = OrderedDict()
        self._action_counts: OrderedDict[str, int] = OrderedDict()
        self._last_actions: deque[tuple[str, str]] = deque(
            maxlen=LOOP_WINDOW_ACTIONS
        )  # what was done, and how it is called
        self._next_number = 0
        self._token_count = 0

    def begin_turn(self) -> None:
        """The user asks for something: what is done from here on is no repeat of what was done before."""
        self._last_actions.clear()

    def add(self, entry: MemoryEntry) -> None:
        """Remember a cycle. Parameters are held as plain JSON: what is none by its text."""
        self.add_checked(entry_from_dict(entry_to_dict(entry)))

    def add_checked(self, entry: MemoryEntry) -> None:
        """Remember a cycle that was checked, and whose parameters are plain JSON that nobody changes."""
        if entry.outcome.is_failure:
            self._failed_signatures[entry.action_signature] = None
        done = compute_action_signature(entry.action)
        self._action_counts[done] = self._action_counts.get(done, 0) + 1
        for remembered in (self._failed_signatures, self._action_counts):
            if len(remembered) > _MAX_REMEMBERED_SIGNATURES:
                remembered.popitem(last=False)
        # The same click on another page is progress; the same address is a circle wherever it is gone to from.
        where = "" if "url" in entry.action.parameters else entry.url
        self._last_actions.append(
            (compute_action_signature(entry.action, where), build_action_label(entry.action))
        )
        self._append(entry)

    def _append(self, entry: MemoryEntry) -> None:
        self._entries[self._next_number] = entry
        self._token_count += entry.estimated_tokens
        while len(self._entries) > self.max_entries and any(self._prunable_numbers):
            oldest = next(numbers for numbers in self._prunable_numbers if numbers).popleft()
            self._token_count -= self._entries.pop(oldest).estimated_tokens
        if entry.priority is not MemoryPriority.CRITICAL:
            self._prunable_numbers[entry.priority.rank].append(self._next_number)
        self._next_number += 1

    def get_recent(self, n: int = 5) -> list[MemoryEntry]:
        """The newest ``n`` cycles, the oldest of them first."""
        check_whole(n, 0, "n")
        return list(islice(reversed(self._entries.values()), n))[::-1]

    def get_by_outcome(self, outcome: ExecutionOutcome) -> list[MemoryEntry]:
        """The cycles that ended so, the oldest first."""
        return [entry for entry in self._entries.values() if entry.outcome == outcome]

    def has_failed(self, signature: str) -> bool:
        """Whether an action with this signature failed, or ran out of time, in this task."""
        return signature in self._failed_signatures

    def get_action_frequency(self, tool_name: str, parameters: Mapping[str, Any]) -> int:
        """How often the tool was called with these parameters, wherever that was."""
        return self._action_counts.get(compute_action_signature(AgentAction(tool_name, parameters)), 0)

    def get_loop_warnings(self, threshold: int = 3) -> list[str]:
        """A line for each action that was done at least so often within the last ten, the most frequent first.

        An action is the same at the same address; one with an address among its parameters is, anywhere.
        """
        check_whole(threshold, 1, "threshold")
        labels = dict(self._last_actions)
        counted = Counter(done for done, _ in self._last_actions).most_common()
        return [
            f"Warning: {labels[done]} repeated {count} times in last {len(self._last_actions)} actions!"
            for done, count in counted
            if count >= threshold
        ]

    def format_history(self, last_n: int = 5) -> str:
        """The newest cycles as text for a prompt, warnings first; empty if there is none."""
        actions = self.format_actions(last_n)
        if not actions:
            return ""
        warnings = self.get_loop_warnings()
        return "\n".join(["## Recent Actions", *warnings, *([""] if warnings else []), actions])

    def format_actions(self, last_n: int = 5) -> str:
        """The newest cycles by themselves: a line for each, and below it an indented one with what came of it."""
        lines: list[str] = []
        for number, entry in enumerate(self.get_recent(last_n), 1):
            shown = json.dumps(entry.action.parameters, ensure_ascii=False)
            tool_name = to_one_line(entry.action.tool_name, _MAX_SHOWN_CHARACTERS)
            called = f"{tool_name}({to_one_line(shown, _MAX_SHOWN_CHARACTERS)})"
            lines.append(f"{number}. [{entry.outcome.value.capitalize()}] {called}")
            if result := _format_result(entry):
                lines.append(f"   {result}")
        return "\n".join(lines)

    def total_tokens(self) -> int:
        """The estimated tokens of all cycles that are held."""
        return self._token_count

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "max_entries": self.max_entries,
            "entries": [entry_to_dict(entry) for entry in self._entries.values()],
            "failed_signatures": list(self._failed_signatures),
            "action_frequency": dict(self._action_counts),
            "last_actions": [list(one) for one in self._last_actions],
        }

    @classmethod
    def from_dict(cls, value: object) -> RecentCycles:
        """The memory that ``to_dict`` wrote; ``InvalidInputError`` names what is wrong with it."""
        data = check_json_object(value, "short-term memory")
        memory = cls(data.get("max_entries", 50))
        for index, one in enumerate(check_list(data.get("entries", []), "entries")):
            memory._append(entry_from_dict(one, f"entries[{index}]"))
        for one in check_list(data.get("failed_signatures", []), "failed_signatures"):
            memory._failed_signatures[check_text(one, "failed_signatures")] = None
        for done, count in check_json_object(data.get("action_frequency", {}), "action_frequency").items():
            memory._action_counts[done] = check_count(count, f"action_frequency[{done!r}]")
        for one in check_list(data.get("last_actions", []), "last_actions"):
            if len(check_list(one, "last_actions")) != 2:
                raise InvalidInputError(f"last_actions must hold pairs, got {len(one)} parts: leave it out")
            memory._last_actions.append(
                (check_text(one[0], "last_actions"), check_text(one[1], "last_actions"))
            )
        return memory


def build_action_label(action: AgentAction) -> str:
    """A call in a few words: the tool and, where one tells what it is about, its parameter."""
    plain = {name: one for name, one in action.parameters.items() if isinstance(one, str | int) and one != ""}
    told = next((name for name in _LABEL_PARAMETERS if name in plain), None)
    if told is None and len(action.parameters) == 1 and not plain.keys() & _UNINFORMATIVE_PARAMETERS:
        told = next(iter(plain), None)
    name = to_one_line(action.tool_name, _MAX_LABEL_CHARACTERS)
    return name if told is None else f"{name}({to_one_line(str(plain[told]), _MAX_LABEL_CHARACTERS)})"


def to_one_line(text: str, most: int) -> str:
    """A text in one line of at most so many characters and three dots."""
    line = " ".join(text[: 2 * most + 1].split())
    return line if len(line) <= most and len(text) <= 2 * most else line[:most] + "..."


def _format_result(entry: MemoryEntry) -> str:
    text = to_one_line(entry.observation.text, _MAX_SHOWN_CHARACTERS) if entry.observation is not None else ""
    if entry.outcome.is_failure or (entry.error_message and not text):
        error = to_one_line(entry.error_message or "", _MAX_SHOWN_CHARACTERS) or text
        return f"Error: {error}" if error else ""
    url = entry.action.parameters.get("url")
    if entry.action.tool_name in VISITING_TOOLS and isinstance(url, str) and url:
        return f"Navigated to: {to_one_line(url, _MAX_SHOWN_CHARACTERS)}"
    return f"Result: {text}" if text else ""


def check_json_object(value: object, where: str) -> dict[str, Any]:
    """A JSON object with texts as keys, or an error that names it."""
    if not isinstance(value, dict):
        raise InvalidInputError(f"{where} must be a dict, got a {type(value).__name__}: use plain JSON")
    for key in value:
        check_text(key, f"a key of {where}")
    return value


def action_to_dict(action: AgentAction) -> dict[str, Any]:
    """A call as plain JSON."""
    return {"tool_name": action.tool_name, "parameters": to_plain_value(action.parameters)}


def action_from_dict(value: object, where: str = "action") -> AgentAction:
    """The call that plain JSON stands for."""
    data = check_json_object(value, where)
    parameters = check_object(data.get("parameters", {}), f"{where}.parameters")
    return AgentAction.from_plain_json(
        check_not_empty(data.get("tool_name"), f"{where}.tool_name"), parameters
    )


def entry_to_dict(entry: MemoryEntry) -> dict[str, Any]:
    """A cycle as plain JSON."""
    seen = entry.observation
    return {
        "entry_id": entry.entry_id,
        "timestamp": entry.timestamp,
        "thought": entry.thought.content,
        "action": action_to_dict(entry.action),
        "observation": None if seen is None else {"raw_output": seen.raw_output, "summary": seen.summary},
        "outcome": entry.outcome.value,
        "priority": entry.priority.value,
        "url": entry.url,
        "page_title": entry.page_title,
        "duration_ms": entry.duration_ms,
        "retry_count": entry.retry_count,
        "error_message": entry.error_message,
        "estimated_tokens": entry.estimated_tokens,
        "tags": sorted(entry.tags),
        "action_signature": entry.action_signature,
    }


def entry_from_dict(value: object, where: str = "entry") -> MemoryEntry:
    """The cycle that plain JSON stands for; what is missing gets what is usual."""
    data = check_json_object(value, where)
    error = data.get("error_message")
    tags = check_list(data.get("tags", []), f"{where}.tags")
    return MemoryEntry(
        entry_id=check_not_empty(data.get("entry_id"), f"{where}.entry_id"),
        timestamp=check_unix_seconds(data.get("timestamp"), f"{where}.timestamp"),
        thought=Thought(check_text(data.get("thought", ""), f"{where}.thought")),
        action=action_from_dict(data.get("action"), f"{where}.action"),
        observation=_parse_observation(data.get("observation"), f"{where}.observation"),
        outcome=_parse_choice(ExecutionOutcome, data.get("outcome", "success"), f"{where}.outcome"),
        priority=_parse_choice(MemoryPriority, data.get("priority", "normal"), f"{where}.priority"),
        url=check_text(data.get("url", ""), f"{where}.url"),
        page_title=check_text(data.get("page_title", ""), f"{where}.page_title"),
        duration_ms=check_number(data.get("duration_ms", 0.0), f"{where}.duration_ms"),
        retry_count=check_count(data.get("retry_count", 0), f"{where}.retry_count"),
        error_message=None if error is None else check_text(error, f"{where}.error_message"),
        estimated_tokens=check_count(data.get("estimated_tokens", 0), f"{where}.estimated_tokens"),
        tags=frozenset(check_text(tag, f"{where}.tags") for tag in tags),
        action_signature=check_text(data.get("action_signature", ""), f"{where}.action_signature"),
    )


def _parse_observation(value: object, where: str) -> Observation | None:
    if value is None:
        return None
    data = check_json_object(value, where)
    summary = data.get("summary")
    return Observation(
        check_text(data.get("raw_output", ""), f"{where}.raw_output"),
        None if summary is None else check_text(summary, f"{where}.summary"),
    )


def _parse_choice(kind: type[_Choice], value: object, where: str) -> _Choice:
    try:
        return kind(check_text(value, where))
    except InvalidInputError:
        raise
    except ValueError:
        known = ", ".join(repr(one.value) for one in kind)
        raise InvalidInputError(f"{where} must be one of {known}, got {str(value)[:40]!r}") from None
