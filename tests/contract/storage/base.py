"""Helpers of the repository suites."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.common.messages import Message, Role

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.items.repository import ItemRepository
    from langmem_tiers.knowledge.repository import KnowledgeRepository
    from langmem_tiers.long_term.repository import LongTermRepository
    from langmem_tiers.pools.repository import PoolRepository
    from langmem_tiers.recall.item_records import ItemIndex
    from langmem_tiers.recall.repository import RecallIndexRepository
    from langmem_tiers.recall.vector_repository import VectorRepository
    from langmem_tiers.sessions.batch_repository import BatchRepository
    from langmem_tiers.sessions.override_repository import OverrideRepository
    from langmem_tiers.sessions.repository import SessionRepository
    from langmem_tiers.sessions.stores import MessageStore, TranscriptStore
    from langmem_tiers.tuning.repository import TuningRepository

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
HOSTILE_NAMES = (
    "a%",
    "a_",
    "a*",
    "a.",
    "a'",
    "a:",
    "a/b",
    "A",
    "a",
    "a ",
    "a\0",
    "å",
    "a\u030a",
    "\ud83d",
    "%00",
    "%25",
)


ANY_TEXT = "null \0, lone \ud83d\ude00 \udc00, real 😀, שלום, \ufffd, %00 %uD83D"


@dataclass(frozen=True)
class Stores:
    """The stores under test, on one database; those that are left out have no suite to pass."""

    sessions: SessionRepository
    messages: MessageStore
    entries: OverrideRepository | None = None
    knowledge: KnowledgeRepository | None = None
    tuning: TuningRepository | None = None
    index: RecallIndexRepository | None = None
    vectors: VectorRepository | None = None
    items: ItemRepository | None = None
    item_index: ItemIndex | None = None
    transcripts: TranscriptStore | None = None
    memories: LongTermRepository | None = None
    memory_index: ItemIndex | None = None
    pools: PoolRepository | None = None
    batches: BatchRepository | None = None


class StoreConformance:
    """What all suites stand on."""

    @pytest.fixture
    def stores(self) -> Stores:
        """Your stores. They may hold other data: each test works in namespaces of its own."""
        raise NotImplementedError("define a fixture named 'stores' in your subclass")

    @pytest.fixture
    def namespace(self) -> NamespacePath:
        """A namespace that nobody else uses."""
        return ("conformance", uuid.uuid4().hex)

    @pytest.fixture
    def key(self, stores: Stores, namespace: NamespacePath) -> int:
        """A session with nothing in it."""
        return stores.sessions.get_or_create(namespace, "session", NOW).key

    @pytest.fixture
    def entries(self, stores: Stores) -> OverrideRepository:
        """The store of marks."""
        assert stores.entries is not None, "hand in Stores(entries=...) to run this suite"
        return stores.entries

    @pytest.fixture
    def knowledge(self, stores: Stores) -> KnowledgeRepository:
        """The store of knowledge."""
        assert stores.knowledge is not None, "hand in Stores(knowledge=...) to run this suite"
        return stores.knowledge

    @pytest.fixture
    def tuning(self, stores: Stores) -> TuningRepository:
        """The optimizer's memory."""
        assert stores.tuning is not None, "hand in Stores(tuning=...) to run this suite"
        return stores.tuning


def message(content: str = "Hello", *, id: str | None = None, role: Role = Role.USER) -> Message:  # noqa: A002 - as in Message
    """A message with what the engine would have filled in."""
    return Message(
        id=id or uuid.uuid4().hex,
        role=role,
        content=content,
        created_at=NOW,
        token_count=2,
        token_counter="test",
    )


def contents(messages: tuple[Message, ...]) -> list[str]:
    """The texts, for comparing."""
    return [message.content for message in messages]
