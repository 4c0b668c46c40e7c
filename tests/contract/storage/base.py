"""What the suites for stores share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.common.messages import Message, Role

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import (
        BatchStore,
        EntryStore,
        KnowledgeStore,
        MessageStore,
        SessionStore,
        TranscriptStore,
        TuningStore,
    )
    from langmem_tiers.items.models import ItemStore
    from langmem_tiers.long_term.records import MemoryStore
    from langmem_tiers.pools.models import PoolStore
    from langmem_tiers.recall.item_records import ItemIndex
    from langmem_tiers.recall.records import IndexStore, VectorStore

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

    sessions: SessionStore
    messages: MessageStore
    entries: EntryStore | None = None
    knowledge: KnowledgeStore | None = None
    tuning: TuningStore | None = None
    index: IndexStore | None = None
    vectors: VectorStore | None = None
    items: ItemStore | None = None
    item_index: ItemIndex | None = None
    transcripts: TranscriptStore | None = None
    memories: MemoryStore | None = None
    memory_index: ItemIndex | None = None
    pools: PoolStore | None = None
    batches: BatchStore | None = None


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
    def entries(self, stores: Stores) -> EntryStore:
        """The store of marks."""
        assert stores.entries is not None, "hand in Stores(entries=...) to run this suite"
        return stores.entries

    @pytest.fixture
    def knowledge(self, stores: Stores) -> KnowledgeStore:
        """The store of knowledge."""
        assert stores.knowledge is not None, "hand in Stores(knowledge=...) to run this suite"
        return stores.knowledge

    @pytest.fixture
    def tuning(self, stores: Stores) -> TuningStore:
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
