"""Erasure reaches pools and the copies of their members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine
from langmem_tiers.pools.copy_deletion import lock_pools_of

if TYPE_CHECKING:
    from langmem_tiers.testing import FrozenClock


@pytest.mark.parametrize("what", ["namespace", "entry", "user"])
def test_forgotten_entries_are_erased_from_pools_and_synced_copies(url: str, tenant: str, what: str) -> None:
    giver, reader = (tenant, f"giver {tenant}"), (tenant, "reader")
    with MemoryEngine(url, embedder=None) as engine:
        pool = engine.pools.create(f"{tenant} {what}", members=[reader, giver])
        stored = engine.namespace(giver).long_term.store("The vault code is kept by Quorrax.").entry
        assert stored is not None
        pool.contribute_entry(giver, stored.id)
        assert len(pool.sync_to(reader).copied) == 1
        assert [hit.entry.content for hit in pool.query(reader, "vault code")] == [stored.content]
        if what == "entry":
            receipt = engine.forget(namespace=giver, entry=stored.id, scrub=False)
        elif what == "namespace":
            receipt = engine.forget(namespace=giver, scrub=False)
        else:
            receipt = engine.forget(user=giver[-1], scrub=False)
        assert receipt.elsewhere["pool contributions"] == 1
        assert receipt.elsewhere["pool copies"] == 1
        assert pool.query(reader, "vault code") == ()
        assert not [entry for entry in engine.namespace(reader).long_term if "Quorrax" in entry.content]
        pool.delete()


def test_an_erasure_locks_the_pools_with_contributions_of_a_former_member(url: str, tenant: str) -> None:
    giver, owner = (tenant, "giver"), (tenant, "owner")
    with MemoryEngine(url, embedder=None) as engine:
        for name in ("given to", "not given to"):
            pool = engine.pools.create(f"{tenant} {name}", members=[owner, giver])
            pool.contribute(owner, "Tea is served at five.")
            if name == "given to":
                pool.contribute(giver, "The vault code is kept by Quorrax.")
            pool.leave(giver)
        with engine._database.write() as connection:
            assert len(lock_pools_of(connection, giver)) == 1
            assert len(lock_pools_of(connection, owner)) == 2
            assert lock_pools_of(connection, (tenant, "stranger")) == []


def test_an_engine_with_a_cached_index_ranks_without_erased_copies(
    url: str, tenant: str, clock: FrozenClock
) -> None:
    giver, reader = (tenant, "giver"), (tenant, "reader")

    def opened() -> MemoryEngine:
        return MemoryEngine(url, embedder=None, clock=clock)

    def scores(engine: MemoryEngine) -> dict[str, float]:
        return {hit.entry.content: hit.score for hit in engine.namespace(reader).recall("green boat")}

    with opened() as engine, opened() as watcher:
        pool = engine.pools.create(tenant, members=[reader, giver])
        for name in ("Ada", "Berta", "Clara"):
            pool.contribute(giver, f"The boat of {name} is on the lake.")
        assert len(pool.sync_to(reader).copied) == 3
        own = engine.namespace(reader).long_term
        kept, gone = own.store("The green lamp hangs over the boat.").entry, own.store("Tea is green.").entry
        assert kept is not None
        assert gone is not None
        before = scores(watcher)
        assert len(before) == 5
        engine.forget(namespace=giver, scrub=False)
        own.forget(gone.id)
        with opened() as fresh:
            assert scores(watcher) == scores(fresh)
        assert scores(watcher).keys() == {kept.content}
        assert scores(watcher)[kept.content] != before[kept.content]
        pool.delete()
