"""Contract of ``LongTermRepository``: facts, cursors and turns."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from langmem_tiers.common.messages import SUMMARY_PREFIX, Role
from langmem_tiers.errors import EntryNotFoundError, SessionNotFoundError
from langmem_tiers.facts.models import FactState
from langmem_tiers.long_term.records import LearningCursor
from langmem_tiers.sessions.models import ListChange, Listing
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import ANY_TEXT, HOSTILE_NAMES, NOW, message
from tests.contract.storage.memory_book import TEXTS, Book, MemoryConformance, fact, forward, moved

PENDING, VALIDATED, PROMOTED = FactState.PENDING, FactState.VALIDATED, FactState.PROMOTED
THREADS = 4


class MemoryFactsConformance(MemoryConformance):
    """Facts, cursors and turns."""

    @pytest.mark.parametrize("session", ["session", "nowhere", None])
    def test_a_fact_comes_back_equal(self, book: Book, session: str | None) -> None:
        given = tuple(
            fact(
                text,
                content=text,
                kind=text,
                confidence=0.123456789,
                session=session,
                source_message_id=text,
                extracted_at=datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
                state=FactState.QUARANTINED,
                reason=text,
                category=text,
                tags=(text, "b", "a", text),
                mentions=("z", text),
                entry_id=text,
                importance=0.987654321,
                source=text,
                valid_from=NOW + timedelta(microseconds=1),
                valid_until=NOW + timedelta(microseconds=2),
            )
            for text in TEXTS
        )
        book.write(facts=(*given, fact("bare")))
        assert tuple(book.store.get_fact(book.namespace, text) for text in TEXTS) == given
        assert book.store.list_facts(book.namespace, None, limit=9) == (*given, fact("bare"))

    def test_facts_are_listed_by_state_and_oldest_first(self, book: Book) -> None:
        for number, state in enumerate([*FactState, *FactState]):
            book.write(facts=(fact(f"{9 - number}", state=state),))
        assert book.facts() == [f"{9 - number}" for number in range(10)]
        for number, state in enumerate(FactState):
            assert book.facts(frozenset({state})) == [f"{9 - number}", f"{4 - number}"]
        assert book.facts(frozenset({PROMOTED, PENDING})) == ["9", "7", "4", "2"]
        assert book.facts(frozenset()) == []

    def test_pages_of_facts_are_complete(self, book: Book) -> None:
        names = [f"{number}" for number in range(7)]
        book.write(facts=tuple(fact(name) for name in names))
        for states in (None, frozenset({PENDING})):
            seen: list[str] = []
            last: str | None = None
            while page := book.store.list_facts(book.namespace, states, after=last, limit=3):
                seen += [fact.id for fact in page]
                last = seen[-1]
            assert seen == names
        book.write(fact_moves=(moved("2", VALIDATED, PENDING),))  # it was the last one of a page
        page = book.store.list_facts(book.namespace, frozenset({PENDING}), after="2", limit=2)
        assert [fact.id for fact in page] == ["3", "4"]

    def test_a_moved_fact_gets_its_new_state_reason_and_confidence(self, book: Book) -> None:
        book.write(facts=(fact("a", confidence=0.25, reason="new"), fact("b")))
        book.write(fact_moves=(moved("a", VALIDATED, PENDING, VALIDATED, reason=ANY_TEXT, confidence=0.75),))
        after = replace(fact("a"), state=VALIDATED, reason=ANY_TEXT, confidence=0.75)
        assert book.store.get_fact(book.namespace, "a") == after
        book.write(fact_moves=(moved("a", PROMOTED, PENDING, VALIDATED, reason="", entry_id=ANY_TEXT),))
        after = replace(after, state=PROMOTED, reason="", entry_id=ANY_TEXT)
        assert book.store.get_fact(book.namespace, "a") == after
        assert book.store.get_fact(book.namespace, "b") == fact("b")
        assert book.facts() == ["a", "b"]

    def test_a_fact_can_move_in_the_write_that_adds_it(self, book: Book) -> None:
        book.write(facts=(fact("a"),), fact_moves=(moved("a", VALIDATED, PENDING),))
        assert book.facts(frozenset({VALIDATED})) == ["a"]

    def test_an_unknown_fact_is_not_found_and_cannot_move(self, book: Book) -> None:
        book.write(facts=(fact("a"),))
        assert book.store.get_fact(book.namespace, "b") is None
        assert book.store.get_fact((*book.namespace, "a"), "a") is None
        assert book.store.list_facts((*book.namespace, "a"), None, limit=9) == ()
        with pytest.raises(EntryNotFoundError, match="'b'"):
            book.commit(fact_moves=(moved("b", VALIDATED, PENDING),))

    def test_facts_of_tenants_are_isolated(self, book: Book) -> None:
        for name in HOSTILE_NAMES:
            there = book.beside(name)
            there.write(facts=tuple(fact(fact_id, content=f"{name} {fact_id}") for fact_id in HOSTILE_NAMES))
            there.write(fact_moves=(moved(name, VALIDATED, PENDING),))
        for name in HOSTILE_NAMES:
            there = book.beside(name)
            assert there.facts() == list(HOSTILE_NAMES)
            assert there.facts(frozenset({VALIDATED})) == [name]
            found = there.store.get_fact(there.namespace, name)
            assert found is not None
            assert found.content == f"{name} {name}"
        assert book.facts() == []

    def test_only_one_of_several_concurrent_moves_of_a_fact_succeeds(self, book: Book) -> None:
        book.write(facts=tuple(fact(f"{number}") for number in range(5)))
        start, names, won = threading.Barrier(THREADS, timeout=60), itertools.count(), list[str]()

        def move() -> None:
            own = f"{next(names)}"
            for number in range(5):
                start.wait()
                if book.commit(
                    put=(book.new(f"{number} by {own}"),),
                    fact_moves=(moved(f"{number}", PROMOTED, PENDING, entry_id=own),),
                ):
                    won.append(f"{number} by {own}")

        run_in_threads(THREADS, move)
        assert len(won) == 5
        assert book.ids() == won
        assert book.facts(frozenset({PROMOTED})) == book.facts()

    def test_facts_are_deleted_with_their_session_and_others_remain(self, book: Book) -> None:
        other = book.stores.sessions.get_or_create(book.namespace, "other", NOW).key
        book.write(facts=tuple(fact(f"{session}", session=session) for session in ("session", "other", None)))
        book.stores.sessions.delete(other)
        assert book.facts() == ["session", "None"]

    def test_a_fact_has_the_current_name_of_its_session(self, book: Book) -> None:
        book.write(facts=(fact("a", session="session"), fact("b", session="session")))
        assert book.stores.sessions.rename(book.key, ANY_TEXT)
        book.write(fact_moves=(moved("b", VALIDATED, PENDING),))
        found = book.store.list_facts(book.namespace, None, limit=9)
        assert [(fact.id, fact.session) for fact in found] == [("a", ANY_TEXT), ("b", ANY_TEXT)]
        assert book.store.get_fact(book.namespace, "a") == fact("a", session=ANY_TEXT)

    def test_a_cursor_starts_at_0_and_advances(self, book: Book) -> None:
        assert book.store.get_cursor(book.key) == LearningCursor(0, 0)
        assert book.store.get_cursor(-1) == LearningCursor(0, 0)
        other = book.stores.sessions.get_or_create(book.namespace, "other", NOW).key
        for was, now in itertools.pairwise(
            (LearningCursor(), LearningCursor(5, 0), LearningCursor(5, 3), LearningCursor(2**40, 9))
        ):
            book.write(cursor=forward(book, was, now))
            assert book.store.get_cursor(book.key) == now
        assert book.store.get_cursor(other) == LearningCursor(0, 0)

    def test_only_one_of_several_concurrent_cursor_moves_succeeds(self, book: Book) -> None:
        start, names, won = threading.Barrier(THREADS, timeout=60), itertools.count(), list[str]()

        def work() -> None:
            own = next(names)
            for number in range(5):
                start.wait()
                move = forward(book, LearningCursor(number, number), LearningCursor(number + 1, number + 1))
                if book.commit(put=(book.new(f"{number} by {own}"),), cursor=move):
                    won.append(f"{number} by {own}")

        run_in_threads(THREADS, work)
        assert len(won) == 5
        assert book.ids() == won
        assert book.store.get_cursor(book.key) == LearningCursor(5, 5)

    def test_the_cursor_of_a_deleted_session_cannot_move(self, book: Book) -> None:
        book.write(cursor=forward(book, LearningCursor(), LearningCursor(1, 1)))
        book.stores.sessions.delete(book.key)
        assert book.store.get_cursor(book.key) == LearningCursor()
        before = book.all()
        for was in (LearningCursor(), LearningCursor(1, 1)):
            with pytest.raises(SessionNotFoundError):
                book.commit(put=(book.new("a"),), cursor=forward(book, was, LearningCursor(2, 2)))
        assert book.all() == before

    def test_turns_are_numbered_from_1_and_paged(self, book: Book) -> None:
        assert (book.turn_numbers(), book.store.get_last_turn(book.key)) == ({}, 0)
        names = [f"m{number}" for number in range(1, 8)]
        book.say(*names[:3])
        book.say(*names[3:])
        assert book.turn_numbers() == dict(enumerate(names, 1))
        assert book.store.get_last_turn(book.key) == 7
        seen: dict[int, str] = {}
        while page := book.turn_numbers(after=max(seen, default=0), limit=3):
            assert len(page) <= 3
            seen |= page
        assert seen == dict(enumerate(names, 1))
        assert book.turn_numbers(after=7) == {}
        given = book.stores.messages.list_after(book.key, after=None, limit=9)
        assert tuple(turn.message for turn in book.store.list_turns(book.key, after=0, limit=9)) == given

    def test_turns_are_found_by_the_ids_of_their_messages(self, book: Book) -> None:
        names = [*HOSTILE_NAMES, "last"]
        book.say(*names)
        numbers = {name: number for number, name in enumerate(names, 1)}
        assert (
            book.store.get_turn_numbers(book.key, [*names, *(f"none {n}" for n in range(2_000))]) == numbers
        )
        assert book.store.get_turn_numbers(book.key, ["last"]) == {"last": len(names)}
        assert book.store.get_turn_numbers(book.key, []) == {}

    def test_a_deleted_session_has_no_turns(self, book: Book) -> None:
        book.say("a")
        book.stores.sessions.delete(book.key)
        assert (book.turn_numbers(), book.store.get_last_turn(book.key)) == ({}, 0)

    def test_summaries_are_not_turns_but_compressed_messages_are(self, book: Book) -> None:
        book.say(*"abcd")
        for name, before, hidden, was_hidden in (("first", "b", 1, 0), ("second", "d", 2, 1)):
            summary = message(f"{SUMMARY_PREFIX}\n{name}", id=name, role=Role.SYSTEM)
            assert book.stores.messages.compress(
                book.key, summary, before=before, hidden=hidden, was_hidden=was_hidden
            )
        book.say("e")
        assert book.turn_numbers() == dict(enumerate("abcde", 1))
        assert book.turn_numbers(after=1, limit=2) == {2: "b", 3: "c"}
        assert book.store.get_last_turn(book.key) == 5

    def test_messages_removed_from_the_list_are_not_turns_and_keep_their_numbers(self, book: Book) -> None:
        lists = book.stores.transcripts
        if lists is None:
            pytest.skip("no transcripts were handed in")
        book.say(*"abcdef")
        listed = {"a": Listing.REMOVED, "c": Listing.REPLACED, "d": Listing.ARCHIVED, "f": Listing.REMOVED}
        lists.apply_change(book.key, ListChange(listed, ()), NOW, revision=None)
        assert book.turn_numbers() == {2: "b", 4: "d", 5: "e"}
        assert book.turn_numbers(after=2, limit=1) == {4: "d"}
        assert book.store.get_last_turn(book.key) == 6
        lists.apply_change(book.key, ListChange({"a": Listing.ACTIVE}, ()), NOW, revision=None)
        assert book.turn_numbers() == {1: "a", 2: "b", 4: "d", 5: "e"}
