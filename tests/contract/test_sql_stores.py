"""The repositories pass the contract suites on every database, with and without Redis."""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.config import EngineConfig
from langmem_tiers.items.index_repository import ItemIndexRepository
from langmem_tiers.items.repository import ItemRepository
from langmem_tiers.knowledge.repository import KnowledgeRepository
from langmem_tiers.long_term.repository import LongTermIndexRepository, LongTermRepository
from langmem_tiers.pools.repository import PoolRepository
from langmem_tiers.recall.indexing import Indexer
from langmem_tiers.recall.repository import RecallIndexRepository
from langmem_tiers.recall.vector_repository import VectorRepository
from langmem_tiers.sessions.analysis import IMPORTANCE_SCORER
from langmem_tiers.sessions.batch_repository import BatchRepository
from langmem_tiers.sessions.message_repository import MessageRepository
from langmem_tiers.sessions.override_repository import OverrideRepository
from langmem_tiers.sessions.redis.cache import RedisCache
from langmem_tiers.sessions.repository import SessionRepository
from langmem_tiers.sessions.transcript_repository import TranscriptRepository
from langmem_tiers.storage.database import Database
from langmem_tiers.storage.migrations import migrate
from langmem_tiers.testing import FrozenClock
from langmem_tiers.text.tokenize import extract_terms
from langmem_tiers.tuning.repository import TuningRepository
from tests.backends import POSTGRES, SQLITE_FILE, SQLITE_MEMORY, WITH_REDIS, redis_of, url_of
from tests.contract.storage import (
    NOW,
    BatchRepositoryConformance,
    ItemRepositoryConformance,
    KnowledgeRepositoryConformance,
    LongTermIndexRepositoryConformance,
    LongTermRepositoryConformance,
    MessageStoreConformance,
    OverrideRepositoryConformance,
    PoolRepositoryConformance,
    RecallIndexRepositoryConformance,
    SessionRepositoryConformance,
    Stores,
    TranscriptStoreConformance,
    TuningRepositoryConformance,
    VectorRepositoryConformance,
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
def create_stores(url: str, redis: RedisConfig | None = None) -> Iterator[Stores]:
    """The stores as an engine puts them together; Redis, if there is one, answers whatever it is asked."""
    database = Database(url, EngineConfig())
    migrate(database, NOW)
    cache = None if redis is None else RedisCache(redis, database, FrozenClock().monotonic)
    record = MessageRepository(database, INDEXER)
    lists = TranscriptRepository(database, record)
    yield Stores(
        sessions=SessionRepository(database)
        if cache is None
        else SessionRepository(database, cache.invalidate_sessions),
        messages=record if cache is None else cache.wrap_message_store(record),
        entries=OverrideRepository(database),
        knowledge=KnowledgeRepository(database, extract_terms),
        tuning=TuningRepository(database),
        index=RecallIndexRepository(database),
        vectors=VectorRepository(database),
        items=ItemRepository(database),
        item_index=ItemIndexRepository(database),
        transcripts=lists if cache is None else cache.wrap_transcript_store(lists),
        memories=LongTermRepository(database),
        memory_index=LongTermIndexRepository(database),
        pools=PoolRepository(database),
        batches=BatchRepository(database, INDEXER, None if cache is None else cache.extend),
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
            return stack.enter_context(create_stores(url, redis_of(backend, request)))

        yield open_stores


@pytest.fixture
def sql_stores(backend: str, stores_on: Callable[[str], Stores]) -> Stores:
    return stores_on(backend)


class TestSessionRepository(SessionRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestMessageStore(MessageStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestBatchRepository(BatchRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestTranscriptStore(TranscriptStoreConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestOverrideRepository(OverrideRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestKnowledgeRepository(KnowledgeRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestTuningRepository(TuningRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestRecallIndexRepository(RecallIndexRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestVectorRepository(VectorRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestItemRepository(ItemRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestLongTermRepository(LongTermRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestLongTermIndexRepository(LongTermIndexRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores


class TestPoolRepository(PoolRepositoryConformance):
    @pytest.fixture
    def stores(self, sql_stores: Stores) -> Stores:
        return sql_stores
