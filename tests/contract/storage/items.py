"""Contract of the item repository and its index."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.items.models import ItemWrite
from langmem_tiers.recall.item_records import ItemText, ItemTextKey
from tests.contract.storage.base import ANY_TEXT, HOSTILE_NAMES, NOW, StoreConformance

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.items.repository import ItemRepository
    from langmem_tiers.recall.item_records import ItemIndex
    from tests.contract.storage.base import Stores

LATER = NOW + timedelta(seconds=10)
VECTOR = b"\0\0\x80\x3f" * 4


class ItemRepositoryConformance(StoreConformance):
    """Suites for ``ItemRepository`` and ``ItemIndex`` on one database."""

    @pytest.fixture
    def items(self, stores: Stores) -> ItemRepository:
        """The store."""
        assert stores.items is not None
        return stores.items

    @pytest.fixture
    def index(self, stores: Stores) -> ItemIndex:
        """Its index."""
        assert stores.item_index is not None
        return stores.item_index

    @pytest.fixture
    def model(self, stores: Stores) -> int:
        """A model to keep vectors of."""
        assert stores.vectors is not None
        return stores.vectors.register_model("conformance", 4, NOW)

    def test_a_write_is_read_back_by_name_page_scan_and_key(
        self, items: ItemRepository, namespace: NamespacePath
    ) -> None:
        items.write([_write(namespace, "a", '{"n":1}'), _write(namespace, "b", "{}")], NOW, model=None)
        kept = items.get([(namespace, "a"), (namespace, "c")], NOW)[namespace, "a"]
        assert (kept.item.value, kept.item.created_at, kept.item.expires_at) == ({"n": 1}, NOW, None)
        assert [each.item.key for each in items.list_items(namespace, NOW, skip=0, limit=9)] == ["b", "a"]
        assert [each.item.key for each in items.list_items(namespace, NOW, skip=1, limit=9)] == ["a"]
        some, mark = items.scan(namespace, NOW, after=None, limit=1)
        assert [each.value for each in some] == [{}]
        assert [each.pk for each in items.scan(namespace, NOW, after=mark, limit=9)[0]] == [kept.pk]
        assert items.get_by_keys([kept.pk], NOW) == {kept.pk: kept}
        assert items.get_values([kept.pk], NOW)[kept.pk].value == {"n": 1}

    def test_hostile_names_and_texts_come_back_equal(
        self, items: ItemRepository, namespace: NamespacePath
    ) -> None:
        for name in HOSTILE_NAMES:
            items.write(
                [_write((*namespace, name), name, json.dumps({"x": name}, ensure_ascii=False))],
                NOW,
                model=None,
            )
        for name in HOSTILE_NAMES:
            (kept,) = items.list_items((*namespace, name), NOW, skip=0, limit=99)
            assert (kept.item.namespace, kept.item.key) == ((*namespace, name), name)
            assert kept.item.value == {"x": name}
        assert set(items.list_namespaces(namespace, NOW)) == {(*namespace, name) for name in HOSTILE_NAMES}

    def test_an_update_keeps_key_and_created_at_and_increments_the_revision(
        self, items: ItemRepository, namespace: NamespacePath
    ) -> None:
        items.write([_write(namespace, "a", "{}")], NOW, model=None)
        first = items.get([(namespace, "a")], NOW)[namespace, "a"]
        items.write([_write(namespace, "a", '{"n":2}')], LATER, model=None)
        second = items.get([(namespace, "a")], LATER)[namespace, "a"]
        assert (second.pk, second.item.created_at, second.item.updated_at) == (first.pk, NOW, LATER)
        assert second.revision > first.revision

    def test_deleting_the_last_item_removes_the_namespace(
        self, items: ItemRepository, index: ItemIndex, namespace: NamespacePath
    ) -> None:
        items.write([_write(namespace, "a", "{}")], NOW, model=None)
        before = index.list_namespace_states(namespace)
        assert items.write([_write(namespace, key, None) for key in ("a", "b")], NOW, model=None) == 1
        assert items.list_namespaces(namespace, NOW) == ()
        assert index.list_namespace_states(namespace) == ()
        items.write([_write(namespace, "a", "{}")], NOW, model=None)
        assert {state.pk for state in before}.isdisjoint(
            state.pk for state in index.list_namespace_states(namespace)
        )

    @pytest.mark.parametrize(("seconds", "is_new"), [(4, False), (5, True), (6, True)])
    def test_an_item_written_when_its_time_to_live_ends_or_later_is_a_new_one(
        self, items: ItemRepository, namespace: NamespacePath, seconds: int, *, is_new: bool
    ) -> None:
        items.write([_write(namespace, "a", "{}", ttl=5.0)], NOW, model=None)
        later = NOW + timedelta(seconds=seconds)
        assert bool(items.get([(namespace, "a")], later)) is not is_new
        items.write([_write(namespace, "a", "{}")], later, model=None)
        written = items.get([(namespace, "a")], later)[namespace, "a"]
        assert written.item.created_at == (later if is_new else NOW)

    def test_an_expired_item_is_hidden_and_refreshing_does_not_restore_it(
        self, items: ItemRepository, namespace: NamespacePath
    ) -> None:
        items.write([_write(namespace, "a", "{}", ttl=5.0)], NOW, model=None)
        kept = items.get([(namespace, "a")], NOW)[namespace, "a"]
        items.refresh([kept], NOW + timedelta(seconds=4))
        assert items.get([(namespace, "a")], NOW + timedelta(seconds=8))
        items.refresh([kept], LATER)
        assert not items.get([(namespace, "a")], LATER)
        assert not items.get_by_keys([kept.pk], LATER)
        assert not items.get_values([kept.pk], LATER)
        assert items.list_items(namespace, LATER, skip=0, limit=9) == ()
        assert items.list_namespaces(namespace, LATER) == ()
        assert items.sweep(LATER) >= 1
        assert not items.get([(namespace, "a")], NOW)

    def test_the_index_returns_changes_with_terms_and_vectors(
        self, items: ItemRepository, index: ItemIndex, namespace: NamespacePath, model: int
    ) -> None:
        texts = (ItemText(text="a boat", terms="boat", vector=VECTOR), ItemText(text=ANY_TEXT, terms="x y"))
        items.write([_write(namespace, "a", "{}", texts=texts)], NOW, model=model)
        (state,) = index.list_namespace_states(namespace)
        (loaded,) = index.load_items([state.pk], 0, model)
        assert loaded.texts == (("boat", VECTOR), ("x y", None))
        assert index.load_items([state.pk], state.revision, model) == []
        assert index.list_keys([state.pk]) == {loaded.pk}
        items.write([_write(namespace, "b", "{}")], NOW, model=None)
        (then,) = index.list_namespace_states(namespace)
        assert (then.pk, then.erasure_epoch) == (state.pk, state.erasure_epoch)
        assert [item.texts for item in index.load_items([state.pk], state.revision, model)] == [()]
        items.write([_write(namespace, "b", None)], NOW, model=None)
        assert index.list_namespace_states(namespace)[0].erasure_epoch > state.erasure_epoch

    def test_vectors_are_stored_only_for_unchanged_texts(
        self, items: ItemRepository, index: ItemIndex, namespace: NamespacePath, model: int
    ) -> None:
        texts = (ItemText(text="a boat", terms="boat"),)
        items.write([_write(namespace, "a", "{}", texts=texts)], NOW, model=None)
        (state,) = index.list_namespace_states(namespace)
        (loaded,) = index.load_items([state.pk], 0, model)
        place = ItemTextKey(loaded.pk, loaded.revision, 0)
        assert index.get_texts([place], model) == {place: ("a boat", None)}
        index.insert_vectors({ItemTextKey(loaded.pk, loaded.revision + 1, 0): VECTOR}, model)
        assert index.get_texts([place], model) == {place: ("a boat", None)}
        index.insert_vectors({place: VECTOR}, model)
        index.insert_vectors({place: VECTOR}, model)
        assert index.get_texts([place], model) == {place: ("a boat", VECTOR)}
        items.write([_write(namespace, "a", "{}", texts=texts)], NOW, model=None)
        assert index.get_texts([place], model) == {}


def _write(
    namespace: NamespacePath,
    key: str,
    value_json: str | None,
    *,
    texts: tuple[ItemText, ...] = (),
    ttl: float | None = None,
) -> ItemWrite:
    return ItemWrite(namespace=namespace, key=key, value_json=value_json, texts=texts, ttl_seconds=ttl)
