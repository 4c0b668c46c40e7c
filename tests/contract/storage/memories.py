"""Contract of ``LongTermRepository``: writes."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers.errors import EntryNotFoundError, InvalidInputError
from langmem_tiers.facts.models import FactState
from langmem_tiers.long_term.records import LearningCursor
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import HOSTILE_NAMES, NOW
from tests.contract.storage.memory_book import (
    ALL,
    EPISODIC,
    LONG_TERM,
    TEXTS,
    TIERS,
    Book,
    fact,
    forward,
    moved,
    relation,
)
from tests.contract.storage.memory_facts import MemoryFactsConformance
from tests.contract.storage.memory_lifetimes import MemoryLifetimesConformance
from tests.contract.storage.memory_reads import MemoryReadsConformance

if TYPE_CHECKING:
    from langmem_tiers.common.entries import Tier
    from langmem_tiers.long_term.records import NewEntry

HOUR = timedelta(hours=1)
LATER = NOW + HOUR
THREADS = 4
BEFORE, AFTER = LearningCursor(4, 2), LearningCursor(6, 2)
PENDING, VALIDATED = FactState.PENDING, FactState.VALIDATED


def fill_book(book: Book) -> dict[str, Any]:
    """Fill a memory, and give a write that changes everything in it."""
    for name in "abcz":
        book.put(name, tags=frozenset({name}))
    book.write(archive=("z",))
    book.put("e", tier=EPISODIC, session="session", session_key=book.key, turn=1)
    book.write(relate=(relation("b", "a"),), facts=(fact("f"), fact("g")))
    book.write(cursor=forward(book, LearningCursor(), BEFORE))
    return {
        "put": (book.new("a", content="new", tags=frozenset({"new"})), book.new("d")),
        "close": {"b": LATER},
        "relate": (relation("c", "b"), relation("d", "a", "supports")),
        "archive": ("c", "e"),
        "restore": ("z",),
        "facts": (fact("h"),),
        "fact_moves": (moved("f", VALIDATED, PENDING),),
        "cursor": forward(book, BEFORE, AFTER),
        "revision": book.state().revision,
    }


def full_entry(book: Book, text: str, tier: Tier) -> NewEntry:
    """An entry that has the text wherever there is one."""
    return book.new(
        text,
        tier=tier,
        kind=text,
        content=text,
        created_at=datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
        session=text,
        importance=0.123456789,
        token_count=2**40,
        valid_from=NOW + timedelta(microseconds=1),
        valid_until=NOW + timedelta(microseconds=2),
        tags=frozenset({text, "a", "A"}),
        source=text,
        category=text,
        access_count=2**40,
        last_access_at=NOW + timedelta(microseconds=3),
        reason=text,
        terms=text,
        details={text: text, "list": [1, None, 0.1, {"deep": text}], "number": 2**40},
    )


class LongTermRepositoryConformance(
    MemoryFactsConformance, MemoryLifetimesConformance, MemoryReadsConformance
):
    """What ``LongTermRepository`` must do."""

    @pytest.mark.parametrize("tier", sorted(TIERS))
    def test_an_entry_comes_back_equal(self, book: Book, tier: Tier) -> None:
        given = {text: full_entry(book, text, tier) for text in TEXTS}
        book.write(put=(*given.values(), book.new("bare", tier=tier)))
        for text, new in given.items():
            kept = book.get_stored(text)
            assert (kept.entry, kept.details, kept.archived_at) == (new.entry, new.details, None)
            assert kept in book.store.list_entries(book.namespace, tier, ALL, limit=9)
            assert book.store.get_by_keys(book.namespace, [kept.key], TIERS, ALL) == {kept.key: kept}
        bare = book.get_stored("bare")
        assert (bare.entry, bare.details) == (book.new("bare", tier=tier).entry, {})

    def test_omitted_times_default_to_created_at(self, book: Book) -> None:
        book.put("a", created_at=LATER, valid_from=None, last_access_at=None)
        entry = book.get_stored("a").entry
        assert (entry.valid_from, entry.valid_until, entry.last_access_at) == (LATER, None, LATER)

    def test_unknown_entries_are_not_returned(self, book: Book) -> None:
        assert book.store.get(book.namespace, ["a"]) == {}
        book.put("a")
        assert list(book.store.get(book.namespace, ["b", "a", "a"])) == ["a"]
        assert book.store.get(book.namespace, []) == {}
        assert book.store.get((*book.namespace, "x"), ["a"]) == {}
        assert book.store.list_relations(book.namespace, ["b"]) == ()

    def test_an_entry_replaces_the_one_with_the_same_id(self, book: Book) -> None:
        book.put("a", tags=frozenset({"old", "both"}), details={"old": 1}, category="old")
        book.put("b")
        book.write(relate=(relation("b", "a"),))
        tags = frozenset({"new", "both"})
        given = book.new("a", content="new", kind="goal", tags=tags, importance=0.9, details={"new": 2})
        book.write(put=(given,))
        kept = book.get_stored("a")
        assert (kept.entry, kept.details) == (given.entry, {"new": 2})
        assert sorted(book.ids()) == ["a", "b"]
        tagged = [book.ids(tags=frozenset({tag})) for tag in ("old", "new", "both")]
        assert tagged == [[], ["a"], ["a"]]
        assert book.ids(categories=frozenset({"old"})) == []
        assert book.related("a") == [("b", "supersedes", "a")]

    def test_the_last_of_two_entries_with_one_id_in_a_write_wins(self, book: Book) -> None:
        first = book.new("a", content="first", tags=frozenset({"old", "both"}))
        last = book.new("a", content="last", tags=frozenset({"new", "both"}))
        book.write(put=(first, last))
        assert book.get_stored("a").entry == last.entry
        assert book.ids() == ["a"]
        tagged = [book.ids(tags=frozenset({tag})) for tag in ("old", "new", "both")]
        assert tagged == [[], ["a"], ["a"]]
        book.write(put=(last, book.new("a", content="bare")))
        assert book.ids(tags=frozenset({"new", "both"})) == []

    def test_a_write_makes_all_its_changes(self, book: Book) -> None:
        book.write(**fill_book(book))
        assert book.get_stored("a").entry.content == "new"
        assert book.get_stored("b").entry.valid_until == LATER
        assert [book.get_stored(name).archived_at for name in "abcdez"] == [None, None, NOW, None, NOW, None]
        wanted = {("b", "supersedes", "a"), ("c", "supersedes", "b"), ("d", "supports", "a")}
        assert set(book.related("a", "b")) == wanted
        assert (book.facts(), book.facts(frozenset({VALIDATED}))) == (["f", "g", "h"], ["f"])
        assert book.store.get_cursor(book.key) == AFTER

    @pytest.mark.parametrize(
        "change",
        [
            {"close": {"b": LATER, "nowhere": LATER}},
            {"archive": ("b", "nowhere")},
            {"restore": ("z", "nowhere")},
            {"relate": (relation("b", "c"), relation("nowhere", "b"))},
            {"relate": (relation("b", "c"), relation("b", "nowhere"))},
            {"fact_moves": (moved("f", VALIDATED, PENDING), moved("nowhere", VALIDATED, PENDING))},
        ],
        ids=["close", "archive", "restore", "source", "target", "fact"],
    )
    def test_a_write_that_references_missing_records_changes_nothing(
        self, book: Book, change: dict[str, Any]
    ) -> None:
        write = fill_book(book)
        before = book.all()
        with pytest.raises(EntryNotFoundError, match="'nowhere'"):
            book.commit(**{**write, **change})
        assert book.all() == before
        book.write(**write)

    @pytest.mark.parametrize(
        "late",
        ["older revision", "newer revision", "cursor", "newer cursor", "fact", "second fact"],
    )
    def test_a_stale_write_changes_nothing(self, book: Book, late: str) -> None:
        write = fill_book(book)
        move = write["fact_moves"][0]
        change = {
            "older revision": {"revision": write["revision"] - 1},
            "newer revision": {"revision": write["revision"] + 1},
            "cursor": {"cursor": forward(book, LearningCursor(4, 1), AFTER)},
            "newer cursor": {"cursor": forward(book, AFTER, AFTER)},
            "fact": {"fact_moves": (moved("f", VALIDATED, *(set(FactState) - {PENDING})),)},
            "second fact": {"fact_moves": (move, moved("g", VALIDATED))},
        }[late]
        before = book.all()
        assert not book.commit(**{**write, **change})
        assert book.all() == before
        book.write(**write)

    def test_the_first_write_to_a_namespace_expects_revision_0(self, book: Book) -> None:
        assert not book.commit(put=(book.new("a"),), revision=1)
        assert book.ids() == []
        book.write(put=(book.new("a"),), revision=0)
        assert not book.commit(put=(book.new("b"),), revision=0)
        assert book.ids() == ["a"]
        book.write(put=(book.new("b"),), revision=1)
        assert book.state().revision == 2

    def test_a_write_based_on_a_read_before_an_erasure_is_refused(self, book: Book) -> None:
        book.put("a")
        seen = book.state().revision
        book.store.delete(book.namespace, ["a"])
        assert not book.commit(put=(book.new("b"),), close={"a": LATER}, revision=seen)
        assert book.ids() == []

    def test_only_one_of_several_writers_with_the_same_revision_succeeds(self, book: Book) -> None:
        book.put("first")
        start, names, won = threading.Barrier(THREADS, timeout=60), itertools.count(), list[str]()

        def write() -> None:
            own = next(names)
            for number in range(5):
                seen = book.state().revision
                start.wait()
                if book.commit(put=(book.new(f"{number} by {own}"),), revision=seen):
                    won.append(f"{number} by {own}")
                start.wait()

        run_in_threads(THREADS, write)
        assert len(won) == 5
        assert book.ids() == ["first", *won]

    def test_concurrent_first_writes_to_a_namespace_all_succeed(self, book: Book) -> None:
        there = replace(book, namespace=(*book.namespace, "new"))
        start, names = threading.Barrier(THREADS, timeout=60), itertools.count()

        def write() -> None:
            start.wait()
            there.put(f"{next(names)}")

        run_in_threads(THREADS, write)
        assert sorted(there.ids()) == [f"{number}" for number in range(THREADS)]

    def test_a_new_entry_can_be_referenced_in_the_same_write(self, book: Book) -> None:
        new = tuple(book.new(name) for name in "ab")
        book.write(put=new, close={"b": LATER}, relate=(relation("a", "b"),), archive=("b",))
        assert (book.ids(), book.get_stored("b").entry.valid_until) == (["a"], LATER)
        assert book.related("b") == [("a", "supersedes", "b")]

    def test_many_entries_are_written_and_read_in_one_call(self, book: Book) -> None:
        names = [f"{number}" for number in range(500)]
        book.write(put=tuple(book.new(name, tags=frozenset({name, "all"})) for name in names))
        chain = tuple(relation(source, target) for source, target in itertools.pairwise(names[:450]))
        close = dict.fromkeys(names, LATER)
        book.write(relate=chain, close=close, archive=tuple(names[:440]))
        assert set(book.store.get(book.namespace, names)) == set(names)
        assert book.store.list_relations(book.namespace, names) == tuple(
            sorted(chain, key=lambda one: (one.created_at, one.source))
        )
        assert book.ids() == book.ids(tags=frozenset({"all"})) == names[440:]
        with pytest.raises(InvalidInputError):
            book.commit(relate=(relation(names[449], names[0]),))
        book.write(put=tuple(book.new(name, content="new") for name in names))
        assert {
            stored_entry.entry.content for stored_entry in book.store.get(book.namespace, names).values()
        } == {"new"}
        assert book.store.delete(book.namespace, [*names, "nowhere"]) == 500
        assert book.ids(archived=True) == []

    def test_a_deleted_namespace_keeps_no_data(self, book: Book) -> None:
        child = book.beside("child")
        for each_book in (book, child):
            each_book.write(**fill_book(each_book))
        before = child.all()
        book.stores.sessions.delete_namespace(book.namespace)
        deleted = replace(book, key=-1)
        nothing: object = ([()] * 3, (), (), LearningCursor(), ())
        assert deleted.all() == nothing
        assert [book.store.count(book.namespace, tier) for tier in TIERS] == [0, 0, 0]
        assert book.store.get(book.namespace, [*"abcde"]) == {}
        assert child.all() == before
        deleted.put("a", "b")
        assert (deleted.ids(), deleted.related("a", "b"), deleted.facts()) == (["a", "b"], [], [])

    def test_tenants_are_isolated(self, book: Book) -> None:
        for name in HOSTILE_NAMES:
            there = book.beside(name)
            there.write(
                put=tuple(
                    there.new(entry_id, content=f"{name} {entry_id}", tags=frozenset({entry_id}))
                    for entry_id in "abcd"
                )
            )
        for name in HOSTILE_NAMES:
            there = book.beside(name)
            there.write(relate=(relation("a", "b"),), close={"b": LATER})
            there.write(archive=("c",))
            assert there.store.delete(there.namespace, ["d"]) == 1
        for name in HOSTILE_NAMES:
            there = book.beside(name)
            contents = [there.get_stored(entry_id).entry.content for entry_id in "abc"]
            assert contents == [f"{name} {entry_id}" for entry_id in "abc"]
            assert {there.get_stored(entry_id).entry.namespace for entry_id in "abc"} == {there.namespace}
            assert (there.ids(), there.store.count(there.namespace, LONG_TERM)) == (["a", "b"], 2)
            assert there.ids(tags=frozenset({"a"})) == ["a"]
            assert there.related("a") == [("a", "supersedes", "b")]
        assert (book.ids(), book.related("a")) == ([], [])
