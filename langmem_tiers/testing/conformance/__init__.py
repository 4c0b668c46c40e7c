"""What every storage must do, as pytest classes. Needs pytest.

Subclass them in a test module of yours and give them your stores::

    class TestMySessions(SessionStoreConformance):
        @pytest.fixture
        def stores(self) -> Stores:
            return Stores(sessions=MySessionStore(...), messages=MyMessageStore(...))

The suites for batches, entries, knowledge, tuning, index, transcripts and vectors need ``Stores(..., entries=...)`` and
so on; that for vectors needs an index as well, that for items ``items``, ``item_index`` and ``vectors``, those
for memories and their index ``memories``, ``memory_index`` and ``vectors``. That for transcripts looks at entries and
index too, and that for memories at transcripts, if they are there. That for pools needs ``pools`` and ``memories``.
"""

import pytest

_SUITES = (
    "batches",
    "context_files",
    "entries",
    "index",
    "indexed",
    "items",
    "knowledge",
    "knowledge_search",
    "memories",
    "memory_book",
    "memory_facts",
    "memory_index",
    "memory_lifetimes",
    "memory_reads",
    "messages",
    "pool_book",
    "pools",
    "sessions",
    "transcripts",
    "tuning",
    "vectors",
)
pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in _SUITES))  # a failure shows its values

# ruff: noqa: E402 - assertions are rewritten in what is imported from here on
from langmem_tiers.testing.conformance.base import NOW, Stores
from langmem_tiers.testing.conformance.batches import BatchStoreConformance
from langmem_tiers.testing.conformance.context_files import ContextStoreConformance
from langmem_tiers.testing.conformance.entries import EntryStoreConformance
from langmem_tiers.testing.conformance.index import IndexStoreConformance
from langmem_tiers.testing.conformance.items import ItemStoreConformance
from langmem_tiers.testing.conformance.knowledge import KnowledgeStoreConformance
from langmem_tiers.testing.conformance.memories import MemoryStoreConformance
from langmem_tiers.testing.conformance.memory_index import MemoryIndexConformance
from langmem_tiers.testing.conformance.messages import MessageStoreConformance
from langmem_tiers.testing.conformance.pools import PoolStoreConformance
from langmem_tiers.testing.conformance.sessions import SessionStoreConformance
from langmem_tiers.testing.conformance.transcripts import TranscriptStoreConformance
from langmem_tiers.testing.conformance.tuning import TuningStoreConformance
from langmem_tiers.testing.conformance.vectors import VectorStoreConformance

__all__ = [
    "NOW",
    "BatchStoreConformance",
    "ContextStoreConformance",
    "EntryStoreConformance",
    "IndexStoreConformance",
    "ItemStoreConformance",
    "KnowledgeStoreConformance",
    "MemoryIndexConformance",
    "MemoryStoreConformance",
    "MessageStoreConformance",
    "PoolStoreConformance",
    "SessionStoreConformance",
    "Stores",
    "TranscriptStoreConformance",
    "TuningStoreConformance",
    "VectorStoreConformance",
]
