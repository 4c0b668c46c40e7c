"""Contract of ``LongTermRepository``: filters, accesses and aging."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers.common.entries import EntryState
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.long_term.records import Access
from langmem_tiers.testing.threads import run_in_threads
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
)

if TYPE_CHECKING:
    from collections.abc import Iterable

HOUR, MOMENT = timedelta(hours=1), timedelta(microseconds=1)
THREADS = 4


class MemoryReadsConformance(MemoryConformance):
    """Filters, pages, uses and age."""

    def test_an_entry_is_valid_from_its_start_until_before_its_end(self, book: Book) -> None:
        begin, end = NOW - HOUR, NOW + HOUR
        book.put("ends", valid_from=begin, valid_until=end)
        book.put("follows", valid_from=end)
        at = {
            "before": (begin - MOMENT, []),
            "begin": (begin, ["ends"]),
            "last": (end - MOMENT, ["ends"]),
            "end": (end, ["follows"]),
            "later": (end + 9000 * HOUR, ["follows"]),
        }
        found = {name: book.ids(valid_at=moment) for name, (moment, _) in at.items()}
        assert found == {name: ids for name, (_, ids) in at.items()}
        assert book.ids() == book.ids(valid_at=None) == ["ends", "follows"]

    def test_a_closed_entry_was_valid_until_then(self, book: Book) -> None:
        book.put("a", "b")
        book.write(close={"a": NOW + HOUR})
        assert book.get_stored("a").entry.valid_until == NOW + HOUR
        assert book.ids(valid_at=NOW + HOUR - MOMENT) == ["a", "b"]
        assert book.ids(valid_at=NOW + HOUR) == ["b"]
        with pytest.raises(InvalidInputError, match="'a'"):
            book.commit(close={"a": NOW + 2 * HOUR})  # what ceased to hold does not hold for longer
        assert book.ids(valid_at=NOW + HOUR) == ["b"]
        book.write(close={"a": NOW + HOUR / 2})
        assert book.ids(valid_at=NOW + HOUR / 2) == ["b"]

    def test_an_entry_cannot_end_before_its_start(self, book: Book) -> None:
        book.put("a", "b")
        before = book.all()
        with pytest.raises(InvalidInputError, match="'a'"):
            book.commit(put=(book.new("c"),), close={"b": NOW + HOUR, "a": NOW - MOMENT})
        assert book.all() == before

    def test_an_entry_that_ends_at_its_start_was_never_valid(self, book: Book) -> None:
        book.put("a", "b")
        book.write(close={"a": NOW})
        assert book.get_stored("a").entry.valid_until == NOW
        assert [book.ids(valid_at=NOW + shift) for shift in (-MOMENT, 0 * MOMENT, MOMENT)] == [
            [],
            ["b"],
            ["b"],
        ]
        assert book.ids() == ["a", "b"]

    def test_a_query_at_a_past_time_includes_entries_archived_later(self, book: Book) -> None:
        book.put("a", "b")
        book.write(archive=("a",), now=NOW + HOUR)
        assert book.ids() == ["b"]
        assert book.ids(archived=True) == ["a", "b"]
        assert book.ids(valid_at=NOW + HOUR - MOMENT) == ["a", "b"]
        assert book.ids(valid_at=NOW + HOUR) == book.ids(valid_at=NOW + 2 * HOUR) == ["b"]
        assert book.ids(valid_at=NOW + 2 * HOUR, archived=True) == ["a", "b"]
        assert book.ids(valid_at=NOW - HOUR) == []

    @pytest.mark.parametrize(("field", "wanted"), [("kind", "kinds"), ("category", "categories")])
    def test_kinds_and_categories_match_exactly(self, book: Book, field: str, wanted: str) -> None:
        for name in HOSTILE_NAMES:
            book.put(f"{field} {name}", **{field: name})
        book.put("other")
        for name in HOSTILE_NAMES:
            assert book.ids(**{wanted: frozenset({name})}) == [f"{field} {name}"]
        assert book.ids(**{wanted: frozenset({"a", "A", "nothing"})}) == [f"{field} A", f"{field} a"]
        assert book.ids(**{wanted: frozenset()}) == []

    def test_tags_match_exactly_and_one_is_enough(self, book: Book) -> None:
        for name, other in itertools.pairwise((*HOSTILE_NAMES, ANY_TEXT)):
            book.put(name, tags=frozenset({name, other}))
        book.put("other")
        assert book.ids(tags=frozenset({HOSTILE_NAMES[0]})) == [HOSTILE_NAMES[0]]
        for name, other in itertools.pairwise(HOSTILE_NAMES):
            assert book.ids(tags=frozenset({other})) == [name, other]
            assert book.ids(tags=frozenset({name, other}))[-2:] == [name, other]
        assert book.ids(tags=frozenset({ANY_TEXT})) == [HOSTILE_NAMES[-1]]
        assert book.ids(tags=frozenset({"nothing"})) == book.ids(tags=frozenset()) == []

    def test_session_names_match_exactly_for_all_entries(self, book: Book) -> None:
        for name in HOSTILE_NAMES:
            key = book.stores.sessions.get_or_create(book.namespace, name, NOW).key
            book.put(f"goes {name}", session=name, session_key=key)
            book.put(f"stays {name}", session=name)
        book.put("other")
        for name in HOSTILE_NAMES:
            assert book.ids(sessions=frozenset({name})) == [f"goes {name}", f"stays {name}"]
        assert book.ids(sessions=frozenset()) == []

    def test_time_ranges_are_half_open_and_the_importance_limit_is_inclusive(self, book: Book) -> None:
        for hours in range(4):
            book.put(f"{hours}", created_at=NOW + hours * HOUR, importance=hours / 4)
        assert book.ids(since=NOW + HOUR) == ["1", "2", "3"]
        assert book.ids(since=NOW + HOUR + MOMENT) == ["2", "3"]
        assert book.ids(until=NOW + HOUR) == ["0"]
        assert book.ids(until=NOW + HOUR + MOMENT) == ["0", "1"]
        assert book.ids(since=NOW + HOUR, until=NOW + 3 * HOUR) == ["1", "2"]
        assert book.ids(min_importance=0.5) == ["2", "3"]
        assert book.ids(min_importance=0.51) == ["3"]
        assert book.ids(min_importance=0.0) == ["0", "1", "2", "3"]

    def test_filters_are_combined_with_and(self, book: Book) -> None:
        fits: dict[str, Any] = {"kind": "goal", "category": "boats", "tags": frozenset({"red", "big"})}
        fits |= {"importance": 0.75, "session": "s"}
        book.put("fits", **fits)
        for field, value in (
            ("kind", "fact"), ("category", None), ("tags", frozenset({"big"})), ("importance", 0.25),
            ("session", None), ("created_at", NOW - HOUR), ("valid_until", NOW + MOMENT),
        ):  # fmt: skip
            book.put(f"another {field}", **{**fits, field: value})
        book.put("archived", **fits)
        book.write(archive=("archived",))
        wanted: dict[str, Any] = {
            "kinds": frozenset({"goal"}),
            "categories": frozenset({"boats"}),
            "tags": frozenset({"red", "green"}),
            "sessions": frozenset({"s"}),
            "min_importance": 0.5,
            "since": NOW,
            "until": NOW + MOMENT,
            "valid_at": NOW + MOMENT,
        }
        assert book.ids(**wanted) == ["fits"]
        assert book.ids(**wanted, archived=True) == ["fits", "archived"]

    def test_pages_of_a_tier_are_complete(self, book: Book) -> None:
        names = [f"{number}" for number in range(11)]
        for name in names:
            book.put(name, tags=frozenset({"even"} if int(name) % 2 == 0 else ()))
            book.put(f"episode {name}", tier=EPISODIC)
        for filters, wanted in (({}, names), ({"tags": frozenset({"even"})}, names[::2])):
            seen, before = list[str](), None
            meant = type(ALL)(**filters)  # type: ignore[arg-type] # one of the two has none
            while page := book.store.list_entries(book.namespace, LONG_TERM, meant, before=before, limit=3):
                assert len(page) <= 3
                seen += [stored_entry.entry.id for stored_entry in page]
                before = page[-1].key
                book.put(f"late {len(seen)}")  # what comes meanwhile comes before the first page
            assert seen[::-1] == wanted
            book.store.delete(
                book.namespace, [entry_id for entry_id in book.ids() if entry_id.startswith("late")]
            )

    def test_keys_are_fetched_only_from_the_requested_tiers_and_namespace(self, book: Book) -> None:
        tiers = {"long": LONG_TERM, "episode": EPISODIC, "chunk": SHORT_TERM}
        for name, tier in tiers.items():
            book.put(name, tier=tier)
        keys = {name: book.key_of(name) for name in tiers}
        wanted = [*keys.values(), -1]
        for name, tier in tiers.items():
            assert list(book.store.get_by_keys(book.namespace, wanted, frozenset({tier}), ALL)) == [
                keys[name]
            ]
        assert set(book.store.get_by_keys(book.namespace, wanted, TIERS, ALL)) == set(keys.values())
        assert book.store.get_by_keys(book.namespace, wanted, frozenset(), ALL) == {}
        assert book.store.get_by_keys(book.namespace, [], TIERS, ALL) == {}
        assert book.store.get_by_keys((*book.namespace, "x"), wanted, TIERS, ALL) == {}

    def test_the_newest_entries_of_a_session_are_sorted_by_turn(self, book: Book) -> None:
        other = book.stores.sessions.get_or_create(book.namespace, "other", NOW).key
        for turn in (3, 1, 4, 2, 5):
            book.put(f"{turn}", tier=EPISODIC, session="session", session_key=book.key, turn=turn)
        book.put("4b", tier=EPISODIC, session="session", session_key=book.key, turn=4)
        book.put("of another tier", tier=SHORT_TERM, session_key=book.key, turn=6)
        book.put("of another session", tier=EPISODIC, session_key=other, turn=7)
        book.put("only names it", tier=EPISODIC, session="session", turn=8)

        def newest(limit: int) -> list[str]:
            return ids(book.store.list_session_entries(book.namespace, book.key, EPISODIC, limit=limit))

        assert newest(9) == ["1", "2", "3", "4", "4b", "5"]
        assert newest(3) == ["4", "4b", "5"]
        book.write(archive=("4", "5"))
        assert newest(3) == ["2", "3", "4b"]
        (one,) = book.store.list_session_entries(book.namespace, book.key, EPISODIC, limit=1)
        assert one == book.get_stored("4b")
        assert book.store.list_session_entries(book.namespace, -1, EPISODIC, limit=9) == ()

    def test_entries_of_a_session_are_not_read_through_another_namespace(self, book: Book) -> None:
        book.put("a", tier=EPISODIC, session_key=book.key, turn=1)
        assert book.store.list_session_entries((*book.namespace, "x"), book.key, EPISODIC, limit=9) == ()

    def test_each_tier_is_counted_separately_without_archived_entries(self, book: Book) -> None:
        assert [book.store.count(book.namespace, tier) for tier in sorted(TIERS)] == [0, 0, 0]
        book.put("a", "b", "c")
        book.put("d", "e", tier=EPISODIC)
        book.write(archive=("a", "d"))
        counts = {tier: book.store.count(book.namespace, tier) for tier in TIERS}
        assert counts == {LONG_TERM: 2, EPISODIC: 1, SHORT_TERM: 0}

    def test_accesses_add_up_and_the_last_access_never_moves_back(self, book: Book) -> None:
        book.put("a", "b", access_count=2)
        keys = {name: book.key_of(name) for name in "ab"}
        book.store.touch(book.namespace, {keys["a"]: Access(3, NOW + HOUR), -1: Access(1, NOW)})
        book.store.touch(book.namespace, {keys["a"]: Access(1, NOW + MOMENT), keys["b"]: Access(1, NOW)})
        assert _uses(book, "ab") == [(6, NOW + HOUR), (3, NOW)]
        book.store.touch(book.namespace, {})
        book.store.touch((*book.namespace, "nowhere"), {keys["a"]: Access(9, NOW + 9 * HOUR)})
        other = book.beside("other")
        other.put("a")
        other.store.touch(other.namespace, {keys["a"]: Access(9, NOW + 9 * HOUR)})
        assert _uses(book, "ab") == [(6, NOW + HOUR), (3, NOW)]
        assert _uses(other, "a") == [(0, NOW)]

    def test_many_entries_are_touched_concurrently(self, book: Book) -> None:
        book.write(put=tuple(book.new(f"{number}") for number in range(500)))
        keys = [
            stored_entry.key
            for stored_entry in book.store.list_entries(book.namespace, LONG_TERM, ALL, limit=1000)
        ]
        uses = {key: Access(1, NOW + HOUR) for key in keys}

        def use() -> None:
            for _ in range(3):
                book.store.touch(book.namespace, uses)

        run_in_threads(THREADS, use)
        assert set(_uses(book, [f"{number}" for number in range(500)])) == {(3 * THREADS, NOW + HOUR)}

    def test_aging_entries_are_listed_by_key_in_batches(self, book: Book) -> None:
        for number in range(7):
            book.put(
                f"{number}", created_at=NOW - number * HOUR, importance=number / 8, access_count=number,
                last_access_at=NOW + number * HOUR, token_count=number,
            )  # fmt: skip
        book.put("episode", tier=EPISODIC, created_at=NOW - 9 * HOUR)
        book.write(archive=("5",))
        keys = {book.key_of(f"{number}"): f"{number}" for number in range(7)}
        seen, after = list[str](), 0
        while batch := book.store.list_decay_candidates(
            book.namespace, created_before=NOW - HOUR, after=after, limit=2
        ):
            assert len(batch) <= 2
            seen += [keys[stored_entry.key] for stored_entry in batch]
            after = batch[-1].key
        assert seen == ["2", "3", "4", "6"]
        (oldest,) = book.store.list_decay_candidates(
            book.namespace, created_before=NOW - 5 * HOUR, after=0, limit=9
        )
        assert oldest == (book.key_of("6"), 0.75, 6, NOW + 6 * HOUR, 6)
        assert (
            book.store.list_decay_candidates((*book.namespace, "x"), created_before=NOW, after=0, limit=9)
            == ()
        )

    def test_entries_are_archived_by_their_keys_once(self, book: Book) -> None:
        for number in range(5):
            book.put(f"{number}", token_count=10**number)
        other = book.beside("other")
        other.put("other")
        keys = [book.key_of(f"{number}") for number in range(5)]
        assert book.store.archive(book.namespace, keys[:2], NOW) == (2, 11)
        later = [*keys[1:4], -1, other.key_of("other")]
        assert book.store.archive(book.namespace, later, NOW + HOUR) == (2, 1100)
        assert book.store.archive(book.namespace, [], NOW) == (0, 0)
        assert (book.ids(), other.ids()) == (["4"], ["other"])
        assert [book.get_stored(name).archived_at for name in "0123"] == [NOW, NOW, NOW + HOUR, NOW + HOUR]
        assert book.get_stored("3").entry.state is EntryState.ARCHIVED

    def test_the_consolidation_state_is_stored_until_the_consolidation_ends(self, book: Book) -> None:
        assert book.store.get_consolidation_state(book.namespace) is None
        book.put("a")
        assert book.store.get_consolidation_state(book.namespace) is None
        other = book.beside("other")
        other.put("a")
        for state in ({"after": 7, "text": ANY_TEXT, "parts": [1, {"a": None}]}, {}, {"after": 8}, None):
            book.store.save_consolidation_state(book.namespace, state)
            assert book.store.get_consolidation_state(book.namespace) == state
            assert other.store.get_consolidation_state(other.namespace) is None
        book.store.save_consolidation_state(book.namespace, {"after": 9})
        book.put("b")
        assert book.store.get_consolidation_state(book.namespace) == {"after": 9}
        book.stores.sessions.delete_namespace(book.namespace)
        assert book.store.get_consolidation_state(book.namespace) is None


def _uses(book: Book, names: Iterable[str]) -> list[tuple[int, object]]:
    names = list(names)
    found = book.store.get(book.namespace, names)
    return [(found[name].entry.access_count, found[name].entry.last_access_at) for name in names]
