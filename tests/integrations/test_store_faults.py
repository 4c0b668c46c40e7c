"""Stores in several processes and threads: writes are visible immediately and batches are atomic."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from langgraph.store.base import PutOp

from langmem_tiers import MemoryEngine
from langmem_tiers.testing.threads import run_in_threads
from langmem_tiers_langchain import TieredStore
from tests.contract.langgraph_store import INDEX
from tests.faults.killable_child import pause, start
from tests.fork_server import fork_server
from tests.integrations.store_writer import BATCH, put_one, write_until_killed
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.fault
@pytest.mark.parametrize(
    "backend", [pytest.param("sqlite-file", marks=pytest.mark.smoke), "postgresql"], indirect=True
)
def test_writes_of_another_process_are_found_by_the_next_search(url: str, tenant: str) -> None:
    context = fork_server()
    with TieredStore.from_conn_string(url, index=INDEX) as store:
        store.put((tenant,), "mine", {"text": "a boat"})

        def found_after(key: str, text: str | None) -> list[str]:
            child = context.Process(target=put_one, args=(url, tenant, key, text))
            child.start()
            child.join(LIMIT_SECONDS)
            assert child.exitcode == 0
            return [item.key for item in store.search((tenant,), query="boat on the lake")]

        assert [item.key for item in store.search((tenant,), query="boat on the lake")] == ["mine"]
        assert found_after("theirs", "boat on the lake") == ["theirs", "mine"]
        assert found_after("theirs", "tax forms") == ["mine", "theirs"]
        assert found_after("mine", None) == ["theirs"]
        assert found_after("theirs", None) == []
        assert store.list_namespaces(prefix=(tenant,)) == []


@pytest.mark.fault
@pytest.mark.parametrize(
    ("backend", "kills"),
    [pytest.param("sqlite-file", 4, marks=pytest.mark.smoke), ("sqlite-file", 12), ("postgresql", 12)],
    indirect=["backend"],
)
def test_a_kill_leaves_no_partial_batch_and_loses_no_acknowledged_one(
    url: str, kills: int, tenant: str, tmp_path: Path
) -> None:
    chance, acknowledged = random.Random(2025), list[str]()
    for kill in range(kills):
        notes = tmp_path / f"notes-{kill}"
        child = start(write_until_killed, (url, tenant, f"k{kill}", str(notes)), notes)
        child.wait_for(chance.randint(1, 6))
        pause(chance)
        child.kill()
        acknowledged += child.list_acknowledged()
    assert len(acknowledged) >= kills

    with TieredStore.from_conn_string(url, index=INDEX) as store:
        items = store.search((tenant,), limit=100_000)
        batches = Counter(item.value["of"] for item in items)
        assert set(batches.values()) == {BATCH}
        assert set(acknowledged) <= set(batches)
        last = acknowledged[-1]
        found = store.search((tenant,), query=f"batch {last}", limit=BATCH)
        assert {item.value["of"] for item in found} == {last}
    if url.startswith("sqlite"):
        connection = sqlite3.connect(tmp_path / "memory.db")
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["sqlite-memory", "sqlite-file", "postgresql"], indirect=True)
def test_concurrent_threads_in_the_same_namespaces_do_not_affect_each_other(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        store = TieredStore(engine, index=INDEX)
        numbers = iter(range(10**6))

        def work() -> None:
            chance = random.Random(next(numbers))
            for _ in range(12):
                spaces = [(tenant, str(chance.randrange(3))) for _ in range(4)]
                store.batch(
                    [
                        PutOp(space, str(chance.randrange(4)), chance.choice([None, {"text": "a boat"}]))
                        for space in spaces
                    ]
                )
                for item in store.search((tenant,), query="boat", limit=5):
                    assert item.value == {"text": "a boat"}

        run_in_threads(6, work)
        left = store.search((tenant,), limit=100)
        assert {(i.namespace, i.key) for i in store.search((tenant,), query="boat", limit=100)} == {
            (i.namespace, i.key) for i in left
        }
        assert store.list_namespaces(prefix=(tenant,)) == sorted({item.namespace for item in left})


@pytest.mark.parametrize("backend", ["sqlite-memory", "sqlite-file", "postgresql"], indirect=True)
def test_deleted_and_replaced_items_leave_no_rows(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        store = TieredStore(engine, index=INDEX)
        before = _count_rows(engine)
        for n in range(5):
            store.put((tenant, str(n)), "k", {"text": "a boat", "notes": ["one", "two"]})
            store.put((tenant, str(n)), "k", {"text": "another boat"})
        assert [after - count for after, count in zip(_count_rows(engine), before, strict=True)] == [
            5,
            5,
            5,
            5,
        ]
        store.batch([PutOp((tenant, str(n)), "k", None) for n in range(5)])
        assert _count_rows(engine) == before


def _count_rows(engine: MemoryEngine) -> list[int]:
    tables = ("lmt_item_namespaces", "lmt_items", "lmt_item_texts", "lmt_item_vectors")
    with engine._database.read() as connection:
        return [
            int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()) for table in tables
        ]
