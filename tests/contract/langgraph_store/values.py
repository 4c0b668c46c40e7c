"""Put, get and delete, also in batches."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.store.base import GetOp, Item, ListNamespacesOp, MatchCondition, PutOp, SearchOp

from tests.contract.langgraph_store.base import Conformance, keys_of, value_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from langgraph.store.base import BaseStore

VALUES: list[dict[str, Any]] = [
    {},
    {"text": "plain", "number": 1, "float": 0.5, "yes": True, "no": False, "nothing": None},
    {"deep": {"list": [1, [2, {"x": []}], {}], "empty": ""}},
    {"unicode": "naïve 😀 中文 \n \t 'quoted' \"double\" \\", "key with. $signs %": 1},
    {"large": 2**53, "small": -1e-9, "big text": "word " * 2000},
]
HOSTILE_KEYS = (
    "a%",
    "a_",
    "a*",
    "a'",
    'a"',
    "a:",
    "a/b",
    "a.b",
    "A",
    "a",
    "a ",
    " a",
    "å",
    "a\u030a",
    "%25",
    "😀",
)


class ValueConformance(Conformance):
    """One value under each key."""

    @pytest.mark.parametrize("value", VALUES)
    def test_a_value_is_read_back_equal(self, store: BaseStore, root: str, value: dict[str, Any]) -> None:
        store.put((root,), "k", value)
        item = store.get((root,), "k")
        assert item is not None
        assert (item.namespace, item.key, item.value) == ((root,), "k", value)
        assert [each.value for each in store.search((root,))] == [value]

    def test_changing_a_put_or_returned_value_does_not_change_the_store(
        self, store: BaseStore, root: str
    ) -> None:
        value = {"list": [1]}
        store.put((root,), "k", value)
        value["list"].append(2)
        for found in (store.get((root,), "k"), store.search((root,))[0]):
            assert found is not None
            found.value["list"].append(3)
        assert value_of(store.get((root,), "k")) == {"list": [1]}

    def test_hostile_keys_are_distinct(self, store: BaseStore, root: str) -> None:
        for key in HOSTILE_KEYS:
            store.put((root,), key, {"of": key})
        for key in HOSTILE_KEYS:
            assert value_of(store.get((root,), key)) == {"of": key}
        store.delete((root,), "a%")
        assert set(keys_of(store.search((root,), limit=99))) == set(HOSTILE_KEYS) - {"a%"}

    def test_a_later_value_replaces_the_earlier_one_and_keeps_created_at(
        self, store: BaseStore, root: str, let_pass: Callable[[float], object]
    ) -> None:
        store.put((root,), "k", {"n": 1, "old": True})
        first = store.get((root,), "k")
        let_pass(0.01)
        store.put((root,), "k", {"n": 2})
        second = store.get((root,), "k")
        assert first is not None
        assert second is not None
        assert second.value == {"n": 2}
        assert second.created_at == first.created_at
        assert second.updated_at > first.updated_at

    def test_times_are_aware_and_in_utc(self, store: BaseStore, root: str) -> None:
        store.put((root,), "k", {})
        item = store.get((root,), "k")
        assert item is not None
        assert item.created_at.utcoffset() == timedelta(0)
        assert item.updated_at.utcoffset() == timedelta(0)

    def test_reading_an_unknown_item_returns_nothing_and_creates_no_namespace(
        self, store: BaseStore, root: str
    ) -> None:
        assert store.get((root, "x"), "k") is None
        assert store.search((root,)) == []
        store.delete((root, "x"), "k")
        assert store.list_namespaces(prefix=(root,)) == []

    def test_deleting_the_last_item_removes_its_namespace(self, store: BaseStore, root: str) -> None:
        store.put((root, "x"), "k", {"text": "gone"})
        store.delete((root, "x"), "k")
        assert store.get((root, "x"), "k") is None
        assert store.search((root,)) == []
        assert store.list_namespaces(prefix=(root,)) == []

    def test_batch_results_are_in_order_and_reads_see_the_state_before_the_batch(
        self, store: BaseStore, root: str
    ) -> None:
        store.put((root, "a"), "k", {"n": 1})
        results = store.batch(
            [
                PutOp((root, "a"), "k", {"n": 2}),
                GetOp((root, "a"), "k"),
                PutOp((root, "b"), "new", {"n": 3}),
                SearchOp((root,)),
                ListNamespacesOp(match_conditions=(MatchCondition("prefix", (root,)),)),
                GetOp((root, "b"), "new"),
            ]
        )
        assert [results[at] for at in (0, 2, 5)] == [None, None, None]
        assert isinstance(results[1], Item)
        assert results[1].value == {"n": 1}
        assert [item.value for item in results[3] or []] == [{"n": 1}]  # type: ignore[union-attr]
        assert results[4] == [(root, "a")]
        assert value_of(store.get((root, "a"), "k")) == {"n": 2}
        assert value_of(store.get((root, "b"), "new")) == {"n": 3}

    def test_the_last_of_several_puts_in_a_batch_wins(self, store: BaseStore, root: str) -> None:
        store.put((root,), "there", {"n": 0})
        store.batch(
            [
                PutOp((root,), "twice", {"n": 1}),
                PutOp((root,), "twice", {"n": 2}),
                PutOp((root,), "gone", {"n": 1}),
                PutOp((root,), "gone", None),
                PutOp((root,), "there", None),
                PutOp((root,), "there", {"n": 3}),
            ]
        )
        found = {item.key: item.value for item in store.search((root,))}
        assert found == {"twice": {"n": 2}, "there": {"n": 3}}

    def test_an_empty_batch_returns_no_results(self, store: BaseStore) -> None:
        assert store.batch([]) == []

    def test_async_calls_match_the_sync_ones(self, store: BaseStore, root: str) -> None:
        async def use() -> None:
            await store.aput((root,), "k", {"n": 1})
            assert value_of(await store.aget((root,), "k")) == {"n": 1}
            assert keys_of(await store.asearch((root,), filter={"n": 1})) == ["k"]
            assert await store.alist_namespaces(prefix=(root,)) == [(root,)]
            await asyncio.gather(*(store.aput((root,), f"k{n}", {"n": n}) for n in range(20)))
            assert len(await store.asearch((root,), limit=99)) == 21
            await store.adelete((root,), "k")
            assert await store.aget((root,), "k") is None

        asyncio.run(use())

    def test_pages_without_a_query_contain_each_item_once(self, store: BaseStore, root: str) -> None:
        store.batch([PutOp((root, str(n % 3)), f"k{n}", {"n": n}) for n in range(25)])
        whole = keys_of(store.search((root,), limit=100))
        assert sorted(whole) == sorted(f"k{n}" for n in range(25))
        pages = [keys_of(store.search((root,), limit=4, offset=at)) for at in range(0, 28, 4)]
        assert [key for page in pages for key in page] == whole
        assert store.search((root,), limit=4, offset=100) == []

    def test_pages_of_a_filter_contain_each_item_once(self, store: BaseStore, root: str) -> None:
        store.batch([PutOp((root,), f"k{n}", {"even": n % 2 == 0}) for n in range(25)])
        whole = keys_of(store.search((root,), filter={"even": True}, limit=100))
        assert sorted(whole) == sorted(f"k{n}" for n in range(0, 25, 2))
        pages = [
            keys_of(store.search((root,), filter={"even": True}, limit=3, offset=at))
            for at in range(0, 15, 3)
        ]
        assert [key for page in pages for key in page] == whole
