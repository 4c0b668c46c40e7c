"""Vectors of messages on SQL: float32 as bytes, or pgvector where PostgreSQL has it."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, insert, select, text, update

from langmem_tiers.errors import StorageError
from langmem_tiers.recall.records import TrialRecord, Trust
from langmem_tiers.recall.repository import ERASURE_EPOCH_QUERY, filter_by_keys, to_keys_parameter
from langmem_tiers.storage.column_types import UtcDateTime, to_storable_text
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.retry_read import retry_on_disconnect
from langmem_tiers.storage.schema import embedders, embedding_cache, messages, trials, vectors
from langmem_tiers.storage.search import pgvector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection

    from langmem_tiers.recall.records import Tenant, VectorSearchFilter
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.storage.database import Database

_KEYS_PER_QUERY = 500
_USAGE_UPDATE_INTERVAL = timedelta(days=1)
_USAGE_WRITE_TIMEOUT_SECONDS = 0.1


# One that is there is replaced under a new key, so that whoever holds it in memory reads it again.
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
    trials.c.last_pk, trials.c.size, trials.c.pairs, trials.c.others, trials.c.share, trials.c.scale
).where(*(trials.c[name] == bindparam(name) for name in ("namespace_pk", "embedder_pk", "erased")))
_UPDATE_TRUST = text(
    """INSERT INTO lmt_trials (
            namespace_pk, embedder_pk, erased, last_pk, size, pairs, others, share, scale
        ) SELECT pk, :embedder_pk, :erased, :last_pk, :size, :pairs, :others, :share, :scale
        FROM lmt_namespaces WHERE pk = :namespace_pk AND erased = :erased
        ON CONFLICT (namespace_pk, embedder_pk) DO UPDATE
        SET erased = excluded.erased, last_pk = excluded.last_pk, size = excluded.size, pairs = excluded.pairs,
            others = excluded.others, share = excluded.share, scale = excluded.scale"""
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
    """The identities of all models that made vectors of messages, in a fixed order."""
    made = select(vectors.c.pk).where(vectors.c.embedder_pk == embedders.c.pk)
    query = select(embedders.c.identity).where(made.exists()).distinct().order_by(embedders.c.identity)
    with database.read() as connection:
        return tuple(connection.scalars(query))


class SqlVectorStore:
    """Serves the ``VectorStore`` port."""

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
        """The key under which this model's vectors are kept; notes that it is in use."""
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
            except ConcurrentWriteError:  # somebody else was faster
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
        with suppress(StorageError), self._database.write(_USAGE_WRITE_TIMEOUT_SECONDS) as connection:
            connection.execute(update(embedders).where(embedders.c.pk == model).values(used_at=now))

    @retry_on_disconnect
    def get_texts(self, tenant: Tenant, keys: Sequence[int]) -> Mapping[int, str]:
        """The texts of some messages, to be embedded."""
        wanted = {"namespace": tenant.key, "keys": to_keys_parameter(keys, self._database.is_sqlite)}
        with self._database.read_raw() as connection:
            return {row.pk: row.content for row in self._texts_statement.fetch_named(connection, wanted)}

    @retry_on_disconnect
    def insert_vectors(
        self,
        tenant: Tenant,
        model: int,
        keys: Sequence[int],
        table: NDArray[np.float32],
        *,
        patience_seconds: float | None = None,
    ) -> bool:
        """Keep vectors; messages that are gone meanwhile are left out."""
        if self._is_native[model]:
            return self._insert_native(tenant, model, dict(zip(keys, table, strict=True)), patience_seconds)
        with self._database.write(patience_seconds) as connection:
            (erased,) = self._erasure_epoch_statement.run(
                connection.connection, {"namespace": tenant.key}
            ) or (None,)
            if erased != tenant.erasure_epoch:  # until the transaction ends it stays as it is
                return False
            _insert_vectors(connection, (tenant.key, model), keys, table)
        return True

    def _insert_native(
        self,
        tenant: Tenant,
        model: int,
        rows: Mapping[int, NDArray[np.float32]],
        patience_seconds: float | None,
    ) -> bool:
        kind = self._vector_type_oid  # other threads change it as well
        if kind is None:
            with self._database.read() as connection:
                kind = connection.execute(pgvector.VECTOR_TYPE_QUERY).scalar_one()
        self._vector_type_oid = None
        with self._database.write_statement() as raw:
            is_put = pgvector.insert_vectors(raw, tenant, (model, kind), rows, patience_seconds)
        self._vector_type_oid = kind  # as long as it works
        return is_put

    def build_index(self, namespace: int, model: int, count: int, go_on: Callable[[], bool]) -> int:
        """Have pgvector find the nearest of a large namespace by its index."""
        size, most = self._dimensions[model], self._database.config.postgres.exact_numbers
        if not self._is_native[model] or size > pgvector.MAX_INDEXED_DIMENSIONS or count * size <= most:
            return 0
        few = min(pgvector.MAX_UNINDEXED_VECTORS, most // size)
        return pgvector.index_vectors(self._database, (namespace, model), go_on, few=few)

    def delete_unused_vectors(self, namespace: int, model: int, unused_since: datetime) -> int:
        """Erase the vectors of other models that nobody has used since."""
        unused = select(embedders.c.pk).where(embedders.c.pk != model, embedders.c.used_at < unused_since)
        others = (vectors.c.namespace_pk == namespace) & vectors.c.embedder_pk.in_(unused)
        with self._database.read() as connection:
            if connection.execute(select(vectors.c.pk).where(others).limit(1)).first() is None:
                return 0
        with self._database.write() as connection:
            return connection.execute(delete(vectors).where(others)).rowcount

    @retry_on_disconnect
    def load_vectors(
        self, namespace: int, model: int, after: int, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None, int]:
        """Keys and vectors that were written behind a mark, and the next mark."""
        import numpy as np  # noqa: PLC0415 - not before something is recalled

        native = self._is_native[model]
        wanted = {"namespace": namespace, "model": model, "after": after, "limit": limit}
        with self._database.read_raw() as connection:
            rows = (self._newer_statement if native else self._packed_statement).fetch_all(connection, wanted)
        keys = np.array([row[1] for row in rows], np.int64)
        mark = rows[-1][0] if rows else after
        if native:
            return keys, None, mark
        joined = b"".join(row[2] for row in rows)
        return keys, np.frombuffer(joined, "<f4").reshape(len(rows), self._dimensions[model]), mark

    @retry_on_disconnect
    def get_vectors(self, model: int, keys: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The vectors of some messages."""
        import numpy as np  # noqa: PLC0415 - not before something is recalled

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
        """The nearest messages, where PostgreSQL finds them itself."""
        if not self._is_native[model]:
            return None
        return pgvector.find_nearest(self._database, (namespace, model), query, limit, within)

    @retry_on_disconnect
    def compute_cosines(
        self, model: int, query: NDArray[np.float32], keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The cosines of some messages."""
        return pgvector.compute_cosines(self._database, model, query, keys)

    @retry_on_disconnect
    def get_trust(self, tenant: Tenant, model: int) -> tuple[TrialRecord, Trust] | None:
        """What somebody found last, and on what."""
        wanted = {"namespace_pk": tenant.key, "embedder_pk": model, "erased": tenant.erasure_epoch}
        with self._database.read_raw() as connection:
            found = self._trust_statement.run(connection, wanted)
        return None if found is None else (TrialRecord(*found[:4]), Trust(*found[4:]))

    @retry_on_disconnect
    def update_trust(self, tenant: Tenant, model: int, tried: TrialRecord, trust: Trust) -> None:
        """Tell others what was found."""
        row = {
            "namespace_pk": tenant.key,
            "embedder_pk": model,
            "erased": tenant.erasure_epoch,
            "last_pk": tried.last_key,
            "size": tried.size,
            "pairs": tried.pair_count,
            "others": tried.other_count,
            "share": trust.share,
            "scale": trust.scale,
        }
        with self._database.write(_USAGE_WRITE_TIMEOUT_SECONDS) as connection:
            connection.execute(_UPDATE_TRUST, row)

    @retry_on_disconnect
    def get_cached_vectors(self, model: int, hashes: Sequence[bytes], now: datetime) -> Mapping[bytes, bytes]:
        """Vectors of texts that were embedded before."""
        found: dict[bytes, bytes] = {}
        with self._database.read() as connection:
            for start in range(0, len(hashes), _KEYS_PER_QUERY):
                some = hashes[start : start + _KEYS_PER_QUERY]
                query = select(embedding_cache.c.hash, embedding_cache.c.vector).where(
                    embedding_cache.c.embedder_pk == model,
                    embedding_cache.c.hash.in_(some),
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
        """Remember vectors of texts until then, the newest ``keep`` of them and at most a hundredth more."""
        rows = [
            {"embedder_pk": model, "hash": key, "vector": vectors[key], "expires_at": until}
            for key in sorted(vectors)
        ]
        self._untrimmed_counts[model] = self._untrimmed_counts.get(model, keep) + len(rows)
        with self._database.write(patience_seconds) as connection:
            if rows:
                connection.execute(_INSERT_CACHED_VECTOR, rows)
            if (
                self._untrimmed_counts[model] > keep // 100
            ):  # looking for what is too much costs more than a write
                _trim_cache(connection, model, now, keep)
                self._untrimmed_counts[model] = 0


def _insert_vectors(
    connection: Connection, place: tuple[int, int], keys: Sequence[int], table: NDArray[np.float32]
) -> None:
    namespace, model = place
    packed = {key: row.astype("<f4").tobytes() for key, row in zip(keys, table, strict=True)}
    fixed = {"namespace_pk": namespace, "embedder_pk": model}
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        some = keys[start : start + _KEYS_PER_QUERY]
        there = select(messages.c.pk).where(messages.c.namespace_pk == namespace, messages.c.pk.in_(some))
        found = connection.execute(there).scalars()
        rows = [{**fixed, "message_pk": key, "vector": packed[key]} for key in found]
        if rows:
            connection.execute(_INSERT_VECTOR, rows)


def _trim_cache(connection: Connection, model: int, now: datetime, keep: int) -> None:
    cache = embedding_cache.c
    known = select(embedders.c.pk)  # one by one, so that the index by model and age serves
    connection.execute(delete(embedding_cache).where(cache.embedder_pk.in_(known), cache.expires_at <= now))
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
