"""A tool call as a cycle: why it was made, what it was, what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from langmem_tiers.tasks.models import AgentAction, ExecutionOutcome
from langmem_tiers_langchain.message_source import is_added_by_middleware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph.prebuilt.tool_node import ToolCallRequest

_MIN_GOAL_WORDS = 4
"""What is shorter, such as "yes, go on", is none by itself."""
_FIRST_UNSPACED_CHARACTER = "\u0e00"
"""From here on stand the scripts of Thai, Chinese, Japanese and others without blanks between words."""


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """What a model asked for."""

    thought: str
    action: AgentAction
    url: str | None
    """Where, if the arguments say so; else it is where the task is."""

    @property
    def url_argument(self) -> dict[str, str]:
        """The address as an argument, if there is one."""
        return {} if self.url is None else {"url": self.url}


@dataclass(frozen=True, slots=True)
class CycleResult:
    """How a call ended."""

    outcome: ExecutionOutcome
    observation: str
    error_message: str | None = None


def read_requested_action(request: ToolCallRequest) -> RequestedAction:
    """The call that a request is about."""
    asked = request.tool_call
    arguments = asked["args"]
    url = arguments.get("url")
    return RequestedAction(
        _find_thought(get_state_messages(request.state), asked["id"]),
        AgentAction(asked["name"], arguments),
        url if isinstance(url, str) and url else None,
    )


def find_new_goal(messages: Sequence[BaseMessage], goal: str | None) -> str | None:
    """What the user asks for, if that is something new.

    Args:
        messages: Of the run.
        goal: What the task is now. One that no message says was set by hand, and stays.
    """
    said = [
        str(one.text) for one in messages if isinstance(one, HumanMessage) and not is_added_by_middleware(one)
    ]
    said = [text for text in said if text.strip()]
    if not said or (goal and goal not in said):
        return None
    wanted = next((text for text in reversed(said) if _is_request(text)), goal or said[0])
    return wanted if wanted != goal else None


def _is_request(text: str) -> bool:
    # Where words are not parted by blanks, two characters are about one.
    unparted = sum(char >= _FIRST_UNSPACED_CHARACTER for char in text)
    return len(text.split()) + unparted // 2 >= _MIN_GOAL_WORDS


def get_state_messages(state: object) -> Sequence[BaseMessage]:
    """The messages of a state of any shape."""
    if isinstance(state, list):
        return state
    found = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    return found if isinstance(found, list) else []


def to_cycle_result(result: object) -> CycleResult:
    """What a tool gave back: a message, a command for the graph, or several of them."""
    parts = result if isinstance(result, list) else [result]
    messages = [message for part in parts for message in _list_messages(part)]
    said = "\n".join(text for message in messages if (text := str(message.text)))
    told = said or "\n".join(_describe_command(part) for part in parts if isinstance(part, Command))
    if any(isinstance(message, ToolMessage) and message.status == "error" for message in messages):
        return CycleResult(ExecutionOutcome.FAILURE, told, told or "the tool answered with an error")
    return CycleResult(ExecutionOutcome.SUCCESS, told)


def to_failed_result(error: Exception) -> CycleResult:
    """What a tool raised."""
    outcome = ExecutionOutcome.TIMEOUT if isinstance(error, TimeoutError) else ExecutionOutcome.FAILURE
    told = f"{type(error).__name__}: {error}".removesuffix(": ")
    return CycleResult(outcome, told, told)


def _find_thought(messages: Sequence[BaseMessage], call_id: str | None) -> str:
    for message in reversed(messages):
        if isinstance(message, AIMessage) and any(one["id"] == call_id for one in message.tool_calls):
            return str(message.text)
    return ""


def _list_messages(part: object) -> list[BaseMessage]:
    if not isinstance(part, Command):
        return [part] if isinstance(part, BaseMessage) else []
    changes: Any = part.update
    if isinstance(changes, list):  # pairs of a channel and a value, or messages by themselves
        changes = dict(one for one in changes if isinstance(one, tuple) and len(one) == 2)
    held = changes.get("messages") if isinstance(changes, Mapping) else getattr(changes, "messages", None)
    several = held if isinstance(held, list | tuple) else [held]
    return [one for one in several if isinstance(one, BaseMessage)]


def _describe_command(command: Command[Any]) -> str:
    where = f"goto {command.goto!r}" if command.goto else ""
    changed = f"update {sorted(map(str, command.update))!r}" if isinstance(command.update, Mapping) else ""
    return "; ".join(filter(None, [where, changed]))
