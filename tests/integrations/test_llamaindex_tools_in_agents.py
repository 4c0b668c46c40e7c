"""The memory tools in LlamaIndex agents."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import MemoryEngine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
    from llama_index.core.llms import ChatMessage, CompletionResponse, MockLLM
    from llama_index.core.llms.mock import MockFunctionCallingLLM
    from llama_index.core.memory import ChatMemoryBuffer

    from langmem_tiers_llamaindex.tools import TieredMemoryToolSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llama_index.core.llms import CompletionResponseGen


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


# Agents use what pydantic and their own workflows have deprecated.
ignore_agent_deprecations = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Script:
    """Function-calling model that answers in order and records its prompts."""

    def __init__(self, *answers: str | tuple[str, dict[str, Any]]) -> None:
        self._answers = [self._message(number, answer) for number, answer in enumerate(answers)]
        self.prompts: list[list[ChatMessage]] = []
        self.llm = MockFunctionCallingLLM(response_generator=self._next, is_chat_model=True)

    def list_tool_results(self) -> list[str]:
        """Return the results of the tool calls in the last prompt."""
        return [message.content or "" for message in self.prompts[-1] if message.role == "tool"]

    def _next(self, messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        self.prompts.append(list(messages))
        return self._answers[len(self.prompts) - 1]

    @staticmethod
    def _message(number: int, answer: str | tuple[str, dict[str, Any]]) -> ChatMessage:
        if isinstance(answer, str):
            return ChatMessage(role="assistant", content=answer)
        name, arguments = answer
        block = {
            "block_type": "tool_call",
            "tool_call_id": f"call-{number}",
            "tool_name": name,
            "tool_kwargs": arguments,
        }
        return ChatMessage(role="assistant", blocks=[block])


async def ask(kind: Any, llm: Any, engine: MemoryEngine, question: str) -> str:
    tools = TieredMemoryToolSpec(engine, "ada").to_tool_list()
    agent = kind(tools=tools, llm=llm)
    # The default history leaves a database open.
    return str(await agent.run(question, memory=ChatMemoryBuffer.from_defaults(token_limit=10_000)))


@ignore_agent_deprecations
async def test_a_second_agent_recalls_a_memory_of_the_first(engine: MemoryEngine) -> None:
    first = Script(("remember", {"content": "Ada drinks green tea."}), "I will remember it.")
    assert await ask(FunctionAgent, first.llm, engine, "I drink green tea.") == "I will remember it."
    (result,) = first.list_tool_results()
    second = Script(("recall", {"query": "What does Ada drink?"}), "Green tea.")
    assert await ask(FunctionAgent, second.llm, engine, "What do I drink?") == "Green tea."
    (answer,) = second.list_tool_results()
    (found,) = json.loads(answer)["memories"]
    assert found["content"] == "Ada drinks green tea."
    assert result.endswith(found["id"])
    third = Script(("forget", {"id": found["id"]}), "Forgotten.")
    assert await ask(FunctionAgent, third.llm, engine, "Forget it.") == "Forgotten."
    assert engine.namespace("ada").knowledge.page() == ()


@ignore_agent_deprecations
async def test_an_agent_continues_after_memory_errors_and_invalid_arguments(engine: MemoryEngine) -> None:
    script = Script(
        ("recall", {"query": "tea", "limit": 1000}),
        ("recall", {"question": "tea", "limit": 1}),
        ("forget", {"id": "nothing"}),
        "I do not know.",
    )
    assert await ask(FunctionAgent, script.llm, engine, "Which tea?") == "I do not know."
    limit, unknown, nothing = script.list_tool_results()
    assert "less than or equal to 100" in limit
    assert "question" in unknown
    assert "no memory has the id 'nothing'" in nothing
    engine.close()
    script = Script(("recall", {"query": "tea"}), "Memory is away.")
    assert await ask(FunctionAgent, script.llm, engine, "Which tea?") == "Memory is away."
    assert script.list_tool_results() == [
        "memory is currently unavailable (EngineClosedError): continue without it"
    ]


class RecallingLLM(MockLLM):
    """Completion model that calls recall before it answers."""

    max_tokens: int | None = None

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: FBT001, FBT002 - the framework's signature
        return CompletionResponse(text=self._reply(prompt))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:  # noqa: FBT001, FBT002 - as above
        yield CompletionResponse(text=self._reply(prompt), delta=self._reply(prompt))

    @staticmethod
    def _reply(prompt: str) -> str:
        if "Ada drinks green tea." in prompt:
            return "Thought: I can answer.\nAnswer: Green tea."
        return 'Thought: I need memory.\nAction: recall\nAction Input: {"query": "What does Ada drink?"}'


@ignore_agent_deprecations
async def test_an_agent_without_function_calls_reads_recalled_memories(engine: MemoryEngine) -> None:
    TieredMemoryToolSpec(engine, "ada").remember("Ada drinks green tea.")
    assert await ask(ReActAgent, RecallingLLM(), engine, "What do I drink?") == "Green tea."
