"""Fills a database with many entries the quickest way there is: COPY into the engine's own tables, indexes afterwards.

What is written is what the engine would have written itself: the same rows, terms, counts and vectors, made by the same
functions. Only the order differs, and that indexes are built at the end.
"""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg

from benchmarks.scale_texts import PER_SESSION, make_text, tenant_name
from langmem_tiers import ContentAwareCounter, MemoryEngine, Message, OfflineEmbedder, Role
from langmem_tiers.recall.indexing import Indexer
from langmem_tiers.sessions.analysis import IMPORTANCE_SCORER
from langmem_tiers.sessions.message_sql import to_message_row
from langmem_tiers.storage.schema import POSITION_STEP
from langmem_tiers.storage.search import build_index_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

START = datetime(2025, 1, 1, tzinfo=UTC)
OF_TENANT = 1_000
"""Entries of an ordinary tenant."""
LARGE = 0
"""The tenant that has a tenth of all."""
_TABLES = ("lmt_messages", "lmt_vectors")
_BATCH = 500


@dataclass(frozen=True, slots=True)
class TenantBatch:
    """Some messages of a tenant, from one number to another, and the keys that they get."""

    url: str
    tenant: int
    namespace_pk: int
    first: int
    count: int
    message_pk: int
    session_pk: int
    embedder_pk: int


def fill(url: str, before: int, after: int) -> None:
    """Fill a database from one number of entries up to another."""
    with MemoryEngine(url) as engine:  # makes tables, and the model's index
        engine.session(tenant_name(LARGE), "s").add("user", "Hello")
        engine.namespace(tenant_name(LARGE)).embed()
        engine.namespace(tenant_name(LARGE)).delete()
    with psycopg.connect(url, autocommit=True) as connection:
        indexes = _drop_indexes(connection)
        pieces = _pieces(url, connection, before, after)
        with multiprocessing.get_context("spawn").Pool(min(len(pieces), os.cpu_count() or 1)) as pool:
            pool.map(_load, pieces, chunksize=1)
        _create_indexes(connection, indexes)


def _wanted(entries: int) -> dict[int, int]:
    large = entries // 10
    ordinary = (entries - large) // OF_TENANT
    return {LARGE: large, **dict.fromkeys(range(1, ordinary + 1), OF_TENANT)}


def _pieces(url: str, connection: psycopg.Connection[Any], before: int, after: int) -> list[TenantBatch]:
    have, wanted = _wanted(before) if before else {}, _wanted(after)
    message_pk = _next(connection, "lmt_messages")
    session_pk = _next(connection, "lmt_sessions")
    embedder_pk = _fetch_int(connection, "SELECT pk FROM lmt_embedders ORDER BY pk LIMIT 1")
    pieces = []
    for tenant, count in wanted.items():
        namespace_pk = _namespace(connection, tenant)
        for first in range(have.get(tenant, 0), count, 10 * OF_TENANT):
            some = min(count - first, 10 * OF_TENANT)
            index = (tenant, namespace_pk, first, some, message_pk, session_pk, embedder_pk)
            pieces.append(TenantBatch(url, *index))
            message_pk, session_pk = message_pk + some, session_pk + -(-some // PER_SESSION)
    for table, pk in (("lmt_messages", message_pk), ("lmt_sessions", session_pk)):
        connection.execute("SELECT setval(pg_get_serial_sequence(%s, 'pk'), %s)", (table, pk))
    return pieces


def _namespace(connection: psycopg.Connection[Any], tenant: int) -> int:
    row = connection.execute(
        """INSERT INTO lmt_namespaces (path, created_at, erasure_epoch) VALUES (%s, %s, 1)
            ON CONFLICT (path) DO UPDATE SET created_at = excluded.created_at RETURNING pk""",
        (tenant_name(tenant), START),
    ).fetchone()
    assert row is not None  # noqa: S101 - a row is returned either way
    return int(row[0])


def _load(piece: TenantBatch) -> None:
    embedder, counter, indexer = OfflineEmbedder(), ContentAwareCounter(), Indexer(IMPORTANCE_SCORER)
    with psycopg.connect(piece.url) as connection:
        messages = [_message(counter, piece, n) for n in range(piece.count)]
        _copy_sessions(connection, piece, [message.token_count for message in messages])
        rows = [
            {
                "pk": piece.message_pk + n,
                **to_message_row(message, _session_pk(piece, n), _position(piece, n)),
            }
            | build_index_columns(indexer(message), piece.namespace_pk, is_sqlite=False)
            for n, message in enumerate(messages)
        ]
        _copy(connection, "lmt_messages", rows)
        vectors = np.concatenate(
            [
                embedder.embed_documents([message.content for message in messages[start : start + _BATCH]])
                for start in range(0, piece.count, _BATCH)
            ]
        )
        _copy_vectors(connection, piece, vectors)


def _message(counter: ContentAwareCounter, piece: TenantBatch, number: int) -> Message:
    index = piece.first + number
    content = make_text(piece.tenant, index)
    return Message(
        id=f"b{index}",
        role=Role.ASSISTANT if index % 2 else Role.USER,
        content=content,
        created_at=START + timedelta(minutes=index),
        token_count=counter.count(content),
        token_counter=counter.name,
    )


def _session_pk(piece: TenantBatch, number: int) -> int:
    return piece.session_pk + number // PER_SESSION


def _position(piece: TenantBatch, number: int) -> int:
    return ((piece.first + number) % PER_SESSION + 1) * POSITION_STEP


def _copy_sessions(connection: psycopg.Connection[Any], piece: TenantBatch, tokens: Sequence[int]) -> None:
    rows = []
    for start in range(0, piece.count, PER_SESSION):
        some = tokens[start : start + PER_SESSION]
        when = START + timedelta(minutes=piece.first + start)
        rows.append(
            {
                "pk": _session_pk(piece, start),
                "namespace_pk": piece.namespace_pk,
                "name": f"b{(piece.first + start) // PER_SESSION}",
                "created_at": when,
                "updated_at": when,
                "revision": len(some),
                "last_position": len(some) * POSITION_STEP,
                "message_count": len(some),
                "token_count": sum(some),
                "compressed_count": 0,
                "view_position": 0,
                "view_message": 0,
            }
        )
    _copy(connection, "lmt_sessions", rows)


def _copy(connection: psycopg.Connection[Any], table: str, rows: Sequence[dict[str, Any]]) -> None:
    columns = list(rows[0])
    with connection.cursor().copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:  # type: ignore[arg-type, unused-ignore]
        for row in rows:
            copy.write_row([row[name] for name in columns])


def _copy_vectors(
    connection: psycopg.Connection[Any], piece: TenantBatch, vectors: np.ndarray[Any, Any]
) -> None:
    # PostgreSQL's own binary form, made by numpy: numbers as text would take longer than all the rest.
    dimension = vectors.shape[1]
    fields = [("fields", ">i2")]
    for name in ("namespace_pk", "embedder_pk", "message_pk"):
        fields += [(f"size_{name}", ">i4"), (name, ">i8")]
    fields += [("size_is_indexed", ">i4"), ("is_indexed", "?")]
    kind = np.dtype(
        [*fields, ("size", ">i4"), ("dimension", ">i2"), ("unused", ">i2"), ("v", ">f4", dimension)]
    )
    table = np.zeros(len(vectors), kind)
    table["fields"], table["size"], table["dimension"], table["v"] = 5, 4 + 4 * dimension, dimension, vectors
    table["size_is_indexed"], table["is_indexed"] = 1, piece.tenant == LARGE
    keys = {
        "namespace_pk": piece.namespace_pk,
        "embedder_pk": piece.embedder_pk,
        "message_pk": piece.message_pk + np.arange(len(vectors)),
    }
    for name, value in keys.items():
        table[f"size_{name}"], table[name] = 8, value
    columns = "namespace_pk, embedder_pk, message_pk, is_indexed, embedding"
    statement = f"COPY lmt_vectors ({columns}) FROM STDIN (FORMAT binary)"
    with connection.cursor().copy(statement) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        copy.write(table.tobytes())
        copy.write(b"\xff\xff")


def _drop_indexes(connection: psycopg.Connection[Any]) -> list[str]:
    rows = connection.execute(
        """SELECT i.indexname, i.indexdef FROM pg_indexes i WHERE i.tablename = ANY(%s)
            AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conname = i.indexname)""",
        (list(_TABLES),),
    ).fetchall()
    for name, _ in rows:
        connection.execute(f"DROP INDEX {name}")  # type: ignore[call-overload, unused-ignore]
    return [definition for _, definition in rows]


def _create_indexes(connection: psycopg.Connection[Any], indexes: Sequence[str]) -> None:
    connection.execute("SET maintenance_work_mem = '2GB'")
    for definition in indexes:
        connection.execute(definition)  # type: ignore[call-overload, unused-ignore]
    connection.execute("ANALYZE")


def _next(connection: psycopg.Connection[Any], table: str) -> int:
    return _fetch_int(connection, f"SELECT coalesce(max(pk), 0) + 1000 FROM {table}")


def _fetch_int(connection: psycopg.Connection[Any], statement: str) -> int:
    row = connection.execute(statement).fetchone()  # type: ignore[call-overload, unused-ignore]
    assert row is not None  # noqa: S101 - one row each
    return int(row[0])
