"""Our own stores pass the suites that we ship, on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers.core.config import EngineConfig
from langmem_tiers.retrieval.index_text import Indexer
from langmem_tiers.scoring.importance import IMPORTANCE
from langmem_tiers.scoring.terms import terms_of
from langmem_tiers.storage.batches import SqlBatchStore
from langmem_tiers.storage.database import Database
from langmem_tiers.storage.entries import SqlEntryStore
from langmem_tiers.storage.index import SqlIndexStore
from langmem_tiers.storage.item_index import SqlItemIndex
from langmem_tiers.storage.items import SqlItemStore
from langmem_tiers.storage.knowledge import SqlKnowledgeStore
from langmem_tiers.storage.memories import SqlMemoryStore
from langmem_tiers.storage.memory_index import SqlMemoryIndex
from langmem_tiers.storage.messages import SqlMessageStore
from langmem_tiers.storage.migrations import migrate
from langmem_tiers.storage.pools import SqlPoolStore
from langmem_tiers.storage.sessions import SqlSessionStore
from langmem_tiers.storage.transcripts import SqlTranscriptStore
from langmem_tiers.storage.tuning import SqlTuningStore
from langmem_tiers.storage.vectors import SqlVectorStore
from langmem_tiers.testing.conformance import (
    NOW,
    BatchStoreConformance,
    EntryStoreConformance,
    IndexStoreConformance,
    ItemStoreConformance,
    KnowledgeStoreConformance,
    MemoryIndexConformance,
    MemoryStoreConformance,
    MessageStoreConformance,
    PoolStoreConformance,
    SessionStoreConformance,
    Stores,
    TranscriptStoreConformance,
    TuningStoreConformance,
    VectorStoreConformance,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

INDEXER = Indexer(IMPORTANCE)


@pytest.fixture
def sql_stores(url: str) -> Iterator[Stores]:
    database = Database(url, EngineConfig())
    migrate(database, NOW, INDEXER, terms_of)
    messages = SqlMessageStore(database, INDEXER)
    yield Stores(
        sessions=SqlSessionStore(database),
        messages=messages,
        entries=SqlEntryStore(database),
        knowledge=SqlKnowledgeStore(database, terms_of),
        tuning=SqlTuningStore(database),
        index=SqlIndexStore(database),
        vectors=SqlVectorStore(database),
        items=SqlItemStore(database),
        item_index=SqlItemIndex(database),
        transcripts=SqlTranscriptStore(database, messages),
        memories=SqlMemoryStore(database),
        memory_index=SqlMemoryIndex(database),
        pools=SqlPoolStore(database),
        batches=SqlBatchStore(database, INDEXER),
    )
    database.close()


class TestSqlSessionStore(SessionStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlMessageStore(MessageStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlBatchStore(BatchStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlTranscriptStore(TranscriptStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlEntryStore(EntryStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlKnowledgeStore(KnowledgeStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlTuningStore(TuningStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlIndexStore(IndexStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlVectorStore(VectorStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlItemStore(ItemStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlMemoryStore(MemoryStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlMemoryIndex(MemoryIndexConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestSqlPoolStore(PoolStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores
