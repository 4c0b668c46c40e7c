"""Contract of ``LongTermRepository``: relations, archiving, erasure and deleted sessions."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from langmem_tiers.common.entries import EntryState
from langmem_tiers.errors import InvalidInputError, SessionNotFoundError
from langmem_tiers.long_term.models import RelationKind
from langmem_tiers.long_term.records import Access
from tests.contract.storage.base import ANY_TEXT, HOSTILE_NAMES, NOW
from tests.contract.storage.memory_book import (
    ALL,
    EPISODIC,
    LONG_TERM,
    SHORT_TERM,
    TIERS,
    Book,
    MemoryConformance,
    ids,
    relation,
)

HOUR = timedelta(hours=1)
LATER = NOW + HOUR


class MemoryLifetimesConformance(MemoryConformance):
    """Relations, archiving, erasing and sessions."""

    def test_a_relation_replaces_the_same_kind_between_the_same_entries(self, book: Book) -> None:
        book.put("a", "b")
        first = relation("a", "b", ANY_TEXT, strength=0.25, now=LATER)
        book.write(relate=(first, relation("a", "b", "other"), relation("b", "a", ANY_TEXT)))
        again = relation("a", "b", ANY_TEXT, strength=0.75, now=LATER + HOUR)
        book.write(relate=(again,))
        found = book.store.list_relations(book.namespace, ["a"])
        assert set(found) == {again, relation("a", "b", "other"), relation("b", "a", ANY_TEXT)}
        assert len(found) == 3

    def test_relations_are_found_from_both_entries_oldest_first(self, book: Book) -> None:
        book.put(*"abcd")
        ends = enumerate([("c", "d"), ("a", "b"), ("b", "c")])
        given = [relation(source, target, "supports", now=NOW + n * HOUR) for n, (source, target) in ends]
        book.write(relate=tuple(reversed(given)))
        found = {name: book.store.list_relations(book.namespace, [name]) for name in "abcd"}
        first, second, third = given
        assert found == {"a": (second,), "b": (second, third), "c": (first, third), "d": (first,)}
        assert book.store.list_relations(book.namespace, [*"abcd"]) == tuple(given)
        assert book.store.list_relations((*book.namespace, "x"), [*"abcd"]) == ()

    @pytest.mark.parametrize("length", [2, 5])
    @pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
    def test_an_entry_cannot_supersede_an_entry_that_supersedes_it(
        self, book: Book, length: int, *, at_once: bool
    ) -> None:
        names = [f"{number}" for number in range(length)]
        book.put(*names)
        chain = tuple(relation(source, target) for source, target in itertools.pairwise(names))
        last = relation(names[-1], names[0])
        new = (book.new("new"), book.new("0", content="new"))
        if not at_once:
            book.write(relate=chain)
        before = book.all()
        with pytest.raises(InvalidInputError, match=f"'{names[-1]}' cannot supersede '0'"):
            book.commit(put=new, archive=("0",), relate=(*chain, last) if at_once else (last,))
        assert book.all() == before
        book.write(relate=chain)
        wanted = {(source, "supersedes", target) for source, target in itertools.pairwise(names)}
        assert set(book.related(*names)) == wanted

    @pytest.mark.parametrize("pairs", ["ab ba", "ab bc ca", "ca ac", "ac ca", "ab bc cd da"])
    def test_new_entries_cannot_supersede_in_a_cycle(self, book: Book, pairs: str) -> None:
        book.put("c", "d")
        before = book.all()
        circle = tuple(relation(pair[0], pair[1]) for pair in pairs.split())
        with pytest.raises(InvalidInputError, match="cannot supersede"):
            book.commit(put=(book.new("a"), book.new("b")), relate=circle)
        assert book.all() == before
        book.write(put=(book.new("a"), book.new("b")), relate=circle[:-1])

    def test_connected_entries_are_reached_in_both_directions(self, book: Book) -> None:
        book.put(*"abcdefg", ANY_TEXT)
        pairs = [("a", "b"), ("b", "c"), ("d", "c"), ("e", "f")]
        book.write(relate=tuple(relation(source, target) for source, target in pairs), archive=("b",))
        around = [("a", "g"), ("g", ANY_TEXT), (ANY_TEXT, "a")]
        book.write(relate=tuple(relation(source, target, ANY_TEXT) for source, target in around))
        other = book.beside("other")
        other.put(*"ab")

        def reached(name: str, kind: str) -> set[str]:
            found = book.store.list_connected(book.namespace, name, kind)
            assert {stored_entry.entry.id: stored_entry for stored_entry in found} == book.store.get(
                book.namespace, [stored_entry.entry.id for stored_entry in found]
            )
            assert len({stored_entry.key for stored_entry in found}) == len(found)
            return {stored_entry.entry.id for stored_entry in found}

        assert [reached(name, "supersedes") for name in "abcd"] == [{"a", "b", "c", "d"}] * 4
        assert (reached("e", "supersedes"), reached("g", "supersedes")) == ({"e", "f"}, {"g"})
        assert reached("g", ANY_TEXT) == {"a", "g", ANY_TEXT}
        assert reached("nowhere", "supersedes") == set()
        assert ids(other.store.list_connected(other.namespace, "a", "supersedes")) == ["a"]
        assert book.store.list_connected((*book.namespace, "x"), "a", "supersedes") == ()

    def test_relations_without_a_supersedes_cycle_are_allowed(self, book: Book) -> None:
        book.put(*"abcd")
        many = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d")]
        book.write(relate=tuple(relation(source, target) for source, target in many))
        book.write(relate=(relation("a", "b"),))
        assert len(book.related(*"abcd")) == 5
        for kind in (*set(RelationKind) - {RelationKind.SUPERSEDES}, ANY_TEXT):
            circle = [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a"), ("d", "a")]
            book.write(relate=tuple(relation(source, target, kind) for source, target in circle))

    def test_an_archived_entry_keeps_its_data_and_can_be_restored(self, book: Book) -> None:
        book.put("a", tags=frozenset({"t"}))
        book.put("b")
        book.write(relate=(relation("b", "a"),))
        before = book.get_stored("a")
        assert not book.store.restore(book.namespace, "a")
        book.write(archive=("a",), now=LATER)
        book.write(archive=("a",), now=LATER + HOUR)
        kept = book.get_stored("a")
        assert kept.archived_at == LATER
        assert kept.entry == replace(before.entry, state=EntryState.ARCHIVED)
        assert book.related("a") == [("b", "supersedes", "a")]
        assert not book.store.restore((*book.namespace, "x"), "a")
        assert not book.store.restore(book.namespace, "nowhere")
        assert book.store.restore(book.namespace, "a")
        assert not book.store.restore(book.namespace, "a")
        assert book.get_stored("a") == before
        book.write(archive=("a",))
        book.write(restore=("a", "b"))
        assert book.get_stored("a") == before
        assert book.ids(tags=frozenset({"t"})) == ["a"]

    def test_the_change_stamp_of_a_namespace_differs_after_every_change(self, book: Book) -> None:
        seen = [book.store.get_change_stamp(book.namespace)]

        def is_another() -> bool:
            seen.append(book.store.get_change_stamp(book.namespace))
            return seen[-1] not in seen[:-1] and seen[-1] == book.store.get_change_stamp(book.namespace)

        book.put("a", "b")
        assert is_another()
        book.write(archive=("a",))
        assert is_another()
        book.write(restore=("a",))
        assert is_another()
        book.store.touch(book.namespace, {book.key_of("a"): Access(1, LATER)})
        assert is_another()
        book.store.delete(book.namespace, ["b"])
        assert is_another()
        book.beside("other").put("a")
        assert book.store.get_change_stamp(book.namespace) == seen[-1]

    def test_many_entries_are_archived_in_one_call(self, book: Book) -> None:
        book.write(put=tuple(book.new(f"{number}") for number in range(500)))
        keys = [
            stored_entry.key
            for stored_entry in book.store.list_entries(book.namespace, LONG_TERM, ALL, limit=1000)
        ]
        assert book.store.archive(book.namespace, keys, NOW) == (500, 1500)
        assert (book.ids(), book.store.count(book.namespace, LONG_TERM)) == ([], 0)

    def test_an_erased_entry_is_deleted_with_its_relations(self, book: Book) -> None:
        book.put(*"abc", tags=frozenset({"t"}))
        book.write(relate=(relation("a", "b"), relation("b", "c"), relation("a", "c")), archive=("c",))
        assert book.store.delete(book.namespace, ["b", "nowhere", "b"]) == 1
        assert book.store.delete(book.namespace, ["b"]) == book.store.delete(book.namespace, []) == 0
        assert book.store.delete((*book.namespace, "x"), ["a"]) == 0
        assert book.ids(tags=frozenset({"t"}), archived=True) == ["a", "c"]
        assert book.related(*"abc") == [("a", "supersedes", "c")]
        assert book.store.delete(book.namespace, ["c"]) == 1
        book.put("b", "c")
        assert (book.related(*"abc"), book.ids(tags=frozenset({"t"}))) == ([], ["a"])

    def test_the_key_of_an_erased_entry_is_never_reused(self, book: Book) -> None:
        book.put("a", "b")
        key = book.key_of("b")
        book.store.delete(book.namespace, ["b"])
        book.put("b")
        assert book.key_of("b") != key

    def test_an_entry_of_a_session_has_the_current_name_of_the_session(self, book: Book) -> None:
        book.put("a", tier=EPISODIC, session="session", session_key=book.key, turn=1)
        assert book.stores.sessions.rename(book.key, ANY_TEXT)
        assert book.get_stored("a").entry.session == ANY_TEXT
        (one,) = book.store.list_session_entries(book.namespace, book.key, EPISODIC, limit=9)
        assert one.entry.session == ANY_TEXT
        assert book.ids(EPISODIC, sessions=frozenset({ANY_TEXT})) == ["a"]
        assert book.ids(EPISODIC, sessions=frozenset({"session"})) == []

    def test_deleting_a_session_deletes_its_entries_except_long_term_ones(self, book: Book) -> None:
        other = book.stores.sessions.get_or_create(book.namespace, "other", NOW).key
        for tier in (EPISODIC, SHORT_TERM):
            book.put(f"{tier} goes", tier=tier, session="session", session_key=book.key)
            book.put(f"{tier} stays", tier=tier, session="other", session_key=other)
        book.put("long", session="session", source="message 7")
        book.write(relate=(relation("long", f"{EPISODIC} goes", "derived_from"),))
        book.stores.sessions.delete(book.key)
        left = {tier: book.ids(tier, archived=True) for tier in TIERS}
        assert left == {
            LONG_TERM: ["long"],
            EPISODIC: [f"{EPISODIC} stays"],
            SHORT_TERM: [f"{SHORT_TERM} stays"],
        }
        assert (book.get_stored("long").entry.session, book.related("long")) == ("session", [])

    def test_writes_for_a_deleted_session_are_refused(self, book: Book) -> None:
        book.put("a")
        book.stores.sessions.delete(book.key)
        before = book.all()
        with pytest.raises(SessionNotFoundError):
            book.commit(put=(book.new("b"), book.new("c", tier=EPISODIC, session_key=book.key)))
        assert book.all() == before

    def test_ids_match_exactly(self, book: Book) -> None:
        book.put(*HOSTILE_NAMES)
        pairs = tuple(
            relation(source, target, source) for source, target in itertools.pairwise(HOSTILE_NAMES)
        )
        book.write(relate=pairs, close={"a": LATER}, archive=("A",))
        assert book.ids() == [name for name in HOSTILE_NAMES if name != "A"]
        closed = [name for name in HOSTILE_NAMES if book.get_stored(name).entry.valid_until is not None]
        assert closed == ["a"]
        first, last = HOSTILE_NAMES[0], HOSTILE_NAMES[-1]
        assert book.store.list_relations(book.namespace, [first]) == pairs[:1]
        assert book.store.list_relations(book.namespace, [last]) == pairs[-1:]
        assert book.store.delete(book.namespace, ["a"]) == 1
        assert set(book.store.get(book.namespace, HOSTILE_NAMES)) == {*HOSTILE_NAMES} - {"a"}
