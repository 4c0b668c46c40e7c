"""Contract of the repositories on every database, as pytest classes.

Subclasses define a fixture ``stores``, as in ``tests/contract/test_sql_stores.py``.

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
from tests.contract.storage.batches import BatchRepositoryConformance
from tests.contract.storage.context_files import ContextStoreConformance
from tests.contract.storage.entries import OverrideRepositoryConformance
from tests.contract.storage.index import RecallIndexRepositoryConformance
from tests.contract.storage.items import ItemRepositoryConformance
from tests.contract.storage.knowledge import KnowledgeRepositoryConformance
from tests.contract.storage.memories import LongTermRepositoryConformance
from tests.contract.storage.memory_index import LongTermIndexRepositoryConformance
from tests.contract.storage.messages import MessageStoreConformance
from tests.contract.storage.pools import PoolRepositoryConformance
from tests.contract.storage.sessions import SessionRepositoryConformance
from tests.contract.storage.transcripts import TranscriptStoreConformance
from tests.contract.storage.tuning import TuningRepositoryConformance
from tests.contract.storage.vectors import VectorRepositoryConformance

__all__ = [
    "NOW",
    "BatchRepositoryConformance",
    "ContextStoreConformance",
    "ItemRepositoryConformance",
    "KnowledgeRepositoryConformance",
    "LongTermIndexRepositoryConformance",
    "LongTermRepositoryConformance",
    "MessageStoreConformance",
    "OverrideRepositoryConformance",
    "PoolRepositoryConformance",
    "RecallIndexRepositoryConformance",
    "SessionRepositoryConformance",
    "Stores",
    "TranscriptStoreConformance",
    "TuningRepositoryConformance",
    "VectorRepositoryConformance",
]
