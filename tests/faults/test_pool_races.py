"""Races and kills while pools are used: a pool stays consistent, and nothing is in it twice."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import EntryNotFoundError, MemoryEngine, NotAllowedError, PoolNotFoundError
from langmem_tiers.common.entries import Tier
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.testing.threads import run_in_threads
from tests.faults.disk_backends import QUICKLY_ON_SQLITE
from tests.faults.killable_child import pause, start
from tests.faults.parallel_children import run_at_once
from tests.faults.pool_writers import SAME, contribute_the_same, share_until_killed
from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    import multiprocessing
    from collections.abc import Callable
    from pathlib import Path

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.records import StoredEntry

pytestmark = pytest.mark.fault

WRITERS, KILLS = 3, 4
ALL = EntryFilters(archived=True)


@pytest.fixture(scope="module")
def context() -> multiprocessing.context.ForkServerContext:
    return fork_server()


def list_stored(engine: MemoryEngine, namespace: NamespacePath) -> dict[str, StoredEntry]:
    page = engine.services.long_term.store.list_entries(namespace, Tier.LONG_TERM, ALL, limit=10_000)
    return {stored_entry.entry.id: stored_entry for stored_entry in page}


@pytest.mark.parametrize(
    ("backend", "one_writer"),
    [pytest.param("sqlite-file", False, marks=pytest.mark.smoke), ("postgresql", True)],
)
def test_processes_that_contribute_the_same_make_one_entry(
    context: multiprocessing.context.ForkServerContext, url: str, tenant: str, *, one_writer: bool
) -> None:
    writers = [(tenant, "writer" if one_writer else f"writer{number}") for number in range(WRITERS)]
    reader = (tenant, "reader")
    with MemoryEngine(url) as engine:
        pool = engine.pools.create(tenant, members=[reader, *writers])
    new = run_at_once(context, contribute_the_same, [(url, tenant, who) for who in writers])
    assert sorted(itertools.chain(*new)) == sorted(SAME)
    with MemoryEngine(url) as engine:
        pool = engine.pools.get(tenant)
        pool.sync_to(reader)
        hits = pool.query(reader, " ".join(SAME))
        assert sorted(hit.entry.content for hit in hits) == sorted(SAME)
        for hit in hits:
            assert sorted(contributor.namespace for contributor in hit.contributors) == sorted(set(writers))
        copies = engine.namespace(reader).long_term.entries()
        assert sorted(entry.content for entry in copies) == sorted(SAME)


@QUICKLY_ON_SQLITE
def test_a_kill_leaves_a_consistent_pool(url: str, tenant: str, tmp_path: Path) -> None:
    writer, reader = (tenant, "writer"), (tenant, "reader")
    with MemoryEngine(url, embedder=None) as engine:
        engine.pools.create(tenant, members=[writer, reader])
    chance, acknowledged = random.Random(2025), list[str]()
    for kill in range(KILLS):
        notes = tmp_path / f"notes-{kill}"
        child = start(share_until_killed, (url, tenant, writer, f"k{kill}", str(notes)), notes)
        child.wait_for(chance.randint(1, 8))
        pause(chance)
        child.kill()
        acknowledged += child.list_acknowledged()
    assert len(acknowledged) >= KILLS
    with MemoryEngine(url, embedder=None) as engine:
        pool = engine.pools.get(tenant)
        pool.sync_to(reader)
        inside = list_stored(engine, ("", "pools", pool.id))
        assert set(acknowledged) <= set(inside)
        assert set(engine.services.pools.get_origins(("", "pools", pool.id), list(inside))) == set(inside)
        copies = list_stored(engine, reader)
        assert set(engine.services.pools.get_origins(reader, list(copies))) == set(copies)
        assert set(Counter(stored_entry.entry.content for stored_entry in copies.values()).values()) == {1}
        in_force = {hit.entry.content for hit in pool.query(reader, "code", limit=99)}
        assert len(in_force) == KILLS
        assert {entry.content for entry in engine.namespace(reader).long_term.entries()} == in_force
        engine.namespace(writer).delete()
        assert (list_stored(engine, ("", "pools", pool.id)), list_stored(engine, reader)) == ({}, {})


@QUICKLY_ON_SQLITE
def test_a_namespace_erased_during_concurrent_pool_use_leaves_no_data(url: str, tenant: str) -> None:
    erased, others = (tenant, "erased"), [(tenant, f"n{number}") for number in range(2)]
    with MemoryEngine(url, embedder=None) as engine:
        members = [(tenant, "owner"), erased, *others]
        pools = [engine.pools.create(f"{tenant} {number}", members=members) for number in range(2)]
        entry = engine.namespace(erased).long_term.store("The walrus is called Wanda.").entry
        assert entry is not None
        enough, turn = threading.Event(), itertools.count()

        def give() -> None:
            for number, pool in enumerate(itertools.cycle(pools)):
                try:
                    pool.contribute(erased, f"secret{number} word{number}")
                    pool.contribute_entry(erased, entry.id)
                except (NotAllowedError, EntryNotFoundError):
                    return
                if number == 8:
                    enough.set()

        def take() -> None:
            who = others[next(turn) % 2]
            for pool in itertools.islice(itertools.cycle(reversed(pools)), 20):
                pool.sync_to(who)

        def erase() -> None:
            assert enough.wait(LIMIT_SECONDS)
            engine.namespace(erased).delete()

        at_once(give, take, take, erase)
        left = [list_stored(engine, who) for who in (*others, *(("", "pools", pool.id) for pool in pools))]
        assert left == [{}] * 4


@QUICKLY_ON_SQLITE
def test_using_a_concurrently_deleted_pool_raises_pool_not_found(url: str, tenant: str) -> None:
    who = (tenant, "a")
    with MemoryEngine(url, embedder=None) as engine:
        pool = engine.pools.create(tenant, members=[who])
        enough = threading.Event()

        def give() -> None:
            for number in itertools.count():
                try:
                    pool.contribute(who, f"word{number} {threading.get_ident()}")
                except PoolNotFoundError:
                    return
                if number == 3:
                    enough.set()

        def delete() -> None:
            assert enough.wait(LIMIT_SECONDS)
            pool.delete(by=who)

        at_once(give, give, delete)
        assert list_stored(engine, ("", "pools", pool.id)) == {}
        # The namespace that a late contribution could have made again is not there either.
        assert engine.services.long_term.store.get_revision(("", "pools", pool.id)) == 0


def at_once(*works: Callable[[], None]) -> None:
    left = iter(works)

    def work() -> None:
        own = next(left)
        own()

    run_in_threads(len(works), work)
