"""Offline chat model for demonstrations that only quotes its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM

from langmem_tiers import ContentAwareCounter
from langmem_tiers.integration_kit import FRAME_TOKENS, REPLY_TOKENS, quote_answer
from langmem_tiers_llamaindex.convert import message_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

_CONTEXT_WINDOW_TOKENS = 8_192


class ExtractiveLLM(FunctionCallingLLM):
    """Chat model that answers with the sentence of its prompt that shares most words with the newest question.

    Without a good match the answer is ``I don't know.``; a text without a question mark gets ``Noted.``. The model is
    stateless and invents nothing, so its answers show what the prompt contained. It accepts tools but never calls
    them. The answer's ``additional_kwargs["prompt_tokens"]`` is the size of the prompt.
    """

    @classmethod
    def class_name(cls) -> str:
        """Name of the class in serialized data."""
        return "ExtractiveLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """Capabilities of the model."""
        return LLMMetadata(
            context_window=_CONTEXT_WINDOW_TOKENS,
            is_chat_model=True,
            is_function_calling_model=True,
            model_name="extractive",
        )

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:  # noqa: ANN401 - the framework's signature
        """Return the answer."""
        return _build_chat_response(messages)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:  # noqa: ANN401 - as above
        """Return the answer."""
        return _build_chat_response(messages)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **_: Any) -> Iterator[ChatResponse]:  # noqa: ANN401 - as above
        """Return the answer as a stream of one chunk."""

        def pieces() -> Iterator[ChatResponse]:
            yield _to_stream_chunk(_build_chat_response(messages))

        return pieces()

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **_: Any) -> AsyncIterator[ChatResponse]:  # noqa: ANN401 - as above
        """Return the answer as a stream of one chunk."""

        async def pieces() -> AsyncIterator[ChatResponse]:
            yield _to_stream_chunk(_build_chat_response(messages))

        return pieces()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:  # noqa: ANN401, ARG002, FBT001, FBT002 - as above
        """Return the answer to a text prompt."""
        return _build_completion(prompt)

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:  # noqa: ANN401, ARG002, FBT001, FBT002 - as above
        """Return the answer to a text prompt."""
        return _build_completion(prompt)

    @llm_completion_callback()
    def stream_complete(
        self,
        prompt: str,
        formatted: bool = False,  # noqa: ARG002, FBT001, FBT002 - as above
        **_: Any,  # noqa: ANN401 - as above
    ) -> Iterator[CompletionResponse]:
        """Return the answer to a text prompt as a stream of one chunk."""

        def pieces() -> Iterator[CompletionResponse]:
            answer = _build_completion(prompt)
            yield CompletionResponse(text=answer.text, delta=answer.text)

        return pieces()

    @llm_completion_callback()
    async def astream_complete(
        self,
        prompt: str,
        formatted: bool = False,  # noqa: ARG002, FBT001, FBT002 - as above
        **_: Any,  # noqa: ANN401 - as above
    ) -> AsyncIterator[CompletionResponse]:
        """Return the answer to a text prompt as a stream of one chunk."""

        async def pieces() -> AsyncIterator[CompletionResponse]:
            answer = _build_completion(prompt)
            yield CompletionResponse(text=answer.text, delta=answer.text)

        return pieces()

    def _prepare_chat_with_tools(  # type: ignore[override]  # only the arguments that it uses
        self,
        tools: Sequence[Any],  # noqa: ARG002 - it never calls tools
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        **_: Any,  # noqa: ANN401 - as above
    ) -> dict[str, Any]:
        question = (
            ChatMessage(role=MessageRole.USER, content=user_msg) if isinstance(user_msg, str) else user_msg
        )
        return {"messages": [*(chat_history or ()), *(() if question is None else (question,))]}

    def get_tool_calls_from_response(self, *_: Any, **__: Any) -> list[Any]:  # noqa: ANN401 - as above
        """Return no tool calls."""
        return []


def _quote_from_messages(messages: Sequence[ChatMessage]) -> str:
    questions = (message.content or "" for message in reversed(messages) if message.role is MessageRole.USER)
    return quote_answer([message.content or "" for message in messages], next(questions, None))


def count_prompt_tokens(messages: Sequence[ChatMessage]) -> int:
    """Return the tokens of a prompt by the engine's default counter."""
    count = ContentAwareCounter().count
    return sum(message_tokens(message, count) + FRAME_TOKENS for message in messages) + REPLY_TOKENS


def _build_chat_response(messages: Sequence[ChatMessage]) -> ChatResponse:
    answer = ChatMessage(role=MessageRole.ASSISTANT, content=_quote_from_messages(messages))
    return ChatResponse(message=answer, additional_kwargs={"prompt_tokens": count_prompt_tokens(messages)})


def _to_stream_chunk(answer: ChatResponse) -> ChatResponse:
    return answer.model_copy(update={"delta": answer.message.content})


def _build_completion(prompt: str) -> CompletionResponse:
    # A text prompt has no roles: its last line with a question mark is the question.
    question = next((line for line in reversed(prompt.splitlines()) if "?" in line), None)
    return CompletionResponse(text=quote_answer([prompt], question))
