"""Child processes that contribute to a pool and sync from it, until they are done or killed."""

from __future__ import annotations

import os
import sys

from langmem_tiers import MemoryEngine

SAME = ("Alice lives in Berlin.", "The deadline is Friday.", "We use PostgreSQL for orders.")


def contribute_the_same(url: str, pool: str, who: tuple[str, ...], start: str) -> None:
    """Wait until the others are there, contribute what they contribute, sync, and say by the exit code what was new."""
    with MemoryEngine(url) as engine:
        shared = engine.pools.get(pool)
        with open(start, "rb", buffering=0) as gate:  # noqa: PTH123 - a pipe, which opens when all may begin
            gate.read()
        new = sum(shared.contribute(who, text).is_stored for text in SAME)
        shared.sync_to((*who[:1], "reader"))
    sys.exit(new)


def share_until_killed(url: str, pool: str, who: tuple[str, ...], name: str, acknowledged: str) -> None:
    """Contribute and sync, noting each contribution once the engine has acknowledged it."""
    notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    engine = MemoryEngine(url, embedder=None)
    shared = engine.pools.get(pool)
    number = 0
    while True:
        # Each contradicts the one before.
        receipt = shared.contribute(who, f"The code of {name} is {number}.")
        assert receipt.entry is not None
        os.write(notes, f"{receipt.entry.id}\n".encode())
        shared.sync_to((*who[:1], "reader"))
        number += 1
