"""Conversion of tool calls to cycles of thought, action and observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from langmem_tiers import AgentAction, ExecutionOutcome
from langmem_tiers_langchain.convert import is_added_by_middleware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph.prebuilt.tool_node import ToolCallRequest

_MIN_GOAL_WORDS = 4
"""Minimum number of words of a goal; shorter texts, such as "yes, go on", are not goals."""
_FIRST_UNSPACED_CHARACTER = "\u0e00"
"""First character (Thai) of the scripts without spaces between words, such as Chinese and Japanese."""


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """Tool call requested by a model."""

    thought: str
    action: AgentAction
    url: str | None
    """URL from the arguments; None for the current page of the task."""

    @property
    def url_argument(self) -> dict[str, str]:
        """URL as a keyword argument; empty if there is none."""
        return {} if self.url is None else {"url": self.url}


@dataclass(frozen=True, slots=True)
class CycleResult:
    """Outcome of a tool call."""

    outcome: ExecutionOutcome
    observation: str
    error_message: str | None = None


def read_requested_action(request: ToolCallRequest) -> RequestedAction:
    """Return the requested action with the model's text that preceded it."""
    call = request.tool_call
    arguments = call["args"]
    url = arguments.get("url")
    return RequestedAction(
        _find_thought(get_state_messages(request.state), call["id"]),
        AgentAction(call["name"], arguments),
        url if isinstance(url, str) and url else None,
    )


def find_new_goal(messages: Sequence[BaseMessage], goal: str | None) -> str | None:
    """Return the user's newest request if it differs from the goal, else None.

    Args:
        messages: Messages of the run.
        goal: Current goal. A goal that is not one of the messages was set by the caller and is kept.
    """
    texts = [
        str(message.text)
        for message in messages
        if isinstance(message, HumanMessage) and not is_added_by_middleware(message)
    ]
    texts = [text for text in texts if text.strip()]
    if not texts or (goal and goal not in texts):
        return None
    new_goal = next((text for text in reversed(texts) if _is_request(text)), goal or texts[0])
    return new_goal if new_goal != goal else None


def _is_request(text: str) -> bool:
    # In scripts without spaces, two characters count as one word.
    unspaced = sum(char >= _FIRST_UNSPACED_CHARACTER for char in text)
    return len(text.split()) + unspaced // 2 >= _MIN_GOAL_WORDS


def get_state_messages(state: object) -> Sequence[BaseMessage]:
    """Return the messages of a graph state: a list, a mapping or an object."""
    if isinstance(state, list):
        return state
    messages = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    return messages if isinstance(messages, list) else []


def to_cycle_result(result: object) -> CycleResult:
    """Convert the result of a tool: a message, a command for the graph, or a list of them."""
    parts = result if isinstance(result, list) else [result]
    messages = [message for part in parts for message in _list_messages(part)]
    message_text = "\n".join(text for message in messages if (text := str(message.text)))
    observation = message_text or "\n".join(
        _describe_command(part) for part in parts if isinstance(part, Command)
    )
    if any(isinstance(message, ToolMessage) and message.status == "error" for message in messages):
        return CycleResult(
            ExecutionOutcome.FAILURE, observation, observation or "the tool answered with an error"
        )
    return CycleResult(ExecutionOutcome.SUCCESS, observation)


def to_failed_result(error: Exception) -> CycleResult:
    """Convert an exception that a tool raised."""
    outcome = ExecutionOutcome.TIMEOUT if isinstance(error, TimeoutError) else ExecutionOutcome.FAILURE
    observation = f"{type(error).__name__}: {error}".removesuffix(": ")  # the text may be empty
    return CycleResult(outcome, observation, observation)


def _find_thought(messages: Sequence[BaseMessage], call_id: str | None) -> str:
    for message in reversed(messages):
        if isinstance(message, AIMessage) and any(call["id"] == call_id for call in message.tool_calls):
            return str(message.text)
    return ""


def _list_messages(part: object) -> list[BaseMessage]:
    if not isinstance(part, Command):
        return [part] if isinstance(part, BaseMessage) else []
    changes: Any = part.update
    # An update may be a mapping, an object, or a list of (channel, value) pairs.
    if isinstance(changes, list):
        changes = dict(pair for pair in changes if isinstance(pair, tuple) and len(pair) == 2)
    value = changes.get("messages") if isinstance(changes, Mapping) else getattr(changes, "messages", None)
    candidates = value if isinstance(value, list | tuple) else [value]
    return [message for message in candidates if isinstance(message, BaseMessage)]


def _describe_command(command: Command[Any]) -> str:
    target = f"goto {command.goto!r}" if command.goto else ""
    changes = f"update {sorted(map(str, command.update))!r}" if isinstance(command.update, Mapping) else ""
    return "; ".join(filter(None, [target, changes]))
