"""Memories with records of every kind, and the contents of their backups."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from langmem_tiers import MemoryEngine, MessageDraft, MessageToolCall
from langmem_tiers.context_files import ContextData
from langmem_tiers.context_files.sql_store import SqlContextStore
from langmem_tiers.sessions.models import Listing
from langmem_tiers.testing import FrozenClock, HashEmbedder, seeded_ids

if TYPE_CHECKING:
    from pathlib import Path


def open_small_engine(url: str, *, seed: int = 0, dimension: int = 16) -> MemoryEngine:
    """An engine with an embedder whose vectors are short."""
    return MemoryEngine(url, clock=FrozenClock(), ids=seeded_ids(seed), embedder=HashEmbedder(dimension))


def fill(engine: MemoryEngine, *labels: str) -> None:
    """Put something of every kind into a namespace."""
    namespace = engine.namespace(*labels)
    monday = namespace.session("monday/%\0")
    said = [
        MessageDraft("user", f"Walrus {n}: my cat Tom likes tuna number {n}.", id=f"m{n}") for n in range(12)
    ]
    monday.add_many(
        [*said, MessageDraft("assistant", "\ud83d", tool_calls=[MessageToolCall("c", "look", "{}")])]
    )
    monday.add(MessageDraft("tool", "nul \0 in it", tool_call_id="c", payload={"deep": ["\0", 1.5]}))
    monday.compress("m4", "They spoke of a cat.")
    monday.add("user", "We decided to use PostgreSQL for the billing service. I live in Lyon.")
    monday.promote("m6")
    monday.transcript.move(["m5"], Listing.REMOVED)
    namespace.session("tuesday").add("user", "The dog is called Rex, and he sleeps.")
    monday.learn()
    first = namespace.long_term.store("The billing service runs on port 8080.", tags={"ops"}, kind="fact")
    second = namespace.long_term.store("Mara likes to sail on Sundays.", kind="preference")
    assert first.entry is not None
    assert second.entry is not None
    namespace.long_term.relate(first.entry.id, second.entry.id)
    namespace.knowledge.store("preference", "editor", "vim")
    namespace.knowledge.store("preference", "editor", "emacs \0")
    engine.items.put(labels, "k", {"likes": "sailing boats"})
    engine.items.put(labels, "later", {"n": 1}, ttl_seconds=3600.5)
    engine.items.search(labels, "boats")
    pool = engine.pools.create(f"pool of {labels}", members=[labels, (*labels, "reader")])
    pool.contribute(labels, "WebGPU requires WGSL shaders, not GLSL.", source="MDN")
    pool.contribute((*labels, "reader"), "WebGPU requires WGSL shaders, not GLSL.")
    pool.contribute((*labels, "reader"), "The lamp of the harbour is green.")
    pool.sync_to(labels)
    engine.optimizer.run(labels)
    contexts = SqlContextStore(engine._database, namespace.path)
    contexts.save(ContextData(session_id="s", facts=("a fact",)), engine.services.now())
    namespace.embed()
    namespace.recall("where does Mara sail?")
    engine.services.retriever._write_accesses()
    engine.services.long_term.access_counter.flush()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a backup."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_records(engine: MemoryEngine, path: Path, **scope: Any) -> list[str]:
    """The records that a backup has, without what its first and its last line say."""
    engine.backup(path, overwrite=True, **scope)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.readlines()[1:-1]
