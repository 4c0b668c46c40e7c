"""Chat models and checks for agents under test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from langmem_tiers_langchain.tool_call_repair import list_unique_calls

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

Reply = Callable[[Sequence[BaseMessage]], AIMessage]


class ScriptedChat(BaseChatModel):
    """Chat model that answers with a function of its prompt and records all prompts."""

    reply: Reply = lambda _: AIMessage("fine")
    seen: list[list[BaseMessage]] = Field(default_factory=list)
    tools: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self, messages: list[BaseMessage], stop: object = None, run_manager: object = None, **_: object
    ) -> ChatResult:
        self.seen.append(list(messages))
        answer = self.reply(messages).model_copy()
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def bind_tools(self, tools: Sequence[Any], **_: object) -> Runnable[Any, Any]:
        self.tools[:] = list(tools)
        return self


def join_texts(messages: Sequence[BaseMessage]) -> str:
    return "\n".join(str(message.text) for message in messages)


def check_tool_call_order(messages: Sequence[BaseMessage]) -> None:
    """Check the order that providers require: a human message first, and one result directly after each call."""
    conversation = [message for message in messages if not isinstance(message, SystemMessage)]
    assert not conversation or isinstance(conversation[0], HumanMessage), [m.type for m in conversation]
    waiting: list[str] = []
    for message in conversation:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in waiting, f"an orphan: {message!r}"
            waiting.remove(message.tool_call_id)
            continue
        assert not waiting, f"no result for {waiting}"
        waiting = [call["id"] for call in list_unique_calls(message)]
    assert not waiting, f"no result for {waiting}"
