"""Scripted chat model that can call tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.callbacks import CallbackManagerForLLMRun
    from langchain_core.outputs import ChatResult
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool


class ScriptedChat(GenericFakeChatModel):
    """Chat model that returns its answers in order and records its prompts."""

    prompts: list[list[BaseMessage]] = []  # noqa: RUF012 - pydantic copies it for each model

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[Any, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.prompts.append(messages)
        return super()._generate(messages, stop, run_manager, **kwargs)


def create_scripted_chat(*answers: AIMessage | str) -> ScriptedChat:
    return ScriptedChat(messages=iter(answers))


def call(name: str, number: int = 1, **arguments: Any) -> AIMessage:
    """Create an answer with a tool call."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{number}"}])
