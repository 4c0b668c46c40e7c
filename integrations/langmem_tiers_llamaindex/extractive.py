"""A chat model for demonstrations: offline, and it knows nothing but its prompt."""

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

from langmem_tiers.integration_kit.extractive_answers import quote_answer
from langmem_tiers.text.token_counting import FRAME_TOKENS, REPLY_TOKENS, ContentAwareCounter
from langmem_tiers_llamaindex.convert import message_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

_CONTEXT_WINDOW_TOKENS = 8_192


class ExtractiveLLM(FunctionCallingLLM):
    """Answers with the sentence of its prompt that shares most words with the newest question.

    Where none shares enough, it says ``I don't know.``, and to what has no question mark ``Noted.``. It makes nothing
    up and keeps nothing from one call to the next, so its answers show what the prompt held. It takes tools and
    never calls one. What a prompt took is in the answer's ``additional_kwargs["prompt_tokens"]``.
    """

    @classmethod
    def class_name(cls) -> str:
        """Its name."""
        return "ExtractiveLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """What it can do."""
        return LLMMetadata(
            context_window=_CONTEXT_WINDOW_TOKENS,
            is_chat_model=True,
            is_function_calling_model=True,
            model_name="extractive",
        )

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:  # noqa: ANN401 - the framework's signature
        """The answer."""
        return _build_chat_response(messages)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:  # noqa: ANN401 - as above
        """The answer."""
        return _build_chat_response(messages)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **_: Any) -> Iterator[ChatResponse]:  # noqa: ANN401 - as above
        """The answer, in one piece."""

        def pieces() -> Iterator[ChatResponse]:
            yield _to_stream_chunk(_build_chat_response(messages))

        return pieces()

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **_: Any) -> AsyncIterator[ChatResponse]:  # noqa: ANN401 - as above
        """The answer, in one piece."""

        async def pieces() -> AsyncIterator[ChatResponse]:
            yield _to_stream_chunk(_build_chat_response(messages))

        return pieces()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:  # noqa: ANN401, ARG002, FBT001, FBT002 - as above
        """The answer to a prompt that is one text."""
        return _build_completion(prompt)

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:  # noqa: ANN401, ARG002, FBT001, FBT002 - as above
        """The answer to a prompt that is one text."""
        return _build_completion(prompt)

    @llm_completion_callback()
    def stream_complete(
        self,
        prompt: str,
        formatted: bool = False,  # noqa: ARG002, FBT001, FBT002 - as above
        **_: Any,  # noqa: ANN401 - as above
    ) -> Iterator[CompletionResponse]:
        """The answer to a prompt that is one text, in one piece."""

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
        """The answer to a prompt that is one text, in one piece."""

        async def pieces() -> AsyncIterator[CompletionResponse]:
            answer = _build_completion(prompt)
            yield CompletionResponse(text=answer.text, delta=answer.text)

        return pieces()

    def _prepare_chat_with_tools(  # type: ignore[override]  # what it takes is what it uses
        self,
        tools: Sequence[Any],  # noqa: ARG002 - it answers in words alone
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        **_: Any,  # noqa: ANN401 - as above
    ) -> dict[str, Any]:
        asked = (
            ChatMessage(role=MessageRole.USER, content=user_msg) if isinstance(user_msg, str) else user_msg
        )
        return {"messages": [*(chat_history or ()), *(() if asked is None else (asked,))]}

    def get_tool_calls_from_response(self, *_: Any, **__: Any) -> list[Any]:  # noqa: ANN401 - as above
        """None."""
        return []


def _quote_from_messages(messages: Sequence[ChatMessage]) -> str:
    """The sentence of a prompt that answers its newest question, or that it is not known."""
    asked = (one.content or "" for one in reversed(messages) if one.role is MessageRole.USER)
    return quote_answer([one.content or "" for one in messages], next(asked, None))


def count_prompt_tokens(messages: Sequence[ChatMessage]) -> int:
    """What a prompt takes, by the engine's own counter."""
    count = ContentAwareCounter().count
    return sum(message_tokens(one, count) + FRAME_TOKENS for one in messages) + REPLY_TOKENS


def _build_chat_response(messages: Sequence[ChatMessage]) -> ChatResponse:
    answer = ChatMessage(role=MessageRole.ASSISTANT, content=_quote_from_messages(messages))
    return ChatResponse(message=answer, additional_kwargs={"prompt_tokens": count_prompt_tokens(messages)})


def _to_stream_chunk(answer: ChatResponse) -> ChatResponse:
    return answer.model_copy(update={"delta": answer.message.content})


def _build_completion(prompt: str) -> CompletionResponse:
    question = next((line for line in reversed(prompt.splitlines()) if "?" in line), None)
    return CompletionResponse(text=quote_answer([prompt], question))
