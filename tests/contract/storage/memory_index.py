"""Contract of the long-term index: an ``ItemIndex`` over the entries of one namespace."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.long_term.records import Access
from langmem_tiers.recall.item_records import ItemTextKey
from tests.contract.storage.base import ANY_TEXT, HOSTILE_NAMES, NOW
from tests.contract.storage.memory_book import EPISODIC, SHORT_TERM, Book, MemoryConformance, fact

if TYPE_CHECKING:
    from langmem_tiers.recall.item_records import IndexedItem
    from tests.contract.storage.base import Stores

LATER = NOW + timedelta(hours=1)
VECTOR = b"\0\0\x80\x3f" * 4
OTHER = b"\0\0\0\x40" * 4


def load(book: Book, after: int = 0, model: int | None = None) -> list[IndexedItem]:
    """What the index has of a memory behind a revision."""
    return book.index.load_items([book.state().pk], after, model)


def place_of(item: IndexedItem) -> ItemTextKey:
    """Where the only text of an entry stands."""
    return ItemTextKey(item.pk, item.revision, 0)


class LongTermIndexRepositoryConformance(MemoryConformance):
    """What an ``ItemIndex`` over memories must do."""

    @pytest.fixture
    def model(self, stores: Stores) -> int:
        """A model to keep vectors of."""
        assert stores.vectors is not None, "hand in Stores(vectors=...) to run this suite"
        return stores.vectors.register_model("conformance", 4, NOW)

    @pytest.fixture
    def other_model(self, stores: Stores, model: int) -> int:
        """Another one."""
        assert stores.vectors is not None
        other = stores.vectors.register_model("conformance of memories", 4, NOW)
        assert other != model
        return other

    def test_a_namespace_without_memory_has_no_state(self, book: Book) -> None:
        assert book.index.list_namespace_states(book.namespace) == ()
        book.beside("child").put("a")
        assert book.index.list_namespace_states(book.namespace) == ()
        book.put("a")
        assert len(book.index.list_namespace_states(book.namespace)) == 1

    def test_writes_after_a_revision_are_loaded(self, book: Book) -> None:
        book.put("a", terms="red boat", created_at=NOW)
        first = book.state()
        (item,) = load(book)
        assert (item.pk, item.namespace_pk) == (book.key_of("a"), first.pk)
        assert (item.texts, item.updated_at) == ((("red boat", None),), NOW)
        assert 0 < item.revision <= first.revision
        assert load(book, first.revision) == []
        book.put("b", tier=EPISODIC, terms=ANY_TEXT.replace("\0", "").replace("\ud83d\ude00 \udc00", ""))
        second = book.state()
        assert (second.pk, second.erasure_epoch) == (first.pk, first.erasure_epoch)
        assert second.revision > first.revision
        assert [item.pk for item in load(book, first.revision)] == [book.key_of("b")]
        book.put("a", terms="blue boat")
        assert [item.texts for item in load(book, second.revision)] == [(("blue boat", None),)]
        assert [item.pk for item in load(book)] == sorted(book.key_of(name) for name in "ab")
        assert book.index.list_keys([first.pk]) == {book.key_of(name) for name in "ab"}
        assert (book.index.list_keys([]), book.index.load_items([], 0, None)) == (set(), [])

    def test_access_archiving_and_validity_changes_reload_nothing(self, book: Book) -> None:
        book.put("a", "b")
        before = book.state()
        book.write(close={"a": LATER}, archive=("b",), facts=(fact("f"),))
        book.store.touch(book.namespace, {book.key_of("a"): Access(1, NOW)})
        book.store.archive(book.namespace, [book.key_of("a")], NOW)
        book.store.restore(book.namespace, "b")
        assert load(book, before.revision) == []
        assert book.state().erasure_epoch == before.erasure_epoch
        assert book.index.list_keys([before.pk]) == {book.key_of(name) for name in "ab"}

    def test_erasing_entries_increases_the_erasure_epoch(self, book: Book) -> None:
        book.put("a", "b", "c")
        before = book.state()
        assert book.store.delete(book.namespace, ["nowhere"]) == 0
        assert book.state().erasure_epoch == before.erasure_epoch
        assert book.store.delete(book.namespace, ["a", "b"]) == 2
        after = book.state()
        assert after.erasure_epoch > before.erasure_epoch
        assert book.index.list_keys([after.pk]) == {book.key_of("c")}
        assert load(book, before.revision) == []

    def test_deleting_a_session_with_entries_increases_the_erasure_epoch(self, book: Book) -> None:
        book.put("a")
        book.put("b", tier=SHORT_TERM, session_key=book.key, turn=1)
        before = book.state()
        book.stores.sessions.delete(book.key)
        assert book.state().erasure_epoch > before.erasure_epoch
        assert book.index.list_keys([before.pk]) == {book.key_of("a")}

    def test_a_recreated_namespace_is_distinguished_from_the_deleted_one(self, book: Book) -> None:
        book.put("a")
        before = book.state()
        book.stores.sessions.delete_namespace(book.namespace)
        assert book.index.list_namespace_states(book.namespace) == ()
        book.put("a")
        after = book.state()
        assert (after.pk, after.erasure_epoch) != (before.pk, before.erasure_epoch)

    def test_vectors_are_stored_only_for_unchanged_texts(self, book: Book, model: int) -> None:
        book.put("a", content="a boat")
        (item,) = load(book, model=model)
        place = place_of(item)
        assert book.index.get_texts([place], model) == {place: ("a boat", None)}
        book.index.insert_vectors({ItemTextKey(item.pk, item.revision + 1, 0): VECTOR}, model)
        book.index.insert_vectors({ItemTextKey(-1, item.revision, 0): VECTOR}, model)
        assert book.index.get_texts([place], model) == {place: ("a boat", None)}
        for _ in range(2):
            book.index.insert_vectors({place: VECTOR}, model)
            assert book.index.get_texts([place], model) == {place: ("a boat", VECTOR)}
        (item,) = load(book, model=model)
        assert item.texts == (("a", VECTOR),)
        book.put("a", content="a ship")
        assert book.index.get_texts([place], model) == {}
        (again,) = load(book, model=model)
        assert again.texts == (("a", None),)
        book.index.insert_vectors({place: VECTOR}, model)
        new = place_of(again)
        assert book.index.get_texts([place, new], model) == {new: ("a ship", None)}

    def test_vectors_of_two_models_are_stored_side_by_side(
        self, book: Book, model: int, other_model: int
    ) -> None:
        book.put("a")
        place = place_of(load(book)[0])
        book.index.insert_vectors({place: VECTOR}, model)
        assert book.index.get_texts([place], other_model) == {place: ("a", None)}
        book.index.insert_vectors({place: OTHER}, other_model)
        vectors = [load(book, model=each)[0].texts[0][1] for each in (model, other_model, None)]
        assert vectors == [VECTOR, OTHER, None]

    def test_an_erased_entry_has_no_text_and_no_vector(self, book: Book, model: int) -> None:
        book.put("a", "b")
        first, second = (place_of(item) for item in load(book))
        book.index.insert_vectors({first: VECTOR, second: OTHER}, model)
        book.store.delete(book.namespace, ["a"])
        book.index.insert_vectors({first: VECTOR}, model)
        assert book.index.get_texts([first, second], model) == {second: ("b", OTHER)}
        assert book.index.get_texts([], model) == {}

    def test_many_entries_are_indexed_in_one_call(self, book: Book, model: int) -> None:
        book.write(put=tuple(book.new(f"{number}") for number in range(500)))
        places = [place_of(item) for item in load(book)]
        book.index.insert_vectors(dict.fromkeys(places[1:], VECTOR), model)
        texts = book.index.get_texts(places, model)
        assert [texts[place][1] for place in places] == [None] + [VECTOR] * 499
        assert len(book.index.list_keys([book.state().pk])) == 500

    def test_tenants_are_isolated(self, book: Book) -> None:
        for name in HOSTILE_NAMES:
            book.beside(name).put("a", terms=f"walrus of {name.encode(errors='replace')!r}")
        seen = {book.beside(name).state().pk for name in HOSTILE_NAMES}
        assert len(seen) == len(HOSTILE_NAMES)
        for name in HOSTILE_NAMES:
            (item,) = load(book.beside(name))
            assert item.texts == ((f"walrus of {name.encode(errors='replace')!r}", None),)
            assert book.index.list_keys([book.beside(name).state().pk]) == {item.pk}
        everything = book.index.load_items(sorted(seen), 0, None)
        assert {item.namespace_pk for item in everything} == seen
