"""Version 4: what recall looks at. The terms of what is there already are written after it."""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration

TO_RECALL = Migration(
    4,
    sqlite=(
        "DROP TRIGGER lmt_messages_text_add",
        "DROP TRIGGER lmt_messages_text_remove",
        "DROP TABLE lmt_messages_text",
        "DROP TRIGGER lmt_knowledge_text_add",
        "DROP TRIGGER lmt_knowledge_text_change",
        "DROP TRIGGER lmt_knowledge_text_remove",
        "DROP TABLE lmt_knowledge_text",
        "ALTER TABLE lmt_knowledge DROP COLUMN key_text",
        "ALTER TABLE lmt_knowledge ADD COLUMN term_count INTEGER",
        "ALTER TABLE lmt_knowledge ADD COLUMN terms TEXT",
        "ALTER TABLE lmt_namespaces ADD COLUMN erased BIGINT DEFAULT '0' NOT NULL",
        "ALTER TABLE lmt_sessions ADD COLUMN view_revision BIGINT DEFAULT '0' NOT NULL",
        "ALTER TABLE lmt_messages ADD COLUMN namespace_pk INTEGER",
        "ALTER TABLE lmt_messages ADD COLUMN term_count INTEGER",
        "ALTER TABLE lmt_messages ADD COLUMN asks SMALLINT",
        "ALTER TABLE lmt_messages ADD COLUMN importance DOUBLE",
        "ALTER TABLE lmt_messages ADD COLUMN speaker TEXT",
        "ALTER TABLE lmt_messages ADD COLUMN terms TEXT",
        "CREATE INDEX lmt_messages_by_namespace ON lmt_messages (namespace_pk, pk)",
        """CREATE TABLE lmt_accesses (
            message_pk INTEGER NOT NULL,
            count BIGINT NOT NULL,
            last_at VARCHAR(27) NOT NULL,
            PRIMARY KEY (message_pk),
            FOREIGN KEY(message_pk) REFERENCES lmt_messages (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_embedders (
            pk INTEGER NOT NULL,
            identity TEXT NOT NULL,
            dimension INTEGER NOT NULL,
            used_at VARCHAR(27) NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (identity, dimension)
        )""",
        """CREATE TABLE lmt_vectors (
            pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            namespace_pk INTEGER NOT NULL,
            embedder_pk INTEGER NOT NULL,
            message_pk INTEGER NOT NULL,
            vector BLOB,
            UNIQUE (message_pk, embedder_pk),
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE,
            FOREIGN KEY(message_pk) REFERENCES lmt_messages (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_vectors_by_namespace ON lmt_vectors (namespace_pk, embedder_pk, pk)",
        """CREATE TABLE lmt_embedding_cache (
            embedder_pk INTEGER NOT NULL,
            hash BLOB NOT NULL,
            vector BLOB NOT NULL,
            expires_at VARCHAR(27) NOT NULL,
            PRIMARY KEY (embedder_pk, hash),
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_embedding_cache_by_age ON lmt_embedding_cache (embedder_pk, expires_at)",
        """CREATE VIRTUAL TABLE lmt_messages_terms USING fts5(
            terms, content='lmt_messages', content_rowid='pk', tokenize="ascii tokenchars '_'"
        )""",
        "CREATE VIRTUAL TABLE lmt_messages_places USING fts5vocab(lmt_messages_terms, instance)",
        """CREATE TRIGGER lmt_messages_terms_add AFTER INSERT ON lmt_messages WHEN new.terms IS NOT NULL BEGIN
            INSERT INTO lmt_messages_terms(rowid, terms) VALUES (new.pk, new.terms);
        END""",
        """CREATE TRIGGER lmt_messages_terms_remove AFTER DELETE ON lmt_messages WHEN old.terms IS NOT NULL BEGIN
            INSERT INTO lmt_messages_terms(lmt_messages_terms, rowid, terms) VALUES ('delete', old.pk, old.terms);
        END""",
        """CREATE VIRTUAL TABLE lmt_knowledge_terms USING fts5(
            terms, content='lmt_knowledge', content_rowid='pk', tokenize="ascii tokenchars '_'"
        )""",
        "CREATE VIRTUAL TABLE lmt_knowledge_places USING fts5vocab(lmt_knowledge_terms, instance)",
        """CREATE TRIGGER lmt_knowledge_terms_add AFTER INSERT ON lmt_knowledge WHEN new.terms IS NOT NULL BEGIN
            INSERT INTO lmt_knowledge_terms(rowid, terms) VALUES (new.pk, new.terms);
        END""",
        """CREATE TRIGGER lmt_knowledge_terms_change AFTER UPDATE OF terms ON lmt_knowledge
        WHEN old.terms IS NOT NULL BEGIN
            INSERT INTO lmt_knowledge_terms(lmt_knowledge_terms, rowid, terms) VALUES ('delete', old.pk, old.terms);
            INSERT INTO lmt_knowledge_terms(rowid, terms) VALUES (new.pk, new.terms);
        END""",
        """CREATE TRIGGER lmt_knowledge_terms_remove AFTER DELETE ON lmt_knowledge WHEN old.terms IS NOT NULL BEGIN
            INSERT INTO lmt_knowledge_terms(lmt_knowledge_terms, rowid, terms) VALUES ('delete', old.pk, old.terms);
        END""",
    ),
    postgresql=(
        "DROP INDEX lmt_messages_text",
        "ALTER TABLE lmt_messages DROP COLUMN content_vector",
        "DROP INDEX lmt_knowledge_text",
        "ALTER TABLE lmt_knowledge DROP COLUMN text_vector",
        "ALTER TABLE lmt_knowledge DROP COLUMN key_text",
        "ALTER TABLE lmt_knowledge ADD COLUMN term_count INTEGER",
        "ALTER TABLE lmt_knowledge ADD COLUMN terms TSVECTOR",
        "CREATE INDEX lmt_knowledge_terms ON lmt_knowledge USING gin (terms)",
        "ALTER TABLE lmt_namespaces ADD COLUMN erased BIGINT DEFAULT '0' NOT NULL",
        "ALTER TABLE lmt_sessions ADD COLUMN view_revision BIGINT DEFAULT '0' NOT NULL",
        "ALTER TABLE lmt_messages ADD COLUMN namespace_pk BIGINT",
        "ALTER TABLE lmt_messages ADD COLUMN term_count INTEGER",
        "ALTER TABLE lmt_messages ADD COLUMN asks SMALLINT",
        "ALTER TABLE lmt_messages ADD COLUMN importance DOUBLE PRECISION",
        "ALTER TABLE lmt_messages ADD COLUMN speaker TEXT",
        "ALTER TABLE lmt_messages ADD COLUMN terms TSVECTOR",
        "CREATE INDEX lmt_messages_by_namespace ON lmt_messages (namespace_pk, pk)",
        """CREATE TABLE lmt_accesses (
            message_pk BIGINT NOT NULL,
            count BIGINT NOT NULL,
            last_at TIMESTAMP WITH TIME ZONE NOT NULL,
            PRIMARY KEY (message_pk),
            FOREIGN KEY(message_pk) REFERENCES lmt_messages (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_embedders (
            pk BIGSERIAL NOT NULL,
            identity TEXT COLLATE "C" NOT NULL,
            dimension INTEGER NOT NULL,
            used_at TIMESTAMP WITH TIME ZONE NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (identity, dimension)
        )""",
        """CREATE TABLE lmt_vectors (
            pk BIGSERIAL NOT NULL,
            namespace_pk BIGINT NOT NULL,
            embedder_pk BIGINT NOT NULL,
            message_pk BIGINT NOT NULL,
            vector BYTEA,
            PRIMARY KEY (pk),
            UNIQUE (message_pk, embedder_pk),
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE,
            FOREIGN KEY(message_pk) REFERENCES lmt_messages (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_vectors_by_namespace ON lmt_vectors (namespace_pk, embedder_pk, pk)",
        """CREATE TABLE lmt_embedding_cache (
            embedder_pk BIGINT NOT NULL,
            hash BYTEA NOT NULL,
            vector BYTEA NOT NULL,
            expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
            PRIMARY KEY (embedder_pk, hash),
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_embedding_cache_by_age ON lmt_embedding_cache (embedder_pk, expires_at)",
        "CREATE INDEX lmt_messages_terms ON lmt_messages USING gin (terms)",
        "ALTER TABLE lmt_messages ADD COLUMN written_by xid8 DEFAULT pg_current_xact_id()",
        "CREATE INDEX lmt_messages_by_writer ON lmt_messages (namespace_pk, written_by)",
    ),
)
