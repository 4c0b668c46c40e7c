"""Validity: intervals are half-open, contradictions supersede, and nothing is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import Entry, InvalidInputError, MemoryEngine, MessageDraft, Namespace, RecallFilters
from langmem_tiers.long_term.models import EntryKind, Outcome, Receipt
from langmem_tiers.testing import FrozenClock, seeded_ids
from tests.hypothesis_settings import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.long_term import LongTerm

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
KATHMANDU = timezone(timedelta(hours=5, minutes=45))
POSTGRES, MYSQL = "The database is PostgreSQL.", "The database is MySQL."


@pytest.fixture
def space(clock: FrozenClock) -> Iterator[Namespace]:
    """A namespace where the database does not matter."""
    with MemoryEngine(embedder=None, clock=clock, ids=seeded_ids()) as engine:
        yield engine.namespace("a")


def deadline(day: int) -> str:
    return f"The deadline is March {day}."


def stored(memory: LongTerm, content: str, **about: Any) -> Entry:
    receipt = memory.store(content, **about)
    assert receipt.is_stored
    assert receipt.entry is not None
    return receipt.entry


def texts(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.content for entry in entries]


def recalled(space: Namespace, query: str, **filters: Any) -> list[str]:
    return [hit.entry.content for hit in space.recall(query, filters=RecallFilters(**filters))]


# Bounds


@pytest.mark.parametrize("zone", [UTC, KATHMANDU], ids=["utc", "kathmandu"])
def test_an_entry_is_valid_from_its_start_until_before_its_end(
    engine: MemoryEngine, tenant: str, zone: timezone
) -> None:
    space = engine.namespace(tenant)
    since, until = (NOW - 5 * DAY).astimezone(zone), (NOW - 2 * DAY).astimezone(zone)
    entry = stored(space.long_term, "The red boat sails at noon.", valid_from=since, valid_until=until)
    assert (entry.valid_from, entry.valid_until) == (NOW - 5 * DAY, NOW - 2 * DAY)
    for moment, holds in (
        (since - TICK, False),
        (since, True),
        (since + TICK, True),
        (until - TICK, True),
        (until, False),
        (until + TICK, False),
        (NOW, False),
    ):
        expected = [entry.content] if holds else []
        assert entry.is_valid_at(moment) is holds
        assert texts(space.long_term.entries(valid_at=moment)) == expected
        assert texts(space.long_term.valid_at(moment)) == expected
        assert texts(space.long_term.search("red boat", valid_at=moment)) == expected
        assert recalled(space, "red boat", valid_at=moment) == expected
    assert space.long_term.entries() == space.long_term.search("red boat") == ()
    assert recalled(space, "red boat") == []


def test_a_future_entry_becomes_valid_at_its_start(space: Namespace, clock: FrozenClock) -> None:
    stored(space.long_term, "The red boat sails at noon.", valid_from=NOW + DAY)
    clock.advance(DAY - TICK)
    assert space.long_term.entries() == ()
    assert recalled(space, "red boat") == []
    clock.advance(TICK)
    assert texts(space.long_term.entries()) == ["The red boat sails at noon."]
    assert recalled(space, "red boat") == ["The red boat sails at noon."]


def test_an_entry_with_a_future_end_expires_at_that_time(space: Namespace, clock: FrozenClock) -> None:
    stored(space.long_term, "The red boat sails at noon.", valid_until=NOW + DAY)
    assert recalled(space, "red boat") == ["The red boat sails at noon."]
    clock.advance(DAY)
    assert space.long_term.entries() == ()
    assert recalled(space, "red boat") == []


# As it was then


def test_a_reversed_decision_is_answered_for_now_and_for_a_past_time(
    engine: MemoryEngine, clock: FrozenClock, tenant: str
) -> None:
    space = engine.namespace(tenant)
    memory = space.long_term
    first = stored(memory, POSTGRES, kind=EntryKind.DECISION)
    then = clock.advance(days=10)
    clock.advance(days=10)
    receipt = memory.store(MYSQL, kind=EntryKind.DECISION)
    assert (receipt.outcome, receipt.supersedes) == (Outcome.SUPERSEDES, (first.id,))
    changed = clock.now()
    clock.advance(days=10)
    asked = "Which database is it?"
    assert texts(memory.entries()) == texts(memory.search(asked)) == recalled(space, asked) == [MYSQL]
    assert texts(memory.valid_at(then)) == texts(memory.search(asked, valid_at=then)) == [POSTGRES]
    assert recalled(space, asked, valid_at=then) == [POSTGRES]
    assert texts(memory.valid_at(changed - TICK)) == [POSTGRES]
    assert texts(memory.valid_at(changed)) == [MYSQL]
    assert texts(memory.valid_at(NOW - TICK)) == []
    for entry_id in (first.id, receipt.entry.id if receipt.entry else ""):
        assert texts(memory.history(entry_id)) == [POSTGRES, MYSQL]
    assert [entry.valid_until for entry in memory.history(first.id)] == [changed, None]


def test_a_context_contains_entries_valid_at_the_given_time(space: Namespace, clock: FrozenClock) -> None:
    space.long_term.store(POSTGRES)
    then = clock.advance(days=1)
    space.long_term.store(MYSQL, valid_from=then + DAY)
    clock.advance(days=5)
    now = space.build_context("Which database is it?").messages[0].content
    assert "MySQL" in now
    assert "PostgreSQL" not in now
    before = space.build_context("Which database is it?", filters=RecallFilters(valid_at=then))
    assert "PostgreSQL" in before.messages[0].content
    assert "MySQL" not in before.messages[0].content


def test_messages_after_the_given_time_are_not_recalled(
    engine: MemoryEngine, clock: FrozenClock, tenant: str
) -> None:
    space = engine.namespace(tenant)
    session = space.session("s")
    for number in range(3):
        session.add(MessageDraft("user", f"boat {number}", created_at=NOW + number * DAY))
    clock.advance(days=9)
    assert sorted(recalled(space, "boat")) == ["boat 0", "boat 1", "boat 2"]
    assert sorted(recalled(space, "boat", valid_at=NOW + DAY)) == ["boat 0", "boat 1"]
    assert recalled(space, "boat", valid_at=NOW + DAY - TICK) == ["boat 0"]
    assert recalled(space, "boat", valid_at=NOW - TICK) == []
    assert recalled(space, "boat", valid_at=(NOW + DAY).astimezone(KATHMANDU), since=NOW + DAY) == ["boat 1"]
    assert recalled(space, "boat", valid_at=NOW, until=NOW + DAY) == ["boat 0"]
    assert recalled(space, "boat", valid_at=NOW, since=NOW + DAY) == []


def test_entries_archived_after_the_given_time_are_recalled(
    engine: MemoryEngine, clock: FrozenClock, tenant: str
) -> None:
    space = engine.namespace(tenant)
    boat = stored(space.long_term, "The red boat sails at noon.")
    then = clock.advance(days=1)
    archived_at = clock.advance(days=1)
    space.long_term.archive(boat.id)
    clock.advance(days=1)
    assert space.long_term.entries() == ()
    assert recalled(space, "red boat") == []
    for moment in (NOW, then, archived_at - TICK):
        assert texts(space.long_term.valid_at(moment)) == [boat.content]
        assert texts(space.long_term.search("red boat", valid_at=moment)) == [boat.content]
        assert recalled(space, "red boat", valid_at=moment) == [boat.content]
    for moment in (NOW - TICK, archived_at, clock.now()):
        assert space.long_term.valid_at(moment) == ()
        assert recalled(space, "red boat", valid_at=moment) == []
    assert texts(space.long_term.valid_at(archived_at, archived=True)) == [boat.content]


# What contradicts


def test_an_earlier_contradicting_entry_is_stored_as_past(engine: MemoryEngine, tenant: str) -> None:
    memory = engine.namespace(tenant).long_term
    newest = stored(memory, deadline(12))
    oldest = memory.store(deadline(5), valid_from=NOW - 10 * DAY)
    between = memory.store(deadline(9), valid_from=NOW - 5 * DAY)
    assert [oldest.outcome, between.outcome] == [Outcome.PAST, Outcome.PAST]
    assert oldest.superseded_by == between.superseded_by == newest.id
    assert oldest.entry is not None
    assert between.supersedes == (oldest.entry.id,)
    assert texts(memory.history(newest.id)) == [deadline(5), deadline(9), deadline(12)]
    times = [(entry.valid_from, entry.valid_until) for entry in memory.history(newest.id)]
    assert times == [(NOW - 10 * DAY, NOW - 5 * DAY), (NOW - 5 * DAY, NOW), (NOW, None)]
    assert texts(memory.entries()) == [deadline(12)]


def test_a_past_entry_with_an_end_keeps_its_end(space: Namespace) -> None:
    memory = space.long_term
    stored(memory, deadline(12))
    receipt = memory.store(deadline(5), valid_from=NOW - 10 * DAY, valid_until=NOW - 5 * DAY)
    assert receipt.outcome is Outcome.STORED
    assert receipt.entry is not None
    assert receipt.entry.valid_until == NOW - 5 * DAY
    assert memory.valid_at(NOW - 3 * DAY) == ()
    assert texts(memory.entries()) == [deadline(12)]


def test_contradictions_at_one_time_keep_one_valid(engine: MemoryEngine, tenant: str) -> None:
    memory = engine.namespace(tenant).long_term
    first = stored(memory, deadline(5))
    receipt = memory.store(deadline(12))
    assert (receipt.outcome, receipt.supersedes) == (Outcome.SUPERSEDES, (first.id,))
    assert len(memory.entries()) == 1
    assert texts(memory.valid_at(NOW + TICK)) == [deadline(12)]
    assert texts(memory.history(first.id)) == [deadline(5), deadline(12)]


def test_a_superseding_entry_is_valid_immediately_with_a_frozen_clock(space: Namespace) -> None:
    space.long_term.store(deadline(5))
    receipt = space.long_term.store(deadline(12))
    assert receipt.outcome is Outcome.SUPERSEDES  # "It is in force, and entries that it contradicts are not"
    assert texts(space.long_term.entries()) == [deadline(12)]


@pytest.mark.parametrize("days", [3, 5])
def test_any_number_of_contradictions_can_be_stored_at_one_time(space: Namespace, days: int) -> None:
    memory = space.long_term
    for day in range(1, days + 1):
        assert memory.store(deadline(day)).is_stored
    assert texts(memory.valid_at(NOW + DAY)) == [deadline(days)]
    assert texts(memory.history(memory.valid_at(NOW + DAY)[0].id)) == [
        deadline(day) for day in range(1, days + 1)
    ]


def test_the_valid_entry_is_found_after_any_number_of_past_ones(space: Namespace) -> None:
    memory = space.long_term
    for day in range(1, 30):  # each held before the one before it
        memory.store(deadline(day), valid_from=NOW - day * DAY)
    assert texts(memory.entries()) == [deadline(1)]
    memory.store(deadline(31))
    assert texts(memory.entries()) == [deadline(31)]


def test_a_repeated_statement_is_valid_once(space: Namespace, clock: FrozenClock) -> None:
    memory = space.long_term
    for day in (5, 12, 5):
        clock.advance(days=1)
        memory.store(deadline(day))
    assert texts(memory.entries()) == [deadline(5)]
    assert texts(memory.history(memory.entries()[0].id)) == [deadline(5), deadline(12), deadline(5)]


def test_a_statement_extended_into_the_past_is_valid_once(space: Namespace) -> None:
    memory = space.long_term
    memory.store(deadline(5))
    memory.store(deadline(5), valid_from=NOW - 5 * DAY)
    assert texts(memory.entries()) == [deadline(5)]
    assert texts(memory.valid_at(NOW - DAY)) == [deadline(5)]


def test_entries_of_two_categories_never_contradict(engine: MemoryEngine, tenant: str) -> None:
    memory = engine.namespace(tenant).long_term
    receipts = [
        memory.store(deadline(day), category=category)
        for day, category in ((5, "Mercury"), (12, "Apollo"), (5, "Gemini"))
    ]
    assert [receipt.outcome for receipt in receipts] == [Outcome.STORED] * 3
    assert sorted(entry.category or "" for entry in memory.entries()) == ["Apollo", "Gemini", "Mercury"]
    assert memory.store(deadline(19), category="Apollo").supersedes == (
        receipts[1].entry.id if receipts[1].entry else "",
    )
    assert sorted(texts(memory.valid_at(NOW + DAY))) == [deadline(19), deadline(5), deadline(5)]


def test_unrelated_entries_stay_valid(space: Namespace, clock: FrozenClock) -> None:
    for text in (deadline(5), "An oak grows slowly.", "Ada likes tea."):
        clock.advance(days=1)
        assert space.long_term.store(text).outcome is Outcome.STORED
    assert len(space.long_term.entries()) == 3


def test_an_archived_entry_is_superseded_too(space: Namespace, clock: FrozenClock) -> None:
    first = stored(space.long_term, deadline(5))
    space.long_term.archive(first.id)
    clock.advance(days=1)
    assert space.long_term.store(deadline(12)).supersedes == (first.id,)
    space.long_term.restore(first.id)
    assert [entry.content for entry in space.long_term.entries()] == [deadline(12)]


def test_an_entry_that_was_superseded_cannot_end_later(space: Namespace, clock: FrozenClock) -> None:
    first = stored(space.long_term, deadline(5))
    clock.advance(days=1)
    stored(space.long_term, deadline(12))
    clock.advance(days=1)
    with pytest.raises(InvalidInputError, match="store it again"):
        space.long_term.close(first.id)
    space.long_term.close(first.id, NOW + timedelta(hours=1))


def test_times_of_other_zones_are_the_same_moments(space: Namespace) -> None:
    memory = space.long_term
    first = stored(memory, deadline(5), valid_from=(NOW - 3 * DAY).astimezone(KATHMANDU))
    receipt = memory.store(deadline(12), valid_from=(NOW - 2 * DAY).astimezone(timezone(timedelta(hours=-9))))
    assert receipt.supersedes == (first.id,)
    kept = memory.get(first.id)
    assert kept is not None
    assert kept.valid_until == NOW - 2 * DAY
    assert kept.valid_until.tzinfo is UTC
    for zone in (UTC, KATHMANDU, timezone(timedelta(hours=-9, minutes=-30))):
        assert texts(memory.valid_at((NOW - 2 * DAY).astimezone(zone))) == [deadline(12)]
        assert texts(memory.valid_at((NOW - 2 * DAY - TICK).astimezone(zone))) == [deadline(5)]


# For any order of times


def store_deadlines(memory: LongTerm, times: list[int], days: list[int]) -> list[Receipt]:
    return [
        memory.store(deadline(day), valid_from=NOW - hours * timedelta(hours=1))
        for hours, day in zip(times, days, strict=False)
    ]


def check_one_at_a_time(memory: LongTerm) -> None:
    """At each bound, just before and just behind, at most one holds; now it is the one that began last."""
    there = memory.entries(valid_at=None, limit=1000)
    starts = [entry.valid_from for entry in there if entry.valid_from]
    bounds = {*starts, *(entry.valid_until for entry in there if entry.valid_until), NOW}
    for moment in {bound + step for bound in bounds for step in (-TICK, 0 * TICK, TICK)}:
        holding = [entry for entry in there if entry.is_valid_at(moment)]
        assert len(holding) <= 1, (moment, texts(tuple(holding)))
        assert [entry.id for entry in memory.valid_at(moment)] == [entry.id for entry in holding]
    (now,) = memory.entries()
    assert now.valid_from == max(starts)


TIMES = st.lists(st.integers(min_value=1, max_value=6), min_size=1, max_size=8)
ORDERS = st.one_of(
    TIMES,
    TIMES.map(sorted),
    TIMES.map(lambda times: sorted(times, reverse=True)),
    TIMES.map(lambda times: [times[0]] * len(times)),
)
_numbers = count()


@pytest.fixture(scope="module")
def open_engine() -> Iterator[MemoryEngine]:
    """One engine for all examples, each in a namespace of its own."""
    with MemoryEngine(embedder=None, clock=FrozenClock(), ids=seeded_ids()) as engine:
        yield engine


@examples(25)
@given(times=st.lists(st.integers(min_value=1, max_value=90), min_size=1, max_size=10, unique=True))
def test_contradictions_at_different_times_are_valid_one_at_a_time(
    open_engine: MemoryEngine, times: list[int]
) -> None:
    memory = open_engine.namespace(f"different {next(_numbers)}").long_term
    store_deadlines(memory, times, list(range(1, 29)))
    check_one_at_a_time(memory)
    (now,) = memory.entries()
    assert now.content == deadline(1 + times.index(min(times)))
    assert len(memory.history(now.id)) == len(times)


@examples(25)
@given(times=ORDERS)
def test_contradictions_at_any_times_are_valid_one_at_a_time(
    open_engine: MemoryEngine, times: list[int]
) -> None:
    memory = open_engine.namespace(f"any {next(_numbers)}").long_term
    store_deadlines(memory, times, list(range(1, 29)))
    check_one_at_a_time(memory)
    latest = max(number for number, hours in enumerate(times) if hours == min(times))
    assert texts(memory.entries()) == [deadline(1 + latest)]


@examples(25)
@given(said=st.dictionaries(st.integers(1, 90), st.integers(1, 3), min_size=1, max_size=6))
def test_repeated_statements_are_valid_one_at_a_time(open_engine: MemoryEngine, said: dict[int, int]) -> None:
    memory = open_engine.namespace(f"again {next(_numbers)}").long_term
    store_deadlines(memory, list(said), list(said.values()))
    check_one_at_a_time(memory)
