"""Version 7: contexts and their versions."""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration

TO_CONTEXT_FILES = Migration(
    7,
    sqlite=(
        """CREATE TABLE lmt_context_files (
            pk INTEGER NOT NULL,
            namespace_pk INTEGER NOT NULL,
            session_id TEXT NOT NULL,
            current BIGINT NOT NULL,
            last BIGINT NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (namespace_pk, session_id),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_context_versions (
            file_pk INTEGER NOT NULL,
            number BIGINT NOT NULL,
            body TEXT NOT NULL,
            saved_at VARCHAR(27) NOT NULL,
            damage TEXT,
            PRIMARY KEY (file_pk, number),
            FOREIGN KEY(file_pk) REFERENCES lmt_context_files (pk) ON DELETE CASCADE
        )""",
    ),
    postgresql=(
        """CREATE TABLE lmt_context_files (
            pk BIGSERIAL NOT NULL,
            namespace_pk BIGINT NOT NULL,
            session_id TEXT COLLATE "C" NOT NULL,
            current BIGINT NOT NULL,
            last BIGINT NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (namespace_pk, session_id),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_context_versions (
            file_pk BIGINT NOT NULL,
            number BIGINT NOT NULL,
            body TEXT NOT NULL,
            saved_at TIMESTAMP WITH TIME ZONE NOT NULL,
            damage TEXT,
            PRIMARY KEY (file_pk, number),
            FOREIGN KEY(file_pk) REFERENCES lmt_context_files (pk) ON DELETE CASCADE
        )""",
    ),
)
