"""Agents of ``langmem-tiers demo --framework llama-index``: one with memory and one without."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.agent.workflow import AgentInput, FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer

from langmem_tiers import ContentAwareCounter
from langmem_tiers.integration_kit import FRAME_TOKENS, REPLY_TOKENS, Assistants, Reply, quote_answer
from langmem_tiers_llamaindex.convert import message_tokens, to_message
from langmem_tiers_llamaindex.memory import TieredMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from llama_index.core.memory.types import BaseMemory

    from langmem_tiers import MemoryEngine
    from langmem_tiers.integration_kit import NamespacePath


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


class _DemoAgent:
    """LlamaIndex agent with an offline model.

    Args:
        memory_of: Function that creates the memory of a thread by its name.
    """

    def __init__(self, memory_of: Callable[[str], BaseMemory]) -> None:
        self._create_memory = memory_of
        self._threads: dict[str, BaseMemory] = {}

    def ask(self, question: str, thread: str) -> Reply:
        """Ask a question in a thread and return the answer with its prompt."""
        return asyncio.run(self._ask(question, thread))

    async def _ask(self, question: str, thread: str) -> Reply:
        memory = self._threads.setdefault(thread, self._create_memory(thread))
        run = FunctionAgent(llm=ExtractiveLLM()).run(user_msg=question, memory=memory)
        shown: list[Any] = []
        async for event in run.stream_events():
            shown = event.input if isinstance(event, AgentInput) else shown
        answer: Any = await run
        prompt = "\n\n".join(message.content or "" for message in shown)
        return Reply(answer.response.content or "", prompt, count_prompt_tokens(shown))


def make_assistants(engine: MemoryEngine, namespace: NamespacePath, budget: int) -> Assistants:
    """Create both agents, with the sessions of a namespace as their existing threads.

    Args:
        engine: Memory engine of one of the agents.
        namespace: Namespace with the sessions.
        budget: Maximum size of a prompt in tokens.
    """

    def plain(thread: str) -> BaseMemory:
        session = engine.namespace(namespace).find_session(thread)
        messages = [] if session is None else session.transcript.messages()
        # The whole thread, to be comparable with a LangChain agent, which has it in its checkpoints.
        return ChatMemoryBuffer.from_defaults(chat_history=[*map(to_message, messages)], token_limit=2**31)

    def remembering(thread: str) -> BaseMemory:
        return TieredMemory.from_defaults(
            engine=engine, namespace=namespace, session_id=thread, token_limit=budget
        )

    return Assistants(without_memory=_DemoAgent(plain), with_memory=_DemoAgent(remembering))
