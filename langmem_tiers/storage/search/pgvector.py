"""Looks through vectors in PostgreSQL's own type: one by one, and by HNSW index where a namespace is large."""

from __future__ import annotations

import logging
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from langmem_tiers.errors import StorageBusyError, StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection
    from sqlalchemy.pool import PoolProxiedConnection

    from langmem_tiers.recall.records import Tenant, VectorSearchFilter
    from langmem_tiers.storage.database import Database


_log = logging.getLogger("langmem_tiers")
MAX_INDEXED_DIMENSIONS = 2000
"""Dimensions that pgvector indexes; longer vectors are compared one by one."""
_PREPARE_LOCK = 0x6C6D7476  # "lmtv": one number for all who prepare a database
_INDEXING_LOCK = 0x6C6D7469  # "lmti", with the number of the namespace
_INDEX_BATCH_SIZE = 200
MAX_UNINDEXED_VECTORS = 2000
"""Vectors of a large namespace that may wait beside the index: so many are looked through in about a millisecond."""

_VERSION_QUERY = text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
_STATE_QUERY = text(
    """SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS version,
        (SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('lmt_vectors')
            AND attname IN ('embedding', 'is_indexed') AND NOT attisdropped) AS columns,
        COALESCE(pg_get_indexdef(to_regclass(:index)) LIKE '%is_indexed%', false) AS has_index"""
)
_ADD_COLUMNS = """ALTER TABLE lmt_vectors ADD COLUMN IF NOT EXISTS embedding vector,
    ADD COLUMN IF NOT EXISTS is_indexed boolean NOT NULL DEFAULT false"""
_CREATE_UNINDEXED_INDEX = """CREATE INDEX IF NOT EXISTS lmt_vectors_beside ON lmt_vectors (namespace_pk, embedder_pk)
    WHERE NOT is_indexed"""
# One statement, so one way to the server. Vectors can be made again: nobody waits until they are on the disk.
_INSERT_VECTORS = """WITH given AS MATERIALIZED (
        SELECT set_config('synchronous_commit', 'off', true) AS later,
            set_config('lock_timeout', COALESCE(%(patience)s, current_setting('lock_timeout')), true) AS patience
    ), same AS MATERIALIZED (
        SELECT named.pk FROM given, lmt_namespaces AS named
        WHERE named.pk = %(namespace)s AND named.erased = %(erased)s AND given.later = 'off'
        FOR SHARE OF named
    ), written AS (
        INSERT INTO lmt_vectors (namespace_pk, embedder_pk, message_pk, embedding)
        SELECT said.namespace_pk, %(model)s, said.pk, made.vector
        FROM same JOIN lmt_messages AS said ON said.namespace_pk = same.pk
            JOIN unnest(CAST(%(keys)s AS bigint[]), CAST(%(vectors)s AS vector[])) AS made (key, vector)
            ON made.key = said.pk
        WHERE said.pk = ANY(CAST(%(keys)s AS bigint[]))
        ORDER BY said.pk
        ON CONFLICT (message_pk, embedder_pk) DO UPDATE SET embedding = excluded.embedding
            WHERE lmt_vectors.embedding IS DISTINCT FROM excluded.embedding
    ) SELECT EXISTS (SELECT 1 FROM same)"""
VECTOR_TYPE_QUERY = text("SELECT CAST(CAST('vector' AS regtype) AS oid)")
"""The number that the server knows the type of vectors by: another one each time the extension is made."""
# Two processes that make the same one write it once.
_COUNT_UNINDEXED = text(
    """SELECT count(*) FROM (SELECT 1 FROM lmt_vectors WHERE namespace_pk = :namespace AND embedder_pk = :model
        AND NOT is_indexed LIMIT :few + 1) AS waiting"""
)
_TRY_INDEXING_LOCK = text("SELECT pg_try_advisory_xact_lock(:lock, CAST(:namespace % 2147483647 AS integer))")
_MARK_INDEXED = text(
    """UPDATE lmt_vectors SET is_indexed = true WHERE pk IN (SELECT pk FROM lmt_vectors
        WHERE namespace_pk = :namespace AND embedder_pk = :model AND NOT is_indexed
        ORDER BY pk LIMIT :limit FOR UPDATE SKIP LOCKED)"""
)


def build_index_name(model: int) -> str:
    """What the HNSW index of a model is called."""
    return f"lmt_vectors_near_{model}"


def prepare(database: Database, model: int, dimension: int, patience_seconds: float | None = None) -> bool:
    """Make room and an index for a model's vectors; False if the server has no pgvector."""
    with database.read() as connection:  # looked at first: preparing waits for everybody who writes vectors
        if _is_prepared(connection, model, dimension):
            return True
    try:
        with database.write(patience_seconds) as connection:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_PREPARE_LOCK})"))
            if _is_prepared(connection, model, dimension):  # by somebody else, meanwhile
                return True
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS vector"))
            version = connection.execute(_VERSION_QUERY).scalar_one()
            if not _is_new_enough(version):
                _log.warning(
                    "pgvector %s is too old: vectors are compared in this process; 0.8 is needed", version
                )
                return False
            connection.execute(text(_ADD_COLUMNS))
            connection.execute(text(_CREATE_UNINDEXED_INDEX))
            if dimension <= MAX_INDEXED_DIMENSIONS:
                # One from before, over the vectors of small namespaces as well, would make each of them dear to store.
                connection.execute(text(f"DROP INDEX IF EXISTS {build_index_name(model)}"))
                connection.execute(text(_build_index_ddl(model, dimension)))
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


def ensure_vector_columns(database: Database) -> bool:
    """Make room for vectors of any model, and no index yet; False if the server has no pgvector."""
    return prepare(database, 0, MAX_INDEXED_DIMENSIONS + 1)


def _is_prepared(connection: Connection, model: int, dimension: int) -> bool:
    found = connection.execute(_STATE_QUERY, {"index": build_index_name(model)}).one()
    has_index = found.has_index or dimension > MAX_INDEXED_DIMENSIONS
    return bool(found.columns == 2 and has_index and _is_new_enough(found.version))


def _is_new_enough(version: str | None) -> bool:
    return version is not None and tuple(int(part) for part in version.split(".")[:2]) >= (0, 8)


def _build_index_ddl(model: int, dimension: int) -> str:
    return f"""CREATE INDEX {build_index_name(model)} ON lmt_vectors
        USING hnsw ((embedding::vector({dimension})) vector_cosine_ops) WITH (m = 16, ef_construction = 64)
        WHERE embedder_pk = {model} AND is_indexed"""


def insert_vectors(
    connection: PoolProxiedConnection,
    tenant: Tenant,
    made_by: tuple[int, int],
    rows: Mapping[int, NDArray[np.float32]],
    patience_seconds: float | None = None,
) -> bool:
    """Keep vectors of messages by their keys; those that are gone are left out, all if anything was erased.

    Args:
        connection: Where, in no transaction.
        tenant: Whose messages they are.
        made_by: The model's key, and the number that the server knows the type of vectors by.
        rows: The vectors.
        patience_seconds: How long to wait for others who write; as long as for any write, if left out.
    """
    model, kind = made_by
    values = {
        "namespace": tenant.key,
        "erased": tenant.erasure_epoch,
        "model": model,
        "keys": list(rows),
        "vectors": _encode_array(kind, [encode_vector(row) for row in rows.values()]),
        "patience": None if patience_seconds is None else f"{max(1, int(patience_seconds * 1000))}",
    }
    cursor = register_dumper(connection.cursor())
    try:
        cursor.execute(_INSERT_VECTORS, values)
        return bool(cursor.fetchone()[0])
    finally:
        cursor.close()


def _encode_array(kind: int, parts: Sequence[bytes]) -> EncodedVector:
    # As PostgreSQL reads an array from the wire: one dimension, no nulls, the type, how many, counted from 1.
    head = struct.pack(">5i", 1, 0, kind, len(parts), 1)
    return EncodedVector(head + b"".join(struct.pack(">i", len(part)) + part for part in parts))


def index_vectors(database: Database, place: tuple[int, int], go_on: Callable[[], bool], *, few: int) -> int:
    """Put vectors of a namespace by a model into the index, if more than a few wait for that; how many those were."""
    namespace, model = place
    of = {"namespace": namespace, "model": model}
    with database.read() as connection:
        if connection.execute(_COUNT_UNINDEXED, of | {"few": few}).scalar_one() <= few:
            return 0
    done = 0
    while go_on():
        with database.write() as connection:
            if not connection.execute(
                _TRY_INDEXING_LOCK, {"lock": _INDEXING_LOCK, "namespace": namespace}
            ).scalar():
                return done  # another process is at it
            brought = connection.execute(_MARK_INDEXED, of | {"limit": _INDEX_BATCH_SIZE}).rowcount
        done += brought
        if brought < _INDEX_BATCH_SIZE:
            break
    return done


def encode_vector(vector: NDArray[np.float32]) -> EncodedVector:
    """A vector as pgvector reads it from the wire: as text it would take longer than all the rest."""
    import numpy as np  # noqa: PLC0415 - not before something is embedded

    return EncodedVector(len(vector).to_bytes(2, "big") + b"\0\0" + np.asarray(vector, ">f4").tobytes())


class EncodedVector(bytes):
    """The bytes of a vector."""

    __slots__ = ()


def register_dumper(cursor: Any) -> Any:  # noqa: ANN401 - psycopg's own
    """The cursor, able to send vectors."""
    cursor.adapters.register_dumper(EncodedVector, _get_dumper_class())
    return cursor


@cache
def _get_dumper_class() -> Any:  # noqa: ANN401 - psycopg's own
    from psycopg.adapt import Dumper  # noqa: PLC0415 - an extra
    from psycopg.pq import Format  # noqa: PLC0415 - as above

    class SentDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:  # noqa: ANN401 - by its interface
            return bytes(obj)

    return SentDumper


# A vector without a direction has no cosine: it is as near as anything.
_COSINE = """COALESCE(NULLIF(
    1 - (CAST(embedding AS vector({d})) <=> CAST(%(query)s AS vector({d}))), 'NaN'), 0) AS cosine"""
_FROM_NAMESPACE = """FROM lmt_vectors
    WHERE namespace_pk = %(namespace)s AND embedder_pk = {m} AND embedding IS NOT NULL"""
_FROM_KEYS = """FROM lmt_vectors
    WHERE embedder_pk = {m} AND message_pk = ANY(CAST(%(keys)s AS bigint[])) AND embedding IS NOT NULL"""
_MESSAGE_FILTER = " AND EXISTS (SELECT 1 FROM lmt_messages WHERE pk = message_pk {conditions})"
_ORDER_BY_INDEX = (
    " ORDER BY CAST(embedding AS vector({d})) <=> CAST(%(query)s AS vector({d})) LIMIT %(limit)s"
)
_ORDER_BY_COSINE = " ORDER BY cosine DESC LIMIT %(limit)s"  # by what no index knows
_IS_INDEXED, _IS_NOT_INDEXED = " AND is_indexed", " AND NOT is_indexed"
# As two strings of bytes: a driver that makes an object of each number takes longer than the server for all of it.
_PACK_COSINES = """SELECT string_agg(int8send(message_pk), ''::bytea), string_agg(float4send(cosine::real), ''::bytea)
    FROM ({rows}) AS found"""
_PACK_VECTORS = (
    "SELECT string_agg(int8send(message_pk), ''::bytea), string_agg(vector_send(embedding), ''::bytea) "
    + _FROM_KEYS
)
_FILTER_CONDITIONS = {
    "sessions": "AND session_pk = ANY(CAST(%(sessions)s AS bigint[]))",
    "since": "AND created_at >= %(since)s",
    "until": "AND created_at < %(until)s",
}
_INDEX_SIZE_QUERY = "SELECT reltuples FROM pg_class WHERE oid = to_regclass(%s)"


def find_nearest(
    database: Database,
    place: tuple[int, int],
    query: NDArray[np.float32],
    limit: int,
    within: VectorSearchFilter,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The nearest messages of a namespace by a model, best first, and as many as there are up to the limit."""
    namespace, model = place
    own = {"namespace": namespace, "query": encode_vector(query), "limit": limit}
    values = own | {name: value for name, value in _build_filter_values(within).items() if value is not None}
    chosen = _COSINE + " " + _FROM_NAMESPACE
    if len(values) > len(own):
        chosen += _MESSAGE_FILTER.format(
            conditions=" ".join(text for name, text in _FILTER_CONDITIONS.items() if name in values)
        )
    with database.read_raw() as connection:
        found = None
        if _should_use_index(database, connection, (model, len(query)), limit, within):
            # What is new is not in the index yet, and is looked through beside it.
            beside = f"{chosen}{_IS_NOT_INDEXED}{_ORDER_BY_COSINE}"
            rows = f"{chosen}{_IS_INDEXED}{_ORDER_BY_INDEX}) UNION ALL (SELECT message_pk, {beside}"
            found = _run_cosine_query(connection, rows, len(query), model, values)
        # The index knows nothing of tenants, and gives up at some point: what it missed is found one by one.
        if found is None or len(found[0]) < min(limit, within.count):
            found = _run_cosine_query(connection, chosen + _ORDER_BY_COSINE, len(query), model, values)
    order = found[1].argsort(kind="stable")[::-1][:limit]
    return found[0][order], found[1][order]


def _should_use_index(
    database: Database,
    connection: PoolProxiedConnection,
    of: tuple[int, int],
    limit: int,
    within: VectorSearchFilter,
) -> bool:
    config, (model, dimension) = database.config.postgres, of
    if dimension > MAX_INDEXED_DIMENSIONS or within.count * dimension <= config.exact_numbers:
        return False
    cursor = connection.cursor()
    try:
        cursor.execute(_INDEX_SIZE_QUERY, [build_index_name(model)])
        total = (cursor.fetchone() or (0,))[0]
    finally:
        cursor.close()
    # Of what the index looks at before it gives up, so many are of this namespace.
    return bool(config.max_scan_tuples * within.count >= limit * total)


def _build_filter_values(within: VectorSearchFilter) -> dict[str, Any]:
    sessions = None if within.sessions is None else _format_keys(within.sessions)
    return {"sessions": sessions, "since": within.since, "until": within.until}


def compute_cosines(
    database: Database, model: int, query: NDArray[np.float32], keys: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The cosines of some messages."""
    values = {"query": encode_vector(query), "keys": _format_keys(keys.tolist())}
    with database.read_raw() as connection:
        return _run_cosine_query(connection, _COSINE + " " + _FROM_KEYS, len(query), model, values)


def _run_cosine_query(
    connection: PoolProxiedConnection, rows: str, dimension: int, model: int, values: Mapping[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    statement = _PACK_COSINES.format(rows=("(SELECT message_pk, " + rows + ")").format(d=dimension, m=model))
    keys, near = _fetch_packed_row(connection, statement, values)
    return np.frombuffer(keys, ">i8").astype(np.int64), np.frombuffer(near, ">f4").astype(np.float32)


def _fetch_packed_row(
    connection: PoolProxiedConnection, statement: str, values: Mapping[str, Any]
) -> tuple[bytes, bytes]:
    cursor = register_dumper(connection.cursor())
    try:
        cursor.execute(statement, values, binary=True)
        first, second = cursor.fetchone()
    finally:
        cursor.close()
    return bytes(first or b""), bytes(second or b"")


def _format_keys(keys: Sequence[int]) -> str:
    return "{" + ",".join(map(str, keys)) + "}"


def get_vectors(
    database: Database, model: int, keys: Sequence[int], dimension: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The vectors of some messages."""
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    with database.read_raw() as connection:
        found = _fetch_packed_row(connection, _PACK_VECTORS.format(m=model), {"keys": _format_keys(keys)})
    sent = np.frombuffer(found[1], np.dtype([("head", ">i2", 2), ("numbers", ">f4", dimension)]))
    return np.frombuffer(found[0], ">i8").astype(np.int64), sent["numbers"].astype(np.float32)
