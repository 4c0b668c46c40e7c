"""The stores pass the same suites with Redis before the database, and Redis does serve them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers.core.config import EngineConfig
from langmem_tiers.core.levels import RedisConfig
from langmem_tiers.retrieval.index_text import Indexer
from langmem_tiers.scoring.importance import IMPORTANCE
from langmem_tiers.scoring.terms import terms_of
from langmem_tiers.storage.database import Database
from langmem_tiers.storage.entries import SqlEntryStore
from langmem_tiers.storage.index import SqlIndexStore
from langmem_tiers.storage.messages import SqlMessageStore
from langmem_tiers.storage.migrations import migrate
from langmem_tiers.storage.redis_cache import RedisCache
from langmem_tiers.storage.sessions import SqlSessionStore
from langmem_tiers.storage.transcripts import SqlTranscriptStore
from langmem_tiers.testing import FrozenClock
from langmem_tiers.testing.conformance import (
    NOW,
    EntryStoreConformance,
    MessageStoreConformance,
    SessionStoreConformance,
    Stores,
    TranscriptStoreConformance,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

INDEXER = Indexer(IMPORTANCE)


@pytest.fixture(scope="module")
def redis_stores(shared_postgres: str, redis_url: str) -> Iterator[Stores]:
    database = Database(shared_postgres, EngineConfig())
    migrate(database, NOW, INDEXER, terms_of)
    redis = RedisCache(RedisConfig(url=redis_url, timeout_seconds=10), database, FrozenClock().monotonic)
    record = SqlMessageStore(database, INDEXER)
    yield Stores(
        sessions=SqlSessionStore(database, redis.erase),
        messages=redis.messages(record),
        entries=SqlEntryStore(database),
        index=SqlIndexStore(database),
        transcripts=redis.transcripts(SqlTranscriptStore(database, record)),
    )
    status = redis.status()
    assert status.hits > 0
    assert status.failures == 0
    redis.close()
    database.close()


class TestRedisSessionStore(SessionStoreConformance):
    @pytest.fixture
    def stores(self, redis_stores: Stores) -> Stores:
        return redis_stores


class TestRedisMessageStore(MessageStoreConformance):
    @pytest.fixture
    def stores(self, redis_stores: Stores) -> Stores:
        return redis_stores


class TestRedisTranscriptStore(TranscriptStoreConformance):
    @pytest.fixture
    def stores(self, redis_stores: Stores) -> Stores:
        return redis_stores


class TestRedisEntryStore(EntryStoreConformance):
    @pytest.fixture
    def stores(self, redis_stores: Stores) -> Stores:
        return redis_stores
