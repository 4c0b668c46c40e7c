"""The LlamaIndex retriever in query engines and chat engines."""

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


def create_retriever(engine: MemoryEngine, **options: Any) -> TieredMemoryRetriever:
    return TieredMemoryRetriever(engine, ("acme", "ada"), **options)


def find_kind(found: list[NodeWithScore], kind: str) -> NodeWithScore:
    return next(node for node in found if node.metadata["kind"] == kind)


def test_nodes_carry_the_origin_and_the_score_of_messages_and_knowledge(engine: MemoryEngine) -> None:
    found = create_retriever(engine).retrieve(QUESTION)
    message, known = find_kind(found, "message"), find_kind(found, "knowledge")
    assert isinstance(message.node, TextNode)
    assert (message.text, known.text) == ("Bob plays the cello.", "instrument of Bob: cello")
    assert known.node_id == "domain/instrument of Bob"
    (ada,) = [hit for hit in engine.namespace("acme", "ada").search("plays") if hit.message]
    assert message.node_id == ada.entry.id
    metadata = message.metadata
    assert (metadata["session"], metadata["role"], metadata["name"], metadata["namespace"]) == (
        "monday",
        "user",
        "Ada",
        ["acme", "ada"],
    )
    assert message.score == metadata["score"] == pytest.approx(sum(metadata["signals"].values()))
    assert {"relevance", "found_by", "importance", "tier"} <= set(metadata)
    assert (known.metadata["category"], known.metadata["confidence"], known.metadata["source"]) == (
        "domain",
        0.5,
        "a letter",
    )


def test_nodes_are_sorted_by_score_and_their_metadata_is_plain_json(engine: MemoryEngine) -> None:
    found = create_retriever(engine).retrieve(QUESTION)
    scores = [node.get_score() for node in found]
    assert scores == sorted(scores, reverse=True)
    for node in found:
        assert json.loads(json.dumps(node.metadata)) == node.metadata
        restored = json_to_doc(doc_to_json(node.node))
        assert (restored.node_id, restored.get_content(), restored.metadata) == (
            node.node_id,
            node.text,
            node.metadata,
        )


def test_models_see_speaker_and_time_and_embedders_only_the_text(engine: MemoryEngine) -> None:
    message = find_kind(create_retriever(engine).retrieve(QUESTION), "message")
    assert message.get_content(MetadataMode.EMBED) == "Bob plays the cello."
    lines = message.get_content(MetadataMode.LLM).split("\n")
    assert lines == [
        "role: user",
        "name: Ada",
        f"created_at: {message.metadata['created_at']}",
        "",
        message.text,
    ]


async def test_async_search_finds_the_same_nodes(engine: MemoryEngine) -> None:
    retriever = create_retriever(engine, similarity_top_k=2)
    sync, awaited = retriever.retrieve(QUESTION), await retriever.aretrieve(QUESTION)
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
    assert await create_retriever(engine).aretrieve(QUESTION)
    assert threads
    assert threading.get_ident() not in threads


def test_nodes_of_another_user_are_not_found(engine: MemoryEngine) -> None:
    everything = create_retriever(engine, similarity_top_k=50).retrieve("Bob")
    assert not any("drums" in node.text for node in everything)
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
def test_users_with_hostile_names_find_only_their_own_messages(names: list[str]) -> None:
    with MemoryEngine(embedder=None) as engine:
        for number, name in enumerate(names):
            engine.session(name, "s").add("user", f"secret number {number}")
        for number, name in enumerate(names):
            found = TieredMemoryRetriever(engine, name, similarity_top_k=100).retrieve("secret number")
            assert [node.text for node in found] == [f"secret number {number}"]


@pytest.mark.parametrize("query", ["", "  \n"])
async def test_a_query_without_words_finds_nothing(engine: MemoryEngine, query: str) -> None:
    retriever = create_retriever(engine, strategy="recency")
    assert retriever.retrieve(query) == []
    assert await retriever.aretrieve(QueryBundle(query)) == []


def test_filters_and_strategy_select_the_nodes(engine: MemoryEngine) -> None:
    roles = create_retriever(engine, filters=RecallFilters(roles={"assistant"})).retrieve(QUESTION)
    assert [node.metadata["role"] for node in roles] == ["assistant"]
    newest = create_retriever(engine, strategy=Strategy.RECENCY, similarity_top_k=1).retrieve(QUESTION)
    assert newest[0].text == "He must love the instrument."


def test_similarity_top_k_can_be_changed(engine: MemoryEngine) -> None:
    retriever = create_retriever(engine)
    retriever.similarity_top_k = 1
    assert (retriever.similarity_top_k, len(retriever.retrieve(QUESTION))) == (1, 1)
    with pytest.raises(InvalidInputError, match="from 1 to 100, got 101: RecallConfig.max_limit"):
        retriever.similarity_top_k = 101
    assert retriever.similarity_top_k == 1


def test_messages_with_the_same_id_in_several_sessions_are_all_found() -> None:
    with MemoryEngine(embedder=None) as engine:
        for session in ("monday", "tuesday", "wednesday"):
            engine.session("ada", session).add_many([MessageDraft("user", f"cello on {session}", id="1")])
        found = TieredMemoryRetriever(engine, "ada").retrieve("cello")
        assert {node.metadata["session"] for node in found} == {"monday", "tuesday", "wednesday"}
        assert len({node.node_id for node in found}) == 3
        assert found[0].node_id == "1"


def test_lone_surrogates_are_replaced() -> None:
    with MemoryEngine(embedder=None) as engine:
        engine.session("ada", "s").add_many([MessageDraft("user", "half \ud83d a smile", name="Ad\udc00")])
        (found,) = TieredMemoryRetriever(engine, "ada").retrieve("smile")
        assert found.get_content(MetadataMode.LLM).encode().endswith(b"half ? a smile")
        assert found.to_json()


@pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])
def test_a_memory_found_by_two_retrievers_is_fused_into_one(engine: MemoryEngine, use_async: bool) -> None:  # noqa: FBT001 - a parameter of the test
    words, newest = create_retriever(engine, strategy="words"), create_retriever(engine, strategy="recency")
    fused = QueryFusionRetriever(
        [words, newest],
        llm=MockLLM(),
        num_queries=1,
        mode="reciprocal_rerank",  # type: ignore[arg-type] # as their documentation has it
        similarity_top_k=50,
        use_async=use_async,
    )
    found = fused.retrieve("plays the cello")
    assert len(found) == len({node.node_id for node in found}) == len(newest.retrieve("x"))
    assert found[0].score == pytest.approx(1 / 60 + 1 / 61, rel=0.02)


def test_a_retriever_works_in_a_query_engine(engine: MemoryEngine) -> None:
    answered = RetrieverQueryEngine.from_args(create_retriever(engine), llm=MockLLM()).query(QUESTION)
    assert "Bob plays the cello." in str(answered)  # the model repeats its prompt
    assert "signals" not in str(answered)
    assert "found_by" not in str(answered)
    assert {node.metadata["kind"] for node in answered.source_nodes} == {"message", "knowledge"}


async def test_a_retriever_works_in_an_async_query_engine(engine: MemoryEngine) -> None:
    answered = await RetrieverQueryEngine.from_args(create_retriever(engine), llm=MockLLM()).aquery(QUESTION)
    assert "Bob plays the cello." in str(answered)


async def test_a_retriever_works_as_a_query_engine_tool(engine: MemoryEngine) -> None:
    query_engine = RetrieverQueryEngine.from_args(create_retriever(engine), llm=MockLLM())
    tool = QueryEngineTool.from_defaults(query_engine, name="memory", description="What is remembered.")
    for output in (tool(QUESTION), await tool.acall(QUESTION)):
        assert "Bob plays the cello." in output.content
        assert not output.is_error


def create_chat_engine(kind: Any, memory: TieredMemoryRetriever) -> Any:
    # The default history leaves a database open.
    history = ChatMemoryBuffer.from_defaults(token_limit=1_000)
    return kind.from_defaults(retriever=memory, memory=history, llm=MockLLM(is_chat_model=True))


@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
async def test_a_chat_engine_passes_found_memories_to_its_model(engine: MemoryEngine, kind: Any) -> None:
    chat = create_chat_engine(kind, create_retriever(engine))
    for answer in (chat.chat(QUESTION), await chat.achat(QUESTION)):
        assert "Bob plays the cello." in answer.response
        assert answer.source_nodes
    assert "Bob plays the cello." in "".join(chat.stream_chat(QUESTION).response_gen)


@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
def test_braces_in_a_memory_reach_the_model_unchanged(kind: Any) -> None:
    text = 'The template of Bob is {"a": {query_str}} {context_str} {0}.'
    with MemoryEngine(embedder=None) as engine:
        engine.session("ada", "s").add("user", text)
        memory = TieredMemoryRetriever(engine, "ada")
        assert text in create_chat_engine(kind, memory).chat("template of Bob").response
        answer = RetrieverQueryEngine.from_args(memory, llm=MockLLM()).query("template of Bob")
        assert text in str(answer)


class EventRecorder(BaseEventHandler):
    """Record the retrieval events."""

    events: list[Any] = []  # noqa: RUF012 - pydantic copies it

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, RetrievalStartEvent | RetrievalEndEvent):
            self.events.append(event)


async def test_tracers_and_callbacks_get_each_retrieval(engine: MemoryEngine) -> None:
    recorder, debug = EventRecorder(), LlamaDebugHandler(print_trace_on_end=False)
    retriever, root = create_retriever(engine, callback_manager=CallbackManager([debug])), get_dispatcher()
    root.add_event_handler(recorder)
    try:
        found = retriever.retrieve(QUESTION)
        await retriever.aretrieve(QUESTION)
    finally:
        root.event_handlers.remove(recorder)
    start, end, *more = recorder.events
    assert (start.str_or_query_bundle, end.nodes, len(more)) == (QUESTION, found, 2)
    assert len(debug.get_event_pairs(CBEventType.RETRIEVE)) == 2


async def test_a_closed_engine_raises(engine: MemoryEngine) -> None:
    retriever = create_retriever(engine)
    engine.close()
    with pytest.raises(EngineClosedError):
        retriever.retrieve(QUESTION)
    with pytest.raises(EngineClosedError):
        await retriever.aretrieve(QUESTION)


def test_repr_does_not_show_the_database(engine: MemoryEngine) -> None:
    assert repr(create_retriever(engine)) == "TieredMemoryRetriever(('acme', 'ada'), similarity_top_k=4)"


@pytest.mark.parametrize(
    ("settings", "expected"),
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
def test_invalid_settings_are_rejected(engine: MemoryEngine, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        TieredMemoryRetriever(**{"engine": engine, "namespace": "acme", **settings})


def test_max_limit_of_the_engine_limits_similarity_top_k() -> None:
    with MemoryEngine(
        embedder=None, config=EngineConfig(recall=RecallConfig(limit=2, max_limit=2))
    ) as engine:
        with pytest.raises(InvalidInputError, match="from 1 to 2, got 4"):
            TieredMemoryRetriever(engine, "ada")
        assert TieredMemoryRetriever(engine, "ada", similarity_top_k=2).retrieve("x") == []
