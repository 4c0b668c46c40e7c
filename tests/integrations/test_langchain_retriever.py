"""The LangChain retriever."""

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


def create_retriever(engine: MemoryEngine, **options: Any) -> TieredMemoryRetriever:
    return TieredMemoryRetriever(engine=engine, namespace=("acme", "ada"), **options)


def find_kind(documents: list[Document], kind: str) -> Document:
    return next(document for document in documents if document.metadata["kind"] == kind)


def test_documents_carry_the_origin_and_the_score_of_messages_and_knowledge(engine: MemoryEngine) -> None:
    found = create_retriever(engine).invoke(QUESTION)
    message, known = find_kind(found, "message"), find_kind(found, "knowledge")
    assert (message.page_content, known.page_content) == ("Bob plays the cello.", "instrument of Bob: cello")
    assert known.id == "domain/instrument of Bob"
    (ada,) = [hit for hit in engine.namespace("acme", "ada").search("plays") if hit.message]
    assert message.id == ada.entry.id
    metadata = message.metadata
    assert (metadata["session"], metadata["role"], metadata["name"], metadata["namespace"]) == (
        "monday",
        "user",
        "Ada",
        ["acme", "ada"],
    )
    assert metadata["created_at"].endswith("+00:00")
    assert metadata["score"] == pytest.approx(sum(metadata["signals"].values()))
    assert {"relevance", "found_by", "importance", "tier"} <= set(metadata)
    assert (known.metadata["category"], known.metadata["confidence"], known.metadata["source"]) == (
        "domain",
        0.5,
        "a letter",
    )


def test_metadata_is_plain_json(engine: MemoryEngine) -> None:
    for document in create_retriever(engine).invoke(QUESTION):
        assert json.loads(json.dumps(document.metadata)) == document.metadata


async def test_async_search_finds_the_same_documents(engine: MemoryEngine) -> None:
    retriever = create_retriever(engine, k=2)
    sync, awaited = retriever.invoke(QUESTION), await retriever.ainvoke(QUESTION)
    assert [found.id for found in awaited] == [found.id for found in sync]
    assert len(await retriever.ainvoke(QUESTION, k=1)) == 1


def test_documents_of_another_user_are_not_found(engine: MemoryEngine) -> None:
    assert not any(
        "drums" in document.page_content for document in create_retriever(engine).invoke(QUESTION, k=50)
    )
    assert TieredMemoryRetriever(engine=engine, namespace="acme").invoke(QUESTION) == []


@pytest.mark.parametrize("query", ["", "  \n"])
async def test_a_query_without_words_finds_nothing(engine: MemoryEngine, query: str) -> None:
    retriever = create_retriever(engine)
    assert retriever.invoke(query) == []
    assert await retriever.ainvoke(query) == []


def test_filters_and_strategy_select_the_documents(engine: MemoryEngine) -> None:
    roles = create_retriever(engine, filters=RecallFilters(roles={"assistant"})).invoke(QUESTION)
    assert [document.metadata["role"] for document in roles] == ["assistant"]
    newest = create_retriever(engine, strategy="recency", k=1).invoke(QUESTION)
    assert newest[0].page_content == "He must love the instrument."
    assert create_retriever(engine, strategy=Strategy.WORDS).strategy is Strategy.WORDS


def test_a_retriever_works_in_a_chain(engine: MemoryEngine) -> None:
    prompt = ChatPromptTemplate.from_template("{memory}\nQ: {question}")
    model = create_scripted_chat("The cello.")
    chain = (
        {
            "memory": create_retriever(engine, k=1) | (lambda found: found[0].page_content),
            "question": RunnablePassthrough(),
        }
        | prompt
        | model
        | StrOutputParser()
    )
    assert chain.invoke(QUESTION) == "The cello."
    assert "cello" in model.prompts[0][0].text


def test_the_engine_is_neither_shown_nor_serialized(engine: MemoryEngine) -> None:
    retriever = create_retriever(engine, filters=RecallFilters(roles={"user"}))
    for shown in (
        repr(retriever),
        str(retriever.model_dump()),
        retriever.model_dump_json(),
        dumps(retriever),
    ):
        assert "MemoryEngine" not in shown
        assert "sqlite" not in shown


@pytest.mark.parametrize(
    "settings",
    [
        {"engine": "sqlite://"},
        {"namespace": ()},
        {"namespace": ("acme", "")},
        {"k": 0},
        {"filters": {"roles": ["user"]}},
        {"strategy": "best of all"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_invalid_settings_are_rejected(engine: MemoryEngine, settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TieredMemoryRetriever(**{"engine": engine, "namespace": "acme", **settings})


def test_a_limit_above_the_maximum_of_the_engine_is_rejected(engine: MemoryEngine) -> None:
    with pytest.raises(InvalidInputError, match="max_limit"):
        create_retriever(engine).invoke(QUESTION, k=101)
