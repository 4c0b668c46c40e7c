"""Contexts of a part of a session, and compaction with a custom budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import (
    EngineConfig,
    InvalidNameError,
    MemoryEngine,
    MessageDraft,
    MessageToolCall,
    TokenBudget,
)
from langmem_tiers.testing import FrozenClock, seeded_ids

if TYPE_CHECKING:
    from langmem_tiers import Session

TALK = [
    MessageDraft("user", "the first question about boats", id="q1"),
    MessageDraft("assistant", "", id="c1", tool_calls=[MessageToolCall("t1", "look", "{}")]),
    MessageDraft("tool", "a result", id="r1", tool_call_id="t1"),
    MessageDraft("assistant", "the first answer", id="a1"),
    MessageDraft("user", "a question that was taken back", id="q2"),
    MessageDraft("assistant", "an answer that was taken back", id="a2"),
    MessageDraft("user", "the question in its place", id="q3"),
]


@pytest.fixture
def session(engine: MemoryEngine, tenant: str) -> Session:
    session = engine.session(tenant, "s")
    session.add_many(TALK)
    return session


def test_only_the_named_messages_are_shown(session: Session) -> None:
    context = session.build_context(only={"q1", "c1", "r1", "a1", "q3", "unknown"}, recall=False)
    assert [message.id for message in context.messages] == ["q1", "c1", "r1", "a1", "q3"]
    assert [message.id for message in session.build_context(recall=False).messages] == [d.id for d in TALK]


@given(st.sets(st.sampled_from([draft.id for draft in TALK])))
def test_a_result_is_never_shown_without_its_call(only: set[str]) -> None:
    with MemoryEngine(clock=FrozenClock(), ids=seeded_ids(), embedder=None) as engine:
        session = engine.session("a", "s")
        session.add_many(TALK)
        shown = {message.id for message in session.build_context(only=only, recall=False).messages}
    assert shown == only - ({"r1"} if "c1" not in only else set())


def test_the_current_summary_stays(session: Session) -> None:
    session.compress(older_than="q2", summary="They spoke of boats.")
    shown = session.build_context(only={"q3"}, recall=False).messages
    assert [message.is_summary for message in shown] == [True, False]
    assert shown[1].id == "q3"


def test_a_custom_budget_compacts_on_request(session: Session) -> None:
    session.add_many(
        MessageDraft(
            "user", f"Message {n} says that the gate {n} is at https://gate.example/{n} by the lake."
        )
        for n in range(200)
    )
    small = TokenBudget.of(1000)
    session.build_context(budget=small)
    assert not any(message.is_summary for message in session.view())
    context = session.build_context(budget=small, tidy=True)
    assert session.view()[0].is_summary
    assert context.messages[0].is_summary
    assert context.token_count <= 1000


def test_the_budget_of_the_engine_does_not_force_compaction() -> None:
    config = EngineConfig(budget=TokenBudget.of(1000))
    with MemoryEngine(config=config, clock=FrozenClock(), ids=seeded_ids(), embedder=None) as engine:
        session = engine.session("a", "s")
        session.add_many(
            MessageDraft("user", f"Some words number {n}, and then some more.") for n in range(300)
        )
        assert session.build_context(tidy=False).token_count <= 1000
        assert not any(message.is_summary for message in session.view())


def test_a_session_finds_its_known_ids(session: Session) -> None:
    assert session.find_known_ids(["q1", "no", "a2"]) == {"q1", "a2"}
    with pytest.raises(InvalidNameError):
        session.find_known_ids([""])
