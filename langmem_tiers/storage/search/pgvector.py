"""Vectors in PostgreSQL's own type, found by an HNSW index, where the extension can be had.

Vectors of several models share a table; each model has an index of its own over its own rows, so
their dimensions may differ and they are never compared.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from langmem_tiers.core.errors import StorageBusyError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection

    from langmem_tiers.storage.database import Database

_log = logging.getLogger("langmem_tiers")
MAX_INDEXED = 2000
"""Dimensions that pgvector indexes; longer vectors are compared one by one."""
_LOCK = 0x6C6D7476  # "lmtv": one number for all who prepare a database

# A vector without a direction has no cosine: it is as near as anything.
_COSINE = """COALESCE(NULLIF(
    1 - (CAST(embedding AS vector({d})) <=> CAST(:query AS vector({d}))), 'NaN'), 0) AS cosine"""
_NEAREST = "\n".join(
    (
        "SELECT message_pk,",
        _COSINE,
        "FROM lmt_vectors WHERE namespace_pk = :namespace AND embedder_pk = {m} AND embedding IS NOT NULL",
        "ORDER BY CAST(embedding AS vector({d})) <=> CAST(:query AS vector({d})) LIMIT :limit",
    )
)
_COSINES = "\n".join(
    (
        "SELECT message_pk,",
        _COSINE,
        "FROM lmt_vectors WHERE embedder_pk = {m} AND message_pk = ANY(:keys) AND embedding IS NOT NULL",
    )
)
_VERSION = text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
_PREPARED = text(
    """SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS version,
        EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('lmt_vectors')
            AND attname = 'embedding' AND NOT attisdropped) AS has_column,
        to_regclass(:index) IS NOT NULL AS has_index"""
)
_INSERT = text(
    """INSERT INTO lmt_vectors (namespace_pk, embedder_pk, message_pk, embedding)
        VALUES (:namespace_pk, :embedder_pk, :message_pk, CAST(:vector AS vector))
        ON CONFLICT (message_pk, embedder_pk) DO UPDATE SET embedding = excluded.embedding"""
)


def prepare(database: Database, model: int, dimension: int, patience_seconds: float | None = None) -> bool:
    """Make room and an index for a model's vectors; False if the server has no pgvector."""
    if _is_prepared(database, model, dimension):
        return True
    try:
        with database.write(patience_seconds) as connection:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS vector"))
            version = connection.execute(_VERSION).scalar_one()
            if not _is_new_enough(version):
                _log.warning(
                    "pgvector %s is too old: vectors are compared in this process; 0.8 is needed", version
                )
                return False
            connection.execute(text("ALTER TABLE lmt_vectors ADD COLUMN IF NOT EXISTS embedding vector"))
            if dimension <= MAX_INDEXED:
                connection.execute(text(_index(model, dimension)))
    except StorageBusyError:  # says nothing about the server: the next recall asks again
        raise
    except StorageError as error:
        _log.warning(
            "pgvector is not to be had (%s): vectors are compared in this process; "
            "let somebody who may do so run CREATE EXTENSION vector",
            type(error).__name__,
        )
        return False
    return True


def make_room(database: Database) -> bool:
    """Make room for vectors of any model, and no index yet; False if the server has no pgvector."""
    return prepare(database, 0, MAX_INDEXED + 1)


def _is_prepared(database: Database, model: int, dimension: int) -> bool:
    # Looked at first: preparing again would wait for everybody who writes vectors.
    with database.read() as connection:
        found = connection.execute(_PREPARED, {"index": f"lmt_vectors_near_{model}"}).one()
    has_index = found.has_index or dimension > MAX_INDEXED
    return bool(found.has_column and has_index and _is_new_enough(found.version))


def _is_new_enough(version: str | None) -> bool:
    return version is not None and tuple(int(part) for part in version.split(".")[:2]) >= (0, 8)


def _index(model: int, dimension: int) -> str:
    return f"""CREATE INDEX IF NOT EXISTS lmt_vectors_near_{model} ON lmt_vectors
        USING hnsw ((embedding::vector({dimension})) vector_cosine_ops) WITH (m = 16, ef_construction = 64)
        WHERE embedder_pk = {model}"""


def put(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Keep vectors."""
    import numpy as np  # noqa: PLC0415 - not before something is embedded

    connection.execute(
        _INSERT, [row | {"vector": _literal(np.frombuffer(row["vector"], "<f4"))} for row in rows]
    )


def nearest(
    database: Database, place: tuple[int, int], query: NDArray[np.float32], limit: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The nearest messages of a namespace by a model, best first."""
    namespace, model = place
    statement = text(_NEAREST.format(d=len(query), m=model))
    values = {"query": _literal(query), "namespace": namespace, "limit": limit}
    with database.write() as connection:
        # The index knows nothing of tenants: it goes on until enough of its finds are of this one.
        connection.execute(text("SET LOCAL hnsw.iterative_scan = strict_order"))
        connection.execute(text(f"SET LOCAL hnsw.ef_search = {max(40, min(1000, limit))}"))
        rows = connection.execute(statement, values).all()
    return _columns(rows)


def cosines(
    database: Database, model: int, query: NDArray[np.float32], keys: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The cosines of some messages."""
    statement = text(_COSINES.format(d=len(query), m=model))
    with database.read() as connection:
        rows = connection.execute(statement, {"query": _literal(query), "keys": keys.tolist()}).all()
    return _columns(rows)


def vectors(
    database: Database, model: int, keys: Sequence[int], dimension: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The vectors of some messages."""
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    statement = text(
        """SELECT message_pk, CAST(embedding AS real[]) AS numbers FROM lmt_vectors
            WHERE embedder_pk = :model AND message_pk = ANY(:keys) AND embedding IS NOT NULL"""
    )
    with database.read() as connection:
        rows = connection.execute(statement, {"model": model, "keys": list(keys)}).all()
    table = np.array([row.numbers for row in rows], np.float32).reshape(len(rows), dimension)
    return np.array([row.message_pk for row in rows], np.int64), table


def _literal(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def _columns(rows: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    keys = np.array([row.message_pk for row in rows], np.int64)
    return keys, np.array([row.cosine for row in rows], np.float32)
