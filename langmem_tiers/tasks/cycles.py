"""Recent cycles of a task, with its failed actions and action counts."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.json_values import to_plain_value
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
    Cycle,
    ExecutionOutcome,
    MemoryPriority,
    Observation,
    Thought,
    compute_action_signature,
)
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Mapping

_Choice = TypeVar("_Choice", ExecutionOutcome, MemoryPriority)

LOOP_WINDOW_ACTIONS = 10
"""Number of latest actions that loop warnings consider."""
# Limit for failed signatures and for action counts. The oldest are dropped first.
_MAX_REMEMBERED_SIGNATURES = 100_000
# Limit for the parameters and for the result of an action in a prompt.
_MAX_SHOWN_CHARACTERS = 200
_MAX_LABEL_CHARACTERS = 60
# Parameters that identify an action best, in order of preference.
_LABEL_PARAMETERS = load_words(__name__, "tool_calls", "label parameters")
_UNINFORMATIVE_PARAMETERS = frozenset(
    {"direction", "amount", "pixels", "timeout", "seconds", "duration", "times"}
)


class RecentCycles:
    """Recent cycles in chronological order.

    Above ``max_entries``, the oldest cycle of the lowest priority is removed: LOW, then NORMAL, then HIGH. CRITICAL
    cycles are never removed. The newest cycle is not removed when it is added, because the agent must see its last
    action; if all others are CRITICAL, there are more than ``max_entries``. Failed actions and action counts are
    kept for removed cycles too.
    """

    def __init__(self, max_entries: int = 50) -> None:
        self.max_entries = check_whole(max_entries, 1, "max_entries")
        self.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecentCycles) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment] # mutable

    @property
    def entries(self) -> list[Cycle]:
        """All stored cycles, oldest first."""
        return list(self._entries.values())

    def clear(self) -> None:
        """Remove all cycles, failed actions and action counts."""
        self._entries: dict[int, Cycle] = {}
        # Numbers of the entries that may be removed, one queue per priority rank, oldest first.
        self._prunable_numbers: tuple[deque[int], ...] = (deque(), deque(), deque())
        self._failed_signatures: OrderedDict[str, None] = OrderedDict()
        self._action_counts: OrderedDict[str, int] = OrderedDict()
        # Signature and label of each of the latest actions.
        self._last_actions: deque[tuple[str, str]] = deque(maxlen=LOOP_WINDOW_ACTIONS)
        self._next_number = 0
        self._token_count = 0

    def begin_turn(self) -> None:
        """Begin a new user request: earlier actions no longer count for loop warnings."""
        self._last_actions.clear()

    def add(self, cycle: Cycle) -> None:
        """Add a cycle. Parameters are copied as plain JSON; other objects are stored as text."""
        self.add_checked(cycle_from_dict(cycle_to_dict(cycle)))

    def add_checked(self, cycle: Cycle) -> None:
        """Add a validated cycle without copying it; its parameters must be plain, immutable JSON."""
        if cycle.outcome.is_failure:
            self._failed_signatures[cycle.action_signature] = None
        signature = compute_action_signature(cycle.action)
        self._action_counts[signature] = self._action_counts.get(signature, 0) + 1
        for remembered in (self._failed_signatures, self._action_counts):
            if len(remembered) > _MAX_REMEMBERED_SIGNATURES:
                remembered.popitem(last=False)
        # The same click on another page is progress, so the page is part of the signature. A navigation to the same
        # address is a repeat from any page.
        page_url = "" if "url" in cycle.action.parameters else cycle.url
        self._last_actions.append(
            (compute_action_signature(cycle.action, page_url), build_action_label(cycle.action))
        )
        self._append(cycle)

    def _append(self, cycle: Cycle) -> None:
        self._entries[self._next_number] = cycle
        self._token_count += cycle.estimated_tokens
        # Prune before the new cycle is added to its queue, so that it cannot be removed itself.
        while len(self._entries) > self.max_entries and any(self._prunable_numbers):
            oldest = next(numbers for numbers in self._prunable_numbers if numbers).popleft()
            self._token_count -= self._entries.pop(oldest).estimated_tokens
        if cycle.priority is not MemoryPriority.CRITICAL:
            self._prunable_numbers[cycle.priority.rank].append(self._next_number)
        self._next_number += 1

    def get_recent(self, n: int = 5) -> list[Cycle]:
        """Return the newest ``n`` cycles, oldest first."""
        check_whole(n, 0, "n")
        return list(islice(reversed(self._entries.values()), n))[::-1]

    def get_by_outcome(self, outcome: ExecutionOutcome) -> list[Cycle]:
        """Return the cycles with an outcome, oldest first."""
        return [cycle for cycle in self._entries.values() if cycle.outcome == outcome]

    def has_failed(self, signature: str) -> bool:
        """Return True if an action with this signature failed or timed out in this task."""
        return signature in self._failed_signatures

    def get_action_frequency(self, tool_name: str, parameters: Mapping[str, Any]) -> int:
        """Return how often the tool was called with these parameters, on any page."""
        return self._action_counts.get(compute_action_signature(AgentAction(tool_name, parameters)), 0)

    def get_loop_warnings(self, threshold: int = 3) -> list[str]:
        """Return a warning for each action repeated ``threshold`` times in the last ten, most frequent first.

        Actions are compared per page, except for actions with a ``url`` parameter.
        """
        check_whole(threshold, 1, "threshold")
        labels = dict(self._last_actions)
        counted = Counter(signature for signature, _ in self._last_actions).most_common()
        return [
            f"Warning: {labels[signature]} repeated {count} times in last {len(self._last_actions)} actions!"
            for signature, count in counted
            if count >= threshold
        ]

    def format_history(self, last_n: int = 5) -> str:
        """Format the newest cycles for a prompt, warnings first; empty without cycles."""
        actions = self.format_actions(last_n)
        if not actions:
            return ""
        warnings = self.get_loop_warnings()
        return "\n".join(["## Recent Actions", *warnings, *([""] if warnings else []), actions])

    def format_actions(self, last_n: int = 5) -> str:
        """Format the newest cycles without warnings: a numbered line for each, with its result below."""
        lines: list[str] = []
        for number, cycle in enumerate(self.get_recent(last_n), 1):
            parameters = json.dumps(cycle.action.parameters, ensure_ascii=False)
            tool_name = to_one_line(cycle.action.tool_name, _MAX_SHOWN_CHARACTERS)
            call = f"{tool_name}({to_one_line(parameters, _MAX_SHOWN_CHARACTERS)})"
            lines.append(f"{number}. [{cycle.outcome.value.capitalize()}] {call}")
            if result := _format_result(cycle):
                lines.append(f"   {result}")
        return "\n".join(lines)

    def total_tokens(self) -> int:
        """Return the estimated tokens of all stored cycles."""
        return self._token_count

    def to_dict(self) -> dict[str, Any]:
        """Convert the cycles to plain JSON values."""
        return {
            "max_entries": self.max_entries,
            "entries": [cycle_to_dict(cycle) for cycle in self._entries.values()],
            "failed_signatures": list(self._failed_signatures),
            "action_frequency": dict(self._action_counts),
            "last_actions": [list(signature_and_label) for signature_and_label in self._last_actions],
        }

    @classmethod
    def from_dict(cls, value: object) -> RecentCycles:
        """Restore cycles from ``to_dict``; an ``InvalidInputError`` names damaged values."""
        data = check_json_object(value, "short-term memory")
        memory = cls(data.get("max_entries", 50))
        # The signatures and counts are stored separately, so the entries are appended without counting them again.
        for index, item in enumerate(check_list(data.get("entries", []), "entries")):
            memory._append(cycle_from_dict(item, f"entries[{index}]"))
        for signature in check_list(data.get("failed_signatures", []), "failed_signatures"):
            memory._failed_signatures[check_text(signature, "failed_signatures")] = None
        counts = check_json_object(data.get("action_frequency", {}), "action_frequency")
        for signature, count in counts.items():
            memory._action_counts[signature] = check_count(count, f"action_frequency[{signature!r}]")
        for pair in check_list(data.get("last_actions", []), "last_actions"):
            if len(check_list(pair, "last_actions")) != 2:
                raise InvalidInputError(
                    f"last_actions must contain pairs, got {len(pair)} items: leave it out"
                )
            memory._last_actions.append(
                (check_text(pair[0], "last_actions"), check_text(pair[1], "last_actions"))
            )
        return memory


def build_action_label(action: AgentAction) -> str:
    """Build a short label of a call: the tool and its most informative parameter, if there is one."""
    plain = {
        name: value
        for name, value in action.parameters.items()
        if isinstance(value, str | int) and value != ""
    }
    label_name = next((name for name in _LABEL_PARAMETERS if name in plain), None)
    if label_name is None and len(action.parameters) == 1 and not plain.keys() & _UNINFORMATIVE_PARAMETERS:
        label_name = next(iter(plain), None)
    tool_name = to_one_line(action.tool_name, _MAX_LABEL_CHARACTERS)
    if label_name is None:
        return tool_name
    return f"{tool_name}({to_one_line(str(plain[label_name]), _MAX_LABEL_CHARACTERS)})"


def to_one_line(text: str, max_length: int) -> str:
    """Return a text as one line of at most ``max_length`` characters, followed by ``...`` if it was cut."""
    # Normalize only as much text as is needed: it may be a megabyte.
    line = " ".join(text[: 2 * max_length + 1].split())
    return line if len(line) <= max_length and len(text) <= 2 * max_length else line[:max_length] + "..."


def _format_result(cycle: Cycle) -> str:
    text = to_one_line(cycle.observation.text, _MAX_SHOWN_CHARACTERS) if cycle.observation is not None else ""
    if cycle.outcome.is_failure or (cycle.error_message and not text):
        error = to_one_line(cycle.error_message or "", _MAX_SHOWN_CHARACTERS) or text
        return f"Error: {error}" if error else ""
    url = cycle.action.parameters.get("url")
    if cycle.action.tool_name in VISITING_TOOLS and isinstance(url, str) and url:
        return f"Navigated to: {to_one_line(url, _MAX_SHOWN_CHARACTERS)}"
    return f"Result: {text}" if text else ""


def check_json_object(value: object, where: str) -> dict[str, Any]:
    """Return a JSON object with string keys, without copying it."""
    if not isinstance(value, dict):
        raise InvalidInputError(f"{where} must be a dict, got {type(value).__name__}: use plain JSON")
    for key in value:
        check_text(key, f"a key of {where}")
    return value


def action_to_dict(action: AgentAction) -> dict[str, Any]:
    """Convert an action to plain JSON values."""
    return {"tool_name": action.tool_name, "parameters": to_plain_value(action.parameters)}


def action_from_dict(value: object, where: str = "action") -> AgentAction:
    """Restore an action from plain JSON values."""
    data = check_json_object(value, where)
    parameters = check_object(data.get("parameters", {}), f"{where}.parameters")
    return AgentAction.from_plain_json(
        check_not_empty(data.get("tool_name"), f"{where}.tool_name"), parameters
    )


def cycle_to_dict(cycle: Cycle) -> dict[str, Any]:
    """Convert a cycle to plain JSON values."""
    observation = cycle.observation
    return {
        "entry_id": cycle.entry_id,
        "timestamp": cycle.timestamp,
        "thought": cycle.thought.content,
        "action": action_to_dict(cycle.action),
        "observation": None
        if observation is None
        else {"raw_output": observation.raw_output, "summary": observation.summary},
        "outcome": cycle.outcome.value,
        "priority": cycle.priority.value,
        "url": cycle.url,
        "page_title": cycle.page_title,
        "duration_ms": cycle.duration_ms,
        "retry_count": cycle.retry_count,
        "error_message": cycle.error_message,
        "estimated_tokens": cycle.estimated_tokens,
        "tags": sorted(cycle.tags),
        "action_signature": cycle.action_signature,
    }


def cycle_from_dict(value: object, where: str = "cycle") -> Cycle:
    """Restore a cycle from plain JSON values; missing values get their defaults."""
    data = check_json_object(value, where)
    error = data.get("error_message")
    tags = check_list(data.get("tags", []), f"{where}.tags")
    return Cycle(
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
        # check_text() failed; InvalidInputError is a ValueError, so keep its message.
        raise
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in kind)
        raise InvalidInputError(f"{where} must be one of {choices}, got {str(value)[:40]!r}") from None
