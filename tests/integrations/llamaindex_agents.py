"""Scripted models for LlamaIndex chat engines and agents, and checks of their prompts."""

from __future__ import annotations

import copy
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, TypeAlias

from pydantic import Field

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ChatResponse,
        CompletionResponse,
        LLMMetadata,
        MessageRole,
        TextBlock,
        ToolCallBlock,
    )
    from llama_index.core.llms.custom import CustomLLM
    from llama_index.core.llms.function_calling import FunctionCallingLLM
    from llama_index.core.llms.llm import ToolSelection
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

Prompt: TypeAlias = Sequence[ChatMessage]
Reply: TypeAlias = Callable[[Prompt], ChatMessage | str]


def _reply_noted(_: Prompt) -> ChatMessage | str:
    return "I have noted it."


class ScriptedLLM(FunctionCallingLLM):
    """Chat model with tools that answers with a function of its prompt and records all prompts."""

    reply: Reply = _reply_noted
    seen: list[list[ChatMessage]] = Field(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True, context_window=30_000)

    def chat(self, messages: Prompt, **_: Any) -> ChatResponse:
        return ChatResponse(message=self._answer(messages))

    async def achat(self, messages: Prompt, **_: Any) -> ChatResponse:
        return self.chat(messages)

    def stream_chat(self, messages: Prompt, **_: Any) -> Any:
        return _stream(self._answer(messages))

    async def astream_chat(self, messages: Prompt, **_: Any) -> Any:
        return _stream_async(self.stream_chat(messages))

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:  # noqa: FBT001, FBT002 - the framework's signature
        return CompletionResponse(text=self._answer([ChatMessage(prompt)]).content or "")

    async def acomplete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:  # noqa: FBT001, FBT002 - as above
        return self.complete(prompt)

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002 - as above
        raise NotImplementedError

    async def astream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002 - as above
        raise NotImplementedError

    def _prepare_chat_with_tools(
        self,
        tools: Any,
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        *_: Any,
        **__: Any,
    ) -> dict[str, Any]:
        message = ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg
        return {"messages": [*(chat_history or []), *([] if message is None else [message])]}

    def get_tool_calls_from_response(
        self,
        response: ChatResponse,
        error_on_no_tool_call: bool = True,  # noqa: FBT001, FBT002 - as above
        **_: Any,
    ) -> list[ToolSelection]:
        blocks = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
        return [
            ToolSelection(
                tool_id=block.tool_call_id or block.tool_name,  # as integrations do whose models give no ids
                tool_name=block.tool_name,
                tool_kwargs=block.tool_kwargs if isinstance(block.tool_kwargs, dict) else {},
            )
            for block in blocks
        ]

    def _answer(self, messages: Prompt) -> ChatMessage:
        self.seen.append(copy.deepcopy(list(messages)))  # agents change prompts in place
        answer = self.reply(messages)
        return ChatMessage(role="assistant", content=answer) if isinstance(answer, str) else answer


class CompletionLLM(CustomLLM):
    """Completion model whose prompt is one text."""

    reply: Reply = _reply_noted
    seen: list[list[ChatMessage]] = Field(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=30_000)

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:  # noqa: FBT001, FBT002 - the framework's signature
        self.seen.append([ChatMessage(prompt)])
        return CompletionResponse(text=str(self.reply(self.seen[-1])))

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002 - as above
        text = self.complete(prompt).text
        half = len(text) // 2
        yield CompletionResponse(text=text[:half], delta=text[:half])
        yield CompletionResponse(text=text, delta=text[half:])


class SingleNodeRetriever(BaseRetriever):
    """Retriever that returns the same note for every query."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text="Cats sleep for most of the day."), score=1.0)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._retrieve(query_bundle)


class AnswerSequence:
    """Return the answers in order for any prompt, then repeat the last one."""

    def __init__(self, *answers: ChatMessage | str) -> None:
        self._answers = list(answers)

    def __call__(self, _: Prompt) -> ChatMessage | str:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return copy.deepcopy(answer)  # agents change answers in place


def create_tool_calls(*calls: tuple[str | None, str, dict[str, Any]], text: str = "") -> ChatMessage:
    """Create an answer with tool calls, each given by id, name and arguments."""
    blocks: list[Any] = [TextBlock(text=text)] if text else []
    for call, name, arguments in calls:
        blocks.append(ToolCallBlock(tool_call_id=call, tool_name=name, tool_kwargs=arguments))
    return ChatMessage(role="assistant", blocks=blocks)


def texts(messages: Prompt) -> str:
    """Return the text of all messages of a prompt."""
    return "\n".join(message.content or "" for message in messages)


def roles(messages: Prompt) -> list[str]:
    return [message.role.value for message in messages]


def list_turns(messages: Prompt) -> list[tuple[str, str]]:
    """List role and text of each message, with tool names for calls."""
    return [(message.role.value, message.content or _list_tool_names(message)) for message in messages]


def check_call_order(messages: Prompt) -> None:
    """Check the order that providers require: a user message first, and one result directly after each call."""
    talk = [message for message in messages if message.role is not MessageRole.SYSTEM]
    assert not talk or talk[0].role is MessageRole.USER, roles(talk)
    waiting: list[str] = []
    for message in talk:
        if message.role is MessageRole.TOOL:
            call = message.additional_kwargs.get("tool_call_id")
            assert call in waiting, f"an orphan: {message!r}"
            waiting.remove(str(call))
            continue
        assert not waiting, f"no result for {waiting}"
        blocks = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
        waiting = [block.tool_call_id or block.tool_name for block in blocks]
    assert not waiting, f"no result for {waiting}"


def _list_tool_names(message: ChatMessage) -> str:
    return " ".join(block.tool_name for block in message.blocks if isinstance(block, ToolCallBlock))


def _stream(message: ChatMessage) -> Iterator[ChatResponse]:
    text = message.content or ""
    half = len(text) // 2
    if half:
        yield ChatResponse(message=ChatMessage(role="assistant", content=text[:half]), delta=text[:half])
    yield ChatResponse(message=message, delta=text[half:])


async def _stream_async(responses: Iterator[ChatResponse]) -> AsyncIterator[ChatResponse]:
    for response in responses:
        yield response
