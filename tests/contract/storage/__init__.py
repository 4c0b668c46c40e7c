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
from tests.contract.storage.base import NOW, Stores
from tests.contract.storage.batches import BatchStoreConformance
from tests.contract.storage.context_files import ContextStoreConformance
from tests.contract.storage.entries import EntryStoreConformance
from tests.contract.storage.index import IndexStoreConformance
from tests.contract.storage.items import ItemStoreConformance
from tests.contract.storage.knowledge import KnowledgeStoreConformance
from tests.contract.storage.memories import MemoryStoreConformance
from tests.contract.storage.memory_index import MemoryIndexConformance
from tests.contract.storage.messages import MessageStoreConformance
from tests.contract.storage.pools import PoolStoreConformance
from tests.contract.storage.sessions import SessionStoreConformance
from tests.contract.storage.transcripts import TranscriptStoreConformance
from tests.contract.storage.tuning import TuningStoreConformance
from tests.contract.storage.vectors import VectorStoreConformance

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
