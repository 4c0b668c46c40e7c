"""Entry points of the library for the benchmark of a returning user, each with its default arguments.

Each of them stores conversations as an application does, and returns what a model receives for the first message of a
new conversation.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM
from mcp import Client
from pydantic import PrivateAttr

from langmem_tiers.mcp.server import build_server
from langmem_tiers_langchain import TieredMemoryMiddleware
from langmem_tiers_llamaindex import TieredMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.haystacks import Turn
    from langmem_tiers import MemoryEngine
    from langmem_tiers.testing import FrozenClock

USER = "user"
"""Namespace of the conversations."""
NEW_SESSION = "new-conversation"
_NO_REPLY = "OK."


class Adapter(Protocol):
    """An entry point of the library."""

    def store(self, turns: Sequence[Turn]) -> None:
        """Store one conversation, each message at its time."""

    def ask(self, opening: str) -> list[str]:
        """Return the texts that the model receives for the first message of a new conversation."""


def set_clock(clock: FrozenClock, turn: Turn) -> None:
    """Set the clock to the time of a turn."""
    clock.advance(turn.said_at - clock.now())


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Messages that an agent receives at once, and its reply."""

    messages: Sequence[Turn]
    reply: str


def _split_exchanges(turns: Sequence[Turn]) -> Iterator[_Exchange]:
    waiting: list[Turn] = []
    for role, some in itertools.groupby(turns, key=lambda turn: turn.role):
        group = list(some)
        if role == "assistant" and waiting:
            yield _Exchange(waiting, "\n\n".join(turn.text for turn in group))
            waiting = []
        else:
            waiting += group
    if waiting:
        yield _Exchange(waiting, _NO_REPLY)


class _CapturingChat(BaseChatModel):
    """LangChain model that replies with a fixed text and keeps the newest prompt."""

    _reply: str = PrivateAttr(_NO_REPLY)
    _prompt: list[str] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "capturing"

    def bind_tools(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - the framework's signature
        """Return the model unchanged; it never calls tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        self._prompt = [str(message.text) for message in messages]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self._reply))])


class LangChainAdapter:
    """An agent with ``TieredMemoryMiddleware(engine)``."""

    def __init__(self, engine: MemoryEngine, clock: FrozenClock) -> None:
        self._clock = clock
        self._model = _CapturingChat()
        self._middleware = TieredMemoryMiddleware(engine)
        self._agent: Any = create_agent(
            self._model, tools=[], middleware=[self._middleware], checkpointer=InMemorySaver()
        )

    def store(self, turns: Sequence[Turn]) -> None:
        """Run the agent for each message of the user; the model replies as in the conversation."""
        for exchange in _split_exchanges(turns):
            set_clock(self._clock, exchange.messages[-1])
            self._run(
                turns[0].session,
                [
                    (HumanMessage if turn.role == "user" else AIMessage)(turn.text)
                    for turn in exchange.messages
                ],
                exchange.reply,
            )

    def ask(self, opening: str) -> list[str]:
        """Run the agent in a new thread."""
        self._run(NEW_SESSION, [HumanMessage(opening)], _NO_REPLY)
        return self._model._prompt  # noqa: SLF001 - pydantic would copy a field

    def _run(self, thread: str, messages: Sequence[BaseMessage], reply: str) -> None:
        self._model._reply = reply  # noqa: SLF001 - as above
        config = {"configurable": {"thread_id": thread, "user_id": USER}}
        self._agent.invoke({"messages": messages}, config)
        if self._middleware.stats.failures:
            raise RuntimeError(f"memory failed: {self._middleware.stats.failures}")


class _CapturingLLM(MockLLM):
    """LlamaIndex model that replies with a fixed text and keeps the newest prompt."""

    max_tokens: int | None = None
    _reply: str = PrivateAttr(_NO_REPLY)
    _prompt: list[str] = PrivateAttr(default_factory=list)

    def chat(self, messages: Sequence[ChatMessage], **_: object) -> ChatResponse:
        self._prompt = [message.content or "" for message in messages]
        return ChatResponse(message=ChatMessage(role="assistant", content=self._reply))


class LlamaIndexAdapter:
    """A chat engine with ``TieredMemory.from_defaults(engine=..., user_id=..., session_id=...)``."""

    def __init__(self, engine: MemoryEngine, clock: FrozenClock) -> None:
        self._engine = engine
        self._clock = clock
        self._model = _CapturingLLM()

    def store(self, turns: Sequence[Turn]) -> None:
        """Chat with the engine; the model replies as in the conversation."""
        for exchange in _split_exchanges(turns):
            *earlier, newest = exchange.messages
            set_clock(self._clock, newest)
            memory = self._create_memory(newest.session)
            memory.put_messages([ChatMessage(role=turn.role, content=turn.text) for turn in earlier])
            self._chat(memory, newest.text, exchange.reply)

    def ask(self, opening: str) -> list[str]:
        """Chat in a new conversation."""
        self._chat(self._create_memory(NEW_SESSION), opening, _NO_REPLY)
        return self._model._prompt  # noqa: SLF001 - pydantic would copy a field

    def _create_memory(self, session: str) -> TieredMemory:
        return TieredMemory.from_defaults(engine=self._engine, user_id=USER, session_id=session)

    def _chat(self, memory: TieredMemory, text: str, reply: str) -> None:
        self._model._reply = reply  # noqa: SLF001 - as above
        SimpleChatEngine.from_defaults(llm=self._model, memory=memory).chat(text)
        if memory.failures:
            raise RuntimeError(f"memory failed: {memory.failures} writes")


class EngineAdapter:
    """``session.add()`` and ``session.build_context()``."""

    def __init__(self, engine: MemoryEngine, clock: FrozenClock) -> None:
        self._engine = engine
        self._clock = clock

    def store(self, turns: Sequence[Turn]) -> None:
        """Add each message."""
        for turn in turns:
            set_clock(self._clock, turn)
            self._engine.session(USER, turn.session).add(turn.role, turn.text)

    def ask(self, opening: str) -> list[str]:
        """Build the context of a new session."""
        session = self._engine.session(USER, NEW_SESSION)
        session.add("user", opening)
        return [message.content for message in session.build_context().messages]


class McpAdapter:
    """The tools ``remember`` and ``build_context`` of the MCP server."""

    def __init__(self, engine: MemoryEngine, clock: FrozenClock) -> None:
        self._server = build_server(engine, USER)
        self._clock = clock

    def store(self, turns: Sequence[Turn]) -> None:
        """Call ``remember`` for each message."""
        asyncio.run(self._remember(turns))

    async def _remember(self, turns: Sequence[Turn]) -> None:
        async with Client(self._server) as client:
            for turn in turns:
                set_clock(self._clock, turn)
                arguments = {"text": turn.text, "session": turn.session, "role": turn.role}
                await self._call(client, "remember", arguments)

    def ask(self, opening: str) -> list[str]:
        """Call ``build_context`` with the message as the query."""
        return [asyncio.run(self._build_context(opening))]

    async def _build_context(self, query: str) -> str:
        async with Client(self._server) as client:
            text: str = (await self._call(client, "build_context", {"query": query}))["text"]
            return text

    async def _call(self, client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        if result.is_error or result.structured_content is None:
            raise RuntimeError(f"the tool {tool} failed: {result.content}")
        content: dict[str, Any] = result.structured_content
        return content


ADAPTERS: dict[str, Callable[[MemoryEngine, FrozenClock], Adapter]] = {
    "langchain": LangChainAdapter,
    "llamaindex": LlamaIndexAdapter,
    "engine": EngineAdapter,
    "mcp": McpAdapter,
}
