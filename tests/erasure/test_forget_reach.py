"""The reach of forget(): all records of the target in every store, and no others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from langmem_tiers import (
    AgentAction,
    AgentMemory,
    ContextFiles,
    EngineConfig,
    MaintenanceConfig,
    MemoryEngine,
    MemorySystem,
    MessageDraft,
    PoolNotFoundError,
    Tier,
)
from langmem_tiers.common.leases import LeaseKind, build_lease_name
from langmem_tiers.common.namespaces import CONTEXT_FILES_LABEL
from langmem_tiers.long_term import EntryFilters
from langmem_tiers.storage.schema import leases
from tests.erasure_helpers import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langmem_tiers.testing import FrozenClock

NOW = datetime(2025, 3, 3, 9, tzinfo=UTC)


@pytest.fixture
def engine(url: str) -> Iterator[MemoryEngine]:
    with MemoryEngine(url, embedder=None) as opened:
        yield opened


def test_a_user_named_like_the_pool_namespace_erases_no_pool(engine: MemoryEngine, tenant: str) -> None:
    pool = engine.pools.create(tenant, members=[(tenant, "a"), (tenant, "b")])
    pool.contribute((tenant, "a"), "The lamp of the harbour is green.")
    for user in ("pools", pool.id):
        assert engine.forget(user=user, scrub=False).counts.total == 0
    assert len(pool.query((tenant, "b"), "lamp")) == 1
    assert len(pool.members()) == 2


def test_a_user_with_only_pool_contributions_is_forgotten(engine: MemoryEngine, tenant: str) -> None:
    giver, reader = (tenant, f"giver {tenant}"), (tenant, "reader")
    pool = engine.pools.create(tenant, members=[reader, giver])
    pool.contribute(giver, f"The code is {SECRET}.")
    pool.sync_to(reader)
    receipt = engine.forget(user=giver[1], scrub=False)
    assert receipt.elsewhere == {"pool contributions": 1, "pool copies": 1, "pool memberships": 1}
    assert pool.query(reader, "code") == ()
    assert [member.namespace for member in pool.members()] == [reader]
    assert not [entry for entry in engine.namespace(reader).long_term if SECRET in entry.content]


def test_a_user_who_left_a_pool_is_found_by_contributions(engine: MemoryEngine, tenant: str) -> None:
    giver, reader = (tenant, f"giver {tenant}"), (tenant, "reader")
    pool = engine.pools.create(tenant, members=[reader, giver])
    pool.contribute(giver, f"The code is {SECRET}.")
    pool.sync_to(reader)
    pool.remove(giver)
    pool.delete()
    assert engine.forget(user=giver[1], scrub=False).elsewhere == {"pool copies": 1}
    assert not list(engine.namespace(reader).long_term)


def test_the_oldest_member_owns_a_pool_whose_only_owner_is_forgotten(
    engine: MemoryEngine, tenant: str
) -> None:
    first, second, third = ((tenant, name) for name in ("z first", "m second", "a third"))
    pool = engine.pools.create(tenant, owner=first)
    pool.add(second, can_write=False)
    pool.add(third)
    engine.forget(namespace=first, scrub=False)
    assert {member.namespace: member.is_owner for member in pool.members()} == {second: True, third: False}
    pool.add((tenant, "fourth"), by=second)
    for left in (second, third, (tenant, "fourth")):
        engine.forget(namespace=left, scrub=False)
    with pytest.raises(PoolNotFoundError):
        engine.pools.get(pool.id)


@pytest.mark.parametrize("kind", LeaseKind)
def test_leases_of_a_namespace_are_deleted_with_it(
    engine: MemoryEngine, tenant: str, kind: LeaseKind
) -> None:
    engine.session(tenant, "s").add("user", "Hello.")
    assert engine.services.get_lease(build_lease_name(kind, (tenant,))).acquire()  # and the process is killed
    engine.forget(namespace=tenant, scrub=False)
    with engine._database.read() as connection:
        names = connection.execute(select(leases.c.name)).scalars().all()
    assert not [name for name in names if tenant in name]


@pytest.mark.parametrize("size", [8, 960, 961, 1000, 1024])
def test_archived_parts_of_a_session_with_a_long_name_are_forgotten_with_it(
    engine: MemoryEngine, tenant: str, size: int
) -> None:
    name = "x" * size
    for _ in range(2):
        engine.session(tenant, name).add("user", SECRET)
        engine.session(tenant, name).set_aside()
    other = engine.session(tenant, name[:-1] + "y")
    other.add("user", "Hello.")
    other.set_aside()
    receipt = engine.forget(namespace=tenant, session=name, scrub=False)
    assert receipt.counts.sessions == 2
    assert len(engine.namespace(tenant).sessions().sessions) == 1


def test_knowledge_learned_from_a_message_is_forgotten_with_its_session(
    engine: MemoryEngine, tenant: str
) -> None:
    ids = ["plain", "a/b%c", "nul \0", "lone \ud83d"]
    engine.session(tenant, "s").add_many(
        [MessageDraft("user", "Hello.", id=message_id) for message_id in ids]
    )
    engine.session(tenant, "t").add(MessageDraft("user", "Hello.", id="other"))
    knowledge = engine.namespace(tenant).knowledge
    for message_id in (*ids, "other"):
        knowledge.store("domain", f"by message {message_id}", SECRET, source=f"message {message_id}")
        knowledge.store("domain", f"by id {message_id}", SECRET, source=message_id)
    knowledge.store("domain", "by hand", "Kept.")
    receipt = engine.forget(namespace=tenant, session="s", scrub=False)
    assert receipt.counts.knowledge == 8
    assert {item.key for item in knowledge} == {"by message other", "by id other", "by hand"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", ["session s", "message m", "m"])
@pytest.mark.parametrize("what", ["session", "message"])
def test_a_replaced_value_is_forgotten_with_its_source(
    engine: MemoryEngine, tenant: str, source: str, what: str
) -> None:
    engine.session(tenant, "s").add(MessageDraft("user", "Hello.", id="m"))
    knowledge = engine.namespace(tenant).knowledge
    for value, whose in (
        ("Oslo", None),
        (f"{SECRET} \0", source),
        ("Paris", "session t"),
        ("Rome", "session t"),
    ):
        knowledge.store("domain", "city", value, source=whose)
    engine.forget(namespace=tenant, session="s", message="m" if what == "message" else None, scrub=False)
    is_meant = what == "session" or source != "session s"
    left = [(item.value, item.source) for item in knowledge.history("domain", "city")]
    assert left == [
        ("Oslo", None),
        *([] if is_meant else [(f"{SECRET} \0", source)]),
        ("Paris", "session t"),
    ]
    assert [item.value for item in knowledge] == ["Rome"]


@pytest.mark.parametrize("what", ["message", "session"])
def test_a_replaced_value_is_forgotten_in_pools_too(engine: MemoryEngine, tenant: str, what: str) -> None:
    giver, reader = (tenant, "giver"), (tenant, "reader")
    engine.session(giver, "s").add(MessageDraft("user", "Hello.", id="m"))
    knowledge = engine.namespace(giver).knowledge
    pool = engine.pools.create(tenant, members=[giver, reader])
    pool.contribute(giver, knowledge.store("domain", "code", SECRET, source="message m").knowledge)
    pool.contribute(giver, knowledge.store("domain", "lamp", "green").knowledge)
    pool.sync_to(reader)
    knowledge.store("domain", "code", "unknown", source="session t")
    receipt = engine.forget(
        namespace=giver, session="s", message="m" if what == "message" else None, scrub=False
    )
    assert receipt.elsewhere == {"pool contributions": 1, "pool copies": 1}
    assert [hit.entry.content for hit in pool.query(reader, "code lamp", limit=9)] == ["lamp: green"]
    assert SECRET not in str(engine.namespace(reader).long_term.search("code", limit=9))
    assert [item.value for item in knowledge] == ["unknown", "green"]


@pytest.mark.parametrize("what", ["namespace", "session"])
def test_imports_from_a_context_file_are_forgotten_with_their_session(
    engine: MemoryEngine, tenant: str, tmp_path: Path, what: str
) -> None:
    files = ContextFiles(tmp_path / "files")
    for name, text in (("u1", SECRET), ("u2", "tea")):
        context = files.load(name).with_message("user", f"We decided to use {text}.", at=NOW)
        files.save(context.with_fact(f"billing uses {text}").with_task("t", f"Move to {text}", at=NOW))
        files.to_engine(name, engine, tenant)
    receipt = engine.forget(namespace=tenant, session="u1" if what == "session" else None, scrub=False)
    assert receipt.counts.items == (1 if what == "session" else 2)
    left = str([item.item.value for item in engine.items.search((CONTEXT_FILES_LABEL, tenant), limit=9)])
    assert SECRET not in left
    assert ("tea" in left) == (what == "session")


@pytest.mark.parametrize("what", ["a fact", "a message"])
def test_imports_from_a_context_file_can_be_forgotten_individually(
    engine: MemoryEngine, tenant: str, tmp_path: Path, what: str
) -> None:
    files = ContextFiles(tmp_path / "files")
    said, known = f"We decided to use {SECRET}.", f"billing uses {SECRET}"
    context = files.load("u1").with_message("user", said if what == "a message" else "Tea?", at=NOW)
    context = context.with_message("assistant", "Good.", at=NOW).with_task("t", "Move to tea", at=NOW)
    context = replace(
        context, long_term_summary=f"Then {SECRET} came." if what == "a message" else "Then tea."
    )
    files.save(
        context.with_fact(known if what == "a fact" else "billing uses tea").with_fact("the lamp is green")
    )
    files.to_engine("u1", engine, tenant)
    session = engine.session(tenant, "u1")
    if what == "a fact":
        (entry,) = (item.id for item in engine.namespace(tenant).knowledge if SECRET in item.value)
        receipt = engine.forget(namespace=tenant, entry=entry)
    else:
        ids = [message.id for message in session.messages() if SECRET in message.content]
        receipt = [engine.forget(namespace=tenant, session="u1", message=message_id) for message_id in ids][
            -1
        ]
    assert receipt.is_complete
    (left,) = engine.items.search((CONTEXT_FILES_LABEL, tenant), limit=9)
    assert SECRET not in str(left.item.value)
    other = ContextFiles(tmp_path / "other")
    other.from_engine("u1", engine, tenant)
    back = other.load("u1")
    assert SECRET not in str(back)
    assert [task.description for task in back.active_tasks] == ["Move to tea"]
    assert "the lamp is green" in back.facts
    assert any(message.content == "Good." for message in back.recent_history)


@pytest.mark.parametrize("how", ["session", "namespace", "retention"])
def test_imports_from_a_context_file_never_outlive_their_session(
    url: str, clock: FrozenClock, tenant: str, tmp_path: Path, how: str
) -> None:
    config = EngineConfig(maintenance=MaintenanceConfig(retention_days=1))
    with MemoryEngine(url, embedder=None, clock=clock, config=config) as engine:
        files = ContextFiles(tmp_path / "files", clock=clock)
        context = files.load("u1").with_message("user", f"We use {SECRET}.", at=clock.now())
        files.save(context.with_task("t", f"Move to {SECRET}", at=clock.now()))
        files.to_engine("u1", engine, tenant)
        if how == "session":
            engine.session(tenant, "u1").delete()
        elif how == "namespace":
            engine.namespace(tenant).delete()
        else:
            clock.advance(days=3)
            engine.maintenance.run()
        assert engine.namespace(tenant).find_session("u1") is None
        assert engine.items.search((CONTEXT_FILES_LABEL, tenant), limit=9) == ()


@pytest.mark.parametrize("what", ["namespace", "session", "user"])
def test_project_files_do_not_contain_forgotten_text(tmp_path: Path, what: str) -> None:
    with MemorySystem(memory_dir=tmp_path, project_name="P") as memory:
        name = memory.start_conversation().id
        memory.add_message("user", f"We decided to use {SECRET}.")
        memory.end_conversation(f"settled on {SECRET}")
        memory.flush()
        assert SECRET in (tmp_path / "conversations.json").read_text()
        if what == "user":
            memory.engine.forget(user="P")
        else:
            memory.engine.forget(namespace="P", session=name if what == "session" else None)
        assert memory.conversations() == ()
        assert [path.name for path in tmp_path.iterdir() if SECRET.encode() in path.read_bytes()] == []


def play(
    engine: MemoryEngine, namespace: tuple[str, str], task: str, typed: str, times: int = 2
) -> list[str]:
    """A task that does the same a few times; the ids of its cycles."""
    with AgentMemory(engine=engine, task=task, namespace=namespace) as memory:
        memory.resume_or_start("Find the opening hours")
        for _ in range(times):
            memory.record_cycle("Type", AgentAction("fill", {"selector": f"#{task}", "text": typed}), "Typed")
            memory.record_cycle("Go", AgentAction("click", {"selector": f"#{task}-go"}), "Results")
            memory.record_cycle("Read", AgentAction("extract", {"selector": f"#{task}-hours"}), "Open 9-5")
        memory.learn_from_success()
    return [message.id for message in engine.session(namespace, task).messages()]


def procedures(engine: MemoryEngine, namespace: tuple[str, str]) -> str:
    kept = engine.services.long_term.store.list_entries(namespace, Tier.PROCEDURAL, EntryFilters(), limit=99)
    return str([entry.details for entry in kept])


def test_patterns_learned_from_a_task_are_forgotten_with_it(engine: MemoryEngine, tenant: str) -> None:
    where = (tenant, "agent")
    play(engine, where, "hours", SECRET)
    play(engine, where, "prices", "bread")
    assert SECRET in procedures(engine, where)
    receipt = engine.forget(namespace=where, session="hours", scrub=False)
    assert receipt.counts.patterns
    assert SECRET not in procedures(engine, where)
    assert "bread" in procedures(engine, where)


def test_patterns_confirmed_by_another_task_are_kept(engine: MemoryEngine, tenant: str) -> None:
    where = (tenant, "agent")
    for task, typed in (("hours", SECRET), ("prices", "bread")):
        with AgentMemory(engine=engine, task=task, namespace=where) as memory:
            memory.resume_or_start("Find something")
            for _ in range(2):
                memory.record_cycle(
                    "Type", AgentAction("fill", {"selector": "#query", "text": typed}), "Typed"
                )
                memory.record_cycle("Go", AgentAction("click", {"selector": f"#{task}-go"}), "Results")
                memory.record_cycle("Read", AgentAction("extract", {"selector": f"#{task}-list"}), "Open 9-5")
            memory.learn_from_success()
    engine.forget(namespace=where, session="hours", scrub=False)
    assert SECRET not in procedures(engine, where)
    assert "hours-go" not in procedures(engine, where)
    assert "bread" in procedures(engine, where)
    assert "#query" in procedures(engine, where)


def test_pattern_candidates_are_forgotten_with_their_cycle(engine: MemoryEngine, tenant: str) -> None:
    where = (tenant, "agent")
    typed, *_ = play(engine, where, "hours", SECRET, times=1)
    assert SECRET in procedures(engine, where)
    engine.forget(namespace=where, session="hours", message=typed, scrub=False)
    assert SECRET not in procedures(engine, where)


def test_retention_keeps_knowledge_of_erased_messages(clock: FrozenClock) -> None:
    with MemoryEngine(embedder=None, clock=clock) as engine:
        engine.session("acme", "s").add(MessageDraft("user", "Hello.", id="m"))
        knowledge = engine.namespace("acme").knowledge
        for value in ("Oslo", "Rome"):
            knowledge.store("domain", "city", value, source="message m")
        clock.advance(days=91)
        assert engine.maintenance.run().erased.messages == 1
        assert [item.value for item in knowledge.history("domain", "city")] == ["Oslo"]


def test_an_entry_compared_with_forgotten_memories_is_not_stored(engine: MemoryEngine, tenant: str) -> None:
    session, store = engine.session(tenant, "s"), engine.namespace(tenant).long_term._store
    session.add("user", "I prefer dark roast coffee.")
    session.learn()
    seen = store.get_revision((tenant,))
    receipt = engine.forget(namespace=tenant, session="s", scrub=False)
    assert receipt.counts.entries == 1
    assert store.get_revision((tenant,)) > seen
