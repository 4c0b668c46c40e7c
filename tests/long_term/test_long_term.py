"""Long-term memory through the public API, on every database."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    InvalidInputError,
    MemoryEngine,
    MessageDraft,
    MessageNotFoundError,
    Namespace,
    NotFoundError,
    PlanOutdatedError,
    Role,
    Session,
    Tier,
)
from langmem_tiers.common import EntryState
from langmem_tiers.sessions import PlanActionKind

if TYPE_CHECKING:
    from langmem_tiers.testing import FrozenClock


def add(session: Session, content: str) -> str:
    return session.add("user", content).message.id


def promoted(namespace: Namespace) -> list[str]:
    """The texts, newest first, which latest() and iteration agree on."""
    latest = namespace.long_term.latest()
    assert list(namespace.long_term) == list(latest)
    return [entry.content for entry in latest]


def test_messages_are_long_term_only_after_promotion(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    assert promoted(namespace) == []
    add(namespace.session("s"), "My cat is called Tom.")
    assert promoted(namespace) == []


def test_a_promoted_entry_has_its_content_and_source(
    engine: MemoryEngine, clock: FrozenClock, tenant: str
) -> None:
    namespace = engine.namespace(tenant, "alice")
    session = namespace.session("monday")
    message = session.add("user", "My cat is called Tom.").message
    clock.advance(hours=1)
    session.promote(message.id)
    (entry,) = namespace.long_term.latest()
    assert (entry.id, entry.content, entry.role) == (message.id, message.content, Role.USER)
    assert (entry.namespace, entry.session) == ((tenant, "alice"), "monday")
    assert (entry.tier, entry.state, entry.relevance) == (Tier.LONG_TERM, EntryState.FULL, 1.0)
    assert (entry.created_at, entry.token_count) == (message.created_at, message.token_count)
    assert entry.reason == "manually"


def test_promotion_is_visible_in_the_session_and_keeps_the_record(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    first, second = add(session, "My cat is called Tom."), add(session, "It rains.")
    record = list(session.messages())
    session.promote(first)
    assert [(entry.id, entry.tier) for entry in session.entries()] == [
        (first, Tier.LONG_TERM),
        (second, Tier.SHORT_TERM),
    ]
    assert session.entries()[0].relevance == 1.0
    assert list(session.messages()) == record


def test_entries_of_all_sessions_are_sorted_by_newest_message(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    monday, tuesday = namespace.session("monday"), namespace.session("tuesday")
    ids = [(session, add(session, f"fact {n}")) for n, session in enumerate([monday, tuesday] * 3)]
    for session, message_id in reversed(ids):
        session.promote(message_id)
    assert promoted(namespace) == [f"fact {n}" for n in (5, 4, 3, 2, 1, 0)]
    assert [entry.content for entry in namespace.long_term.latest(2)] == ["fact 5", "fact 4"]
    assert [entry.session for entry in namespace.long_term.latest(2)] == ["tuesday", "monday"]


@pytest.mark.soak
def test_iteration_continues_after_the_first_page(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    session = namespace.session("s")
    count = 1003  # it pages by 500
    session.add_many(
        MessageDraft("tool", f"critical error e{n}: x{n} failed, see https://a.b/{n} y{n} z{n}", id=f"m{n}")
        for n in range(count)
    )
    plan = session.analyze()
    assert plan.count(PlanActionKind.PROMOTE) == count
    session.apply(plan)
    assert [entry.id for entry in namespace.long_term] == [f"m{n}" for n in reversed(range(count))]
    assert len(namespace.long_term.latest(501)) == 501
    assert len(namespace.long_term.latest(9999)) == count
    assert len(namespace.long_term.latest()) == 100


def test_an_entry_is_promoted_once_for_repeated_calls(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    session = namespace.session("s")
    message_id = add(session, "My cat is called Tom.")
    for _ in range(3):
        session.promote(message_id)
    session.promote(session.entries()[0])
    assert promoted(namespace) == ["My cat is called Tom."]


def test_a_restored_entry_is_short_term_again(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    session = namespace.session("s")
    first, second = add(session, "My cat is called Tom."), add(session, "It rains.")
    session.promote(first)
    session.promote(second)
    assert session.restore(first) == session.get(first)
    assert promoted(namespace) == ["It rains."]
    assert session.entries()[0].tier is Tier.SHORT_TERM
    session.promote(first)
    assert promoted(namespace) == ["It rains.", "My cat is called Tom."]


def test_promoted_messages_stay_promoted_after_a_summary(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    session = namespace.session("s")
    first, second = add(session, "My cat is called Tom."), add(session, "It rains.")
    session.promote(first)
    session.compress(older_than=second, summary="About a cat.")
    assert promoted(namespace) == ["My cat is called Tom."]


def test_a_summarized_message_can_be_promoted_and_restored(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    session = namespace.session("s")
    first, second = add(session, "My cat is called Tom."), add(session, "It rains.")
    session.compress(older_than=second, summary="About a cat.")
    session.promote(first)
    assert promoted(namespace) == ["My cat is called Tom."]
    session.restore(first)
    assert promoted(namespace) == []


def test_tenants_do_not_see_each_others_entries(engine: MemoryEngine, tenant: str) -> None:
    names = ((tenant,), (tenant, "a"), (tenant, "A"), (tenant, "a%"), (tenant, "a", "b"), (tenant, "a/b"))
    for labels in names:
        session = engine.session(labels, "s")
        session.promote(add(session, repr(labels)))
    for labels in names:
        assert promoted(engine.namespace(*labels)) == [repr(labels)]
    assert promoted(engine.namespace(tenant, "nobody")) == []


def test_a_plan_of_one_session_promotes_nothing_for_another_tenant(engine: MemoryEngine, tenant: str) -> None:
    ours, theirs = engine.namespace(tenant, "ours"), engine.namespace(tenant, "theirs")
    session, other = ours.session("s"), theirs.session("s")
    session.add("tool", "critical error: login failed, see https://example.com/status")
    plan = session.analyze()
    assert plan.count(PlanActionKind.PROMOTE) == 1
    with suppress(InvalidInputError, NotFoundError, PlanOutdatedError):  # refusing it is best
        other.apply(plan)
    assert promoted(theirs) == []
    assert promoted(ours) == []


def test_entries_are_deleted_with_their_session(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    for name in ("monday", "tuesday"):
        session = namespace.session(name)
        session.promote(add(session, f"said on {name}"))
    namespace.session("monday").delete()
    assert promoted(namespace) == ["said on tuesday"]
    assert add(namespace.session("monday"), "anew")
    assert promoted(namespace) == ["said on tuesday"]


def test_entries_are_deleted_with_their_namespace(engine: MemoryEngine, tenant: str) -> None:
    for labels in ((tenant, "a"), (tenant, "a", "b")):
        session = engine.session(labels, "s")
        session.promote(add(session, repr(labels)))
    engine.namespace(tenant, "a").delete()
    assert promoted(engine.namespace(tenant, "a")) == []
    assert promoted(engine.namespace(tenant, "a", "b")) == [repr((tenant, "a", "b"))]


def test_unknown_messages_cannot_be_promoted_or_restored(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    session = namespace.session("s")
    elsewhere = add(namespace.session("other"), "said elsewhere")
    for use in (session.promote, session.restore, session.expand):
        for wrong in ("nowhere", elsewhere):
            with pytest.raises(MessageNotFoundError, match=repr(wrong)):
                use(wrong)
    assert promoted(namespace) == []


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, "3"])
def test_an_invalid_limit_is_refused(limit: Any, tenant: str) -> None:
    with MemoryEngine() as engine, pytest.raises(InvalidInputError, match=repr(limit)):
        engine.namespace(tenant).long_term.latest(limit)


def test_long_term_memory_names_its_tenant(tenant: str) -> None:
    with MemoryEngine() as engine:
        assert repr(engine.namespace(tenant, "a").long_term) == f"LongTerm('{tenant}/a')"
