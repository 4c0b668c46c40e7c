"""The tables of what was made of messages: long-term entries, episodes, chunks, relations and extracted facts.

``memory_spaces`` rows are the locks of what they hold: whoever adds, changes or erases an entry takes the next
revision, so whoever holds a part of a namespace in memory sees by it what to read anew. Validity, archiving and use
change no revision: they are looked at when entries are read, never held.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from langmem_tiers.storage.column_types import KEY, NAME, UtcDateTime
from langmem_tiers.storage.schema import embedders, namespaces, sessions

metadata = MetaData()

memory_spaces = Table(
    "lmt_memory_spaces",
    metadata,
    Column(
        "namespace_pk",
        KEY,
        ForeignKey(namespaces.c.pk, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("revision", BigInteger, nullable=False),
    Column("erased", BigInteger, nullable=False),
    Column("consolidation", Text),  # where one that did not come to its end goes on
)

memories = Table(
    "lmt_memories",
    metadata,
    Column("pk", KEY, primary_key=True),
    Column("namespace_pk", KEY, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("tier", String(10), nullable=False),
    Column("id", NAME, nullable=False),
    Column("kind", NAME, nullable=False),
    Column("category", NAME),
    Column("content", Text, nullable=False),
    Column("importance", Double, nullable=False),
    Column("token_count", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("valid_from", UtcDateTime, nullable=False),
    Column("valid_until", UtcDateTime),
    Column("archived_at", UtcDateTime),
    Column("access_count", BigInteger, nullable=False),
    Column("last_access_at", UtcDateTime, nullable=False),
    # Chunks and episodes go with their session; what was learned in one stays, and only names it.
    Column("session_pk", KEY, ForeignKey(sessions.c.pk, ondelete="CASCADE")),
    Column("session", NAME),
    Column("turn", BigInteger),  # of the last message that it is made of
    Column("revision", BigInteger, nullable=False),
    Column("terms", Text, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("namespace_pk", "id"),
    Index("lmt_memories_by_revision", "namespace_pk", "revision"),
    Index("lmt_memories_by_tier", "namespace_pk", "tier", "pk"),
    Index("lmt_memories_by_age", "namespace_pk", "tier", "archived_at", "created_at", "pk"),
    Index("lmt_memories_by_session", "session_pk", "tier", "turn"),
    sqlite_autoincrement=True,  # a key is never used again: what is held of an entry is never another's
)

memory_tags = Table(
    "lmt_memory_tags",
    metadata,
    Column("memory_pk", KEY, ForeignKey(memories.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("tag", NAME, primary_key=True),
)

memory_vectors = Table(
    "lmt_memory_vectors",
    metadata,
    Column("memory_pk", KEY, ForeignKey(memories.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("embedder_pk", KEY, ForeignKey(embedders.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)

relations = Table(
    "lmt_relations",
    metadata,
    Column("source_pk", KEY, ForeignKey(memories.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("target_pk", KEY, ForeignKey(memories.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("kind", NAME, primary_key=True),
    Column("strength", Double, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Index("lmt_relations_by_target", "target_pk"),
)

extracted_facts = Table(
    "lmt_extracted_facts",
    metadata,
    Column("pk", KEY, primary_key=True),
    Column("namespace_pk", KEY, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("session_pk", KEY, ForeignKey(sessions.c.pk, ondelete="CASCADE")),
    Column("id", NAME, nullable=False),
    Column("state", String(11), nullable=False),
    Column("confidence", Double, nullable=False),
    Column("extracted_at", UtcDateTime, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("namespace_pk", "id"),
    Index("lmt_extracted_facts_by_state", "namespace_pk", "state", "pk"),
    Index("lmt_extracted_facts_by_session", "session_pk"),
)

learned_sessions = Table(
    "lmt_learned_sessions",
    metadata,
    Column(
        "session_pk",
        KEY,
        ForeignKey(sessions.c.pk, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("learned", BigInteger, nullable=False),  # up to which turn facts and episodes were looked for
    Column("chunked", BigInteger, nullable=False),  # up to which turn messages are in chunks
)
