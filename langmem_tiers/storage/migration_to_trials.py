"""Version 12: how far a model is to be trusted in a namespace, found by one process for all."""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration

TO_TRIALS = Migration(
    12,
    sqlite=(
        """CREATE TABLE lmt_trials (
            namespace_pk INTEGER NOT NULL,
            embedder_pk INTEGER NOT NULL,
            erased BIGINT NOT NULL,
            last_pk INTEGER NOT NULL,
            size INTEGER NOT NULL,
            pairs INTEGER NOT NULL,
            others INTEGER NOT NULL,
            share DOUBLE NOT NULL,
            scale DOUBLE NOT NULL,
            PRIMARY KEY (namespace_pk, embedder_pk),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE,
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE
        )""",
    ),
    postgresql=(
        """CREATE TABLE lmt_trials (
            namespace_pk BIGINT NOT NULL,
            embedder_pk BIGINT NOT NULL,
            erased BIGINT NOT NULL,
            last_pk BIGINT NOT NULL,
            size INTEGER NOT NULL,
            pairs INTEGER NOT NULL,
            others INTEGER NOT NULL,
            share DOUBLE PRECISION NOT NULL,
            scale DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (namespace_pk, embedder_pk),
            FOREIGN KEY(namespace_pk) REFERENCES lmt_namespaces (pk) ON DELETE CASCADE,
            FOREIGN KEY(embedder_pk) REFERENCES lmt_embedders (pk) ON DELETE CASCADE
        )""",
    ),
)
