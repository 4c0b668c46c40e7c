"""Vectors in PostgreSQL's own type, where the extension can be had.

Vectors of several models share a table; each model has an HNSW index of its own over its own rows, so their dimensions
may differ and they are never compared. A vector is not in it at first: to put one in costs many times what it costs
to store it, and a namespace that is not large is looked through one by one. Those of large ones are brought in later,
by one process at a time, while nobody waits.
"""

from __future__ import annotations

import logging
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from langmem_tiers.core.errors import StorageBusyError, StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection
    from sqlalchemy.pool import PoolProxiedConnection

    from langmem_tiers.core.indexes import Tenant
    from langmem_tiers.storage.database import Database

_log = logging.getLogger("langmem_tiers")
MAX_INDEXED = 2000
"""Dimensions that pgvector indexes; longer vectors are compared one by one."""
_LOCK = 0x6C6D7476  # "lmtv": one number for all who prepare a database
_INDEXING_LOCK = 0x6C6D7469  # "lmti", with the number of the namespace
_AT_ONCE = 200
FEW_BESIDE = 2000
"""Vectors of a large namespace that may wait beside the index: so many are looked through in about a millisecond."""

_VERSION = text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
_PREPARED = text(
    """SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS version,
        (SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('lmt_vectors')
            AND attname IN ('embedding', 'is_indexed') AND NOT attisdropped) AS columns,
        COALESCE(pg_get_indexdef(to_regclass(:index)) LIKE '%is_indexed%', false) AS has_index"""
)
_COLUMNS = """ALTER TABLE lmt_vectors ADD COLUMN IF NOT EXISTS embedding vector,
    ADD COLUMN IF NOT EXISTS is_indexed boolean NOT NULL DEFAULT false"""
_BESIDE = """CREATE INDEX IF NOT EXISTS lmt_vectors_beside ON lmt_vectors (namespace_pk, embedder_pk)
    WHERE NOT is_indexed"""
# One statement, so one way to the server. Vectors can be made again: nobody waits until they are on the disk.
_PUT = """WITH given AS MATERIALIZED (
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
KIND = text("SELECT CAST(CAST('vector' AS regtype) AS oid)")
"""The number that the server knows the type of vectors by: another one each time the extension is made."""
# Two processes that make the same one write it once.
_MANY_BESIDE = text(
    """SELECT count(*) FROM (SELECT 1 FROM lmt_vectors WHERE namespace_pk = :namespace AND embedder_pk = :model
        AND NOT is_indexed LIMIT :few + 1) AS waiting"""
)
_MAY_INDEX = text("SELECT pg_try_advisory_xact_lock(:lock, CAST(:namespace % 2147483647 AS integer))")
_BRING_IN = text(
    """UPDATE lmt_vectors SET is_indexed = true WHERE pk IN (SELECT pk FROM lmt_vectors
        WHERE namespace_pk = :namespace AND embedder_pk = :model AND NOT is_indexed
        ORDER BY pk LIMIT :limit FOR UPDATE SKIP LOCKED)"""
)


def index_name(model: int) -> str:
    """What the HNSW index of a model is called."""
    return f"lmt_vectors_near_{model}"


def prepare(database: Database, model: int, dimension: int, patience_seconds: float | None = None) -> bool:
    """Make room and an index for a model's vectors; False if the server has no pgvector."""
    with database.read() as connection:  # looked at first: preparing waits for everybody who writes vectors
        if _is_prepared(connection, model, dimension):
            return True
    try:
        with database.write(patience_seconds) as connection:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            if _is_prepared(connection, model, dimension):  # by somebody else, meanwhile
                return True
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS vector"))
            version = connection.execute(_VERSION).scalar_one()
            if not _is_new_enough(version):
                _log.warning(
                    "pgvector %s is too old: vectors are compared in this process; 0.8 is needed", version
                )
                return False
            connection.execute(text(_COLUMNS))
            connection.execute(text(_BESIDE))
            if dimension <= MAX_INDEXED:
                # One from before, over the vectors of small namespaces as well, would make each of them dear to store.
                connection.execute(text(f"DROP INDEX IF EXISTS {index_name(model)}"))
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


def _is_prepared(connection: Connection, model: int, dimension: int) -> bool:
    found = connection.execute(_PREPARED, {"index": index_name(model)}).one()
    has_index = found.has_index or dimension > MAX_INDEXED
    return bool(found.columns == 2 and has_index and _is_new_enough(found.version))


def _is_new_enough(version: str | None) -> bool:
    return version is not None and tuple(int(part) for part in version.split(".")[:2]) >= (0, 8)


def _index(model: int, dimension: int) -> str:
    return f"""CREATE INDEX {index_name(model)} ON lmt_vectors
        USING hnsw ((embedding::vector({dimension})) vector_cosine_ops) WITH (m = 16, ef_construction = 64)
        WHERE embedder_pk = {model} AND is_indexed"""


def put(
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
        "erased": tenant.erased,
        "model": model,
        "keys": list(rows),
        "vectors": _array(kind, [sent(row) for row in rows.values()]),
        "patience": None if patience_seconds is None else f"{max(1, int(patience_seconds * 1000))}",
    }
    cursor = sending(connection.cursor())
    try:
        cursor.execute(_PUT, values)
        return bool(cursor.fetchone()[0])
    finally:
        cursor.close()


def _array(kind: int, parts: Sequence[bytes]) -> Sent:
    # As PostgreSQL reads an array from the wire: one dimension, no nulls, the type, how many, counted from 1.
    head = struct.pack(">5i", 1, 0, kind, len(parts), 1)
    return Sent(head + b"".join(struct.pack(">i", len(part)) + part for part in parts))


def bring_in(database: Database, place: tuple[int, int], go_on: Callable[[], bool], *, few: int) -> int:
    """Put vectors of a namespace by a model into the index, if more than a few wait for that; how many those were."""
    namespace, model = place
    of = {"namespace": namespace, "model": model}
    with database.read() as connection:
        if connection.execute(_MANY_BESIDE, of | {"few": few}).scalar_one() <= few:
            return 0
    done = 0
    while go_on():
        with database.write() as connection:
            if not connection.execute(_MAY_INDEX, {"lock": _INDEXING_LOCK, "namespace": namespace}).scalar():
                return done  # another process is at it
            brought = connection.execute(_BRING_IN, of | {"limit": _AT_ONCE}).rowcount
        done += brought
        if brought < _AT_ONCE:
            break
    return done


def sent(vector: NDArray[np.float32]) -> Sent:
    """A vector as pgvector reads it from the wire: as text it would take longer than all the rest."""
    import numpy as np  # noqa: PLC0415 - not before something is embedded

    return Sent(len(vector).to_bytes(2, "big") + b"\0\0" + np.asarray(vector, ">f4").tobytes())


class Sent(bytes):
    """The bytes of a vector."""

    __slots__ = ()


def sending(cursor: Any) -> Any:  # noqa: ANN401 - psycopg's own
    """The cursor, able to send vectors."""
    cursor.adapters.register_dumper(Sent, _dumper())
    return cursor


@cache
def _dumper() -> Any:  # noqa: ANN401 - psycopg's own
    from psycopg.adapt import Dumper  # noqa: PLC0415 - an extra
    from psycopg.pq import Format  # noqa: PLC0415 - as above

    class SentDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:  # noqa: ANN401 - by its interface
            return bytes(obj)

    return SentDumper
