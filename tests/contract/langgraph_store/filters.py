"""Filters: all operators, nested values, and strict types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.langgraph_store.base import Conformance, keys_of

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

STORED: dict[str, dict[str, Any]] = {
    "one": {"n": 1, "s": "b", "nest": {"x": 1, "y": {"z": "deep"}}, "tags": ["a", "b"]},
    "two": {"n": 2.5, "s": "c", "nest": {"x": 2}, "tags": ["a"]},
    "true": {"n": True, "s": "1"},
    "text": {"n": "1", "s": "a'; DROP TABLE items; --"},
    "none": {"n": None, "a.b": 1, "$odd": "x"},
    "bare": {"other": 1},
}
FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({"n": 1}, {"one"}),
    ({"n": 1.0}, {"one"}),
    ({"n": True}, {"true"}),
    ({"n": "1"}, {"text"}),
    ({"n": {"$eq": 1}}, {"one"}),
    ({"n": {"$gt": 1}}, {"two"}),
    ({"n": {"$gte": 1}}, {"one", "two"}),
    ({"n": {"$lt": 2.5}}, {"one"}),
    ({"n": {"$lte": 2.5}}, {"one", "two"}),
    ({"n": {"$gt": 0, "$lt": 2}}, {"one"}),
    ({"s": {"$gt": "b"}}, {"two"}),
    ({"s": "a'; DROP TABLE items; --"}, {"text"}),
    ({"n": 1, "s": "b"}, {"one"}),
    ({"n": 1, "s": "c"}, set()),
    ({"nest": {"x": 1}}, {"one"}),
    ({"nest": {"y": {"z": "deep"}}}, {"one"}),
    ({"nest": {"x": {"$gte": 2}}}, {"two"}),
    ({"nest": {"$eq": {"x": 2}}}, {"two"}),
    ({"tags": ["a"]}, {"two"}),
    ({"a.b": 1}, {"none"}),
    ({"nowhere": {"$gt": 1}}, set()),
    ({"nowhere": {"$lte": 1}}, set()),
    ({"nest": {"nowhere": {"$lt": 1}}}, set()),
    ({"s": {"x": 1}}, set()),
    ({}, set(STORED)),
]


class FilterConformance(Conformance):
    """What values must hold."""

    def test_a_filter_finds_the_matching_items(self, store: BaseStore, root: str) -> None:
        for key, value in STORED.items():
            store.put((root,), key, value)
        for wanted, expected in FILTERS:
            assert set(keys_of(store.search((root,), filter=wanted))) == expected, wanted

    def test_not_equal_finds_other_values_of_any_type(self, store: BaseStore, root: str) -> None:
        for key, value in STORED.items():
            store.put((root,), key, value)
        found = set(keys_of(store.search((root,), filter={"n": {"$ne": 1}})))
        assert {"two", "true", "text"} <= found
        assert "one" not in found

    @pytest.mark.parametrize("wanted", [{"n": {"$in": [1]}}, {"n": {"$GT": 1}}, {"n": {"$gt": 0, "x": 1}}])
    def test_an_operator_that_does_not_exist_is_refused(
        self, store: BaseStore, root: str, wanted: dict[str, Any]
    ) -> None:
        store.put((root,), "k", {"n": 1, "x": 1})
        with pytest.raises(ValueError, match="operator"):
            store.search((root,), filter=wanted)
