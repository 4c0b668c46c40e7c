"""Caches of recall: nothing for unknown namespaces, and nothing older than the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import psycopg
import pytest

from langmem_tiers import (
    EngineConfig,
    MaintenanceConfig,
    MemoryEngine,
    MessageDraft,
    RecallConfig,
    RecallFilters,
)
from langmem_tiers.testing import HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


def test_recall_in_an_unknown_namespace_caches_nothing(engine: MemoryEngine, tenant: str) -> None:
    retriever = engine.services.retriever
    for number in range(50):
        assert not engine.namespace(tenant, f"nobody {number}").recall("boat")
    assert not [path for path in retriever._indexes if path[0] == tenant]
    engine.session(tenant, "s").add("user", "The red boat")
    assert engine.namespace(tenant).recall("boat")
    assert (tenant,) in retriever._indexes


@pytest.mark.soak
def test_the_least_recently_used_namespaces_are_evicted_first() -> None:
    config = EngineConfig(recall=RecallConfig(index_megabytes=1))
    with MemoryEngine(config=config, embedder=None) as engine:
        for number in range(300):
            engine.session(f"n{number}", "s").add("user", "The red boat")
            assert engine.namespace(f"n{number}").recall("boat")
        retriever = engine.services.retriever
        cached_index = [path for (path,) in retriever._indexes]
        assert cached_index == [f"n{number}" for number in range(300 - len(cached_index), 300)]
        assert 100 < len(cached_index) < 300
        assert retriever._total_bytes == sum(retriever._index_bytes.values()) <= 2**20
        retriever.invalidate()
        assert (retriever._total_bytes, retriever._index_bytes) == (0, {})
        assert engine.namespace("n0").recall("boat")


def test_a_server_restored_to_an_earlier_state_is_read_again(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    with MemoryEngine(url) as engine, psycopg.connect(url, autocommit=True) as server:
        where = engine.namespace("acme")
        where.session("s").add("user", "The red boat lies in the harbour")
        assert len(where.recall("red boat")) == 1
        cached_index = engine.services.retriever._indexes["acme",]
        cached_index._watermark += 1_000_000  # as if all that came before had been of a server that was ahead
        where.session("s").add(MessageDraft("user", "The red boat sails at noon", id="new"))
        server.execute("UPDATE lmt_messages SET written_by = '5' WHERE id = 'new'")
        assert {hit.entry.id for hit in where.recall("red boat")} >= {"new"}


def test_maintenance_adopts_rows_from_the_dump_of_another_server(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    with MemoryEngine(url, config=EngineConfig(maintenance=MaintenanceConfig(retention_days=None))) as engine:
        where = engine.namespace("acme")
        where.session("s").add_many(MessageDraft("user", f"The red boat {n}") for n in range(5))
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("UPDATE lmt_messages SET written_by = '900000000'")
            assert len(engine.services.retriever.index.load_changes(("acme",), 100_000_000).rows.keys) == 5
            compacted = engine.maintenance.run().compacted
            assert compacted is not None
            assert min(compacted.bytes_before, compacted.bytes_after) > 1_000_000
            assert len(engine.services.retriever.index.load_changes(("acme",), 100_000_000).rows.keys) == 0
        assert len(where.recall("red boat")) == 5


class Quick(HashEmbedder):
    """Asked in the thread of the recall, and raises."""

    is_quick = True

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise ValueError(f"{len(texts)} texts are too many")

    def embed_query(self, text: str) -> NDArray[np.float32]:
        raise ValueError(text)


def test_a_quick_embedder_that_raises_does_not_prevent_recall() -> None:
    with MemoryEngine(embedder=Quick(16)) as engine:
        engine.session("acme", "s").add("user", "The red boat")
        found = engine.namespace("acme").recall("red boat")
        assert [hit.entry.content for hit in found] == ["The red boat"]
        assert "raised ValueError" in found.problems[0]
        assert "red boat" not in found.problems[0]


class Topics(HashEmbedder):
    """Knows ships, what is nearly one, and the rest; and is believed."""

    identity = "topics"
    share = 0.5
    _VECTORS: ClassVar = {"vessel": [1.0, 0.0], "ship": [1.0, 0.0], "raft": [0.9, 0.4]}

    def __init__(self) -> None:
        super().__init__(2)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self._VECTORS.get(text.split()[0], [0.0, 1.0]) for text in texts], np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector


@pytest.mark.sample(1)
@pytest.mark.parametrize("strategy", ["best", "second_look", "similarity"])
def test_a_filter_that_the_server_cannot_apply_still_finds_matches(
    new_postgres_database: Callable[[], str], strategy: str
) -> None:
    with MemoryEngine(new_postgres_database(), embedder=Topics()) as engine:
        said = engine.namespace("acme").session
        said("ships").add_many(MessageDraft("assistant", f"ship number {n} at sea") for n in range(400))
        said("bread").add_many(MessageDraft("user", f"bread number {n} today") for n in range(1_500))
        said("wood").add(MessageDraft("user", "raft number 1 of wood", id="wanted"))
        said("bread").add_many(MessageDraft("user", f"bread number {n} today") for n in range(1_500))
        engine.namespace("acme").embed()
        only = RecallFilters(roles={"user"})
        found = engine.namespace("acme").recall("vessel", filters=only, strategy=strategy)
        assert found[0].entry.id == "wanted"
