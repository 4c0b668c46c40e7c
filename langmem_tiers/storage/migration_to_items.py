"""Version 5: items, with the texts that they are found by and their vectors."""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration

TO_ITEMS = Migration(
    5,
    sqlite=(
        """CREATE TABLE lmt_item_namespaces (
            pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            path TEXT NOT NULL,
            revision BIGINT NOT NULL,
            erased BIGINT NOT NULL,
            UNIQUE (path)
        )""",
        """CREATE TABLE lmt_items (
            pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            namespace_pk INTEGER NOT NULL,
            "key" TEXT NOT NULL,
            value TEXT NOT NULL,
            created_at VARCHAR(27) NOT NULL,
            updated_at VARCHAR(27) NOT NULL,
            expires_at VARCHAR(27),
            ttl_seconds DOUBLE,
            revision BIGINT NOT NULL,
            UNIQUE (namespace_pk, "key"),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_item_namespaces (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_items_by_age ON lmt_items (namespace_pk, updated_at, pk)",
        "CREATE INDEX lmt_items_by_expiry ON lmt_items (expires_at)",
        "CREATE INDEX lmt_items_by_revision ON lmt_items (namespace_pk, revision)",
        """CREATE TABLE lmt_item_texts (
            item_pk INTEGER NOT NULL,
            number INTEGER NOT NULL,
            text TEXT NOT NULL,
            terms TEXT NOT NULL,
            PRIMARY KEY (item_pk, number),
            FOREIGN KEY(item_pk) REFERENCES lmt_items (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_item_vectors (
            item_pk INTEGER NOT NULL,
            number INTEGER NOT NULL,
            embedder_pk INTEGER NOT NULL,
            vector BLOB NOT NULL,
            PRIMARY KEY (item_pk, number, embedder_pk),
            FOREIGN KEY(item_pk, number) REFERENCES lmt_item_texts (item_pk, number) ON DELETE CASCADE,
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE
        )""",
    ),
    postgresql=(
        """CREATE TABLE lmt_item_namespaces (
            pk BIGSERIAL NOT NULL,
            path TEXT COLLATE "C" NOT NULL,
            revision BIGINT NOT NULL,
            erased BIGINT NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (path)
        )""",
        """CREATE TABLE lmt_items (
            pk BIGSERIAL NOT NULL,
            namespace_pk BIGINT NOT NULL,
            key TEXT COLLATE "C" NOT NULL,
            value TEXT NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE NOT NULL,
            updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
            expires_at TIMESTAMP WITH TIME ZONE,
            ttl_seconds DOUBLE PRECISION,
            revision BIGINT NOT NULL,
            PRIMARY KEY (pk),
            UNIQUE (namespace_pk, key),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_item_namespaces (pk) ON DELETE CASCADE
        )""",
        "CREATE INDEX lmt_items_by_age ON lmt_items (namespace_pk, updated_at, pk)",
        "CREATE INDEX lmt_items_by_expiry ON lmt_items (expires_at)",
        "CREATE INDEX lmt_items_by_revision ON lmt_items (namespace_pk, revision)",
        """CREATE TABLE lmt_item_texts (
            item_pk BIGINT NOT NULL,
            number INTEGER NOT NULL,
            text TEXT NOT NULL,
            terms TEXT NOT NULL,
            PRIMARY KEY (item_pk, number),
            FOREIGN KEY(item_pk) REFERENCES lmt_items (pk) ON DELETE CASCADE
        )""",
        """CREATE TABLE lmt_item_vectors (
            item_pk BIGINT NOT NULL,
            number INTEGER NOT NULL,
            embedder_pk BIGINT NOT NULL,
            vector BYTEA NOT NULL,
            PRIMARY KEY (item_pk, number, embedder_pk),
            FOREIGN KEY(item_pk, number) REFERENCES lmt_item_texts (item_pk, number) ON DELETE CASCADE,
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE
        )""",
    ),
)
