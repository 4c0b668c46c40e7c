"""The LangGraph store passes the conformance suite on every database."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import langgraph.store.base
import pytest
from langgraph.store.base import InvalidNamespaceError, PutOp

from langmem_tiers import EmbeddingError, EngineConfig, InvalidConfigError, InvalidInputError, MemoryEngine
from langmem_tiers.testing import FrozenClock
from langmem_tiers_langchain import TieredStore
from tests.contract.langgraph_store import INDEX, TTL, StoreConformance, WordEmbeddings
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from langgraph.store.base import BaseStore


class TestTieredStore(StoreConformance):
    @pytest.fixture
    def clock(self) -> FrozenClock:
        """Clock later than in other tests, whose sweeps must not find items of this class."""
        return FrozenClock(datetime(2030, 1, 1, tzinfo=UTC))

    @pytest.fixture
    def let_pass(self, clock: FrozenClock) -> Callable[[float], object]:
        return lambda seconds: clock.advance(seconds=seconds)

    @pytest.fixture
    def opened(self, url: str, config: EngineConfig, clock: FrozenClock) -> Iterator[MemoryEngine]:
        with MemoryEngine(url, config=config, clock=clock) as engine:
            yield engine

    @pytest.fixture
    def store(self, opened: MemoryEngine) -> BaseStore:
        return TieredStore(opened)

    @pytest.fixture
    def indexed_store(self, opened: MemoryEngine) -> BaseStore:
        return TieredStore(opened, index=INDEX)

    @pytest.fixture
    def expiring_store(self, opened: MemoryEngine) -> BaseStore:
        return TieredStore(opened, ttl=TTL)


class TestTieredStoreWithoutAnIndex(StoreConformance):
    """Queries use the embedder and the word search of the engine."""

    @pytest.fixture
    def let_pass(self, clock: FrozenClock) -> Callable[[float], object]:
        return lambda seconds: clock.advance(seconds=seconds)

    @pytest.fixture
    def opened(self, clock: FrozenClock) -> Iterator[MemoryEngine]:
        with MemoryEngine(clock=clock) as engine:
            yield engine

    @pytest.fixture
    def store(self, opened: MemoryEngine) -> BaseStore:
        return TieredStore(opened)

    @pytest.fixture
    def indexed_store(self, opened: MemoryEngine) -> BaseStore:
        return TieredStore(opened, index={"fields": ["text", "notes[*]"]})

    @pytest.fixture
    def expiring_store(self, opened: MemoryEngine) -> BaseStore:
        return TieredStore(opened, ttl=TTL)


def test_a_store_without_arguments_works() -> None:
    store = TieredStore()
    store.put(("a",), "k", {"text": "boats"})
    assert [item.key for item in store.search((), query="boat")] == ["k"]


def test_a_connection_string_opens_and_closes_a_database(tmp_path: Path) -> None:
    for _ in range(2):
        with TieredStore.from_conn_string(tmp_path / "memory.db", index=INDEX, ttl=TTL) as store:
            store.setup()
            store.put(("a",), "k", {"text": "boats"}, ttl=None)
            found = store.search(("a",), query="boats")[0]
            assert found.score == 1.0


def test_two_stores_on_one_engine_share_their_items(engine: MemoryEngine, tenant: str) -> None:
    words, vectors = TieredStore(engine), TieredStore(engine, index=INDEX)
    words.put((tenant,), "a", {"text": "boat on the lake"})
    vectors.put((tenant,), "b", {"text": "tax forms"})
    for store in (words, vectors):
        assert [item.key for item in store.search((tenant,), query="boat lake")] == ["a", "b"]


def test_the_score_is_the_cosine_if_no_word_matches() -> None:
    with TieredStore(
        index={"dims": 2, "embed": lambda texts: [[1.0, float("x" in text)] for text in texts]}
    ) as store:
        store.put(("a",), "k", {"text": "xyz"})
        (found,) = store.search(("a",), query="unrelated")
        assert found.score == pytest.approx(0.5**0.5, abs=1e-5)


def test_words_distinguish_items_with_equal_vectors() -> None:
    with TieredStore(index={"dims": 2, "embed": lambda texts: [[1.0, 0.0] for _ in texts]}) as store:
        for n in range(50):
            store.put(("a",), f"k{n}", {"text": f"order number {n} was shipped"})
        assert store.search(("a",), query="order 37", limit=1)[0].key == "k37"


@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_async_function_embeds_for_both_ways(way: str) -> None:
    asked_in: list[object] = []

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        asked_in.append(asyncio.get_running_loop())
        return WordEmbeddings().embed_documents(list(texts))

    with TieredStore(index={"dims": 256, "embed": embed}) as store:
        if way == "sync":
            store.put(("a",), "k", {"text": "boats"})
            assert store.search(("a",), query="boats")[0].key == "k"
            return

        async def use() -> None:
            await store.aput(("a",), "k", {"text": "boats"})
            assert (await store.asearch(("a",), query="boats"))[0].key == "k"
            assert set(asked_in) == {asyncio.get_running_loop()}  # where its clients live
            store.put(("a",), "l", {"text": "from inside a running loop"})

        asyncio.run(use())


def test_the_embedding_function_is_called_once_per_distinct_text_of_a_batch() -> None:
    requests: list[list[str]] = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        requests.append(list(texts))
        return WordEmbeddings().embed_documents(list(texts))

    with TieredStore(index={"dims": 256, "embed": embed, "fields": ["text"]}) as store:
        store.batch([PutOp(("a",), f"k{n}", {"text": f"text {n % 2}"}) for n in range(6)])
        assert requests == [["text 0", "text 1"]]
        store.put(("a",), "no", {"text": "text"}, index=False)
        assert len(requests) == 1


def test_a_failing_embedder_prevents_puts_and_searches_still_use_words() -> None:
    broken = False

    def embed(texts: Sequence[str]) -> list[list[float]]:
        if broken:
            raise ConnectionError("down")
        return WordEmbeddings().embed_documents(list(texts))

    with TieredStore(index={"dims": 256, "embed": embed}) as store:
        store.put(("a",), "k", {"text": "boats"})
        broken = True
        with pytest.raises(EmbeddingError, match="ConnectionError"):
            store.batch([PutOp(("a",), "l", {"text": "more boats"}), PutOp(("a",), "k", None)])
        assert [item.key for item in store.search(("a",), query="boats")] == ["k"]


def test_vectors_with_another_length_than_dims_are_rejected() -> None:
    with TieredStore(index={"dims": 3, "embed": WordEmbeddings()}) as store:
        with pytest.raises(EmbeddingError, match="256 numbers, expected 3"):
            store.put(("a",), "k", {"text": "boats"})
        assert store.search(("a",)) == []


class Odd:
    pass


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (datetime(2025, 1, 1), "datetime"),
        ((1, 2), "tuple"),
        ({1: 2}, "the key 1"),
        (float("nan"), "nan"),
        (b"x", "bytes"),
        (Odd(), "Odd"),
    ],
    ids=["datetime", "tuple", "int key", "nan", "bytes", "object"],
)
@pytest.mark.parametrize("fields", [["$"], ["deep"], ["deep.part[*]"]], ids=repr)
def test_a_value_unknown_to_json_is_rejected_by_name_and_nothing_is_written(
    part: object, named: str, fields: list[str]
) -> None:
    with TieredStore(index={"fields": fields}) as store:
        value = {"deep": {"part": [part]}}
        with pytest.raises(InvalidInputError, match=named) as caught:
            store.batch([PutOp(("a",), "good", {}), PutOp(("a",), "bad", value)])
        assert "the value of 'bad'['deep']['part'][0]" in str(caught.value)
        assert store.search(("a",)) == []


def test_sweeping_erases_expired_items_and_their_namespaces(
    url: str, config: EngineConfig, tenant: str
) -> None:
    clock = FrozenClock()
    with MemoryEngine(url, config=config, clock=clock) as engine:
        store = TieredStore(engine, ttl={"default_ttl": 5})
        for n in range(3):
            store.put((tenant, str(n)), "k", {"text": "boats"}, ttl=n or None)
        store.search((tenant,), query="boats", refresh_ttl=False)
        assert store.sweep_ttl() == 0
        clock.advance(minutes=1)
        assert store.sweep_ttl() == 1
        assert store.list_namespaces(prefix=(tenant,)) == [(tenant, "0"), (tenant, "2")]
        assert len(store.search((tenant,), query="boats", refresh_ttl=False)) == 2


def test_reading_resets_the_ttl_of_an_item(url: str, config: EngineConfig, tenant: str) -> None:
    clock = FrozenClock()
    with MemoryEngine(url, config=config, clock=clock) as engine:
        store = TieredStore(engine, ttl={"default_ttl": 10, "refresh_on_read": True})
        store.put((tenant,), "k", {})
        for read in (store.get, lambda *_: store.search((tenant,))) * 3:
            clock.advance(minutes=9)
            assert read((tenant,), "k")
        clock.advance(minutes=10)
        assert store.get((tenant,), "k") is None


def test_the_sweeper_runs_until_it_is_stopped() -> None:
    with TieredStore(ttl={"default_ttl": 0.001}) as store:
        threads_before = set(threading.enumerate())  # other stores of this process may have a sweeper too
        store.start_ttl_sweeper(0.0005)
        store.start_ttl_sweeper(0.0005)
        started = [thread for thread in threading.enumerate() if thread not in threads_before]
        assert [thread.name for thread in started] == ["langmem-tiers-sweeper"]
        store.put(("a",), "k", {})
        wait_until(lambda: not _count_namespaces(store), "the sweeper erases the expired item")
        assert store.stop_ttl_sweeper(LIMIT_SECONDS)
        assert not started[0].is_alive()


def _count_namespaces(store: TieredStore) -> int:
    states: Any = store._items._index.list_namespace_states(())
    return len(states)


def test_invalid_labels_are_rejected_without_the_helper_of_newer_releases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(langgraph.store.base, "validate_op_namespace")
    with TieredStore() as store:
        for namespace in (("a.b",), ("",), (), ("a\0",)):
            with pytest.raises(InvalidNamespaceError):
                store.batch([PutOp(namespace, "k", {})])


@pytest.mark.parametrize(
    "options",
    [
        {"engine": "sqlite://"},
        {"index": {"embed": None, "fields": "text"}},
        {"index": {"embed": "no such:model"}},
    ],
    ids=["engine", "fields", "embed"],
)
def test_invalid_options_are_rejected_at_construction(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError):
        TieredStore(**options)
