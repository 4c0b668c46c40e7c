"""Expiry: an expired item cannot be read, swept or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.langgraph_store.base import TTL, Conformance, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from langgraph.store.base import BaseStore

_WHOLE = (TTL["default_ttl"] or 0) * 60


class ExpiryConformance(Conformance):
    """Needs ``expiring_store``."""

    def test_the_store_supports_ttl(self, expiring_store: BaseStore) -> None:
        assert expiring_store.supports_ttl

    def test_an_expired_item_is_hidden_before_any_sweep(
        self, expiring_store: BaseStore, root: str, let_pass: Callable[[float], object]
    ) -> None:
        expiring_store.put((root, "default"), "k", {})
        expiring_store.put((root, "long"), "k", {}, ttl=60)
        expiring_store.put((root, "ever"), "k", {}, ttl=None)
        let_pass(_WHOLE + 0.1)
        assert expiring_store.get((root, "default"), "k") is None
        assert {item.namespace for item in expiring_store.search((root,))} == {(root, "long"), (root, "ever")}
        assert (root, "default") not in expiring_store.list_namespaces(prefix=(root,))

    def test_reading_extends_the_ttl_of_an_item_only_on_request(
        self, expiring_store: BaseStore, root: str, let_pass: Callable[[float], object]
    ) -> None:
        for key in ("read", "searched", "left"):
            expiring_store.put((root, key), key, {}, ttl=0.01)  # 0.6 s
        for _ in range(20):  # 1 s
            expiring_store.get((root, "read"), "read", refresh_ttl=True)
            expiring_store.search((root, "searched"), refresh_ttl=True)
            expiring_store.get((root, "left"), "left", refresh_ttl=False)
            expiring_store.search((root,), refresh_ttl=False)
            let_pass(0.05)
        assert set(keys_of(expiring_store.search((root,)))) == {"read", "searched"}

    def test_writing_an_expired_item_creates_it_again(
        self, expiring_store: BaseStore, root: str, let_pass: Callable[[float], object]
    ) -> None:
        expiring_store.put((root,), "k", {"n": 1})
        first = expiring_store.get((root,), "k")
        let_pass(_WHOLE + 0.1)
        expiring_store.put((root,), "k", {"n": 2}, ttl=None)
        let_pass(_WHOLE + 0.1)
        second = expiring_store.get((root,), "k")
        assert first is not None
        assert second is not None
        assert second.value == {"n": 2}
        assert second.created_at > first.created_at

    def test_reading_does_not_bring_back_an_expired_item(
        self, expiring_store: BaseStore, root: str, let_pass: Callable[[float], object]
    ) -> None:
        expiring_store.put((root,), "k", {})
        let_pass(_WHOLE + 0.1)
        assert expiring_store.get((root,), "k", refresh_ttl=True) is None
        assert expiring_store.search((root,), refresh_ttl=True) == []
        assert expiring_store.get((root,), "k") is None
