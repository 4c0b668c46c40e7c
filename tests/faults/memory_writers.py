"""Child processes that store entries and learn from messages, until they are done or killed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from langmem_tiers import MemoryEngine
from langmem_tiers.testing import HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable

SAME = ("Alice lives in Berlin.", "The deadline is Friday.", "We use PostgreSQL for orders.")


def store_the_same(wait: Callable[[], object], url: str, tenant: str) -> list[str]:
    """Store what others store at the same time; what of it was new."""
    with MemoryEngine(url) as engine:
        memory = engine.namespace(tenant).long_term
        wait()
        return [text for text in SAME if memory.store(text).is_stored]


def remember_until_killed(url: str, tenant: str, name: str, acknowledged: str) -> None:
    """Store entries and learn from messages, noting each id once the engine has acknowledged it."""
    notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    engine = MemoryEngine(url, embedder=HashEmbedder())  # it loads no model
    memory, session = engine.namespace(tenant).long_term, engine.session(tenant, "s")
    number = 0
    while True:
        # Each contradicts the one before, which is closed and related to it in the same write.
        receipt = memory.store(f"The code of {name} is {number}.", tags=frozenset({name, "code"}))
        assert receipt.entry is not None
        os.write(notes, f"entry {receipt.entry.id}\n".encode())
        session.add("user", f"We decided to use plan {name}{number} for house {number}.")
        report = session.learn()
        os.write(notes, "".join(f"fact {fact.id}\n" for fact in report.facts).encode())
        number += 1
