"""Defects reproduced in the stores that LangGraph ships, which TieredStore does not have."""

from __future__ import annotations

import time
from datetime import UTC
from typing import TYPE_CHECKING

import pytest
from langgraph.store.base import PutOp

from langmem_tiers import EngineConfig, MemoryEngine
from langmem_tiers.testing import FrozenClock
from langmem_tiers_langchain import TieredStore
from tests.contract.langgraph_store import INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def store(url: str, config: EngineConfig) -> Iterator[TieredStore]:
    with MemoryEngine(url, config=config) as engine, TieredStore(engine, index=INDEX) as opened:
        yield opened


def test_memory_store_equal_texts_in_one_batch_raise_no_error(store: TieredStore, tenant: str) -> None:
    store.batch([PutOp((tenant,), str(n), {"text": "the same"}) for n in range(3)])
    assert len(store.search((tenant,), query="the same")) == 3


def test_memory_and_sqlite_store_an_update_keeps_created_at(store: TieredStore, tenant: str) -> None:
    store.put((tenant,), "k", {"text": "a"})
    first = store.get((tenant,), "k")
    time.sleep(0.005)
    store.put((tenant,), "k", {"text": "b"})
    second = store.get((tenant,), "k")
    assert first is not None
    assert second is not None
    assert first.created_at == second.created_at < second.updated_at


def test_memory_store_comparing_a_missing_key_raises_no_error(store: TieredStore, tenant: str) -> None:
    store.put((tenant,), "k", {"text": "a"})
    for operator in ("$gt", "$gte", "$lt", "$lte"):
        assert store.search((tenant,), filter={"size": {operator: 3}}) == []


def test_memory_store_comparing_a_text_with_a_number_raises_no_error(store: TieredStore, tenant: str) -> None:
    store.put((tenant,), "k", {"day": "2025-03-01"})
    assert store.search((tenant,), filter={"day": {"$gt": 3}}) == []
    assert len(store.search((tenant,), filter={"day": {"$gt": "2025-02-28"}})) == 1


def test_memory_store_reading_creates_no_namespace(store: TieredStore, tenant: str) -> None:
    assert store.get((tenant, "nowhere"), "k") is None
    assert store.search((tenant, "nowhere"), query="x") == []
    assert store.list_namespaces(prefix=(tenant,)) == []


def test_sqlite_store_every_page_of_a_query_is_full(store: TieredStore, tenant: str) -> None:
    for n in range(30):
        store.put((tenant,), f"k{n}", {"text": f"boat {n}", "notes": ["boat", "lake", f"note {n}"]})
    pages = [store.search((tenant,), query="boat", limit=10, offset=offset) for offset in (0, 10, 20, 30)]
    assert [len(page) for page in pages] == [10, 10, 10, 0]
    assert len({item.key for page in pages for item in page}) == 30


def test_sqlite_store_times_have_a_time_zone(store: TieredStore, tenant: str) -> None:
    store.put((tenant,), "k", {})
    (item,) = store.search((tenant,))
    assert item.created_at.tzinfo == item.updated_at.tzinfo == UTC


def test_sqlite_store_expired_items_cannot_be_read_before_a_sweep(
    url: str, config: EngineConfig, tenant: str
) -> None:
    clock = FrozenClock()
    with MemoryEngine(url, config=config, clock=clock) as engine:
        store = TieredStore(engine, ttl={"default_ttl": 1, "refresh_on_read": True})
        store.put((tenant,), "k", {"text": "boat"})
        clock.advance(minutes=1)
        assert store.get((tenant,), "k") is None
        assert store.search((tenant,)) == store.search((tenant,), query="boat") == []
        assert store.search((tenant,), filter={"text": "boat"}) == []
        assert store.list_namespaces(prefix=(tenant,)) == []


def test_sqlite_store_deleting_an_item_deletes_its_vector(store: TieredStore, tenant: str) -> None:
    store.put((tenant,), "k", {"text": "boat"})
    store.delete((tenant,), "k")
    store.put((tenant,), "k", {"text": "tax"}, index=False)
    (item,) = store.search((tenant,), query="boat")
    assert item.score is None


def test_sqlite_store_results_are_sorted_by_score(store: TieredStore, tenant: str) -> None:
    for text in ("tax forms", "a boat on the lake", "a boat"):
        store.put((tenant,), text, {"text": text})
    assert [item.key for item in store.search((tenant,), query="a boat")] == [
        "a boat",
        "a boat on the lake",
        "tax forms",
    ]


def test_sqlite_store_filters_distinguish_true_from_one(store: TieredStore, tenant: str) -> None:
    store.put((tenant,), "one", {"f": 1})
    store.put((tenant,), "true", {"f": True})
    assert [item.key for item in store.search((tenant,), filter={"f": True})] == ["true"]
    assert [item.key for item in store.search((tenant,), filter={"f": 1})] == ["one"]


async def test_sqlite_store_async_methods_of_the_same_object_work(store: TieredStore, tenant: str) -> None:
    await store.aput((tenant,), "k", {"text": "boat"})
    assert [item.key for item in await store.asearch((tenant,), query="boat")] == ["k"]
