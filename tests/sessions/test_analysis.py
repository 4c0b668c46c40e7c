"""The analyzer's plans, and what applying them does, on every database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import (
    InvalidInputError,
    MemoryEngine,
    MessageDraft,
    MessageNotFoundError,
    MessageToolCall,
    PlanOutdatedError,
    Scoring,
    Session,
    Tier,
)
from langmem_tiers.common import EntryState
from langmem_tiers.recall import Scorer, Signal
from langmem_tiers.sessions import RELEVANCE_SIGNALS, PlanActionKind
from langmem_tiers.testing import FrozenClock, seeded_ids

if TYPE_CHECKING:
    from pathlib import Path

KEY_FACT = "The login form is at https://example.com/login and its selector is #email."
LONG_CHAT = "Sure, " + "that sounds like a pleasant way to spend the whole afternoon together. " * 6


@pytest.fixture
def session(engine: MemoryEngine, tenant: str) -> Session:
    return engine.session(tenant, "s")


def states(session: Session) -> dict[str, str]:
    return {entry.id: f"{entry.tier}/{entry.state}" for entry in session.entries()}


def kinds(session: Session) -> dict[str, PlanActionKind]:
    return {action.message_id: action.kind for action in session.analyze().actions}


def add(session: Session, content: str, role: str = "user", name: str | None = None) -> str:
    return session.add(MessageDraft(role, content, id=name)).message.id


def test_a_plan_changes_nothing_until_it_is_applied(session: Session) -> None:
    add(session, "ok", name="low")
    before = session.entries()
    session.analyze()
    assert session.entries() == before
    session.apply(session.analyze())
    assert session.entries() != before


def test_low_relevance_is_compressed_first_and_dropped_the_next_time(session: Session) -> None:
    add(session, "ok", name="low")
    assert kinds(session) == {"low": PlanActionKind.COMPRESS}
    session.apply(session.analyze())
    assert states(session) == {"low": "short_term/compressed"}
    assert kinds(session) == {"low": PlanActionKind.DROP}
    session.apply(session.analyze())
    assert states(session) == {"low": "short_term/archived"}
    assert kinds(session) == {}


def test_relevance_of_exactly_the_minimum_is_kept(session: Session, clock: FrozenClock) -> None:
    add(session, "x" * 19)  # 0.5 + 0.2 recent - 0.2 short
    clock.advance(hours=2)  # + 0.1 in place of + 0.2
    assert kinds(session) == {}
    clock.advance(days=1)  # 0.5 - 0.1 - 0.2 = 0.2
    assert set(kinds(session).values()) == {PlanActionKind.COMPRESS}


def test_a_recent_entry_with_key_facts_is_promoted_with_a_relevance_of_one(session: Session) -> None:
    name = add(session, KEY_FACT)
    report = session.apply(session.analyze())
    assert (report.promoted, report.compressed, report.dropped) == (1, 0, 0)
    (entry,) = session.entries()
    assert (entry.id, entry.tier, entry.relevance) == (name, Tier.LONG_TERM, 1.0)
    assert entry.reason == "key facts: url, selector"
    assert kinds(session) == {}


def test_high_relevance_without_key_facts_is_not_promoted(session: Session) -> None:
    add(session, "This is important and critical to all of us here.")  # 0.85
    assert session.entries()[0].relevance >= 0.8
    assert kinds(session) == {}


def test_key_facts_of_low_relevance_are_not_promoted(session: Session, clock: FrozenClock) -> None:
    add(session, KEY_FACT)
    clock.advance(days=2)  # 0.5 - 0.1 + 0.1 + 0.1
    assert kinds(session) == {}


def test_promoted_messages_never_lose_relevance_with_age(session: Session, clock: FrozenClock) -> None:
    add(session, KEY_FACT)
    session.apply(session.analyze())
    clock.advance(days=400)
    assert kinds(session) == {}
    assert session.entries()[0].relevance == 1.0


def test_the_older_of_two_duplicates_is_compressed(session: Session) -> None:
    text = "We walked along the shore for a long time and talked about boats and birds and rain."
    older, newer = add(session, text), add(session, text.upper())
    plan = session.analyze()
    assert [(action.message_id, action.kind) for action in plan.actions] == [(older, PlanActionKind.COMPRESS)]
    assert plan.actions[0].reason == f"duplicate of {newer}"


def test_every_action_has_a_score_and_a_reason(session: Session) -> None:
    add(session, "ok")
    (action,) = session.analyze().actions
    assert dict(action.score.parts) == {"recency": 0.2, "short": -0.2, "small talk": -0.3}
    assert action.reason == "relevance 0.20 is below 0.30"
    assert str(action.score) == "0.20 = 0.50 +0.20 recency -0.20 short -0.30 small talk"


def test_expand_always_returns_the_original(session: Session, clock: FrozenClock) -> None:
    name = add(session, LONG_CHAT)
    original = session.get(name)
    clock.advance(days=2)
    for _ in range(2):
        session.apply(session.analyze())
        assert session.expand(name) == original
        assert session.expand(session.entries()[0]) == original
    assert session.entries()[0].state is EntryState.ARCHIVED
    assert session.get(name) == original
    assert [m.content for m in session.messages()] == [LONG_CHAT]


def test_a_compressed_entry_shows_fewer_words(session: Session, clock: FrozenClock) -> None:
    add(session, LONG_CHAT)
    clock.advance(days=2)
    plan = session.analyze()
    report = session.apply(plan)
    (entry,) = session.entries()
    assert entry.state is EntryState.COMPRESSED
    assert len(entry.content) < len(LONG_CHAT)
    assert entry.token_count < session.get(entry.id).token_count
    assert report.tokens_before == plan.tokens_before


def test_restore_undoes_compress_drop_and_promote(session: Session, clock: FrozenClock) -> None:
    names = [add(session, "ok"), add(session, KEY_FACT)]
    before = states(session)
    session.apply(session.analyze())
    session.apply(session.analyze())
    assert set(states(session).values()) == {"short_term/archived", "long_term/full"}
    for name in names:
        session.restore(name)
    assert states(session) == before
    clock.advance(days=2)
    assert kinds(session) == {}  # and analysis leaves them alone


def test_dropped_messages_are_still_found_by_search(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    add(session, "ok walrus")
    session.apply(session.analyze())
    session.apply(session.analyze())
    assert session.entries()[0].state is EntryState.ARCHIVED
    assert len(engine.namespace(tenant).search("walrus")) == 1


def test_a_tool_call_and_its_results_are_dropped_together_or_not_at_all(
    session: Session, clock: FrozenClock
) -> None:
    session.add_many(
        [
            MessageDraft("assistant", "ok", id="call", tool_calls=[MessageToolCall("c", "t")]),
            MessageDraft("tool", "It is twelve degrees in Malmö today.", id="result", tool_call_id="c"),
        ]
    )
    clock.advance(days=2)
    for _ in range(3):
        session.apply(session.analyze())
    assert states(session)["call"] == "short_term/compressed"
    assert states(session)["result"] == "short_term/full"


def test_a_plan_made_before_a_compression_is_refused(session: Session) -> None:
    names = [add(session, text) for text in ("ok", "something to say here", "the last word of all")]
    plan = session.analyze()
    session.compress(names[1], "one message")
    before = session.entries()
    with pytest.raises(PlanOutdatedError, match="analyze"):
        session.apply(plan)
    assert session.entries() == before


def test_messages_added_after_the_plan_do_not_matter(session: Session) -> None:
    name = add(session, "ok")
    plan = session.analyze()
    add(session, "another one came in between")
    session.apply(plan)
    assert states(session)[name] == "short_term/compressed"


def test_the_plan_of_another_session_is_refused(engine: MemoryEngine, tenant: str) -> None:
    one, other = engine.session(tenant, "one"), engine.session(tenant, "other")
    add(one, "ok")
    with pytest.raises(InvalidInputError, match="plan does not belong to"):
        other.apply(one.analyze())
    with pytest.raises(InvalidInputError, match="plan does not belong to"):
        one.apply(None)  # type: ignore[arg-type]


def test_a_plan_is_applied_once(session: Session) -> None:
    add(session, "ok")
    plan = session.analyze()
    session.apply(plan)
    after = session.entries()
    with pytest.raises(PlanOutdatedError):
        session.apply(plan)
    assert session.entries() == after


@pytest.mark.parametrize("verb", ["promote", "restore"])
def test_a_plan_does_not_undo_later_manual_changes(session: Session, verb: str) -> None:
    name = add(session, "ok")
    plan = session.analyze()
    getattr(session, verb)(name)
    before = session.entries()
    with pytest.raises(PlanOutdatedError, match="changed after the plan was made"):
        session.apply(plan)
    assert session.entries() == before


def test_a_plan_is_applied_completely_or_not_at_all(session: Session) -> None:
    add(session, "ok")
    plan = session.analyze()
    stray = {**plan.overrides, 10**12: next(iter(plan.overrides.values()))}
    with pytest.raises(MessageNotFoundError):
        session.apply(replace(plan, overrides=stray))
    assert set(states(session).values()) == {"short_term/full"}


def test_an_unknown_entry_is_named_in_the_error(session: Session) -> None:
    for verb in (session.expand, session.restore, session.promote):
        with pytest.raises(MessageNotFoundError, match="'nowhere'"):
            verb("nowhere")


def test_promoting_manually_restores_an_archived_entry(session: Session) -> None:
    name = add(session, "ok")
    session.apply(session.analyze())
    session.apply(session.analyze())
    session.promote(name)
    assert states(session) == {name: "long_term/full"}


def test_the_summary_of_a_session_is_never_changed_by_a_plan(session: Session, clock: FrozenClock) -> None:
    names = [add(session, text) for text in ("a remark about boats", "another one", "ok")]
    session.compress(names[2], "ok")
    clock.advance(days=3)
    plan = session.analyze()
    assert [action.message_id for action in plan.actions] == [names[2]]
    session.apply(plan)
    assert session.entries()[0].content == "[CONTEXT SUMMARY]\nok"


def test_signals_and_key_facts_of_your_own_decide(tmp_path: Path) -> None:
    shouting = Signal("shouting", lambda subject: 0.6 if subject.content.isupper() else 0.0)
    scoring = Scoring(
        relevance=Scorer((*RELEVANCE_SIGNALS, shouting)),
        key_facts=lambda text: ["shout"] if text.isupper() else [],
    )
    with MemoryEngine(scoring=scoring, clock=FrozenClock(), ids=seeded_ids()) as engine:
        session = engine.session("a", "s")
        session.add("user", "OK")
        (action,) = session.analyze().actions
        assert action.kind is PlanActionKind.PROMOTE
        assert dict(action.score.parts)["shouting"] == 0.6
        assert action.reason == "key facts: shout"


def test_entries_have_the_importance_of_their_content(session: Session) -> None:
    add(session, "My name is Ada and I prefer tea over coffee.")
    add(session, "It rains again in the whole of the country.")
    important, other = session.entries()
    assert (important.importance, other.importance) == (1.0, 0.7)
