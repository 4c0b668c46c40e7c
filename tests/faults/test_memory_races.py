"""Races and kills while memories are stored: the memory stays consistent, and nothing is stored twice."""

from __future__ import annotations

import itertools
import random
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine
from langmem_tiers.common.entries import Tier
from langmem_tiers.facts.models import FactState
from langmem_tiers.long_term.models import EntryDraft, EntryFilters, Outcome, RelationKind
from langmem_tiers.long_term.records import Access, MemoryWrite
from langmem_tiers.testing.threads import run_in_threads
from tests.faults.disk_backends import QUICKLY_ON_SQLITE
from tests.faults.killable_child import pause, start
from tests.faults.memory_writers import SAME, remember_until_killed, store_the_same
from tests.faults.parallel_children import run_at_once
from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    import multiprocessing
    from datetime import datetime
    from pathlib import Path

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.models import Receipt
    from langmem_tiers.long_term.records import StoredEntry

pytestmark = pytest.mark.fault

WRITERS = 4
ALL = EntryFilters(archived=True)


@pytest.fixture(scope="module")
def context() -> multiprocessing.context.ForkServerContext:
    return fork_server()


@QUICKLY_ON_SQLITE
def test_4_threads_that_store_the_same_make_one_entry(engine: MemoryEngine, tenant: str) -> None:
    receipts: list[Receipt] = []
    start = threading.Barrier(WRITERS, timeout=LIMIT_SECONDS)

    def store() -> None:
        memory = engine.namespace(tenant).long_term
        for text in SAME:
            start.wait()
            receipts.append(memory.store(text))

    run_in_threads(WRITERS, store)
    outcomes = Counter(receipt.outcome for receipt in receipts)
    assert outcomes == {Outcome.STORED: len(SAME), Outcome.DUPLICATE: len(SAME) * (WRITERS - 1)}
    stored = {receipt.entry.id for receipt in receipts if receipt.entry is not None and receipt.is_stored}
    assert {receipt.duplicate_of for receipt in receipts if receipt.outcome is Outcome.DUPLICATE} == stored
    assert sorted(entry.content for entry in engine.namespace(tenant).long_term.entries()) == sorted(SAME)


@QUICKLY_ON_SQLITE
def test_4_processes_that_store_the_same_make_one_entry(
    context: multiprocessing.context.ForkServerContext, url: str, tenant: str
) -> None:
    MemoryEngine(url).close()
    new = run_at_once(context, store_the_same, [(url, tenant)] * WRITERS)
    assert sorted(itertools.chain(*new)) == sorted(SAME)
    with MemoryEngine(url) as engine:
        found = engine.namespace(tenant).long_term.entries()
        assert sorted(entry.content for entry in found) == sorted(SAME)


@QUICKLY_ON_SQLITE
def test_only_one_of_several_concurrent_contradicting_entries_is_valid(url: str, tenant: str) -> None:
    numbers, start = itertools.count(), threading.Barrier(WRITERS, timeout=LIMIT_SECONDS)

    def store() -> None:
        with MemoryEngine(url) as engine:
            memory = engine.namespace(tenant).long_term
            start.wait()
            for _ in range(3):
                memory.store(f"The code of the house is {next(numbers)}.")

    run_in_threads(WRITERS, store)
    with MemoryEngine(url) as engine:
        entries = check(engine, tenant)
        assert len(entries) == 3 * WRITERS
        assert len([stored_entry for stored_entry in entries if stored_entry.entry.valid_until is None]) == 1


@QUICKLY_ON_SQLITE
def test_concurrent_learners_of_one_session_read_each_message_once(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
        for number in range(45):
            session.add("user", f"We decided to use plan {number} for house {number}.")
    start, told = threading.Barrier(WRITERS, timeout=LIMIT_SECONDS), list[int]()

    def learn() -> None:
        with MemoryEngine(url) as engine:
            session = engine.session(tenant, "s")
            start.wait()
            told.append(session.learn(whole=True).messages)

    run_in_threads(WRITERS, learn)
    assert sum(told) == 45
    with MemoryEngine(url) as engine:
        facts = list(engine.namespace(tenant).facts)
        assert len({fact.source_message_id for fact in facts}) == 45
        assert set(Counter((fact.source_message_id, fact.content) for fact in facts).values()) == {1}
        assert FactState.PENDING not in {fact.state for fact in facts}
        entries = check(engine, tenant)
        assert {fact.entry_id for fact in facts if fact.promoted} == {
            stored_entry.entry.id for stored_entry in entries
        }
        moments = Counter((episode.first_turn, episode.kind) for episode in engine.namespace(tenant).episodes)
        assert set(moments.values()) == {1}
        turns = [
            turn
            for chunk in engine.session(tenant, "s").chunks()
            for turn in range(chunk.first_turn, chunk.last_turn + 1)
        ]
        assert turns == list(range(1, 46))


@QUICKLY_ON_SQLITE
def test_a_store_whose_conflicting_entry_was_erased_is_retried(
    engine: MemoryEngine, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, store = engine.namespace(tenant).long_term, engine.services.long_term.store
    old = memory.store("Alice lives in Berlin.").entry
    assert old is not None
    commit = store.commit

    def erase_first(namespace: NamespacePath, write: MemoryWrite, now: datetime) -> bool:
        store.delete(namespace, [old.id])
        return commit(namespace, write, now)

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", erase_first)
        receipt = memory.store("Alice lives in Paris.")
    assert receipt.outcome is Outcome.STORED
    assert [entry.content for entry in memory.entries()] == ["Alice lives in Paris."]


@QUICKLY_ON_SQLITE
def test_counting_accesses_and_changing_entries_do_not_deadlock(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        namespace, store, now = (tenant,), engine.services.long_term.store, engine.services.now()
        drafts = [EntryDraft(content=f"walrus {number}") for number in range(100)]
        stored = engine.namespace(tenant).long_term.store_many(drafts, compared=True)
        names = [receipt.entry.id for receipt in stored if receipt.entry is not None]
        keys = [stored_entry.key for stored_entry in store.get(namespace, names).values()]
        chance, turn = random.Random(2025), itertools.count()
        works = (
            lambda: store.touch(namespace, {key: Access(1, now) for key in keys}),
            lambda: store.commit(
                namespace,
                MemoryWrite(close={name: now + timedelta(days=1) for name in chance.sample(names, 50)}),
                now,
            ),
            lambda: store.archive(namespace, chance.sample(keys, 50), now),
        )

        def work() -> None:
            own = works[next(turn)]
            for _ in range(12):
                own()

        run_in_threads(len(works), work)
        assert {stored_entry.entry.access_count for stored_entry in store.get(namespace, names).values()} == {
            12
        }


@pytest.mark.parametrize(
    ("backend", "kills"),
    [pytest.param("sqlite-file", 3, marks=pytest.mark.smoke), ("sqlite-file", 8), ("postgresql", 8)],
)
def test_a_kill_leaves_a_consistent_memory(url: str, kills: int, tenant: str, tmp_path: Path) -> None:
    MemoryEngine(url).close()
    chance, acknowledged = random.Random(2025), list[str]()
    for kill in range(kills):
        notes = tmp_path / f"notes-{kill}"
        child = start(remember_until_killed, (url, tenant, f"k{kill}", str(notes)), notes)
        child.wait_for(chance.randint(1, 12))
        pause(chance)
        child.kill()
        acknowledged += child.list_acknowledged()
    assert len(acknowledged) >= kills
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(tmp_path / "memory.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
        session.learn()  # from the messages that the last child left
        entries = {stored_entry.entry.id for stored_entry in check(engine, tenant)}
        facts = {fact.id: fact for fact in engine.namespace(tenant).facts}
        kept = entries | facts.keys()
        assert {line.split(" ", 1)[1] for line in acknowledged} <= kept
        assert {fact.state for fact in facts.values()} <= {FactState.PROMOTED, FactState.VALIDATED}
        assert {fact.entry_id for fact in facts.values() if fact.promoted} <= entries
        sources = Counter((fact.source_message_id, fact.content) for fact in facts.values())
        assert set(sources.values()) == {1}  # no message was read twice
        assert {message.id for message in session.messages()} == {source for source, _ in sources}
        assert engine.namespace(tenant).long_term.store("Alice lives in Berlin.").outcome is Outcome.STORED


def check(engine: MemoryEngine, tenant: str) -> tuple[StoredEntry, ...]:
    """That an entry ceases to hold exactly if another supersedes it, from then on; all that there are."""
    store, namespace = engine.services.long_term.store, (tenant,)
    entries = store.list_entries(namespace, Tier.LONG_TERM, ALL, limit=10_000)
    by_id = {stored_entry.entry.id: stored_entry.entry for stored_entry in entries}
    relations = store.list_relations(namespace, list(by_id))
    superseded = {
        relation.target: relation.source for relation in relations if relation.kind == RelationKind.SUPERSEDES
    }
    closed = {name for name, entry in by_id.items() if entry.valid_until is not None}
    assert closed == set(superseded)
    for old, new in superseded.items():
        assert by_id[old].valid_until == by_id[new].valid_from
    found = engine.namespace(tenant).long_term.search("code", limit=5)
    assert {entry.id for entry in found} <= set(by_id)
    return entries
