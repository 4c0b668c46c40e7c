"""What is stored for long reaches the agents and retrievers of both frameworks, as it holds now."""

from __future__ import annotations

import asyncio
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langmem_tiers import MemoryEngine, RecallFilters
from langmem_tiers.testing import FrozenClock
from langmem_tiers_langchain import TieredMemoryMiddleware
from langmem_tiers_langchain import TieredMemoryRetriever as LangChainRetriever
from tests.integrations.langchain_agents import ScriptedChat, join_texts

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langmem_tiers_llamaindex import TieredMemory
    from langmem_tiers_llamaindex import TieredMemoryRetriever as LlamaIndexRetriever

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMER = "We decided to use PostgreSQL as the database."
NOW = "We decided to use MySQL as the database instead of PostgreSQL."
QUESTION = "Which database did we decide to use?"


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def engine(clock: FrozenClock) -> Iterator[MemoryEngine]:
    with MemoryEngine(clock=clock) as opened:
        facts = opened.namespace("ada").long_term
        facts.store(FORMER, kind="decision", category="storage", tags=frozenset({"db"}))
        clock.advance(days=10)
        facts.store(NOW, kind="decision", category="storage", tags=frozenset({"db"}))
        clock.advance(days=1)
        yield opened


def test_documents_of_langchain_say_since_when_an_entry_holds(
    engine: MemoryEngine, clock: FrozenClock
) -> None:
    (now,) = LangChainRetriever(engine=engine, namespace=("ada",)).invoke(QUESTION)
    assert now.page_content == NOW
    assert now.metadata["kind"] == "decision"
    assert (now.metadata["category"], now.metadata["tags"]) == ("storage", ["db"])
    assert now.metadata["valid_from"] == (clock.now() - timedelta(days=1)).isoformat()
    then = RecallFilters(valid_at=clock.now() - timedelta(days=5))
    (former,) = LangChainRetriever(engine=engine, namespace=("ada",), filters=then).invoke(QUESTION)
    assert former.page_content == FORMER
    assert former.metadata["valid_until"] == now.metadata["valid_from"]


def test_nodes_of_llamaindex_say_so_too(engine: MemoryEngine, clock: FrozenClock) -> None:
    (now,) = LlamaIndexRetriever(engine, ("ada",)).retrieve(QUESTION)
    assert now.node.get_content() == NOW
    assert now.node.metadata["valid_from"] == (clock.now() - timedelta(days=1)).isoformat()


def test_an_agent_of_langchain_is_told_what_holds_now(engine: MemoryEngine) -> None:
    model = ScriptedChat()
    agent = create_agent(
        model,
        [],
        middleware=[TieredMemoryMiddleware(engine, namespace=("ada",))],
        checkpointer=InMemorySaver(),
    )
    agent.invoke({"messages": [HumanMessage(QUESTION)]}, {"configurable": {"thread_id": "t"}})
    assert NOW in join_texts(model.seen[-1])
    assert FORMER not in join_texts(model.seen[-1])


def test_a_memory_of_llamaindex_tells_what_holds_now(engine: MemoryEngine) -> None:
    from llama_index.core.llms import ChatMessage

    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="s")

    async def asked() -> str:
        await memory.aput(ChatMessage(role="user", content=QUESTION))
        return "\n".join(str(message.content) for message in await memory.aget())

    told = asyncio.run(asked())
    assert NOW in told
    assert FORMER not in told
