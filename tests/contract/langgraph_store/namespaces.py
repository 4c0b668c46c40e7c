"""Namespaces: whole labels match exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp

from tests.contract.langgraph_store.base import Conformance, keys_of, value_of

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, Op

HOSTILE_LABELS = (
    "acme", "Acme", "acme-corp", "acme_corp", "acme%", "acme_", "acme*", "acme?", "[a]cme", "ac'me", 'ac"me',
    "acme:", "acme/", "acme/x", "acme\\", "acme ", " acme", "%", "_", "?", "%61cme", "åcme", "a\u030acme", "😀",
    "acme0", "acm", "acme;--", "null", "acme\n",
)  # fmt: skip
NO_LABELS: list[tuple[object, ...]] = [("a.b",), ("a", ""), (1,), ("a\0b",), ("a", None)]


class NamespaceConformance(Conformance):
    """Tenants never see each other."""

    def test_hostile_labels_are_isolated(self, store: BaseStore, root: str) -> None:
        for label in HOSTILE_LABELS:
            store.put((root, label), "k", {"of": label})
            store.put((root, label, "child"), "k", {"of": label})
        for label in HOSTILE_LABELS:
            assert value_of(store.get((root, label), "k")) == {"of": label}
            found = store.search((root, label), limit=99)
            assert [item.value for item in found] == [{"of": label}] * 2, label
            namespaces = store.list_namespaces(prefix=(root, label))
            assert namespaces == [(root, label), (root, label, "child")]
            assert store.list_namespaces(prefix=(root,), suffix=(label,)) == [(root, label)]

    def test_deleting_in_one_namespace_keeps_the_others(self, store: BaseStore, root: str) -> None:
        for label in HOSTILE_LABELS:
            store.put((root, label), "k", {"of": label})
        for left, label in enumerate(HOSTILE_LABELS, start=1):
            store.delete((root, label), "k")
            assert len(store.search((root,), limit=99)) == len(HOSTILE_LABELS) - left

    def test_a_prefix_matches_whole_labels_only(self, store: BaseStore, root: str) -> None:
        for path in (("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("b", "a")):
            store.put((root, *path), "-".join(path), {})
        assert set(keys_of(store.search((root, "a")))) == {"a", "a-b", "a-b-c"}
        assert set(keys_of(store.search((root, "a", "b")))) == {"a-b", "a-b-c"}
        assert store.search((root, "b", "a", "x")) == []
        assert {"a", "ab"} <= set(keys_of(store.search((), limit=10_000)))

    @pytest.mark.parametrize("namespace", NO_LABELS, ids=repr)
    def test_an_invalid_label_is_refused(
        self, store: BaseStore, root: str, namespace: tuple[str, ...]
    ) -> None:
        with pytest.raises(InvalidNamespaceError):
            store.put((root, *namespace), "k", {})
        with pytest.raises(InvalidNamespaceError):
            store.get((root, *namespace), "k")
        with pytest.raises(InvalidNamespaceError):
            store.search((root, *namespace))

    @pytest.mark.parametrize("namespace", NO_LABELS, ids=repr)
    def test_a_batch_with_an_invalid_label_is_refused_and_writes_nothing(
        self, store: BaseStore, root: str, namespace: tuple[str, ...]
    ) -> None:
        bad: list[Op] = [
            PutOp((root, *namespace), "k", {}),
            GetOp((root, *namespace), "k"),
            SearchOp((root, *namespace)),
        ]
        for op in bad:
            with pytest.raises(InvalidNamespaceError):
                store.batch([PutOp((root,), "good", {}), op])
        assert store.search((root,)) == []

    def test_a_put_needs_a_namespace_that_is_not_langgraphs_own(self, store: BaseStore) -> None:
        for namespace in ((), ("langgraph", "x")):
            with pytest.raises(InvalidNamespaceError):
                store.put(namespace, "k", {})

    def test_namespaces_are_listed_by_prefix_suffix_and_wildcards(self, store: BaseStore, root: str) -> None:
        for path in (("a", "x", "f"), ("a", "y", "f"), ("a", "y", "g"), ("b", "x", "f"), ("a",)):
            store.put((root, *path), "k", {})
            store.put((root, *path), "l", {})
        listed = store.list_namespaces
        assert listed(prefix=(root,)) == [
            (root, "a"), (root, "a", "x", "f"), (root, "a", "y", "f"), (root, "a", "y", "g"), (root, "b", "x", "f"),
        ]  # fmt: skip
        assert listed(prefix=(root, "a", "*", "f")) == [(root, "a", "x", "f"), (root, "a", "y", "f")]
        assert listed(prefix=(root, "*", "x")) == [(root, "a", "x", "f"), (root, "b", "x", "f")]
        assert listed(prefix=(root,), suffix=("y", "*")) == [(root, "a", "y", "f"), (root, "a", "y", "g")]
        assert listed(prefix=(root,), suffix=("f", "g")) == []

    def test_namespaces_are_cut_at_a_depth_and_paged_in_order(self, store: BaseStore, root: str) -> None:
        for n in range(12):
            store.put((root, f"{n:02}", str(n % 2), "leaf"), "k", {})
        cut = store.list_namespaces(prefix=(root,), max_depth=2)
        assert cut == [(root, f"{n:02}") for n in range(12)]
        pages = [
            store.list_namespaces(prefix=(root,), max_depth=2, limit=5, offset=at) for at in (0, 5, 10, 15)
        ]
        assert [path for page in pages for path in page] == cut
        assert store.list_namespaces(prefix=(root,), max_depth=1) == [(root,)]
