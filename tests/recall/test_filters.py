"""Filters are exact for every strategy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    InvalidInputError,
    MemoryEngine,
    MessageDraft,
    RecallFilters,
    Role,
    Strategy,
    Tier,
)
from langmem_tiers.testing import FrozenClock, HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers import Namespace

START = datetime(2025, 1, 10, tzinfo=UTC)
TICK = timedelta(microseconds=1)


@pytest.fixture
def where() -> Iterator[Namespace]:
    """Eight messages about boats: two sessions, four roles, a microsecond apart."""
    with MemoryEngine(embedder=HashEmbedder(), clock=FrozenClock()) as engine:
        space = engine.namespace("a")
        for number, role in enumerate([*Role, *Role]):
            draft = MessageDraft(role, f"boat {number}", id=f"m{number}", created_at=START + number * TICK)
            space.session("one" if number < 4 else "two").add(draft)
        yield space


def names(space: Namespace, strategy: Strategy = Strategy.BEST, **filters: Any) -> set[str]:
    found = space.recall("boat", strategy=strategy, filters=RecallFilters(**filters))
    return {hit.entry.id for hit in found}


ALL = {f"m{number}" for number in range(8)}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ALL),
        ({"roles": {"user"}}, {f"m{n}" for n, role in enumerate([*Role, *Role]) if role is Role.USER}),
        ({"sessions": {"two"}}, {"m4", "m5", "m6", "m7"}),
        ({"sessions": {"two", "nowhere"}}, {"m4", "m5", "m6", "m7"}),
        ({"sessions": {"nowhere"}}, set()),
        ({"sessions": set()}, set()),
        ({"since": START + 3 * TICK}, {"m3", "m4", "m5", "m6", "m7"}),
        ({"until": START + 3 * TICK}, {"m0", "m1", "m2"}),
        ({"since": START + 3 * TICK, "until": START + 4 * TICK}, {"m3"}),
        ({"until": START}, set()),
        ({"kinds": {"message"}}, ALL),
        ({"kinds": {"fact"}}, set()),
        ({"tags": {"x"}}, set()),
        ({"categories": {"domain"}}, set()),
        ({"min_importance": 1.0}, set()),
        ({"tiers": {Tier.LONG_TERM}}, set()),
        ({"tiers": {"short_term"}}, ALL),
        ({"tiers": {Tier.KNOWLEDGE}}, set()),
    ],
)
def test_a_filter_applies_to_every_strategy(
    where: Namespace, filters: dict[str, Any], expected: set[str]
) -> None:
    for strategy in Strategy:
        assert names(where, strategy, **filters) == expected


def test_times_of_other_zones_are_the_same_moments(where: Namespace) -> None:
    there = (START + 3 * TICK).astimezone(timezone(timedelta(hours=-9, minutes=-30)))
    assert names(where, since=there) == {"m3", "m4", "m5", "m6", "m7"}


def test_a_promoted_message_is_long_term_until_it_is_restored(engine: MemoryEngine, tenant: str) -> None:
    session, space = engine.session(tenant, "s"), engine.namespace(tenant)
    session.add_many(MessageDraft("user", f"boat {n}", id=f"m{n}") for n in range(4))
    session.promote("m2")
    assert names(space, tiers={"long_term"}) == {"m2"}
    assert names(space, tiers={"short_term"}) == {"m0", "m1", "m3"}
    assert names(space, tiers={"short_term", "long_term"}) == {"m0", "m1", "m2", "m3"}
    hit = space.recall("boat", filters=RecallFilters(tiers=frozenset({Tier.LONG_TERM})))[0]
    assert hit.entry.tier is Tier.LONG_TERM
    session.restore("m2")
    assert names(space, tiers={"long_term"}) == set()


def test_the_importance_filter_is_inclusive_and_entries_report_their_importance(where: Namespace) -> None:
    where.session("one").add(
        MessageDraft("user", "remember that my boat is red", id="told", created_at=START)
    )
    found = where.recall("boat", filters=RecallFilters(min_importance=0.75))
    assert {hit.entry.id for hit in found} == {"told"}
    weight = found[0].entry.importance
    assert names(where, min_importance=weight) == {"told"}


def test_filtered_messages_do_not_change_the_scores_of_the_others(where: Namespace) -> None:
    free = {hit.entry.id: hit.score for hit in where.recall("boat 5")}
    some = where.recall("boat 5", filters=RecallFilters(sessions=frozenset({"two"})))
    assert some.candidates == 4
    for hit in some:
        assert free[hit.entry.id] == pytest.approx(hit.score)


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ({"roles": {"robot"}}, "'robot'"),
        ({"roles": "user"}, "roles must be a set, got str"),
        ({"tiers": {"attic"}}, "'attic'"),
        ({"sessions": {""}}, "''"),
        ({"sessions": 3}, "sessions must be a set, got int"),
        ({"kinds": {""}}, "''"),
        ({"tags": {None}}, "None"),
        ({"categories": [7]}, "7"),
        ({"since": datetime(2025, 1, 1)}, "no time zone"),
        ({"until": "2025-01-01"}, "'2025-01-01'"),
        ({"since": START, "until": START}, "must be later than"),
        ({"min_importance": 1.5}, "1.5"),
        ({"min_importance": -0.1}, "-0.1"),
        ({"min_importance": True}, "bool"),
        ({"min_importance": float("nan")}, "nan"),
    ],
)
def test_an_invalid_filter_is_refused_by_name(filters: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        RecallFilters(**filters)


def test_filters_apply_to_a_context(where: Namespace) -> None:
    context = where.build_context("boat", filters=RecallFilters(sessions=frozenset({"two"})))
    assert {hit.entry.id for hit in context.recalled} == {"m4", "m5", "m6", "m7"}
    assert context.left_out == ()
