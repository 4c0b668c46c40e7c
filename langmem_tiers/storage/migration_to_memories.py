"""Version 9: long-term entries, episodes, chunks, relations and extracted facts."""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration

TO_MEMORIES = Migration(
    9,
    sqlite=(
        """CREATE TABLE lmt_memory_spaces (
            namespace_pk INTEGER NOT NULL,
            revision BIGINT NOT NULL,
            erased BIGINT NOT NULL,
            consolidation TEXT,
            PRIMARY KEY (namespace_pk),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_memories (
            pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            namespace_pk INTEGER NOT NULL,
            tier VARCHAR(10) NOT NULL,
            id TEXT NOT NULL,
            kind TEXT NOT NULL,
            category TEXT,
            content TEXT NOT NULL,
            importance DOUBLE NOT NULL,
            token_count BIGINT NOT NULL,
            created_at VARCHAR(27) NOT NULL,
            valid_from VARCHAR(27) NOT NULL,
            valid_until VARCHAR(27),
            archived_at VARCHAR(27),
            access_count BIGINT NOT NULL,
            last_access_at VARCHAR(27) NOT NULL,
            session_pk INTEGER,
            session TEXT,
            turn BIGINT,
            revision BIGINT NOT NULL,
            terms TEXT NOT NULL,
            body TEXT NOT NULL,
            UNIQUE (namespace_pk, id),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE,
            FOREIGN KEY(session_pk) REFERENCES lmt_sessions (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_memories_by_age ON lmt_memories (namespace_pk, tier, archived_at, created_at, pk)",
        "CREATE INDEX lmt_memories_by_revision ON lmt_memories (namespace_pk, revision)",
        "CREATE INDEX lmt_memories_by_session ON lmt_memories (session_pk, tier, turn)",
        "CREATE INDEX lmt_memories_by_tier ON lmt_memories (namespace_pk, tier, pk)",
        """CREATE TABLE lmt_memory_tags (
            memory_pk INTEGER NOT NULL,
            tag TEXT NOT NULL,
            PRIMARY KEY (memory_pk, tag),
            FOREIGN KEY(memory_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_memory_vectors (
            memory_pk INTEGER NOT NULL,
            embedder_pk INTEGER NOT NULL,
            vector BLOB NOT NULL,
            PRIMARY KEY (memory_pk, embedder_pk),
            FOREIGN KEY(memory_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE,
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_relations (
            source_pk INTEGER NOT NULL,
            target_pk INTEGER NOT NULL,
            kind TEXT NOT NULL,
            strength DOUBLE NOT NULL,
            created_at VARCHAR(27) NOT NULL,
            PRIMARY KEY (source_pk, target_pk, kind),
            FOREIGN KEY(source_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE,
            FOREIGN KEY(target_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_relations_by_target ON lmt_relations (target_pk)",
        """CREATE TABLE lmt_extracted_facts (
            pk INTEGER NOT NULL,
            namespace_pk INTEGER NOT NULL,
            session_pk INTEGER,
            id TEXT NOT NULL,
            state VARCHAR(11) NOT NULL,
            confidence DOUBLE NOT NULL,
            extracted_at VARCHAR(27) NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (namespace_pk, id),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE,
            FOREIGN KEY(session_pk) REFERENCES lmt_sessions (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_extracted_facts_by_session ON lmt_extracted_facts (session_pk)",
        "CREATE INDEX lmt_extracted_facts_by_state ON lmt_extracted_facts (namespace_pk, state, pk)",
        """CREATE TABLE lmt_learned_sessions (
            session_pk INTEGER NOT NULL,
            learned BIGINT NOT NULL,
            chunked BIGINT NOT NULL,
            PRIMARY KEY (session_pk),
            FOREIGN KEY(session_pk) REFERENCES lmt_sessions (pk) ON DELETE CASCADE
        )""",
    ),
    postgresql=(
        """CREATE TABLE lmt_memory_spaces (
            namespace_pk BIGINT NOT NULL,
            revision BIGINT NOT NULL,
            erased BIGINT NOT NULL,
            consolidation TEXT,
            PRIMARY KEY (namespace_pk),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_memories (
            pk BIGSERIAL NOT NULL,
            namespace_pk BIGINT NOT NULL,
            tier VARCHAR(10) NOT NULL,
            id TEXT COLLATE "C" NOT NULL,
            kind TEXT COLLATE "C" NOT NULL,
            category TEXT COLLATE "C",
            content TEXT NOT NULL,
            importance DOUBLE PRECISION NOT NULL,
            token_count BIGINT NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE NOT NULL,
            valid_from TIMESTAMP WITH TIME ZONE NOT NULL,
            valid_until TIMESTAMP WITH TIME ZONE,
            archived_at TIMESTAMP WITH TIME ZONE,
            access_count BIGINT NOT NULL,
            last_access_at TIMESTAMP WITH TIME ZONE NOT NULL,
            session_pk BIGINT,
            session TEXT COLLATE "C",
            turn BIGINT,
            revision BIGINT NOT NULL,
            terms TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (namespace_pk, id),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE,
            FOREIGN KEY(session_pk) REFERENCES lmt_sessions (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_memories_by_age ON lmt_memories (namespace_pk, tier, archived_at, created_at, pk)",
        "CREATE INDEX lmt_memories_by_revision ON lmt_memories (namespace_pk, revision)",
        "CREATE INDEX lmt_memories_by_session ON lmt_memories (session_pk, tier, turn)",
        "CREATE INDEX lmt_memories_by_tier ON lmt_memories (namespace_pk, tier, pk)",
        """CREATE TABLE lmt_memory_tags (
            memory_pk BIGINT NOT NULL,
            tag TEXT COLLATE "C" NOT NULL,
            PRIMARY KEY (memory_pk, tag),
            FOREIGN KEY(memory_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_memory_vectors (
            memory_pk BIGINT NOT NULL,
            embedder_pk BIGINT NOT NULL,
            vector BYTEA NOT NULL,
            PRIMARY KEY (memory_pk, embedder_pk),
            FOREIGN KEY(memory_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE,
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_relations (
            source_pk BIGINT NOT NULL,
            target_pk BIGINT NOT NULL,
            kind TEXT COLLATE "C" NOT NULL,
            strength DOUBLE PRECISION NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE NOT NULL,
            PRIMARY KEY (source_pk, target_pk, kind),
            FOREIGN KEY(source_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE,
            FOREIGN KEY(target_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_relations_by_target ON lmt_relations (target_pk)",
        """CREATE TABLE lmt_extracted_facts (
            pk BIGSERIAL NOT NULL,
            namespace_pk BIGINT NOT NULL,
            session_pk BIGINT,
            id TEXT COLLATE "C" NOT NULL,
            state VARCHAR(11) NOT NULL,
            confidence DOUBLE PRECISION NOT NULL,
            extracted_at TIMESTAMP WITH TIME ZONE NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (namespace_pk, id),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE,
            FOREIGN KEY(session_pk) REFERENCES lmt_sessions (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_extracted_facts_by_session ON lmt_extracted_facts (session_pk)",
        "CREATE INDEX lmt_extracted_facts_by_state ON lmt_extracted_facts (namespace_pk, state, pk)",
        """CREATE TABLE lmt_learned_sessions (
            session_pk BIGINT NOT NULL,
            learned BIGINT NOT NULL,
            chunked BIGINT NOT NULL,
            PRIMARY KEY (session_pk),
            FOREIGN KEY(session_pk) REFERENCES lmt_sessions (pk) ON DELETE CASCADE
        )""",
    ),
)
