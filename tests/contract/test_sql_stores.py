"""Our own stores pass the suites that we ship, on every database, and with Redis before it."""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.config import EngineConfig
from langmem_tiers.items.index_repository import SqlItemIndex
from langmem_tiers.items.repository import SqlItemStore
from langmem_tiers.knowledge.repository import SqlKnowledgeStore
from langmem_tiers.long_term.index_repository import SqlMemoryIndex
from langmem_tiers.long_term.repository import SqlMemoryStore
from langmem_tiers.pools.repository import SqlPoolStore
from langmem_tiers.recall.indexing import Indexer
from langmem_tiers.recall.repository import SqlIndexStore
from langmem_tiers.recall.vector_repository import SqlVectorStore
from langmem_tiers.sessions.analysis import IMPORTANCE_SCORER
from langmem_tiers.sessions.batch_repository import SqlBatchStore
from langmem_tiers.sessions.message_repository import SqlMessageStore
from langmem_tiers.sessions.override_repository import SqlEntryStore
from langmem_tiers.sessions.redis.cache import RedisCache
from langmem_tiers.sessions.repository import SqlSessionStore
from langmem_tiers.sessions.transcript_repository import SqlTranscriptStore
from langmem_tiers.storage.database import Database
from langmem_tiers.storage.migrations import migrate
from langmem_tiers.testing import FrozenClock
from langmem_tiers.text.tokenize import extract_terms
from langmem_tiers.tuning.repository import SqlTuningStore
from tests.backends import POSTGRES, SQLITE_FILE, SQLITE_MEMORY, WITH_REDIS, redis_of, url_of
from tests.contract.storage import (
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
    from collections.abc import Callable, Iterator

    from langmem_tiers.config import RedisConfig

# The fast suite runs all of it on SQLite and on PostgreSQL with Redis: together they reach every statement.
pytestmark = pytest.mark.parametrize(
    "backend",
    [
        SQLITE_FILE,
        pytest.param(WITH_REDIS, marks=[pytest.mark.backend, pytest.mark.smoke]),
        SQLITE_MEMORY,
        POSTGRES,
    ],
)
INDEXER = Indexer(IMPORTANCE_SCORER)


@contextmanager
def opened(url: str, redis: RedisConfig | None = None) -> Iterator[Stores]:
    """The stores as an engine puts them together; Redis, if there is one, answers whatever it is asked."""
    database = Database(url, EngineConfig())
    migrate(database, NOW)
    cache = None if redis is None else RedisCache(redis, database, FrozenClock().monotonic)
    record = SqlMessageStore(database, INDEXER)
    lists = SqlTranscriptStore(database, record)
    yield Stores(
        sessions=SqlSessionStore(database)
        if cache is None
        else SqlSessionStore(database, cache.invalidate_sessions),
        messages=record if cache is None else cache.wrap_message_store(record),
        entries=SqlEntryStore(database),
        knowledge=SqlKnowledgeStore(database, extract_terms),
        tuning=SqlTuningStore(database),
        index=SqlIndexStore(database),
        vectors=SqlVectorStore(database),
        items=SqlItemStore(database),
        item_index=SqlItemIndex(database),
        transcripts=lists if cache is None else cache.wrap_transcript_store(lists),
        memories=SqlMemoryStore(database),
        memory_index=SqlMemoryIndex(database),
        pools=SqlPoolStore(database),
        batches=SqlBatchStore(database, INDEXER, None if cache is None else cache.extend),
    )
    if cache is not None:
        status = cache.status()
        assert (status.is_connected, status.failures) == (True, 0)
        cache.close()
    database.close()


@pytest.fixture(scope="module")
def stores_on(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Stores]]:
    """Stores on a backend, opened once: opening takes longer than most tests, and each has its own namespace."""
    with ExitStack() as stack:

        @functools.cache
        def open_stores(backend: str) -> Stores:
            url = url_of(backend, tmp_path_factory.mktemp("stores"), request)
            return stack.enter_context(opened(url, redis_of(backend, request)))

        yield open_stores


@pytest.fixture
def sql_stores(backend: str, stores_on: Callable[[str], Stores]) -> Stores:
    return stores_on(backend)


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
