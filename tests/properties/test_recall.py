"""Filters are exact, hits are explained and tenants isolated, for any messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import MemoryEngine, MessageDraft, RecallFilters, Role, Strategy, Tier
from langmem_tiers.testing import FrozenClock, HashEmbedder
from tests.hypothesis_settings import examples

START = datetime(2025, 1, 10, tzinfo=UTC)
WORDS = "boat red noon sea remember that my name is decided café 北京 ok".split()


@dataclass(frozen=True)
class Said:
    """One message as it is handed in."""

    session: str
    role: Role
    at: int
    text: str
    promoted: bool

    @property
    def when(self) -> datetime:
        return START + timedelta(microseconds=self.at)


said = st.builds(
    Said,
    session=st.sampled_from(["s", "t", "s/t", "%"]),
    role=st.sampled_from([Role.USER, Role.ASSISTANT, Role.SYSTEM]),
    at=st.integers(0, 6),
    text=st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    promoted=st.booleans(),
)
times = st.none() | st.integers(0, 7).map(lambda n: START + timedelta(microseconds=n))
words = st.sampled_from(["message", "fact"])


@st.composite
def some_filters(draw: st.DrawFn) -> RecallFilters:
    since, until = draw(times), draw(times)
    if since is not None and until is not None and until <= since:
        until = None
    return RecallFilters(
        roles=draw(st.none() | st.frozensets(st.sampled_from(list(Role)))),
        sessions=draw(st.none() | st.frozensets(st.sampled_from(["s", "t", "s/t", "nowhere"]))),
        tiers=draw(st.none() | st.frozensets(st.sampled_from(list(Tier)))),
        kinds=draw(st.none() | st.frozensets(words)),
        tags=draw(st.sampled_from([None, None, None, frozenset({"x"})])),
        since=since,
        until=until,
        min_importance=draw(st.sampled_from([0.0, 0.0, 0.3, 0.6, 0.75, 0.9])),
    )


def passes(one: Said, importance: float, filters: RecallFilters) -> bool:
    tier = Tier.LONG_TERM if one.promoted else Tier.SHORT_TERM
    return (
        (filters.roles is None or one.role in filters.roles)
        and (filters.sessions is None or one.session in filters.sessions)
        and (filters.tiers is None or tier in filters.tiers)
        and (filters.kinds is None or "message" in filters.kinds)
        and filters.tags is None
        and (filters.since is None or one.when >= filters.since)
        and (filters.until is None or one.when < filters.until)
        and importance >= filters.min_importance
    )


def store(engine: MemoryEngine, namespace: str, messages: list[Said]) -> dict[str, Said]:
    kept: dict[str, Said] = {}
    for number, message in enumerate(messages):
        session, name = engine.session(namespace, message.session), f"m{number}"
        session.add(MessageDraft(message.role, message.text, id=name, created_at=message.when))
        kept[name] = message
        if message.promoted:
            session.promote(name)
    return kept


@examples(50)
@given(st.lists(said, min_size=1, max_size=8), some_filters(), st.sampled_from(["best", "recency", "hybrid"]))
def test_recall_returns_exactly_the_filtered_messages(
    messages: list[Said], filters: RecallFilters, strategy: str
) -> None:
    with MemoryEngine(embedder=HashEmbedder(16), clock=FrozenClock()) as engine:
        kept = store(engine, "a", messages)
        store(engine, "b", messages)
        where = engine.namespace("a")
        weights = {hit.entry.id: hit.entry.importance for hit in where.recall("", strategy="recency")}
        assert weights.keys() == kept.keys()
        found = where.recall("red boat", strategy=strategy, filters=filters, limit=100)
    expected = {name for name, message in kept.items() if passes(message, weights[name], filters)}
    assert {hit.entry.id for hit in found} == expected
    assert len(found) == len(expected)
    assert found.candidates == len(expected)


@examples(40)
@given(
    st.lists(said, max_size=8),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    st.sampled_from(list(Strategy)),
    st.integers(1, 5),
)
def test_hits_are_complete_ordered_and_explained(
    messages: list[Said], query: str, strategy: Strategy, limit: int
) -> None:
    with MemoryEngine(embedder=HashEmbedder(16), clock=FrozenClock()) as engine:
        kept = store(engine, "a", messages)
        found = engine.namespace("a").recall(query, strategy=strategy, limit=limit)
        assert found == engine.namespace("a").recall(query, strategy=strategy, limit=limit)
    assert len(found) <= limit
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    for hit in found:
        one = kept[hit.entry.id]
        assert hit.message is not None
        assert (one.text, one.role, one.session) == (hit.message.content, hit.message.role, hit.session)
        assert sum(hit.signals.values()) == pytest.approx(hit.score, abs=1e-6)
        assert hit.found_by in hit.signals


@examples(60)
@given(st.text(min_size=1, max_size=60), st.lists(said, max_size=4), st.sampled_from(list(Strategy)))
def test_any_non_blank_text_is_a_valid_query(query: str, messages: list[Said], strategy: Strategy) -> None:
    with MemoryEngine(embedder=HashEmbedder(16), clock=FrozenClock()) as engine:
        store(engine, "a", messages)
        where = engine.namespace("a")
        assert all(hit.score > 0 for hit in where.search(query))
        if query.strip():
            assert len(where.recall(query, strategy=strategy)) <= len(messages)


@examples(25)
@given(st.lists(said, min_size=1, max_size=6), st.lists(said, max_size=6))
def test_recalls_between_writes_do_not_change_later_recalls(before: list[Said], after: list[Said]) -> None:
    answers = []
    for asks in (True, False):
        with MemoryEngine(embedder=HashEmbedder(16), clock=FrozenClock()) as engine:
            where = engine.namespace("a")
            for number, message in enumerate([*before, *after]):
                draft = MessageDraft(message.role, message.text, id=f"m{number}", created_at=message.when)
                where.session(message.session).add(draft)
                if asks:
                    where.recall("red boat", limit=1)
            found = where.recall("red boat at noon")
            answers.append([(hit.entry.id, round(hit.score, 6)) for hit in found])
    assert answers[0] == answers[1]
