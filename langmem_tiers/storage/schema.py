"""Definitions of all tables at the newest schema version.

``messages`` rows are immutable. The view of a session follows from its session row alone: a
summary covers every message before ``(view_position, view_message)``. Compression is
therefore one small update, however long the session is.

``entries`` rows are overrides of messages. A message has none until it is promoted, compressed
or archived, so adding a message costs nothing extra, and deleting the override restores it.

``listings`` rows give the state of a message in a framework's own message list. A message that
is simply part of the list has none.

``embedder_trust`` rows store the measured weight of an embedder in a namespace, so that one
process measures it for all.

``item_namespaces`` rows are locks for their items: each change takes the next revision of the
namespace, and erasing data also increments ``erasure_epoch``. A process that caches part of one
compares both to find out what to read again.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from langmem_tiers.storage.column_types import KEY_TYPE, NAME_TYPE, TextVector, UtcDateTime

SCHEMA_VERSION = 1

POSITION_STEP = 2
"""Messages get even positions, so that a summary can be inserted between two of them."""

metadata = MetaData()

schema_versions = Table(
    "lmt_schema",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("applied_at", UtcDateTime, nullable=False),
)

databases = Table(
    "lmt_database",
    metadata,
    Column("id", String(32), primary_key=True),  # a single row with a random id that identifies the database
)

namespaces = Table(
    "lmt_namespaces",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("path", NAME_TYPE, nullable=False, unique=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("erasure_epoch", BigInteger, nullable=False, server_default="0"),
)

sessions = Table(
    "lmt_sessions",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("name", NAME_TYPE, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("last_position", BigInteger, nullable=False),
    Column("message_count", BigInteger, nullable=False),
    Column("token_count", BigInteger, nullable=False),
    Column("compressed_count", BigInteger, nullable=False),
    # Boundary of the active summary; messages before it are hidden.
    Column("view_position", BigInteger, nullable=False),
    Column("view_message", BigInteger, nullable=False),
    Column("view_revision", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint("namespace_pk", "name"),
    Index("lmt_sessions_by_age", "namespace_pk", "pk"),
    sqlite_autoincrement=True,  # keys are never reused, so a stale handle finds nothing
)

messages = Table(
    "lmt_messages",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("session_pk", KEY_TYPE, ForeignKey(sessions.c.pk, ondelete="CASCADE"), nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("id", NAME_TYPE, nullable=False),
    Column("role", String(9), nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("token_count", BigInteger, nullable=False),
    Column("token_counter", Text, nullable=False),
    Column("extra", Text),
    Column("payload", Text),
    # Columns for recall; NULL for summaries, which contain nothing that the record does not.
    Column("namespace_pk", KEY_TYPE),
    Column("term_count", Integer),
    Column("is_question", SmallInteger),
    Column("importance", Double),
    Column("speaker", Text),
    Column("terms", Text().with_variant(TextVector(), "postgresql")),
    UniqueConstraint("session_pk", "id"),
    Index("lmt_messages_by_position", "session_pk", "position", "pk"),
    Index("lmt_messages_by_namespace", "namespace_pk", "pk"),
)
MESSAGE_COLUMNS = tuple(
    column
    for column in messages.c
    if column.name not in {"namespace_pk", "term_count", "is_question", "importance", "speaker", "terms"}
)
"""Columns of a message without those of the search index."""

accesses = Table(
    "lmt_accesses",
    metadata,
    Column("message_pk", KEY_TYPE, ForeignKey(messages.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
)

embedders = Table(
    "lmt_embedders",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("identity", NAME_TYPE, nullable=False),
    Column("dimension", Integer, nullable=False),
    Column("used_at", UtcDateTime, nullable=False),
    UniqueConstraint("identity", "dimension"),
)

vectors = Table(
    "lmt_vectors",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    # No foreign key: vectors are deleted with their messages.
    Column("namespace_pk", KEY_TYPE, nullable=False),
    Column("embedder_pk", KEY_TYPE, ForeignKey(embedders.c.pk, ondelete="CASCADE"), nullable=False),
    Column("message_pk", KEY_TYPE, ForeignKey(messages.c.pk, ondelete="CASCADE"), nullable=False),
    Column("vector", LargeBinary),
    UniqueConstraint("message_pk", "embedder_pk"),
    Index("lmt_vectors_by_namespace", "namespace_pk", "embedder_pk", "pk"),
    sqlite_autoincrement=True,  # newer vectors have larger keys, even after deletions
)

embedder_trust = Table(
    "lmt_embedder_trust",
    metadata,
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("embedder_pk", KEY_TYPE, ForeignKey(embedders.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("erasure_epoch", BigInteger, nullable=False),
    Column("last_pk", KEY_TYPE, nullable=False),
    Column("size", Integer, nullable=False),
    Column("pairs", Integer, nullable=False),
    Column("other_pairs", Integer, nullable=False),
    Column("share", Double, nullable=False),
    Column("scale", Double, nullable=False),
)

embedding_cache = Table(
    "lmt_embedding_cache",
    metadata,
    Column("embedder_pk", KEY_TYPE, ForeignKey(embedders.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("hash", LargeBinary(16), primary_key=True),
    Column("vector", LargeBinary, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Index("lmt_embedding_cache_by_age", "embedder_pk", "expires_at"),
)

entries = Table(
    "lmt_entries",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column(
        "message_pk", KEY_TYPE, ForeignKey(messages.c.pk, ondelete="CASCADE"), nullable=False, unique=True
    ),
    Column("tier", String(10), nullable=False),
    Column("state", String(10), nullable=False),
    Column("relevance", Double),
    Column("token_count", BigInteger),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("body", Text, nullable=False),
    Index("lmt_entries_by_tier", "namespace_pk", "tier", "message_pk"),
)

listings = Table(
    "lmt_listings",
    metadata,
    Column("message_pk", KEY_TYPE, ForeignKey(messages.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("listing", String(8), nullable=False),
)

knowledge = Table(
    "lmt_knowledge",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("category", NAME_TYPE, nullable=False),
    Column("key", NAME_TYPE, nullable=False),
    Column("value", Text, nullable=False),
    Column("exact", Text),
    Column("confidence", Double, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("fresh_at", UtcDateTime, nullable=False),
    Column("last_used_at", UtcDateTime),
    Column("use_count", BigInteger, nullable=False),
    Column("store_count", BigInteger, nullable=False),
    Column("source", Text),
    # Columns for search.
    Column("term_count", Integer),
    Column("terms", Text().with_variant(TextVector(), "postgresql")),
    UniqueConstraint("namespace_pk", "category", "key"),
    Index("lmt_knowledge_by_freshness", "namespace_pk", "fresh_at"),
    Index("lmt_knowledge_by_confidence", "namespace_pk", "confidence"),
)
KNOWLEDGE_COLUMNS = tuple(column for column in knowledge.c if column.name not in {"term_count", "terms"})
"""Columns of a knowledge entry without those of the search index."""

knowledge_history = Table(
    "lmt_knowledge_history",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("category", NAME_TYPE, nullable=False),
    Column("key", NAME_TYPE, nullable=False),
    Column("value", Text, nullable=False),
    Column("exact", Text),
    Column("confidence", Double, nullable=False),
    Column("valid_from", UtcDateTime, nullable=False),
    Column("valid_until", UtcDateTime, nullable=False),
    Column("reason", String(10), nullable=False),
    Column("source", Text),
    Index("lmt_knowledge_history_by_key", "namespace_pk", "category", "key", "pk"),
)

adaptive_parameters = Table(
    "lmt_adaptive_parameters",
    metadata,
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("name", String(40), primary_key=True),
    Column("value", Double, nullable=False),
)

optimization_snapshots = Table(
    "lmt_optimization_snapshots",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("body", Text, nullable=False),
    Index("lmt_optimization_snapshots_by_age", "namespace_pk", "pk"),
)

leases = Table(
    "lmt_leases",
    metadata,
    Column("name", NAME_TYPE, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
)

item_namespaces = Table(
    "lmt_item_namespaces",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("path", NAME_TYPE, nullable=False, unique=True),
    Column("revision", BigInteger, nullable=False),
    Column("erasure_epoch", BigInteger, nullable=False),
    sqlite_autoincrement=True,  # keys are never reused, so a cached namespace never matches another one
)

items = Table(
    "lmt_items",
    metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("namespace_pk", KEY_TYPE, ForeignKey(item_namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("key", NAME_TYPE, nullable=False),
    Column("value", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("ttl_seconds", Double),
    Column("revision", BigInteger, nullable=False),
    UniqueConstraint("namespace_pk", "key"),
    Index("lmt_items_by_age", "namespace_pk", "updated_at", "pk"),
    Index("lmt_items_by_revision", "namespace_pk", "revision"),
    Index("lmt_items_by_expiry", "expires_at"),
    sqlite_autoincrement=True,
)

item_texts = Table(
    "lmt_item_texts",
    metadata,
    Column("item_pk", KEY_TYPE, ForeignKey(items.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
    Column("terms", Text, nullable=False),
)

item_vectors = Table(
    "lmt_item_vectors",
    metadata,
    Column("item_pk", KEY_TYPE, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("embedder_pk", KEY_TYPE, ForeignKey(embedders.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("vector", LargeBinary, nullable=False),
    ForeignKeyConstraint(
        ["item_pk", "number"], [item_texts.c.item_pk, item_texts.c.number], ondelete="CASCADE"
    ),
)


context_metadata = MetaData()

context_files = Table(
    "lmt_context_files",
    context_metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("session_id", NAME_TYPE, nullable=False),
    Column("current", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    UniqueConstraint("namespace_pk", "session_id"),
)

context_versions = Table(
    "lmt_context_versions",
    context_metadata,
    Column("file_pk", KEY_TYPE, ForeignKey(context_files.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Column("saved_at", UtcDateTime, nullable=False),
    Column("damage", Text),
)


memory_metadata = MetaData()

memory_namespaces = Table(
    "lmt_memory_namespaces",
    memory_metadata,
    Column(
        "namespace_pk",
        KEY_TYPE,
        ForeignKey(namespaces.c.pk, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("revision", BigInteger, nullable=False),
    Column("erasure_epoch", BigInteger, nullable=False),
    Column("consolidation", Text),  # where an interrupted consolidation resumes
)

memories = Table(
    "lmt_memories",
    memory_metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("tier", String(10), nullable=False),
    Column("id", NAME_TYPE, nullable=False),
    Column("kind", NAME_TYPE, nullable=False),
    Column("category", NAME_TYPE),
    Column("content", Text, nullable=False),
    Column("importance", Double, nullable=False),
    Column("token_count", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("valid_from", UtcDateTime, nullable=False),
    Column("valid_until", UtcDateTime),
    Column("archived_at", UtcDateTime),
    Column("access_count", BigInteger, nullable=False),
    Column("last_access_at", UtcDateTime, nullable=False),
    # Chunks and episodes are deleted with their session. Learned entries stay and only store its name.
    Column("session_pk", KEY_TYPE, ForeignKey(sessions.c.pk, ondelete="CASCADE")),
    Column("session", NAME_TYPE),
    Column("turn", BigInteger),  # turn of the last source message
    Column("revision", BigInteger, nullable=False),
    Column("terms", Text, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("namespace_pk", "id"),
    Index("lmt_memories_by_revision", "namespace_pk", "revision"),
    Index("lmt_memories_by_tier", "namespace_pk", "tier", "pk"),
    Index("lmt_memories_by_age", "namespace_pk", "tier", "archived_at", "created_at", "pk"),
    Index("lmt_memories_by_session", "session_pk", "tier", "turn"),
    sqlite_autoincrement=True,  # keys are never reused, so a cached entry never matches another one
)

memory_tags = Table(
    "lmt_memory_tags",
    memory_metadata,
    Column("memory_pk", KEY_TYPE, ForeignKey(memories.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("tag", NAME_TYPE, primary_key=True),
)

memory_vectors = Table(
    "lmt_memory_vectors",
    memory_metadata,
    Column("memory_pk", KEY_TYPE, ForeignKey(memories.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("embedder_pk", KEY_TYPE, ForeignKey(embedders.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)

relations = Table(
    "lmt_relations",
    memory_metadata,
    Column("source_pk", KEY_TYPE, ForeignKey(memories.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("target_pk", KEY_TYPE, ForeignKey(memories.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("kind", NAME_TYPE, primary_key=True),
    Column("strength", Double, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Index("lmt_relations_by_target", "target_pk"),
)

extracted_facts = Table(
    "lmt_extracted_facts",
    memory_metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("session_pk", KEY_TYPE, ForeignKey(sessions.c.pk, ondelete="CASCADE")),
    Column("id", NAME_TYPE, nullable=False),
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
    memory_metadata,
    Column(
        "session_pk",
        KEY_TYPE,
        ForeignKey(sessions.c.pk, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("learned_turn", BigInteger, nullable=False),  # last turn searched for facts and episodes
    Column("chunked_turn", BigInteger, nullable=False),  # last turn that is part of a chunk
)


pool_metadata = MetaData()

pools = Table(
    "lmt_pools",
    pool_metadata,
    Column("pk", KEY_TYPE, primary_key=True),
    Column("id", NAME_TYPE, nullable=False, unique=True),
    Column("name", NAME_TYPE, nullable=False, unique=True),
    Column(
        "namespace_pk", KEY_TYPE, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False, unique=True
    ),
    Column("created_at", UtcDateTime, nullable=False),
    sqlite_autoincrement=True,  # keys are never reused, so a stale handle finds nothing
)

pool_members = Table(
    "lmt_pool_members",
    pool_metadata,
    Column("pool_pk", KEY_TYPE, ForeignKey(pools.c.pk, ondelete="CASCADE"), primary_key=True),
    Column(
        "namespace", NAME_TYPE, primary_key=True
    ),  # not a foreign key: members may not have stored anything yet
    Column("can_read", Boolean, nullable=False),
    Column("can_write", Boolean, nullable=False),
    Column("is_owner", Boolean, nullable=False),
    Column("joined_at", UtcDateTime, nullable=False),
    Column("synced_revision", BigInteger, nullable=False),  # last synchronized revision of the pool's memory
    Index("lmt_pool_members_by_namespace", "namespace"),
)

origins = Table(
    "lmt_origins",
    pool_metadata,
    Column(
        "memory_pk",
        KEY_TYPE,
        ForeignKey(memories.c.pk, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("namespace", NAME_TYPE, nullable=False),
    Column("entry_id", NAME_TYPE),
    Column("copied_at", UtcDateTime, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("ends_at", UtcDateTime),
    # The entry with the same content. This one stays archived and replaces it once it is erased.
    Column("same_as_pk", KEY_TYPE, ForeignKey(memories.c.pk, ondelete="SET NULL")),
    Index("lmt_origins_by_namespace", "namespace", "entry_id"),
    Index("lmt_origins_by_same", "same_as_pk"),
)


ALL_METADATA = (metadata, context_metadata, memory_metadata, pool_metadata)
"""Metadata of all tables, in creation order."""
