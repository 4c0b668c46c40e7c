"""Child processes that contribute to a pool and sync from it, until they are done or killed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from langmem_tiers import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Callable

SAME = ("Alice lives in Berlin.", "The deadline is Friday.", "We use PostgreSQL for orders.")


def contribute_the_same(wait: Callable[[], object], url: str, pool: str, who: tuple[str, ...]) -> list[str]:
    """Contribute what others contribute at the same time, and sync; what of it was new."""
    with MemoryEngine(url) as engine:
        shared = engine.pools.get(pool)
        wait()
        new = [text for text in SAME if shared.contribute(who, text).is_stored]
        shared.sync_to((*who[:1], "reader"))
    return new


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
