"""Vectors of messages in SQL: float32 values as bytes, or pgvector if PostgreSQL has the extension."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, insert, select, text, update

from langmem_tiers.errors import StorageError
from langmem_tiers.recall.records import Trust, TrustSampleRecord
from langmem_tiers.recall.repository import ERASURE_EPOCH_QUERY, filter_by_keys, to_keys_parameter
from langmem_tiers.storage.column_types import UtcDateTime, to_storable_text
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.schema import embedder_trust, embedders, embedding_cache, messages, vectors
from langmem_tiers.storage.search import pgvector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection

    from langmem_tiers.recall.records import Tenant, VectorSearchFilter
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database

_KEYS_PER_QUERY = 500
_USAGE_UPDATE_INTERVAL = timedelta(days=1)
_USAGE_WRITE_TIMEOUT_SECONDS = 0.1
# Readers load vectors with keys above a watermark. A replaced vector gets a new key, so that readers that have passed
# the old one load it again.
_INSERT_VECTOR = text(
    """INSERT INTO lmt_vectors (namespace_pk, embedder_pk, message_pk, vector)
        VALUES (:namespace_pk, :embedder_pk, :message_pk, :vector)
        ON CONFLICT (message_pk, embedder_pk) DO UPDATE
        SET vector = excluded.vector, pk = (SELECT max(pk) + 1 FROM lmt_vectors)"""
)
_INSERT_CACHED_VECTOR = text(
    """INSERT INTO lmt_embedding_cache (embedder_pk, hash, vector, expires_at)
        VALUES (:embedder_pk, :hash, :vector, :expires_at)
        ON CONFLICT (embedder_pk, hash) DO UPDATE
        SET vector = excluded.vector, expires_at = excluded.expires_at"""
).bindparams(bindparam("expires_at", type_=UtcDateTime))


_TRUST_QUERY = select(
    embedder_trust.c.last_pk,
    embedder_trust.c.size,
    embedder_trust.c.pairs,
    embedder_trust.c.other_pairs,
    embedder_trust.c.share,
    embedder_trust.c.scale,
).where(
    *(embedder_trust.c[name] == bindparam(name) for name in ("namespace_pk", "embedder_pk", "erasure_epoch"))
)
# Inserts nothing if anything was erased from the namespace since the sample was drawn.
_UPDATE_TRUST = text(
    """INSERT INTO lmt_embedder_trust (
            namespace_pk, embedder_pk, erasure_epoch, last_pk, size, pairs, other_pairs, share, scale
        ) SELECT pk, :embedder_pk, :erasure_epoch, :last_pk, :size, :pairs, :other_pairs, :share, :scale
        FROM lmt_namespaces WHERE pk = :namespace_pk AND erasure_epoch = :erasure_epoch
        ON CONFLICT (namespace_pk, embedder_pk) DO UPDATE
        SET erasure_epoch = excluded.erasure_epoch, last_pk = excluded.last_pk, size = excluded.size,
            pairs = excluded.pairs, other_pairs = excluded.other_pairs, share = excluded.share,
            scale = excluded.scale"""
)
_TEXTS_QUERY = select(messages.c.pk, messages.c.content).where(
    messages.c.namespace_pk == bindparam("namespace")
)
_NEWER_QUERY = (
    select(vectors.c.pk, vectors.c.message_pk)
    .where(vectors.c.namespace_pk == bindparam("namespace"), vectors.c.embedder_pk == bindparam("model"))
    .where(vectors.c.pk > bindparam("after"))
    .order_by(vectors.c.pk)
    .limit(bindparam("limit"))
)


def list_embedders(database: Database) -> tuple[str, ...]:
    """Return the identities of all models that have vectors of messages, sorted."""
    has_vectors = select(vectors.c.pk).where(vectors.c.embedder_pk == embedders.c.pk)
    query = select(embedders.c.identity).where(has_vectors.exists()).distinct().order_by(embedders.c.identity)
    with database.read() as connection:
        return tuple(connection.scalars(query))


class VectorRepository:
    """Vectors of messages, by model."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._dimensions: dict[int, int] = {}
        self._is_native: dict[int, bool] = {}
        self._vector_type_oid: int | None = None
        self._untrimmed_counts: dict[int, int] = {}
        self._texts_statement = DriverStatement(
            filter_by_keys(_TEXTS_QUERY, database.is_sqlite), database.dialect
        )
        self._erasure_epoch_statement = DriverStatement(ERASURE_EPOCH_QUERY, database.dialect)
        self._packed_statement = DriverStatement(
            _NEWER_QUERY.add_columns(vectors.c.vector).where(vectors.c.vector.is_not(None)), database.dialect
        )
        self._trust_statement = DriverStatement(_TRUST_QUERY, database.dialect)
        self._newer_statement = DriverStatement(
            _NEWER_QUERY.where(text("embedding IS NOT NULL")), database.dialect
        )

    @retry_on_disconnect
    def register_model(
        self, identity: str, dimension: int, now: datetime, *, patience_seconds: float | None = None
    ) -> int:
        """Return the key of a model, and record once a day that the model is in use."""
        identity = to_storable_text(identity)
        known = select(embedders.c.pk, embedders.c.used_at).where(
            embedders.c.identity == identity, embedders.c.dimension == dimension
        )
        with self._database.read() as connection:
            found = connection.execute(known).first()
        if found is None:
            row = insert(embedders).values(identity=identity, dimension=dimension, used_at=now)
            try:
                with self._database.write(patience_seconds) as connection:
                    key = connection.execute(row.returning(embedders.c.pk)).scalar_one()
            except ConcurrentWriteError:
                # Another process has registered the model at the same time: read its key.
                return self.register_model(identity, dimension, now, patience_seconds=patience_seconds)
        else:
            key = found.pk
            if found.used_at <= now - _USAGE_UPDATE_INTERVAL:
                self._update_usage(key, now)
        if key not in self._is_native:
            self._is_native[key] = not self._database.is_sqlite and pgvector.prepare(
                self._database, key, dimension, patience_seconds
            )
        self._dimensions[key] = dimension
        return int(key)

    def _update_usage(self, model: int, now: datetime) -> None:
        # The time is only used to delete old vectors. A busy database must not delay or fail a recall for it.
        with suppress(StorageError), self._database.write(_USAGE_WRITE_TIMEOUT_SECONDS) as connection:
            connection.execute(update(embedders).where(embedders.c.pk == model).values(used_at=now))

    @retry_on_disconnect
    def get_texts(self, tenant: Tenant, keys: Sequence[int]) -> Mapping[int, str]:
        """Return the texts of messages by key, without deleted ones."""
        parameters = {"namespace": tenant.key, "keys": to_keys_parameter(keys, self._database.is_sqlite)}
        with self._database.read_raw() as connection:
            return {row.pk: row.content for row in self._texts_statement.fetch_named(connection, parameters)}

    @retry_on_disconnect
    def insert_vectors(
        self,
        tenant: Tenant,
        model: int,
        keys: Sequence[int],
        vectors: NDArray[np.float32],
        *,
        patience_seconds: float | None = None,
    ) -> bool:
        """Store vectors. Messages that were deleted in the meantime are skipped.

        Args:
            tenant: Namespace of the messages.
            model: Key of the model.
            keys: Keys of the messages.
            vectors: One row per message.
            patience_seconds: Maximum wait for other writers. Default: the time-out of any write.

        Returns:
            False, with nothing written, if anything was erased from the namespace since ``tenant`` was read.
        """
        if self._is_native[model]:
            return self._insert_native(tenant, model, dict(zip(keys, vectors, strict=True)), patience_seconds)
        with self._database.write(patience_seconds) as connection:
            (epoch,) = self._erasure_epoch_statement.run(
                connection.connection, {"namespace": tenant.key}
            ) or (None,)
            # The counter cannot change until the transaction ends: PostgreSQL locks the row, SQLite has one writer.
            if epoch != tenant.erasure_epoch:
                return False
            _insert_vectors(connection, (tenant.key, model), keys, vectors)
        return True

    def _insert_native(
        self,
        tenant: Tenant,
        model: int,
        rows: Mapping[int, NDArray[np.float32]],
        patience_seconds: float | None,
    ) -> bool:
        # The type's OID changes if the extension is recreated. It is cached only while writes succeed: a failed write
        # leaves None, so that the next one reads it again. The local variable is needed because other threads change
        # the attribute.
        type_oid = self._vector_type_oid
        if type_oid is None:
            with self._database.read() as connection:
                type_oid = connection.execute(pgvector.VECTOR_TYPE_QUERY).scalar_one()
        self._vector_type_oid = None
        with self._database.write_statement() as raw:
            is_inserted = pgvector.insert_vectors(raw, tenant, (model, type_oid), rows, patience_seconds)
        self._vector_type_oid = type_oid
        return is_inserted

    def build_index(self, namespace: int, model: int, count: int, should_continue: Callable[[], bool]) -> int:
        """Add the vectors of a large namespace to the pgvector index.

        Args:
            namespace: Key of the namespace.
            model: Key of the model.
            count: Number of messages in the namespace.
            should_continue: Called from time to time. Indexing stops when it returns False.

        Returns:
            Number of vectors that were indexed; 0 without pgvector.
        """
        # Up to `exact_numbers` numbers, comparing all vectors is fast enough, and exact.
        dimension, exact_numbers = self._dimensions[model], self._database.config.postgres.exact_numbers
        if (
            not self._is_native[model]
            or dimension > pgvector.MAX_INDEXED_DIMENSIONS
            or count * dimension <= exact_numbers
        ):
            return 0
        few = min(pgvector.MAX_UNINDEXED_VECTORS, exact_numbers // dimension)
        return pgvector.index_vectors(self._database, (namespace, model), should_continue, few=few)

    def delete_unused_vectors(self, namespace: int, model: int, unused_since: datetime) -> int:
        """Delete the vectors of other models that are out of use, and return their number."""
        unused = select(embedders.c.pk).where(embedders.c.pk != model, embedders.c.used_at < unused_since)
        others = (vectors.c.namespace_pk == namespace) & vectors.c.embedder_pk.in_(unused)
        # Usually there are none: a read avoids waiting for the write lock.
        with self._database.read() as connection:
            if connection.execute(select(vectors.c.pk).where(others).limit(1)).first() is None:
                return 0
        with self._database.write() as connection:
            return connection.execute(delete(vectors).where(others)).rowcount

    @retry_on_disconnect
    def load_vectors(
        self, namespace: int, model: int, after: int, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None, int]:
        """Return keys and vectors that were written after a watermark, and the next watermark.

        With pgvector, None is returned in place of the vectors: the database searches them.
        """
        import numpy as np  # noqa: PLC0415 - slow to import, only needed to recall

        native = self._is_native[model]
        parameters = {"namespace": namespace, "model": model, "after": after, "limit": limit}
        with self._database.read_raw() as connection:
            statement = self._newer_statement if native else self._packed_statement
            rows = statement.fetch_all(connection, parameters)
        keys = np.array([row[1] for row in rows], np.int64)
        watermark = rows[-1][0] if rows else after
        if native:
            return keys, None, watermark
        joined = b"".join(row[2] for row in rows)
        return keys, np.frombuffer(joined, "<f4").reshape(len(rows), self._dimensions[model]), watermark

    @retry_on_disconnect
    def get_vectors(self, model: int, keys: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the keys of the messages that have vectors, and these vectors."""
        import numpy as np  # noqa: PLC0415 - slow to import, only needed to recall

        if self._is_native[model]:
            return pgvector.get_vectors(self._database, model, keys, self._dimensions[model])
        rows: list[AnyRow] = []
        with self._database.read() as connection:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                query = select(vectors.c.message_pk, vectors.c.vector).where(
                    vectors.c.embedder_pk == model,
                    vectors.c.message_pk.in_(keys[start : start + _KEYS_PER_QUERY]),
                )
                rows += connection.execute(query).all()
        table = np.frombuffer(b"".join(row.vector for row in rows), "<f4")
        return np.array([row.message_pk for row in rows], np.int64), table.reshape(
            len(rows), self._dimensions[model]
        )

    @retry_on_disconnect
    def find_nearest(
        self, namespace: int, model: int, query: NDArray[np.float32], limit: int, within: VectorSearchFilter
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Return the nearest messages and their cosines, best first. None without pgvector.

        Args:
            namespace: Key of the namespace.
            model: Key of the model.
            query: Vector of the query.
            limit: Maximum number of messages.
            within: Messages to search.
        """
        if not self._is_native[model]:
            return None
        return pgvector.find_nearest(self._database, (namespace, model), query, limit, within)

    @retry_on_disconnect
    def compute_cosines(
        self, model: int, query: NDArray[np.float32], keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return keys and cosines of messages. Requires pgvector."""
        return pgvector.compute_cosines(self._database, model, query, keys)

    @retry_on_disconnect
    def get_trust(self, tenant: Tenant, model: int) -> tuple[TrustSampleRecord, Trust] | None:
        """Return the last measured trust and its sample.

        None if nothing was measured, or if anything was erased from the namespace since.
        """
        parameters = {"namespace_pk": tenant.key, "embedder_pk": model, "erasure_epoch": tenant.erasure_epoch}
        with self._database.read_raw() as connection:
            found = self._trust_statement.run(connection, parameters)
        return None if found is None else (TrustSampleRecord(*found[:4]), Trust(*found[4:]))

    @retry_on_disconnect
    def update_trust(self, tenant: Tenant, model: int, sample: TrustSampleRecord, trust: Trust) -> None:
        """Store a measured trust for other processes, in place of the previous one."""
        row = {
            "namespace_pk": tenant.key,
            "embedder_pk": model,
            "erasure_epoch": tenant.erasure_epoch,
            "last_pk": sample.last_key,
            "size": sample.size,
            "pairs": sample.pair_count,
            "other_pairs": sample.other_count,
            "share": trust.share,
            "scale": trust.scale,
        }
        with self._database.write(_USAGE_WRITE_TIMEOUT_SECONDS) as connection:
            connection.execute(_UPDATE_TRUST, row)

    @retry_on_disconnect
    def get_cached_vectors(self, model: int, hashes: Sequence[bytes], now: datetime) -> Mapping[bytes, bytes]:
        """Return cached vectors by the hash of their text."""
        found: dict[bytes, bytes] = {}
        with self._database.read() as connection:
            for start in range(0, len(hashes), _KEYS_PER_QUERY):
                batch = hashes[start : start + _KEYS_PER_QUERY]
                query = select(embedding_cache.c.hash, embedding_cache.c.vector).where(
                    embedding_cache.c.embedder_pk == model,
                    embedding_cache.c.hash.in_(batch),
                    embedding_cache.c.expires_at > now,
                )
                found.update((bytes(row.hash), bytes(row.vector)) for row in connection.execute(query))
        return found

    @retry_on_disconnect
    def insert_cached_vectors(
        self,
        model: int,
        vectors: Mapping[bytes, bytes],
        now: datetime,
        *,
        until: datetime,
        keep: int,
        patience_seconds: float | None = None,
    ) -> None:
        """Cache vectors of texts. The newest ``keep`` are retained, and up to 1 % more until the next cleanup.

        Args:
            model: Key of the model.
            vectors: Vectors as bytes, by the hash of their text.
            now: Entries that expired by this time are deleted.
            until: Expiry of the new entries.
            keep: Maximum number of cached vectors.
            patience_seconds: Maximum wait for other writers. Default: the time-out of any write.
        """
        rows = [
            {"embedder_pk": model, "hash": key, "vector": vectors[key], "expires_at": until}
            for key in sorted(vectors)
        ]
        # Cleaning up costs more than a write, so it is done once per 1 % of new entries. The default `keep` makes the
        # first write of a process clean up.
        self._untrimmed_counts[model] = self._untrimmed_counts.get(model, keep) + len(rows)
        with self._database.write(patience_seconds) as connection:
            if rows:
                connection.execute(_INSERT_CACHED_VECTOR, rows)
            if self._untrimmed_counts[model] > keep // 100:
                _trim_cache(connection, model, now, keep)
                self._untrimmed_counts[model] = 0


def _insert_vectors(
    connection: Connection, scope: tuple[int, int], keys: Sequence[int], table: NDArray[np.float32]
) -> None:
    namespace, model = scope
    packed = {key: row.astype("<f4").tobytes() for key, row in zip(keys, table, strict=True)}
    fixed = {"namespace_pk": namespace, "embedder_pk": model}
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        # Skip messages that were deleted in the meantime.
        batch = keys[start : start + _KEYS_PER_QUERY]
        existing = select(messages.c.pk).where(messages.c.namespace_pk == namespace, messages.c.pk.in_(batch))
        found = connection.execute(existing).scalars()
        rows = [{**fixed, "message_pk": key, "vector": packed[key]} for key in found]
        if rows:
            connection.execute(_INSERT_VECTOR, rows)


def _trim_cache(connection: Connection, model: int, now: datetime, keep: int) -> None:
    cache = embedding_cache.c
    # Naming every model, instead of no model, lets the database use the index by model and expiry.
    all_models = select(embedders.c.pk)
    connection.execute(
        delete(embedding_cache).where(cache.embedder_pk.in_(all_models), cache.expires_at <= now)
    )
    last_kept = (
        select(cache.expires_at)
        .where(cache.embedder_pk == model)
        .order_by(cache.expires_at.desc())
        .limit(1)
        .offset(keep - 1)
    )
    oldest = connection.execute(last_kept).scalar()
    if oldest is not None:
        connection.execute(
            delete(embedding_cache).where(cache.embedder_pk == model, cache.expires_at < oldest)
        )
