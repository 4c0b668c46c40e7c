"""Currently valid long-term entries in the agents and retrievers of both frameworks."""

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


def test_langchain_documents_contain_the_validity_period_of_an_entry(
    engine: MemoryEngine, clock: FrozenClock
) -> None:
    (current,) = LangChainRetriever(engine=engine, namespace=("ada",)).invoke(QUESTION)
    assert current.page_content == NOW
    assert current.metadata["kind"] == "decision"
    assert (current.metadata["category"], current.metadata["tags"]) == ("storage", ["db"])
    assert current.metadata["valid_from"] == (clock.now() - timedelta(days=1)).isoformat()
    then = RecallFilters(valid_at=clock.now() - timedelta(days=5))
    (former,) = LangChainRetriever(engine=engine, namespace=("ada",), filters=then).invoke(QUESTION)
    assert former.page_content == FORMER
    assert former.metadata["valid_until"] == current.metadata["valid_from"]


def test_llamaindex_nodes_contain_the_validity_period_of_an_entry(
    engine: MemoryEngine, clock: FrozenClock
) -> None:
    (current,) = LlamaIndexRetriever(engine, ("ada",)).retrieve(QUESTION)
    assert current.node.get_content() == NOW
    assert current.node.metadata["valid_from"] == (clock.now() - timedelta(days=1)).isoformat()


def test_a_langchain_agent_gets_only_currently_valid_entries(engine: MemoryEngine) -> None:
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


def test_a_llamaindex_memory_shows_only_currently_valid_entries(engine: MemoryEngine) -> None:
    from llama_index.core.llms import ChatMessage

    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="s")

    async def ask() -> str:
        await memory.aput(ChatMessage(role="user", content=QUESTION))
        return "\n".join(str(message.content) for message in await memory.aget())

    shown = asyncio.run(ask())
    assert NOW in shown
    assert FORMER not in shown
