"""Version 10: pools, where copies come from, and messages by time and importance."""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration

TO_POOLS = Migration(
    10,
    sqlite=(
        """CREATE TABLE lmt_pools (
            pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL,
            name TEXT NOT NULL,
            namespace_pk INTEGER NOT NULL,
            created_at VARCHAR(27) NOT NULL,
            UNIQUE (id),
            UNIQUE (name),
            UNIQUE (namespace_pk),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_pool_members (
            pool_pk INTEGER NOT NULL,
            namespace TEXT NOT NULL,
            can_read BOOLEAN NOT NULL,
            can_write BOOLEAN NOT NULL,
            is_owner BOOLEAN NOT NULL,
            joined_at VARCHAR(27) NOT NULL,
            synced BIGINT NOT NULL,
            PRIMARY KEY (pool_pk, namespace),
            FOREIGN KEY(pool_pk) REFERENCES lmt_pools (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_pool_members_by_namespace ON lmt_pool_members (namespace)",
        """CREATE TABLE lmt_origins (
            memory_pk INTEGER NOT NULL,
            namespace TEXT NOT NULL,
            entry_id TEXT,
            copied_at VARCHAR(27) NOT NULL,
            confidence DOUBLE NOT NULL,
            ends_at VARCHAR(27),
            same_as_pk INTEGER,
            PRIMARY KEY (memory_pk),
            FOREIGN KEY(memory_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE,
            FOREIGN KEY(same_as_pk) REFERENCES lmt_memories (pk) ON DELETE SET NULL
        )""",
        "CREATE INDEX lmt_origins_by_namespace ON lmt_origins (namespace, entry_id)",
        "CREATE INDEX lmt_origins_by_same ON lmt_origins (same_as_pk)",
    ),
    postgresql=(
        """CREATE TABLE lmt_pools (
            pk BIGSERIAL NOT NULL,
            id TEXT COLLATE "C" NOT NULL,
            name TEXT COLLATE "C" NOT NULL,
            namespace_pk BIGINT NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (id),
            UNIQUE (name),
            UNIQUE (namespace_pk),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_pool_members (
            pool_pk BIGINT NOT NULL,
            namespace TEXT COLLATE "C" NOT NULL,
            can_read BOOLEAN NOT NULL,
            can_write BOOLEAN NOT NULL,
            is_owner BOOLEAN NOT NULL,
            joined_at TIMESTAMP WITH TIME ZONE NOT NULL,
            synced BIGINT NOT NULL,
            PRIMARY KEY (pool_pk, namespace),
            FOREIGN KEY(pool_pk) REFERENCES lmt_pools (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_pool_members_by_namespace ON lmt_pool_members (namespace)",
        """CREATE TABLE lmt_origins (
            memory_pk BIGINT NOT NULL,
            namespace TEXT COLLATE "C" NOT NULL,
            entry_id TEXT COLLATE "C",
            copied_at TIMESTAMP WITH TIME ZONE NOT NULL,
            confidence DOUBLE PRECISION NOT NULL,
            ends_at TIMESTAMP WITH TIME ZONE,
            same_as_pk BIGINT,
            PRIMARY KEY (memory_pk),
            FOREIGN KEY(memory_pk) REFERENCES lmt_memories (pk) ON DELETE CASCADE,
            FOREIGN KEY(same_as_pk) REFERENCES lmt_memories (pk) ON DELETE SET NULL
        )""",
        "CREATE INDEX lmt_origins_by_namespace ON lmt_origins (namespace, entry_id)",
        "CREATE INDEX lmt_origins_by_same ON lmt_origins (same_as_pk)",
        """CREATE INDEX lmt_messages_by_time ON lmt_messages (namespace_pk, created_at DESC)
            INCLUDE (role, importance, token_count)""",
        """CREATE INDEX lmt_messages_important ON lmt_messages (namespace_pk, created_at DESC)
            WHERE importance > 0.7""",
        "CREATE INDEX lmt_messages_by_age ON lmt_messages USING brin (created_at)",
    ),
)
