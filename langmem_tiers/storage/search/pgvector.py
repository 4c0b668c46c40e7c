"""Looks through vectors in PostgreSQL's own type: one by one, and by HNSW index where a namespace is large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers.storage.search.pgvector_rows import MAX_INDEXED, index_name, sending, sent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy.pool import PoolProxiedConnection

    from langmem_tiers.core.indexes import Within
    from langmem_tiers.storage.database import Database

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
_INDEXED, _NOT_YET = " AND is_indexed", " AND NOT is_indexed"
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
_TOTAL = "SELECT reltuples FROM pg_class WHERE oid = to_regclass(%s)"


def nearest(
    database: Database, place: tuple[int, int], query: NDArray[np.float32], limit: int, within: Within
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The nearest messages of a namespace by a model, best first, and as many as there are up to the limit."""
    namespace, model = place
    own = {"namespace": namespace, "query": sent(query), "limit": limit}
    values = own | {name: value for name, value in _values(within).items() if value is not None}
    chosen = _COSINE + " " + _OF_NAMESPACE
    if len(values) > len(own):
        chosen += _FILTERED.format(
            conditions=" ".join(text for name, text in _CONDITIONS.items() if name in values)
        )
    with database.read_raw() as connection:
        found = None
        if _by_index(database, connection, (model, len(query)), limit, within):
            # What is new is not in the index yet, and is looked through beside it.
            beside = f"{chosen}{_NOT_YET}{_ONE_BY_ONE}"
            rows = f"{chosen}{_INDEXED}{_BY_INDEX}) UNION ALL (SELECT message_pk, {beside}"
            found = _run(connection, rows, len(query), model, values)
        # The index knows nothing of tenants, and gives up at some point: what it missed is found one by one.
        if found is None or len(found[0]) < min(limit, within.count):
            found = _run(connection, chosen + _ONE_BY_ONE, len(query), model, values)
    order = found[1].argsort(kind="stable")[::-1][:limit]
    return found[0][order], found[1][order]


def _by_index(
    database: Database, connection: PoolProxiedConnection, of: tuple[int, int], limit: int, within: Within
) -> bool:
    config, (model, dimension) = database.config.postgres, of
    if dimension > MAX_INDEXED or within.count * dimension <= config.exact_numbers:
        return False
    cursor = connection.cursor()
    try:
        cursor.execute(_TOTAL, [index_name(model)])
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
    values = {"query": sent(query), "keys": _keys(keys.tolist())}
    with database.read_raw() as connection:
        return _run(connection, _COSINE + " " + _OF_SOME, len(query), model, values)


def _run(
    connection: PoolProxiedConnection, rows: str, dimension: int, model: int, values: Mapping[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    statement = _PACKED.format(rows=("(SELECT message_pk, " + rows + ")").format(d=dimension, m=model))
    keys, near = _packed_row(connection, statement, values)
    return np.frombuffer(keys, ">i8").astype(np.int64), np.frombuffer(near, ">f4").astype(np.float32)


def _packed_row(
    connection: PoolProxiedConnection, statement: str, values: Mapping[str, Any]
) -> tuple[bytes, bytes]:
    cursor = sending(connection.cursor())
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
