"""Memory as nodes: in query engines and chat engines, sync and async, each user's own."""

from __future__ import annotations

import json
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import (
    EngineClosedError,
    EngineConfig,
    InvalidInputError,
    MemoryEngine,
    MessageDraft,
    RecallConfig,
    RecallFilters,
    Strategy,
)
from tests.hypothesis_settings import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
    from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler
    from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
    from llama_index.core.llms import MockLLM
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.retrievers import QueryFusionRetriever
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc
    from llama_index.core.tools import QueryEngineTool
    from llama_index_instrumentation import get_dispatcher

    from langmem_tiers_llamaindex.retriever import TieredMemoryRetriever

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    return TieredMemoryRetriever(engine, ("acme", "ada"), **options)


def by_kind(found: list[NodeWithScore], kind: str) -> NodeWithScore:
    return next(one for one in found if one.metadata["kind"] == kind)


def test_messages_and_knowledge_come_with_where_they_are_from_and_why(engine: MemoryEngine) -> None:
    found = retriever(engine).retrieve(QUESTION)
    said, known = by_kind(found, "message"), by_kind(found, "knowledge")
    assert isinstance(said.node, TextNode)
    assert (said.text, known.text) == ("Bob plays the cello.", "instrument of Bob: cello")
    assert known.node_id == "domain/instrument of Bob"
    (ada,) = [hit for hit in engine.namespace("acme", "ada").search("plays") if hit.message]
    assert said.node_id == ada.entry.id
    told = said.metadata
    assert (told["session"], told["role"], told["name"], told["namespace"]) == (
        "monday",
        "user",
        "Ada",
        ["acme", "ada"],
    )
    assert said.score == told["score"] == pytest.approx(sum(told["signals"].values()))
    assert {"relevance", "found_by", "importance", "tier"} <= set(told)
    assert (known.metadata["category"], known.metadata["confidence"], known.metadata["source"]) == (
        "domain",
        0.5,
        "a letter",
    )


def test_the_best_comes_first_and_metadata_is_plain_json(engine: MemoryEngine) -> None:
    found = retriever(engine).retrieve(QUESTION)
    scores = [one.get_score() for one in found]
    assert scores == sorted(scores, reverse=True)
    for one in found:
        assert json.loads(json.dumps(one.metadata)) == one.metadata
        kept = json_to_doc(doc_to_json(one.node))
        assert (kept.node_id, kept.get_content(), kept.metadata) == (one.node_id, one.text, one.metadata)


def test_a_model_sees_who_said_it_and_when_and_an_embedder_the_text_alone(engine: MemoryEngine) -> None:
    said = by_kind(retriever(engine).retrieve(QUESTION), "message")
    assert said.get_content(MetadataMode.EMBED) == "Bob plays the cello."
    lines = said.get_content(MetadataMode.LLM).split("\n")
    assert lines == ["role: user", "name: Ada", f"created_at: {said.metadata['created_at']}", "", said.text]


async def test_async_finds_the_same(engine: MemoryEngine) -> None:
    one = retriever(engine, similarity_top_k=2)
    sync, awaited = one.retrieve(QUESTION), await one.aretrieve(QUESTION)
    assert [found.node_id for found in awaited] == [found.node_id for found in sync]
    assert len(sync) == 2


async def test_async_leaves_the_event_loop_free(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, read = set[int](), engine._database.read_raw

    def watched(*args: Any, **options: Any) -> Any:
        threads.add(threading.get_ident())
        return read(*args, **options)

    monkeypatch.setattr(engine._database, "read_raw", watched)
    assert await retriever(engine).aretrieve(QUESTION)
    assert threads
    assert threading.get_ident() not in threads


def test_nothing_of_another_user_comes(engine: MemoryEngine) -> None:
    everything = retriever(engine, similarity_top_k=50).retrieve("Bob")
    assert not any("drums" in one.text for one in everything)
    assert TieredMemoryRetriever(engine, "acme").retrieve(QUESTION) == []


HOSTILE = [
    "ada",
    "ADA",
    "ada ",
    "a%a",
    "a_a",
    "*",
    "ada/eve",
    "ada'--",
    "ada\0",
    "äda",
    ".",
    ":",
    "\\",
    "日本",
]


@given(names=st.lists(st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=8), min_size=2, unique=True))
@examples(30)
def test_whatever_users_are_called_each_finds_their_own(names: list[str]) -> None:
    with MemoryEngine(embedder=None) as engine:
        for number, name in enumerate(names):
            engine.session(name, "s").add("user", f"secret number {number}")
        for number, name in enumerate(names):
            found = TieredMemoryRetriever(engine, name, similarity_top_k=100).retrieve("secret number")
            assert [one.text for one in found] == [f"secret number {number}"]


@pytest.mark.parametrize("query", ["", "  \n"])
async def test_a_query_without_words_finds_nothing(engine: MemoryEngine, query: str) -> None:
    one = retriever(engine, strategy="recency")
    assert one.retrieve(query) == []
    assert await one.aretrieve(QueryBundle(query)) == []


def test_filters_and_strategy_decide_what_comes(engine: MemoryEngine) -> None:
    roles = retriever(engine, filters=RecallFilters(roles={"assistant"})).retrieve(QUESTION)
    assert [one.metadata["role"] for one in roles] == ["assistant"]
    newest = retriever(engine, strategy=Strategy.RECENCY, similarity_top_k=1).retrieve(QUESTION)
    assert newest[0].text == "He must love the instrument."


def test_how_many_come_can_be_changed(engine: MemoryEngine) -> None:
    one = retriever(engine)
    one.similarity_top_k = 1
    assert (one.similarity_top_k, len(one.retrieve(QUESTION))) == (1, 1)
    with pytest.raises(InvalidInputError, match="from 1 to 100, got 101: RecallConfig.max_limit"):
        one.similarity_top_k = 101
    assert one.similarity_top_k == 1


def test_messages_of_two_sessions_with_the_same_id_both_come() -> None:
    with MemoryEngine(embedder=None) as engine:
        for session in ("monday", "tuesday", "wednesday"):
            engine.session("ada", session).add_many([MessageDraft("user", f"cello on {session}", id="1")])
        found = TieredMemoryRetriever(engine, "ada").retrieve("cello")
        assert {one.metadata["session"] for one in found} == {"monday", "tuesday", "wednesday"}
        assert len({one.node_id for one in found}) == 3
        assert found[0].node_id == "1"


def test_what_no_provider_could_read_is_replaced() -> None:
    with MemoryEngine(embedder=None) as engine:
        engine.session("ada", "s").add_many([MessageDraft("user", "half \ud83d a smile", name="Ad\udc00")])
        (found,) = TieredMemoryRetriever(engine, "ada").retrieve("smile")
        assert found.get_content(MetadataMode.LLM).encode().endswith(b"half ? a smile")
        assert found.to_json()


@pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])
def test_found_in_two_ways_a_memory_counts_as_one(engine: MemoryEngine, use_async: bool) -> None:  # noqa: FBT001 - a parameter of the test
    words, newest = retriever(engine, strategy="words"), retriever(engine, strategy="recency")
    fused = QueryFusionRetriever(
        [words, newest],
        llm=MockLLM(),
        num_queries=1,
        mode="reciprocal_rerank",  # type: ignore[arg-type] # as their documentation has it
        similarity_top_k=50,
        use_async=use_async,
    )
    found = fused.retrieve("plays the cello")
    assert len(found) == len({one.node_id for one in found}) == len(newest.retrieve("x"))
    assert found[0].score == pytest.approx(1 / 60 + 1 / 61, rel=0.02)


def test_it_answers_in_a_query_engine(engine: MemoryEngine) -> None:
    answered = RetrieverQueryEngine.from_args(retriever(engine), llm=MockLLM()).query(QUESTION)
    assert "Bob plays the cello." in str(answered)  # the model repeats its prompt
    assert "signals" not in str(answered)
    assert "found_by" not in str(answered)
    assert {one.metadata["kind"] for one in answered.source_nodes} == {"message", "knowledge"}


async def test_it_answers_in_a_query_engine_without_blocking(engine: MemoryEngine) -> None:
    answered = await RetrieverQueryEngine.from_args(retriever(engine), llm=MockLLM()).aquery(QUESTION)
    assert "Bob plays the cello." in str(answered)


async def test_it_is_a_tool_of_an_agent_by_a_query_engine(engine: MemoryEngine) -> None:
    query_engine = RetrieverQueryEngine.from_args(retriever(engine), llm=MockLLM())
    tool = QueryEngineTool.from_defaults(query_engine, name="memory", description="What is remembered.")
    for told in (tool(QUESTION), await tool.acall(QUESTION)):
        assert "Bob plays the cello." in told.content
        assert not told.is_error


def chat_engine(kind: Any, memory: TieredMemoryRetriever) -> Any:
    # The default history leaves a database open.
    history = ChatMemoryBuffer.from_defaults(token_limit=1_000)
    return kind.from_defaults(retriever=memory, memory=history, llm=MockLLM(is_chat_model=True))


@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
async def test_a_chat_engine_gives_it_to_its_model(engine: MemoryEngine, kind: Any) -> None:
    chat = chat_engine(kind, retriever(engine))
    for said in (chat.chat(QUESTION), await chat.achat(QUESTION)):
        assert "Bob plays the cello." in said.response
        assert said.source_nodes
    assert "Bob plays the cello." in "".join(chat.stream_chat(QUESTION).response_gen)


@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
def test_braces_in_a_memory_reach_the_model_as_they_are(kind: Any) -> None:
    said = 'The template of Bob is {"a": {query_str}} {context_str} {0}.'
    with MemoryEngine(embedder=None) as engine:
        engine.session("ada", "s").add("user", said)
        memory = TieredMemoryRetriever(engine, "ada")
        assert said in chat_engine(kind, memory).chat("template of Bob").response
        asked = RetrieverQueryEngine.from_args(memory, llm=MockLLM()).query("template of Bob")
        assert said in str(asked)


class Seen(BaseEventHandler):
    """Keeps the events of retrievals."""

    events: list[Any] = []  # noqa: RUF012 - pydantic copies it

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, RetrievalStartEvent | RetrievalEndEvent):
            self.events.append(event)


async def test_tracers_and_callbacks_are_told_of_each_retrieval(engine: MemoryEngine) -> None:
    seen, debug = Seen(), LlamaDebugHandler(print_trace_on_end=False)
    one, root = retriever(engine, callback_manager=CallbackManager([debug])), get_dispatcher()
    root.add_event_handler(seen)
    try:
        found = one.retrieve(QUESTION)
        await one.aretrieve(QUESTION)
    finally:
        root.event_handlers.remove(seen)
    start, end, *more = seen.events
    assert (start.str_or_query_bundle, end.nodes, len(more)) == (QUESTION, found, 2)
    assert len(debug.get_event_pairs(CBEventType.RETRIEVE)) == 2


async def test_a_closed_engine_is_an_error(engine: MemoryEngine) -> None:
    one = retriever(engine)
    engine.close()
    with pytest.raises(EngineClosedError):
        one.retrieve(QUESTION)
    with pytest.raises(EngineClosedError):
        await one.aretrieve(QUESTION)


def test_no_address_is_shown(engine: MemoryEngine) -> None:
    assert repr(retriever(engine)) == "TieredMemoryRetriever(('acme', 'ada'), similarity_top_k=4)"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"engine": "sqlite://"}, r"expected a MemoryEngine, got str: pass MemoryEngine\("),
        ({"namespace": ()}, r"at least one label, got \(\)"),
        ({"namespace": ("acme", "")}, "must not be empty, got ''"),
        ({"similarity_top_k": 0}, "from 1 to 100, got 0"),
        ({"similarity_top_k": True}, "from 1 to 100, got True"),
        ({"similarity_top_k": 101}, "RecallConfig.max_limit sets the maximum"),
        ({"filters": {"roles": ["user"]}}, r"got dict: use RecallFilters\("),
        ({"strategy": "best of all"}, "unknown strategy 'best of all': use one of best"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(
    engine: MemoryEngine, wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says):
        TieredMemoryRetriever(**{"engine": engine, "namespace": "acme", **wrong})


def test_the_engine_says_how_many_may_be_asked_for() -> None:
    with MemoryEngine(
        embedder=None, config=EngineConfig(recall=RecallConfig(limit=2, max_limit=2))
    ) as engine:
        with pytest.raises(InvalidInputError, match="from 1 to 2, got 4"):
            TieredMemoryRetriever(engine, "ada")
        assert TieredMemoryRetriever(engine, "ada", similarity_top_k=2).retrieve("x") == []
