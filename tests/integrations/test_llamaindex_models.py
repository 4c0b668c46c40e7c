"""LlamaIndex models as models of the engine."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import InvalidInputError, MemoryEngine
from langmem_tiers.testing.threads import run_in_threads

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ChatResponse,
        CompletionResponse,
        LLMMetadata,
        MessageRole,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler
    from llama_index.core.instrumentation.events.llm import LLMChatStartEvent
    from llama_index.core.llms import MockLLM
    from llama_index.core.llms.mock import MockFunctionCallingLLM
    from llama_index_instrumentation import get_dispatcher
    from llama_index_instrumentation.dispatcher import instrument_tags

    from langmem_tiers_llamaindex.models import LlamaIndexModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers import LanguageModel


def create_answering_model(*blocks: Any) -> MockFunctionCallingLLM:
    """Create a chat model that always answers with these blocks."""
    return MockFunctionCallingLLM(
        is_chat_model=True,
        response_generator=lambda _, **__: ChatMessage(role="assistant", blocks=list(blocks)),
    )


class RecordingLLM(MockLLM):
    """Model like those of providers, with a plain API key, that records its prompts."""

    max_tokens: int | None = None
    prompts: list[Any] = []  # noqa: RUF012 - pydantic copies it
    api_key: str = "sk-hunter2"

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        self.prompts.append([(message.role, message.content) for message in messages])
        return ChatResponse(message=ChatMessage(role="assistant", content="Hello."))

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: FBT001, FBT002 - the framework's signature
        self.prompts.append(prompt)
        return CompletionResponse(text="Hello.")


def test_a_chat_model_gets_system_rules_and_a_word_limit() -> None:
    llm = RecordingLLM(is_chat_model=True, system_prompt="Speak like a pirate.")
    model: LanguageModel = LlamaIndexModel(llm)
    assert model.complete("Say hello.", system="Be kind.", max_tokens=100) == "Hello."
    assert llm.prompts == [
        [
            (MessageRole.SYSTEM, "Be kind.\n\nAnswer in at most 75 words."),
            (MessageRole.USER, "Say hello."),
        ]
    ]


def test_a_completion_model_gets_one_text() -> None:
    llm = RecordingLLM(is_chat_model=False)
    assert LlamaIndexModel(llm).complete("Say hello.", system="Be kind.", max_tokens=1) == "Hello."
    assert llm.prompts == ["Be kind.\n\nAnswer in at most 1 words.\n\nSay hello."]


def test_a_completion_model_formats_the_prompt_itself() -> None:
    class Instructed(MockLLM):
        max_tokens: int | None = None

        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: FBT001, FBT002 - as above
            assert self.completion_to_prompt is not None
            return CompletionResponse(text=prompt if formatted else self.completion_to_prompt(prompt))

    llm = Instructed(completion_to_prompt=lambda prompt: f"[INST]{prompt}[/INST]")
    answer = LlamaIndexModel(llm).complete("Hello.")
    assert answer == "[INST]Answer in at most 375 words.\n\nHello.[/INST]"


def test_rules_use_the_system_role_of_the_provider() -> None:
    class Elsewhere(RecordingLLM):
        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(is_chat_model=True, system_role=MessageRole.CHATBOT)

    llm = Elsewhere()
    LlamaIndexModel(llm).complete("x")
    assert llm.prompts[0][0][0] is MessageRole.CHATBOT


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        ([ThinkingBlock(content="hm"), TextBlock(text="Hello.")], "Hello."),
        ([TextBlock(text="Hello."), TextBlock(text="Bye.")], "Hello.\nBye."),
        ([ToolCallBlock(tool_name="x", tool_kwargs={})], ""),
        ([], ""),
    ],
    ids=["thoughts", "parts", "call", "nothing"],
)
def test_the_answer_is_the_text_of_the_response(blocks: list[Any], text: str) -> None:
    assert LlamaIndexModel(create_answering_model(*blocks)).complete("x") == text


@pytest.mark.parametrize("value", ["openai", None, object(), MockLLM, lambda prompt: prompt])
def test_a_value_that_is_not_a_model_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"expected a LlamaIndex model, got .*: pass an LLM object"):
        LlamaIndexModel(value)


def test_repr_does_not_show_the_api_key() -> None:
    assert repr(LlamaIndexModel(RecordingLLM())) == "LlamaIndexModel(RecordingLLM)"


def create_messages(text: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=text)]


def test_a_model_writes_the_summary_of_an_engine() -> None:
    model = LlamaIndexModel(create_answering_model(TextBlock(text="An invoice was paid.")))
    with MemoryEngine(embedder=None, model=model) as engine:
        assert "An invoice was paid." in engine.summarize(
            create_messages("Invoice INV-20391 is paid. " * 200)
        )


@pytest.mark.parametrize("is_chat_model", [True, False], ids=["chat", "completion"])
def test_a_failing_model_leaves_a_summary_of_the_messages(
    is_chat_model: bool,  # noqa: FBT001 - a parameter of the test
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(MockLLM):
        max_tokens: int | None = None

        def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
            raise ConnectionError("https://api.example/?key=sk-hunter2")

        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: FBT001, FBT002 - as above
            raise ConnectionError("https://api.example/?key=sk-hunter2")

    model = LlamaIndexModel(Failing(is_chat_model=is_chat_model))
    with MemoryEngine(embedder=None, model=model) as engine, caplog.at_level("INFO"):
        text = engine.summarize(create_messages("Invoice INV-20391 is paid."))
    assert "INV-20391" in text
    assert "hunter2" not in text + caplog.text


class OwnLoop(MockLLM):
    """Model whose sync methods start an event loop, like those of some providers."""

    max_tokens: int | None = None

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return asyncio.run(self.achat(messages, **kwargs))

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        await asyncio.sleep(0)
        return ChatResponse(message=ChatMessage(role="assistant", content="An invoice was paid."))


async def test_an_engine_calls_the_model_while_an_event_loop_runs() -> None:
    with MemoryEngine(embedder=None, model=LlamaIndexModel(OwnLoop(is_chat_model=True))) as engine:
        long = create_messages("Invoice INV-20391 is paid. " * 200)
        assert "An invoice was paid." in engine.summarize(long)
        assert "An invoice was paid." in await asyncio.to_thread(engine.summarize, long)


def test_threads_call_the_model_concurrently() -> None:
    model = LlamaIndexModel(OwnLoop(is_chat_model=True))
    answers: list[str] = []
    run_in_threads(8, lambda: answers.append(model.complete("x")))
    assert answers == ["An invoice was paid."] * 8


class TagRecorder(BaseEventHandler):
    """Record the tags of each chat model call."""

    tags: list[Any] = []  # noqa: RUF012 - pydantic copies it

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, LLMChatStartEvent):
            self.tags.append(event.tags)


def test_model_calls_are_tagged_in_addition_to_the_tags_of_the_caller() -> None:
    recorder, root, llm = TagRecorder(), get_dispatcher(), create_answering_model(TextBlock(text="x"))
    root.add_event_handler(recorder)
    try:
        with instrument_tags({"run": 7}):
            LlamaIndexModel(llm).complete("y")
            llm.chat(create_messages("z"))
    finally:
        root.event_handlers.remove(recorder)
    assert recorder.tags == [{"run": 7, "source": "langmem_tiers"}, {"run": 7}]
