"""Vectors in PostgreSQL's own type, found by an HNSW index, where the extension can be had.

Vectors of several models share a table; each model has an index of its own over its own rows, so
their dimensions may differ and they are never compared.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from langmem_tiers.core.errors import StorageBusyError, StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection
    from sqlalchemy.pool import PoolProxiedConnection

    from langmem_tiers.core.indexes import Within
    from langmem_tiers.storage.database import Database

_log = logging.getLogger("langmem_tiers")
MAX_INDEXED = 2000
"""Dimensions that pgvector indexes; longer vectors are compared one by one."""
_LOCK = 0x6C6D7476  # "lmtv": one number for all who prepare a database

# A vector without a direction has no cosine: it is as near as anything.
_COSINE = """COALESCE(NULLIF(
    1 - (CAST(embedding AS vector({d})) <=> CAST(%(query)s AS vector({d}))), 'NaN'), 0) AS cosine"""
_OF_NAMESPACE = """FROM lmt_vectors
    WHERE namespace_pk = %(namespace)s AND embedder_pk = {m} AND embedding IS NOT NULL"""
_OF_SOME = """FROM lmt_vectors
    WHERE embedder_pk = {m} AND message_pk = ANY(CAST(%(keys)s AS bigint[])) AND embedding IS NOT NULL"""
_FILTERED = " AND EXISTS (SELECT 1 FROM lmt_messages WHERE pk = message_pk {conditions})"
_BY_INDEX = " ORDER BY CAST(embedding AS vector({d})) <=> CAST(%(query)s AS vector({d})) LIMIT %(limit)s"
_ONE_BY_ONE = " ORDER BY cosine DESC LIMIT %(limit)s"  # by what no index knows
# As two strings of bytes: a driver that makes an object of each number takes longer than the server for all of it.
_PACKED = """SELECT string_agg(int8send(message_pk), ''::bytea), string_agg(float4send(cosine::real), ''::bytea)
    FROM ({rows}) AS found"""
_VECTORS = (
    "SELECT string_agg(int8send(message_pk), ''::bytea), string_agg(vector_send(embedding), ''::bytea) "
    + _OF_SOME
)
_CONDITIONS = {
    "sessions": "AND session_pk = ANY(CAST(%(sessions)s AS bigint[]))",
    "since": "AND created_at >= %(since)s",
    "until": "AND created_at < %(until)s",
}
_TOTAL = "SELECT reltuples FROM pg_class WHERE oid = to_regclass('lmt_vectors')"
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
        ON CONFLICT (message_pk, embedder_pk) DO UPDATE SET embedding = excluded.embedding
        WHERE lmt_vectors.embedding IS DISTINCT FROM excluded.embedding"""
)  # two processes that make the same one write it once: each version of a row is a node of the index


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
    except (
        StorageBusyError,
        StorageUnavailableError,
    ):  # says nothing about the server: the next recall asks again
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
    database: Database, place: tuple[int, int], query: NDArray[np.float32], limit: int, within: Within
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The nearest messages of a namespace by a model, best first, and as many as there are up to the limit."""
    namespace, model = place
    own = {"namespace": namespace, "query": _literal(query), "limit": limit}
    values = own | {name: value for name, value in _values(within).items() if value is not None}
    chosen = _COSINE + " " + _OF_NAMESPACE
    if len(values) > len(own):
        chosen += _FILTERED.format(
            conditions=" ".join(text for name, text in _CONDITIONS.items() if name in values)
        )
    with database.read_raw() as connection:
        found = None
        if _by_index(database, connection, len(query), limit, within):
            found = _run(connection, chosen + _BY_INDEX, len(query), model, values)
        # The index knows nothing of tenants, and gives up at some point: what it missed is found one by one.
        if found is None or len(found[0]) < min(limit, within.count):
            found = _run(connection, chosen + _ONE_BY_ONE, len(query), model, values)
    order = found[1].argsort(kind="stable")[::-1]
    return found[0][order], found[1][order]


def _by_index(
    database: Database, connection: PoolProxiedConnection, dimension: int, limit: int, within: Within
) -> bool:
    config = database.config.postgres
    if dimension > MAX_INDEXED or within.count * dimension <= config.exact_numbers:
        return False
    cursor = connection.cursor()
    try:
        cursor.execute(_TOTAL)
        total = (cursor.fetchone() or (0,))[0]
    finally:
        cursor.close()
    # Of what the index looks at before it gives up, so many are of this namespace.
    return bool(config.max_scan_tuples * within.count >= limit * total)


def _values(within: Within) -> dict[str, Any]:
    sessions = None if within.sessions is None else _keys(within.sessions)
    return {"sessions": sessions, "since": within.since, "until": within.until}


def cosines(
    database: Database, model: int, query: NDArray[np.float32], keys: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The cosines of some messages."""
    values = {"query": _literal(query), "keys": _keys(keys.tolist())}
    with database.read_raw() as connection:
        return _run(connection, _COSINE + " " + _OF_SOME, len(query), model, values)


def _run(
    connection: PoolProxiedConnection, rows: str, dimension: int, model: int, values: Mapping[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    statement = _PACKED.format(rows=("SELECT message_pk, " + rows).format(d=dimension, m=model))
    keys, near = _packed_row(connection, statement, values)
    return np.frombuffer(keys, ">i8").astype(np.int64), np.frombuffer(near, ">f4").astype(np.float32)


def _packed_row(
    connection: PoolProxiedConnection, statement: str, values: Mapping[str, Any]
) -> tuple[bytes, bytes]:
    cursor: Any = connection.cursor()
    try:
        cursor.execute(statement, values, binary=True)
        first, second = cursor.fetchone()
    finally:
        cursor.close()
    return bytes(first or b""), bytes(second or b"")


def _keys(keys: Sequence[int]) -> str:
    return "{" + ",".join(map(str, keys)) + "}"


def vectors(
    database: Database, model: int, keys: Sequence[int], dimension: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The vectors of some messages."""
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    with database.read_raw() as connection:
        found = _packed_row(connection, _VECTORS.format(m=model), {"keys": _keys(keys)})
    sent = np.frombuffer(found[1], np.dtype([("head", ">i2", 2), ("numbers", ">f4", dimension)]))
    return np.frombuffer(found[0], ">i8").astype(np.int64), sent["numbers"].astype(np.float32)


def _literal(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"
