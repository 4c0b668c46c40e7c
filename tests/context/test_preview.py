"""Lookups of the inspector, on every database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import (
    AgentAction,
    AgentMemory,
    EntryNotFoundError,
    InvalidInputError,
    MemoryEngine,
    MessageDraft,
    NotFoundError,
    TokenBudget,
)
from langmem_tiers.context import preview
from langmem_tiers.maintenance import statistics
from langmem_tiers.tasks import history

if TYPE_CHECKING:
    from langmem_tiers.testing import FrozenClock


def test_holdings_count_only_the_own_namespace(engine: MemoryEngine, tenant: str) -> None:
    with pytest.raises(NotFoundError):
        engine.namespace(tenant).holdings()
    engine.session((tenant, "below"), "s").add("user", "Not counted above.")
    for name in ("one", "two"):
        engine.session(tenant, name).add("user", f"My train of {name} leaves at 9:40.")
    space = engine.namespace(tenant)
    space.knowledge.store("domain", "train", "9:40")
    space.long_term.store("Alice likes tea.")
    holdings = space.holdings()
    assert (holdings.sessions, holdings.messages, holdings.knowledge, holdings.growth_is_whole) == (
        2,
        2,
        1,
        True,
    )
    assert holdings.tiers["short_term"].entries == 2
    assert holdings.tiers["long_term"].entries == 1
    (today,) = holdings.growth
    assert (today.messages, today.tokens) == (2, holdings.tokens)


def test_a_memory_is_found_by_its_id(engine: MemoryEngine, tenant: str) -> None:
    said = engine.session(tenant, "one").add("user", "My train leaves at 9:40.").message
    space = engine.namespace(tenant)
    stored = space.long_term.store("Alice likes tea.").entry
    known = space.knowledge.store("domain", "a/b", "c").knowledge
    assert stored is not None
    assert space.entry(said.id).message == space.entry(said.id, session="one").message == said
    assert space.entry(stored.id).entry.content == "Alice likes tea."
    assert space.entry(known.id).entry.content == "a/b: c"
    for other in (tenant + "x", (tenant, "below")):
        with pytest.raises(EntryNotFoundError):
            engine.namespace(other).entry(said.id)


def test_optimizer_runs_are_paged(engine: MemoryEngine, tenant: str) -> None:
    engine.session(tenant, "one").add("user", "Hello.")
    for _ in range(5):
        engine.optimizer.run(tenant)
    first = engine.optimizer.page(tenant, limit=3)
    rest = engine.optimizer.page(tenant, before=first.next_before, limit=3)
    assert first.snapshots + rest.snapshots == engine.optimizer.history(tenant)
    assert rest.next_before is None


def test_tasks_and_their_steps_are_paged(engine: MemoryEngine, tenant: str) -> None:
    engine.session(tenant, "a talk").add("user", "No task.")
    for name in ("first", "second"):
        with AgentMemory(engine=engine, namespace=tenant, task=name) as agent:
            for number in range(5):
                agent.record_cycle("I look", AgentAction("look", {"at": number}), "seen")
    space = engine.namespace(tenant)
    page = space.tasks(limit=1)
    rest = space.tasks(before=page.next_before, limit=9)
    assert [(task.task, task.cycles) for task in (*page.tasks, *rest.tasks)] == [("second", 5), ("first", 5)]
    assert rest.next_before is None
    assert space.tasks(limit=2) == replace(rest, tasks=(*page.tasks, *rest.tasks))
    steps = space.task_cycles("first", limit=3)
    assert steps.next_place is not None
    others = space.task_cycles("first", place=steps.next_place, limit=3)
    cycles = (*steps.cycles, *others.cycles)
    assert [(cycle.number, cycle.entry.action.parameters["at"]) for cycle in cycles] == [
        (n + 1, n) for n in range(5)
    ]
    with pytest.raises(NotFoundError):
        space.task_cycles("a talk")
    with pytest.raises(InvalidInputError):
        type(steps.next_place)("x", 10**9, 10**9)


def test_tasks_are_found_after_more_sessions_than_a_page_scans(
    engine: MemoryEngine, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_MAX_SCANNED_SESSIONS", 3)
    for name in ("first", "second"):
        with AgentMemory(engine=engine, namespace=tenant, task=name) as agent:
            agent.record_cycle("I look", AgentAction("look"), "seen")
        for number in range(4):
            engine.session(tenant, f"talk {number} after {name}").add("user", "No task.")
    space = engine.namespace(tenant)
    before: int | None = None
    pages: list[list[str]] = []
    while True:
        page = space.tasks(before=before, limit=5)
        pages.append([task.task for task in page.tasks])
        before = page.next_before
        if before is None:
            break
    # Twelve sessions, three on each page: a task has two.
    assert len(pages) == 4
    assert [name for names in pages for name in names] == ["second", "first"]


def test_a_task_has_its_start_and_last_update_time(
    engine: MemoryEngine, tenant: str, clock: FrozenClock
) -> None:
    began = clock.now()
    with AgentMemory(engine=engine, namespace=tenant, task="t") as agent:
        agent.record_cycle("I look", AgentAction("look"), "seen")
        clock.advance(hours=1)
        agent.record_cycle("I look again", AgentAction("look"), "seen")
    (task,) = engine.namespace(tenant).tasks().tasks
    assert (task.task, task.cycles, task.started_at, task.updated_at) == ("t", 2, began, clock.now())


@pytest.fixture
def few_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preview reads the newest 50 messages first, not 1,000."""
    monkeypatch.setattr(preview, "_MIN_MESSAGES", 50)


def boats(first: int, last: int) -> list[MessageDraft]:
    return [MessageDraft("user", f"Boat {n} has {n % 7} red sails.", id=f"m{n}") for n in range(first, last)]


@pytest.mark.usefixtures("few_looked_at")
def test_a_preview_reads_only_the_newest_messages_and_the_leading_system_messages(clock: FrozenClock) -> None:
    with MemoryEngine(embedder=None, clock=clock) as engine:
        session = engine.session("a", "s")
        session.add_many([MessageDraft("system", f"Rule {n}.", id=f"rule {n}") for n in range(2)])
        session.add_many(boats(0, 200))
        budget = TokenBudget.of(200)
        seen = session.preview(budget=budget, recall=False)
        whole = session.build_context(budget=budget, recall=False)
        assert seen.context.messages == whole.messages
        assert [message.id for message in whole.messages[:2]] == ["rule 0", "rule 1"]
        assert (seen.is_whole, seen.unseen) == (False, 150)
        shown = len(whole.messages) - 2
        assert [message.id for message in seen.dropped] == [f"m{n}" for n in range(199 - shown, 149, -1)]
        assert [f"{150 + len(seen.dropped)} " in warning for warning in seen.warnings] == [True]


@pytest.mark.usefixtures("few_looked_at")
def test_a_preview_starting_mid_session_does_not_treat_its_first_message_as_leading(
    clock: FrozenClock,
) -> None:
    with MemoryEngine(embedder=None, clock=clock) as engine:
        session = engine.session("a", "s")
        session.add("system", "You know boats.")
        session.add_many(boats(0, 150))
        session.add_many([MessageDraft("system", f"Boats, part {n}.", id=f"part {n}") for n in range(5)])
        session.add_many(boats(150, 197))  # so the newest 50 begin with parts 2, 3 and 4
        budget = TokenBudget.of(200)
        seen = session.preview(budget=budget, recall=False)
        assert seen.context.messages == session.build_context(budget=budget, recall=False).messages
        assert not [message for message in seen.context.messages if message.id.startswith("part")]
        assert seen.context.messages[0].content == "You know boats."


@pytest.mark.usefixtures("few_looked_at")
def test_a_preview_reads_more_while_older_messages_can_fit(clock: FrozenClock) -> None:
    with MemoryEngine(embedder=None, clock=clock) as engine:
        session = engine.session("a", "s")
        session.add_many([MessageDraft("user", "A long story about boats. " * 300) for _ in range(20)])
        session.add_many(boats(0, 200))  # more of them fit than of the usual messages
        budget = TokenBudget.of(1500)
        seen = session.preview(budget=budget, recall=False)
        assert seen.context.messages == session.build_context(budget=budget, recall=False).messages
        assert len(seen.context.messages) > 100


def test_a_preview_names_the_newest_200_messages_that_do_not_fit(clock: FrozenClock) -> None:
    with MemoryEngine(embedder=None, clock=clock) as engine:
        session = engine.session("a", "s")
        session.add_many(boats(0, 300))
        seen = session.preview(budget=TokenBudget.of(200), recall=False)
        shown = len(seen.context.messages)
        assert (seen.is_whole, seen.unseen, len(seen.context.dropped)) == (True, 0, 300 - shown)
        newest = 299 - shown
        assert [message.id for message in seen.dropped] == [f"m{n}" for n in range(newest, newest - 200, -1)]


@pytest.mark.parametrize(("newest", "days"), [(5, 3), (4, 2)])
def test_growth_omits_a_possibly_incomplete_oldest_day(
    engine: MemoryEngine,
    tenant: str,
    clock: FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
    newest: int,
    days: int,
) -> None:
    monkeypatch.setattr(statistics, "_MAX_GROWTH_MESSAGES", newest)
    for count in (1, 1, 2):
        clock.advance(days=1)
        for number in range(count):
            engine.session(tenant, "s").add("user", f"Message {number}.")
    holdings = engine.namespace(tenant).holdings()
    assert ([day.messages for day in holdings.growth], holdings.growth_is_whole) == (
        [1, 1, 2][-days:],
        days == 3,
    )
