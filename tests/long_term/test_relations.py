"""Relations between entries, and traversal of them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.growth_engines import chain
from langmem_tiers import InvalidInputError, MemoryEngine
from langmem_tiers.errors import EntryNotFoundError
from langmem_tiers.long_term.models import EntryDraft, Relation, RelationKind
from langmem_tiers.testing import FrozenClock, seeded_ids
from tests.work_counters import count_sqlite_steps, count_statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.long_term import LongTerm

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)


@pytest.fixture
def memory_engine(clock: FrozenClock) -> Iterator[MemoryEngine]:
    """An engine where the database does not matter."""
    with MemoryEngine(embedder=None, clock=clock, ids=seeded_ids()) as engine:
        yield engine


@pytest.fixture
def memory(memory_engine: MemoryEngine) -> LongTerm:
    return memory_engine.namespace("a").long_term


def entries(memory: LongTerm, count: int) -> list[str]:
    """Ids of entries that have nothing to do with each other."""
    receipts = memory.store_many(
        [EntryDraft(content=f"Room {number} is blue.") for number in range(count)], compared=True
    )
    return [receipt.entry.id for receipt in receipts if receipt.entry is not None]


def list_related(memory: LongTerm, start: str, **how: Any) -> list[tuple[str, int]]:
    return [(related.entry.id, related.depth) for related in memory.related(start, **how)]


def test_the_kinds_of_the_design_document_exist() -> None:
    assert {"related_to", "depends_on", "contradicts", "supersedes"} <= {kind.value for kind in RelationKind}


@pytest.mark.parametrize("kind", [*RelationKind, "inspired_by", "von – %/\n"])
def test_a_relation_of_any_kind_is_kept_with_its_strength_and_time(memory: LongTerm, kind: str) -> None:
    one, other = entries(memory, 2)
    relation = memory.relate(one, other, kind, strength=0.25)
    assert (relation.source, relation.target, relation.kind) == (one, other, kind)
    assert (relation.strength, relation.created_at) == (0.25, NOW)
    assert memory.relations(one) == memory.relations(other) == (relation,)
    (found,) = memory.related(one, kinds={kind})
    assert (found.entry.id, found.depth, found.strength, found.path) == (other, 1, 0.25, (relation,))


def test_relations_are_kept_on_every_database(engine: MemoryEngine, clock: FrozenClock, tenant: str) -> None:
    memory = engine.namespace(tenant).long_term
    a, b, c, d = entries(memory, 4)
    made: list[Relation] = []
    for source, target, kind, strength in (
        (a, b, "depends_on", 1.0),
        (c, b, "part_of", 0.5),
        (c, d, "supports", 0),
    ):
        made.append(memory.relate(source, target, kind, strength=strength))
        clock.advance(minutes=1)
    assert memory.relations(a) == (made[0],)
    assert memory.relations(b) == (made[0], made[1])
    assert memory.relations(c) == (made[1], made[2])
    assert list_related(memory, a, depth=3) == [(b, 1), (c, 2), (d, 3)]
    far = memory.related(a, depth=3)[-1]
    assert (far.strength, far.path) == (0.0, tuple(made))
    assert memory.forget(b)
    assert memory.relations(a) == ()
    assert list_related(memory, a, depth=9) == []


def test_relations_default_to_related_to_with_full_strength(memory: LongTerm) -> None:
    one, other = entries(memory, 2)
    relation = memory.relate(one, other)
    assert (relation.kind, relation.strength) == ("related_to", 1.0)


def test_a_relation_replaces_the_earlier_one_of_the_same_kind(memory: LongTerm, clock: FrozenClock) -> None:
    one, other = entries(memory, 2)
    memory.relate(one, other, strength=0.2)
    clock.advance(days=1)
    again = memory.relate(one, other, strength=0.9)
    back = memory.relate(other, one, strength=0.5)
    beside = memory.relate(one, other, "supports")
    assert set(memory.relations(one)) == {again, back, beside}


def test_related_respects_its_depth_and_follows_both_directions(memory: LongTerm) -> None:
    ids = entries(memory, 5)
    for number in range(4):
        pair = (ids[number], ids[number + 1])
        memory.relate(*(pair if number % 2 else pair[::-1]))
    assert list_related(memory, ids[0]) == [(ids[1], 1)]
    assert list_related(memory, ids[0], depth=3) == [(ids[1], 1), (ids[2], 2), (ids[3], 3)]
    assert list_related(memory, ids[2], depth=9) == [
        (ids[number], abs(number - 2)) for number in (1, 3, 0, 4)
    ]
    assert list_related(memory, ids[4], depth=9)[-1] == (ids[0], 4)


def test_cycles_are_followed_once(memory: LongTerm) -> None:
    ids = entries(memory, 4)
    for number in range(4):
        memory.relate(ids[number], ids[(number + 1) % 4])
        memory.relate(ids[(number + 1) % 4], ids[number], "supports")
    found = list_related(memory, ids[0], depth=1000)
    assert sorted(found) == sorted([(ids[1], 1), (ids[3], 1), (ids[2], 2)])


def test_the_stronger_of_two_equally_long_paths_counts(memory: LongTerm) -> None:
    start, weak, strong, end = entries(memory, 4)
    memory.relate(start, weak, strength=0.9)
    memory.relate(weak, end, strength=0.2)
    first = memory.relate(strong, start, strength=0.6)
    second = memory.relate(end, strong, strength=0.5)
    found = memory.related(start, depth=2)
    assert [related.entry.id for related in found] == [weak, strong, end]  # the nearest and strongest first
    assert found[2].strength == pytest.approx(0.3)
    assert found[2].path == (first, second)


def test_the_stronger_of_two_relations_between_two_entries_counts(memory: LongTerm) -> None:
    one, other = entries(memory, 2)
    memory.relate(one, other, "depends_on", strength=0.4)
    strong = memory.relate(other, one, "supports", strength=0.8)
    (found,) = memory.related(one)
    assert (found.strength, found.path) == (0.8, (strong,))
    (found,) = memory.related(one, kinds={"depends_on"})
    assert found.strength == 0.4


def test_only_relations_of_the_requested_kinds_are_followed(memory: LongTerm) -> None:
    a, b, c, d = entries(memory, 4)
    memory.relate(a, b, "depends_on")
    memory.relate(b, c, "supports")
    memory.relate(a, d, "supports")
    assert list_related(memory, a, depth=9, kinds={"depends_on"}) == [(b, 1)]
    assert list_related(memory, a, depth=9, kinds=["supports"]) == [(d, 1)]
    assert list_related(memory, a, depth=9, kinds=[RelationKind.DEPENDS_ON, RelationKind.SUPPORTS])[2] == (
        c,
        2,
    )
    assert list_related(memory, a, depth=9, kinds=set()) == []


def test_kinds_given_as_one_text_are_refused_by_name(memory: LongTerm) -> None:
    one, other = entries(memory, 2)
    memory.relate(one, other, "supports")
    with pytest.raises(InvalidInputError, match="'supports'"):
        memory.related(one, kinds="supports")


def test_a_relation_needs_both_its_entries(engine: MemoryEngine, tenant: str) -> None:
    memory = engine.namespace(tenant, "ours").long_term
    (ours,) = entries(memory, 1)
    (theirs,) = entries(engine.namespace(tenant, "theirs").long_term, 1)
    for wrong in ("nowhere", theirs):
        for pair in ((ours, wrong), (wrong, ours)):
            with pytest.raises(EntryNotFoundError, match=rf"no entry '{wrong}'.*nothing was changed"):
                memory.relate(*pair)
    assert memory.relations(ours) == ()


def test_an_entry_cannot_be_related_to_itself(memory: LongTerm) -> None:
    (one,) = entries(memory, 1)
    with pytest.raises(InvalidInputError, match=rf"'{one}' cannot be related to itself: pass another"):
        memory.relate(one, one)


@pytest.mark.parametrize(
    ("about", "named"),
    [
        ({"strength": 2.0}, r"strength must be in \[0, 1\], got 2\.0: scale it"),
        ({"strength": -0.1}, r"-0\.1"),
        ({"strength": float("nan")}, "nan"),
        ({"strength": "much"}, "strength must be a number, got str"),
        ({"kind": ""}, "relation"),
    ],
)
def test_an_invalid_relation_is_refused(memory: LongTerm, about: Any, named: str) -> None:
    one, other = entries(memory, 2)
    with pytest.raises(InvalidInputError, match=named):
        memory.relate(one, other, **about)
    assert memory.relations(one) == ()


def test_an_entry_cannot_supersede_its_direct_or_indirect_successor(
    engine: MemoryEngine, tenant: str
) -> None:
    memory = engine.namespace(tenant).long_term
    a, b, c, d = entries(memory, 4)
    memory.relate(b, a, "supersedes")
    with pytest.raises(InvalidInputError, match=rf"'{a}' cannot supersede '{b}'.*nothing was changed"):
        memory.relate(a, b, "supersedes")
    memory.relate(c, b, "supersedes")
    memory.relate(d, c, "supersedes")
    for last in (c, d):
        with pytest.raises(
            InvalidInputError, match=rf"'{a}' cannot supersede '{last}'.*directly or indirectly"
        ):
            memory.relate(a, last, "supersedes")
    assert len(memory.relations(a)) == 1
    memory.relate(d, a, "supersedes")  # a shorter way, and no cycle
    memory.relate(a, d, "depends_on")  # other kinds may go round
    assert [entry.id for entry in memory.history(c)] == [a, b, c, d]


def history_work(count: int) -> tuple[int, int]:
    """SQL statements and steps of SQLite to read the history of a chain."""
    with MemoryEngine(embedder=None, clock=FrozenClock(), ids=seeded_ids()) as engine:
        memory, ids = engine.namespace("a").long_term, chain(engine, count)

        def read() -> None:
            assert [entry.id for entry in memory.history(ids[count // 2])] == ids

        return count_statements(engine, read), count_sqlite_steps(engine, read)


def test_the_history_of_a_chain_takes_two_statements_and_linear_work() -> None:
    (few, few_steps), (many, many_steps) = history_work(50), history_work(100)
    assert few == many == 2  # the entry, and all that are connected with it
    assert many_steps < 2.2 * few_steps


@pytest.mark.soak
def test_a_chain_longer_than_the_recursion_limit_is_read_in_order_and_refuses_a_cycle(
    memory_engine: MemoryEngine, memory: LongTerm
) -> None:
    ids = chain(memory_engine, sys.getrecursionlimit() + 100)
    assert [entry.id for entry in memory.history(ids[len(ids) // 2])] == ids
    with pytest.raises(InvalidInputError, match="cannot supersede"):
        memory.relate(ids[0], ids[-1], "supersedes")
    assert [related.entry.id for related in memory.related(ids[0], depth=20)] == ids[1:21]


def store_work(count: int) -> tuple[int, int]:
    """SQL statements and steps of SQLite to store a new entry on a chain."""
    clock = FrozenClock()
    with MemoryEngine(embedder=None, clock=clock, ids=seeded_ids()) as engine:
        memory, ids = engine.namespace("a").long_term, chain(engine, count)
        last = memory.store("The deadline is March 31.").entry
        assert last is not None
        memory.relate(last.id, ids[-1], "supersedes")
        days = iter(range(1, 29))

        def change() -> None:
            clock.advance(timedelta(days=1))
            assert len(memory.store(f"The deadline is March {next(days)}.").supersedes) == 1

        change()
        return count_statements(engine, change), count_sqlite_steps(engine, change)


@pytest.mark.soak
def test_a_new_entry_on_a_longer_chain_takes_the_same_work() -> None:
    (few, few_steps), (many, many_steps) = store_work(50), store_work(100)
    assert few == many
    assert many_steps == pytest.approx(few_steps, rel=0.1)
