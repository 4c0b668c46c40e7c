"""Vector search with pgvector: exact comparison, and an HNSW index for large namespaces."""

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
"""Maximum number of dimensions that pgvector can index; longer vectors are compared exactly."""
_PREPARE_LOCK = 0x6C6D7476  # "lmtv": serializes processes that prepare the same database
_INDEXING_LOCK = 0x6C6D7469  # "lmti", combined with the key of the namespace
_INDEX_BATCH_SIZE = 200
MAX_UNINDEXED_VECTORS = 2000
"""Maximum number of not yet indexed vectors of a large namespace; comparing these takes about a millisecond."""

_VERSION_QUERY = text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
_STATE_QUERY = text(
    """SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS version,
        (SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('lmt_vectors')
            AND attname IN ('embedding', 'is_indexed') AND NOT attisdropped) AS columns,
        COALESCE(pg_get_indexdef(to_regclass(:index)) LIKE '%is_indexed%', false) AS has_index"""
)
_ADD_COLUMNS = """ALTER TABLE lmt_vectors ADD COLUMN IF NOT EXISTS embedding vector,
    ADD COLUMN IF NOT EXISTS is_indexed boolean NOT NULL DEFAULT false"""
_CREATE_UNINDEXED_INDEX = """CREATE INDEX IF NOT EXISTS lmt_vectors_unindexed ON lmt_vectors (namespace_pk, embedder_pk)
    WHERE NOT is_indexed"""
# One statement, so one round trip. Vectors can be recomputed, so the commit does not wait for the disk. The
# namespace row is locked (FOR SHARE) and its erasure epoch compared, so that no vector of an erased message is stored.
# Rows are ordered by key, so that two processes that write the same vectors do not deadlock, and an unchanged vector
# is not written again.
_INSERT_VECTORS = """WITH given AS MATERIALIZED (
        SELECT set_config('synchronous_commit', 'off', true) AS later,
            set_config('lock_timeout', COALESCE(%(patience)s, current_setting('lock_timeout')), true) AS patience
    ), same AS MATERIALIZED (
        SELECT named.pk FROM given, lmt_namespaces AS named
        WHERE named.pk = %(namespace)s AND named.erasure_epoch = %(erasure_epoch)s AND given.later = 'off'
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
"""Query for the server's OID of the vector type, which changes each time the extension is created."""
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
    """Return the name of a model's HNSW index."""
    return f"lmt_vectors_hnsw_{model}"


def prepare(database: Database, model: int, dimension: int, patience_seconds: float | None = None) -> bool:
    """Create the columns and the index for a model's vectors; return False if the server has no pgvector."""
    with database.read() as connection:  # checked first, because preparing waits for all writers of vectors
        if _is_prepared(connection, model, dimension):
            return True
    try:
        with database.write(patience_seconds) as connection:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_PREPARE_LOCK})"))
            if _is_prepared(connection, model, dimension):  # by another process, meanwhile
                return True
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS vector"))
            version = connection.execute(_VERSION_QUERY).scalar_one()
            if not _is_new_enough(version):
                _log.warning(
                    "pgvector %s is too old, expected 0.8 or later: vectors are compared in this process",
                    version,
                )
                return False
            connection.execute(text(_ADD_COLUMNS))
            connection.execute(text(_CREATE_UNINDEXED_INDEX))
            if dimension <= MAX_INDEXED_DIMENSIONS:
                # An older index also covers vectors of small namespaces, which makes storing each of them expensive.
                connection.execute(text(f"DROP INDEX IF EXISTS {build_index_name(model)}"))
                connection.execute(text(_build_index_ddl(model, dimension)))
    except (StorageBusyError, StorageUnavailableError):
        # Temporary: returning False would mean "no pgvector". The next recall tries again.
        raise
    except StorageError as error:
        _log.warning(
            "pgvector is not available (%s): vectors are compared in this process; "
            "ask a database administrator to run CREATE EXTENSION vector",
            type(error).__name__,
        )
        return False
    return True


def ensure_vector_columns(database: Database) -> bool:
    """Create the columns for vectors of any model, without an index; return False if the server has no pgvector."""
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
    """Store vectors of messages by key. Deleted messages are skipped; after an erasure, nothing is stored.

    Args:
        connection: A connection without a transaction.
        tenant: Namespace of the messages.
        made_by: Key of the model, and the OID of the vector type.
        rows: Vectors by message key.
        patience_seconds: Maximum wait for other writers. Default: as for any write.

    Returns:
        False if the namespace was erased or changed by an erasure since it was read.
    """
    model, kind = made_by
    values = {
        "namespace": tenant.key,
        "erasure_epoch": tenant.erasure_epoch,
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
    # PostgreSQL's binary array format: 1 dimension, no nulls, element type, length, lower bound 1.
    head = struct.pack(">5i", 1, 0, kind, len(parts), 1)
    return EncodedVector(head + b"".join(struct.pack(">i", len(part)) + part for part in parts))


def index_vectors(
    database: Database, owner: tuple[int, int], should_continue: Callable[[], bool], *, few: int
) -> int:
    """Index the vectors of a namespace and a model, if more than ``few`` are waiting; return their number.

    Args:
        database: The database.
        owner: Keys of the namespace and the model.
        should_continue: Called before each batch; False stops.
        few: Number of unindexed vectors up to which nothing is done.
    """
    namespace, model = owner
    keys = {"namespace": namespace, "model": model}
    with database.read() as connection:
        if connection.execute(_COUNT_UNINDEXED, keys | {"few": few}).scalar_one() <= few:
            return 0
    done = 0
    while should_continue():
        with database.write() as connection:
            if not connection.execute(
                _TRY_INDEXING_LOCK, {"lock": _INDEXING_LOCK, "namespace": namespace}
            ).scalar():
                return done  # another process is indexing this namespace
            indexed = connection.execute(_MARK_INDEXED, keys | {"limit": _INDEX_BATCH_SIZE}).rowcount
        done += indexed
        if indexed < _INDEX_BATCH_SIZE:
            break
    return done


def encode_vector(vector: NDArray[np.float32]) -> EncodedVector:
    """Return a vector in pgvector's binary format, which is much faster than text."""
    import numpy as np  # noqa: PLC0415 - slow import, needed only for embedding

    return EncodedVector(len(vector).to_bytes(2, "big") + b"\0\0" + np.asarray(vector, ">f4").tobytes())


class EncodedVector(bytes):
    """Bytes of a vector in pgvector's binary format."""

    __slots__ = ()


def register_dumper(cursor: Any) -> Any:  # noqa: ANN401 - a psycopg object
    """Register the binary format of vectors on a cursor and return the cursor."""
    cursor.adapters.register_dumper(EncodedVector, _get_dumper_class())
    return cursor


@cache
def _get_dumper_class() -> Any:  # noqa: ANN401 - a psycopg object
    from psycopg.adapt import Dumper  # noqa: PLC0415 - optional dependency
    from psycopg.pq import Format  # noqa: PLC0415 - as above

    class SentDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:  # noqa: ANN401 - signature of Dumper.dump
            return bytes(obj)

    return SentDumper


# The cosine with a zero vector is NaN; it counts as 0.
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
_ORDER_BY_COSINE = (
    " ORDER BY cosine DESC LIMIT %(limit)s"  # an expression that no index matches: exact search
)
_IS_INDEXED, _IS_NOT_INDEXED = " AND is_indexed", " AND NOT is_indexed"
# Packed into two byte strings: creating a Python object per number in the driver takes longer than the whole query.
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
    owner: tuple[int, int],
    query: NDArray[np.float32],
    limit: int,
    within: VectorSearchFilter,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the nearest messages of a namespace by a model, best first, up to the limit."""
    namespace, model = owner
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
            # New vectors are not in the index yet and are compared exactly.
            unindexed_sql = f"{chosen}{_IS_NOT_INDEXED}{_ORDER_BY_COSINE}"
            rows = f"{chosen}{_IS_INDEXED}{_ORDER_BY_INDEX}) UNION ALL (SELECT message_pk, {unindexed_sql}"
            found = _run_cosine_query(connection, rows, len(query), model, values)
        # The index does not filter by tenant and stops after max_scan_tuples. If it found too few, compare exactly.
        if found is None or len(found[0]) < min(limit, within.count):
            found = _run_cosine_query(connection, chosen + _ORDER_BY_COSINE, len(query), model, values)
    # The index and the exact comparison return up to ``limit`` rows each, so the union is sorted and cut here.
    order = found[1].argsort(kind="stable")[::-1][:limit]
    return found[0][order], found[1][order]


def _should_use_index(
    database: Database,
    connection: PoolProxiedConnection,
    identity: tuple[int, int],
    limit: int,
    within: VectorSearchFilter,
) -> bool:
    config, (model, dimension) = database.config.postgres, identity
    if dimension > MAX_INDEXED_DIMENSIONS or within.count * dimension <= config.exact_numbers:
        return False
    cursor = connection.cursor()
    try:
        cursor.execute(_INDEX_SIZE_QUERY, [build_index_name(model)])
        total = (cursor.fetchone() or (0,))[0]
    finally:
        cursor.close()
    # Expected number of this namespace's vectors among the max_scan_tuples that the index visits, compared with
    # the limit: max_scan_tuples * count / total >= limit, without the division.
    return bool(config.max_scan_tuples * within.count >= limit * total)


def _build_filter_values(within: VectorSearchFilter) -> dict[str, Any]:
    sessions = None if within.sessions is None else _format_keys(within.sessions)
    return {"sessions": sessions, "since": within.since, "until": within.until}


def compute_cosines(
    database: Database, model: int, query: NDArray[np.float32], keys: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the cosines of the given messages to the query."""
    values = {"query": encode_vector(query), "keys": _format_keys(keys.tolist())}
    with database.read_raw() as connection:
        return _run_cosine_query(connection, _COSINE + " " + _FROM_KEYS, len(query), model, values)


def _run_cosine_query(
    connection: PoolProxiedConnection, rows: str, dimension: int, model: int, values: Mapping[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    import numpy as np  # noqa: PLC0415 - slow import, needed only for recall

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
    """Return the vectors of the given messages."""
    import numpy as np  # noqa: PLC0415 - slow import, needed only for recall

    with database.read_raw() as connection:
        found = _fetch_packed_row(connection, _PACK_VECTORS.format(m=model), {"keys": _format_keys(keys)})
    sent = np.frombuffer(found[1], np.dtype([("head", ">i2", 2), ("numbers", ">f4", dimension)]))
    return np.frombuffer(found[0], ">i8").astype(np.int64), sent["numbers"].astype(np.float32)
