"""The numbered steps from one schema version to the next.

A step is never changed once it is released: it is written out here, not taken from what the
schema is today.
"""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration
from langmem_tiers.storage.migration_to_context_files import TO_CONTEXT_FILES
from langmem_tiers.storage.migration_to_identity import TO_IDENTITY
from langmem_tiers.storage.migration_to_items import TO_ITEMS
from langmem_tiers.storage.migration_to_lists import TO_LISTS
from langmem_tiers.storage.migration_to_memories import TO_MEMORIES
from langmem_tiers.storage.migration_to_pools import TO_POOLS
from langmem_tiers.storage.migration_to_recall import TO_RECALL
from langmem_tiers.storage.migration_to_sources import TO_SOURCES
from langmem_tiers.storage.migration_to_trials import TO_TRIALS

# Version 1 had namespaces, sessions and messages alone; 2 adds full text, 3 entries, knowledge and tuning,
# 4 what recall looks at, 5 items.
MIGRATIONS = (
    Migration(
        2,
        sqlite=(
            """CREATE VIRTUAL TABLE lmt_messages_text USING fts5(
                content, content='lmt_messages', content_rowid='pk',
                tokenize='porter unicode61 remove_diacritics 2'
            )""",
            """CREATE TRIGGER lmt_messages_text_add AFTER INSERT ON lmt_messages BEGIN
                INSERT INTO lmt_messages_text(rowid, content) VALUES (new.pk, new.content);
            END""",
            """CREATE TRIGGER lmt_messages_text_remove AFTER DELETE ON lmt_messages BEGIN
                INSERT INTO lmt_messages_text(lmt_messages_text, rowid, content)
                VALUES ('delete', old.pk, old.content);
            END""",
            "INSERT INTO lmt_messages_text(lmt_messages_text) VALUES ('rebuild')",
        ),
        postgresql=(
            """ALTER TABLE lmt_messages ADD COLUMN content_vector tsvector
                GENERATED ALWAYS AS (to_tsvector('english', left(content, 100000))) STORED""",
            "CREATE INDEX lmt_messages_text ON lmt_messages USING gin (content_vector)",
        ),
    ),
    Migration(
        3,
        sqlite=(
            """CREATE TABLE lmt_entries (
                pk INTEGER NOT NULL,
                namespace_pk INTEGER NOT NULL,
                message_pk INTEGER NOT NULL,
                tier VARCHAR(10) NOT NULL,
                state VARCHAR(10) NOT NULL,
                relevance DOUBLE,
                token_count BIGINT,
                changed_at VARCHAR(27) NOT NULL,
                body TEXT NOT NULL,
                PRIMARY KEY (pk),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE,
                UNIQUE (message_pk),
                FOREIGN KEY(message_pk) REFERENCES lmt_messages (pk) ON DELETE CASCADE
            )""",
            """CREATE INDEX lmt_entries_by_tier ON lmt_entries (namespace_pk, tier, message_pk)""",
            """CREATE TABLE lmt_knowledge (
                pk INTEGER NOT NULL,
                namespace_pk INTEGER NOT NULL,
                category TEXT NOT NULL,
                "key" TEXT NOT NULL,
                key_text TEXT NOT NULL,
                value TEXT NOT NULL,
                exact TEXT,
                confidence DOUBLE NOT NULL,
                created_at VARCHAR(27) NOT NULL,
                updated_at VARCHAR(27) NOT NULL,
                fresh_at VARCHAR(27) NOT NULL,
                last_used_at VARCHAR(27),
                use_count BIGINT NOT NULL,
                store_count BIGINT NOT NULL,
                source TEXT,
                PRIMARY KEY (pk),
                UNIQUE (namespace_pk, category, "key"),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
            )""",
            """CREATE INDEX lmt_knowledge_by_confidence ON lmt_knowledge (namespace_pk, confidence)""",
            """CREATE INDEX lmt_knowledge_by_freshness ON lmt_knowledge (namespace_pk, fresh_at)""",
            """CREATE TABLE lmt_knowledge_history (
                pk INTEGER NOT NULL,
                namespace_pk INTEGER NOT NULL,
                category TEXT NOT NULL,
                "key" TEXT NOT NULL,
                value TEXT NOT NULL,
                exact TEXT,
                confidence DOUBLE NOT NULL,
                valid_from VARCHAR(27) NOT NULL,
                valid_until VARCHAR(27) NOT NULL,
                reason VARCHAR(10) NOT NULL,
                PRIMARY KEY (pk),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
            )""",
            """CREATE INDEX lmt_knowledge_history_by_key
                ON lmt_knowledge_history (namespace_pk, category, "key", pk)""",
            """CREATE TABLE lmt_adaptive_parameters (
                namespace_pk INTEGER NOT NULL,
                name VARCHAR(40) NOT NULL,
                value DOUBLE NOT NULL,
                PRIMARY KEY (namespace_pk, name),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
            )""",
            """CREATE TABLE lmt_optimization_snapshots (
                pk INTEGER NOT NULL,
                namespace_pk INTEGER NOT NULL,
                created_at VARCHAR(27) NOT NULL,
                body TEXT NOT NULL,
                PRIMARY KEY (pk),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
            )""",
            """CREATE INDEX lmt_optimization_snapshots_by_age ON lmt_optimization_snapshots (namespace_pk, pk)""",
            """CREATE TABLE lmt_leases (
                name TEXT NOT NULL,
                holder TEXT NOT NULL,
                expires_at VARCHAR(27) NOT NULL,
                PRIMARY KEY (name)
            )""",
            """CREATE VIRTUAL TABLE lmt_knowledge_text USING fts5(
                    key_text, value, content='lmt_knowledge', content_rowid='pk',
                    tokenize='porter unicode61 remove_diacritics 2'
                )""",
            """CREATE TRIGGER lmt_knowledge_text_add AFTER INSERT ON lmt_knowledge BEGIN
                    INSERT INTO lmt_knowledge_text(rowid, key_text, value) VALUES (new.pk, new.key_text, new.value);
                END""",
            """CREATE TRIGGER lmt_knowledge_text_change AFTER UPDATE OF key_text, value ON lmt_knowledge BEGIN
                    INSERT INTO lmt_knowledge_text(lmt_knowledge_text, rowid, key_text, value)
                    VALUES ('delete', old.pk, old.key_text, old.value);
                    INSERT INTO lmt_knowledge_text(rowid, key_text, value) VALUES (new.pk, new.key_text, new.value);
                END""",
            """CREATE TRIGGER lmt_knowledge_text_remove AFTER DELETE ON lmt_knowledge BEGIN
                    INSERT INTO lmt_knowledge_text(lmt_knowledge_text, rowid, key_text, value)
                    VALUES ('delete', old.pk, old.key_text, old.value);
                END""",
        ),
        postgresql=(
            """CREATE TABLE lmt_entries (
                pk BIGSERIAL NOT NULL,
                namespace_pk BIGINT NOT NULL,
                message_pk BIGINT NOT NULL,
                tier VARCHAR(10) NOT NULL,
                state VARCHAR(10) NOT NULL,
                relevance DOUBLE PRECISION,
                token_count BIGINT,
                changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
                body TEXT NOT NULL,
                PRIMARY KEY (pk),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE,
                UNIQUE (message_pk),
                FOREIGN KEY(message_pk) REFERENCES lmt_messages (pk) ON DELETE CASCADE
            )""",
            """CREATE INDEX lmt_entries_by_tier ON lmt_entries (namespace_pk, tier, message_pk)""",
            """CREATE TABLE lmt_knowledge (
                pk BIGSERIAL NOT NULL,
                namespace_pk BIGINT NOT NULL,
                category TEXT COLLATE "C" NOT NULL,
                key TEXT COLLATE "C" NOT NULL,
                key_text TEXT NOT NULL,
                value TEXT NOT NULL,
                exact TEXT,
                confidence DOUBLE PRECISION NOT NULL,
                created_at TIMESTAMP WITH TIME ZONE NOT NULL,
                updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
                fresh_at TIMESTAMP WITH TIME ZONE NOT NULL,
                last_used_at TIMESTAMP WITH TIME ZONE,
                use_count BIGINT NOT NULL,
                store_count BIGINT NOT NULL,
                source TEXT,
                PRIMARY KEY (pk),
                UNIQUE (namespace_pk, category, key),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
            )""",
            """CREATE INDEX lmt_knowledge_by_confidence ON lmt_knowledge (namespace_pk, confidence)""",
            """CREATE INDEX lmt_knowledge_by_freshness ON lmt_knowledge (namespace_pk, fresh_at)""",
            """CREATE TABLE lmt_knowledge_history (
                pk BIGSERIAL NOT NULL,
                namespace_pk BIGINT NOT NULL,
                category TEXT COLLATE "C" NOT NULL,
                key TEXT COLLATE "C" NOT NULL,
                value TEXT NOT NULL,
                exact TEXT,
                confidence DOUBLE PRECISION NOT NULL,
                valid_from TIMESTAMP WITH TIME ZONE NOT NULL,
                valid_until TIMESTAMP WITH TIME ZONE NOT NULL,
                reason VARCHAR(10) NOT NULL,
                PRIMARY KEY (pk),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
            )""",
            """CREATE INDEX lmt_knowledge_history_by_key ON lmt_knowledge_history (namespace_pk, category, key, pk)""",
            """CREATE TABLE lmt_adaptive_parameters (
                namespace_pk BIGINT NOT NULL,
                name VARCHAR(40) NOT NULL,
                value DOUBLE PRECISION NOT NULL,
                PRIMARY KEY (namespace_pk, name),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
            )""",
            """CREATE TABLE lmt_optimization_snapshots (
                pk BIGSERIAL NOT NULL,
                namespace_pk BIGINT NOT NULL,
                created_at TIMESTAMP WITH TIME ZONE NOT NULL,
                body TEXT NOT NULL,
                PRIMARY KEY (pk),
                FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
            )""",
            """CREATE INDEX lmt_optimization_snapshots_by_age ON lmt_optimization_snapshots (namespace_pk, pk)""",
            """CREATE TABLE lmt_leases (
                name TEXT COLLATE "C" NOT NULL,
                holder TEXT NOT NULL,
                expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
                PRIMARY KEY (name)
            )""",
            """ALTER TABLE lmt_knowledge ADD COLUMN text_vector tsvector
                    GENERATED ALWAYS AS (to_tsvector('english', translate(
                        left(key_text || ' ' || value, 100000), './:@_#?&=+~-', '            '
                    ))) STORED""",
            """CREATE INDEX lmt_knowledge_text ON lmt_knowledge USING gin (text_vector)""",
        ),
    ),
    TO_RECALL,
    TO_ITEMS,
    TO_LISTS,
    TO_CONTEXT_FILES,
    TO_IDENTITY,
    TO_MEMORIES,
    TO_POOLS,
    TO_SOURCES,
    TO_TRIALS,
)
