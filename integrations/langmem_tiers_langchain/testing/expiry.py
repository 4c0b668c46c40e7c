"""Expiry: what has lived its time cannot be read, swept or not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from langmem_tiers_langchain.testing.base import TTL, Conformance, keys_of

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

_WHOLE = (TTL["default_ttl"] or 0) * 60


class ExpiryConformance(Conformance):
    """Needs ``expiring_store``."""

    def test_it_says_that_items_expire(self, expiring_store: BaseStore) -> None:
        assert expiring_store.supports_ttl

    def test_what_has_expired_is_gone_before_any_sweep(self, expiring_store: BaseStore, root: str) -> None:
        expiring_store.put((root, "default"), "k", {})
        expiring_store.put((root, "long"), "k", {}, ttl=60)
        expiring_store.put((root, "ever"), "k", {}, ttl=None)
        time.sleep(_WHOLE + 0.1)
        assert expiring_store.get((root, "default"), "k") is None
        assert {item.namespace for item in expiring_store.search((root,))} == {(root, "long"), (root, "ever")}
        assert (root, "default") not in expiring_store.list_namespaces(prefix=(root,))

    def test_reading_lets_it_live_on_only_if_asked_to(self, expiring_store: BaseStore, root: str) -> None:
        for key in ("read", "searched", "left"):
            expiring_store.put((root, key), key, {}, ttl=0.01)  # six tenths of a second
        began = time.monotonic()
        while time.monotonic() < began + 1:
            expiring_store.get((root, "read"), "read", refresh_ttl=True)
            expiring_store.search((root, "searched"), refresh_ttl=True)
            expiring_store.get((root, "left"), "left", refresh_ttl=False)
            expiring_store.search((root,), refresh_ttl=False)
            time.sleep(0.05)
        assert set(keys_of(expiring_store.search((root,)))) == {"read", "searched"}

    def test_writing_begins_a_new_life(self, expiring_store: BaseStore, root: str) -> None:
        expiring_store.put((root,), "k", {"n": 1})
        first = expiring_store.get((root,), "k")
        time.sleep(_WHOLE + 0.1)
        expiring_store.put((root,), "k", {"n": 2}, ttl=None)
        time.sleep(_WHOLE + 0.1)
        second = expiring_store.get((root,), "k")
        assert first is not None
        assert second is not None
        assert second.value == {"n": 2}
        assert second.created_at > first.created_at  # it had gone

    def test_what_has_expired_is_not_brought_back_by_reading(
        self, expiring_store: BaseStore, root: str
    ) -> None:
        expiring_store.put((root,), "k", {})
        time.sleep(_WHOLE + 0.1)
        assert expiring_store.get((root,), "k", refresh_ttl=True) is None
        assert expiring_store.search((root,), refresh_ttl=True) == []
        assert expiring_store.get((root,), "k") is None
