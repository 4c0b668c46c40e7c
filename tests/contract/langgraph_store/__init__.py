"""Contract of LangGraph stores, as a pytest class. Needs pytest; works with any store.

Subclass it in a test module of yours and give it your store::

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self) -> BaseStore:
            return MyStore(...)

        @pytest.fixture
        def indexed_store(self) -> BaseStore:  # left out: the tests of queries are skipped
            return MyStore(..., index=INDEX)

        @pytest.fixture
        def expiring_store(self) -> BaseStore:  # left out: the tests of expiry are skipped
            return MyStore(..., ttl=TTL)

        @pytest.fixture
        def let_pass(self) -> Callable[[float], object]:  # optional: without it the tests of expiry sleep
            return my_clock.advance

The stores may hold other data: each test works in namespaces of its own.
"""

import pytest

_PARTS = ("base", "expiry", "filters", "namespaces", "queries", "values")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))  # a failure shows its values

# ruff: noqa: E402 - assertions are rewritten in what is imported from here on
from tests.contract.langgraph_store.base import INDEX, TTL, WordEmbeddings
from tests.contract.langgraph_store.expiry import ExpiryConformance
from tests.contract.langgraph_store.filters import FilterConformance
from tests.contract.langgraph_store.namespaces import NamespaceConformance
from tests.contract.langgraph_store.queries import QueryConformance
from tests.contract.langgraph_store.values import ValueConformance

__all__ = ["INDEX", "TTL", "StoreConformance", "WordEmbeddings"]


class StoreConformance(
    ValueConformance, NamespaceConformance, FilterConformance, QueryConformance, ExpiryConformance
):
    """All of it."""
