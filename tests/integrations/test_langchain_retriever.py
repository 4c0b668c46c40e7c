"""Memory as documents: in chains, sync and async, each user's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.load import dumps
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from pydantic import ValidationError

from langmem_tiers import InvalidInputError, MemoryEngine, MessageDraft, RecallFilters, Strategy
from langmem_tiers_langchain import TieredMemoryRetriever
from tests.integrations.scripted_chat import create_scripted_chat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.documents import Document

QUESTION = "Which instrument does Bob play?"


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        session = opened.session(("acme", "ada"), "monday")
        session.add_many([MessageDraft("user", "Bob plays the cello.", name="Ada")])
        session.add("assistant", "He must love the instrument.")
        opened.namespace("acme", "ada").knowledge.store(
            "domain", "instrument of Bob", "cello", source="a letter"
        )
        opened.session(("acme", "eve"), "monday").add("user", "Bob plays the drums.")
        yield opened


def retriever(engine: MemoryEngine, **options: Any) -> TieredMemoryRetriever:
    return TieredMemoryRetriever(engine=engine, namespace=("acme", "ada"), **options)


def by_kind(documents: list[Document], kind: str) -> Document:
    return next(one for one in documents if one.metadata["kind"] == kind)


def test_messages_and_knowledge_come_with_where_they_are_from_and_why(engine: MemoryEngine) -> None:
    found = retriever(engine).invoke(QUESTION)
    said, known = by_kind(found, "message"), by_kind(found, "knowledge")
    assert (said.page_content, known.page_content) == ("Bob plays the cello.", "instrument of Bob: cello")
    assert known.id == "domain/instrument of Bob"
    (ada,) = [hit for hit in engine.namespace("acme", "ada").search("plays") if hit.message]
    assert said.id == ada.entry.id
    told = said.metadata
    assert (told["session"], told["role"], told["name"], told["namespace"]) == (
        "monday",
        "user",
        "Ada",
        ["acme", "ada"],
    )
    assert told["created_at"].endswith("+00:00")
    assert told["score"] == pytest.approx(sum(told["signals"].values()))
    assert {"relevance", "found_by", "importance", "tier"} <= set(told)
    assert (known.metadata["category"], known.metadata["confidence"], known.metadata["source"]) == (
        "domain",
        0.5,
        "a letter",
    )


def test_metadata_is_plain_json(engine: MemoryEngine) -> None:
    for one in retriever(engine).invoke(QUESTION):
        assert json.loads(json.dumps(one.metadata)) == one.metadata


async def test_async_finds_the_same(engine: MemoryEngine) -> None:
    one = retriever(engine, k=2)
    sync, awaited = one.invoke(QUESTION), await one.ainvoke(QUESTION)
    assert [found.id for found in awaited] == [found.id for found in sync]
    assert len(await one.ainvoke(QUESTION, k=1)) == 1


def test_nothing_of_another_user_comes(engine: MemoryEngine) -> None:
    assert not any("drums" in one.page_content for one in retriever(engine).invoke(QUESTION, k=50))
    assert TieredMemoryRetriever(engine=engine, namespace="acme").invoke(QUESTION) == []


@pytest.mark.parametrize("query", ["", "  \n"])
async def test_a_query_without_words_finds_nothing(engine: MemoryEngine, query: str) -> None:
    one = retriever(engine)
    assert one.invoke(query) == []
    assert await one.ainvoke(query) == []


def test_filters_and_strategy_decide_what_comes(engine: MemoryEngine) -> None:
    roles = retriever(engine, filters=RecallFilters(roles={"assistant"})).invoke(QUESTION)
    assert [one.metadata["role"] for one in roles] == ["assistant"]
    newest = retriever(engine, strategy="recency", k=1).invoke(QUESTION)
    assert newest[0].page_content == "He must love the instrument."
    assert retriever(engine, strategy=Strategy.WORDS).strategy is Strategy.WORDS


def test_it_stands_in_a_chain(engine: MemoryEngine) -> None:
    prompt = ChatPromptTemplate.from_template("{memory}\nQ: {question}")
    model = create_scripted_chat("The cello.")
    chain = (
        {
            "memory": retriever(engine, k=1) | (lambda found: found[0].page_content),
            "question": RunnablePassthrough(),
        }
        | prompt
        | model
        | StrOutputParser()
    )
    assert chain.invoke(QUESTION) == "The cello."
    assert "cello" in model.asked[0][0].text


def test_the_engine_is_neither_shown_nor_serialised(engine: MemoryEngine) -> None:
    one = retriever(engine, filters=RecallFilters(roles={"user"}))
    for shown in (repr(one), str(one.model_dump()), one.model_dump_json(), dumps(one)):
        assert "MemoryEngine" not in shown
        assert "sqlite" not in shown


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "sqlite://"},
        {"namespace": ()},
        {"namespace": ("acme", "")},
        {"k": 0},
        {"filters": {"roles": ["user"]}},
        {"strategy": "best of all"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_settings_that_make_no_sense_are_refused(engine: MemoryEngine, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TieredMemoryRetriever(**{"engine": engine, "namespace": "acme", **wrong})


def test_more_than_the_engine_gives_is_refused(engine: MemoryEngine) -> None:
    with pytest.raises(InvalidInputError, match="max_limit"):
        retriever(engine).invoke(QUESTION, k=101)
