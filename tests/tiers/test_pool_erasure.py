"""What is forgotten is forgotten in pools, and in what others synced of them."""

from __future__ import annotations

import pytest

from langmem_tiers import MemoryEngine


@pytest.mark.parametrize("what", ["namespace", "entry", "user"])
def test_what_is_forgotten_leaves_pools_and_what_others_synced(url: str, tenant: str, what: str) -> None:
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
        assert not [one for one in engine.namespace(reader).long_term if "Quorrax" in one.content]
        pool.delete()
