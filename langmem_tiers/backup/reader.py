"""Rows of a database as records of a backup, a few at a time."""

from __future__ import annotations

from array import array
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, literal_column, select, text

from langmem_tiers.backup.models import BackupInfo
from langmem_tiers.backup.tables import UNCONSTRAINED_KEYS, build_scope_condition, get_backup_tables
from langmem_tiers.backup.values import encode_value
from langmem_tiers.storage.column_types import to_storable_text
from langmem_tiers.storage.schema import SCHEMA_VERSION, embedders, vectors

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias

    from sqlalchemy import Connection, Select

    from langmem_tiers.backup.models import BackupScope, BackupSource
    from langmem_tiers.backup.tables import BackupTable
    from langmem_tiers.sessions.message_rows import AnyRow

    Record: TypeAlias = tuple[str, dict[str, Any]]

_READ_BATCH_SIZE = 500
_HAS_NATIVE_QUERY = text(
    """SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('lmt_vectors')
        AND attname = 'embedding' AND NOT attisdropped)"""
)
_NATIVE_COLUMN = "embedding"


class RecordReader:
    """A part of a memory on a connection whose statements all see one moment.

    Rows are named by how far their keys lie behind the first: so names mean nothing outside the backup, keep
    their order, and need no list of what was named how.

    Args:
        connection: Where.
        scope: What.
    """

    def __init__(self, connection: Connection, scope: BackupScope) -> None:
        self._connection = connection
        self._scope = scope
        self._is_sqlite = connection.dialect.name == "sqlite"
        self._has_native = not self._is_sqlite and bool(connection.execute(_HAS_NATIVE_QUERY).scalar())
        self._first_keys: dict[str, int] = {}
        self.spans: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        for kind, kept in get_backup_tables().items():
            self._measure(kind, kept)

    def build_info(self, source: BackupSource) -> BackupInfo:
        """What is said of it all."""
        query = select(embedders.c.dimension).where(
            embedders.c.identity == to_storable_text(source.embedder or "")
        )
        return BackupInfo(
            schema=SCHEMA_VERSION,
            release=source.release,
            created_at=source.created_at,
            scope=self._scope,
            embedder=source.embedder,
            dimension=self._connection.execute(query.order_by(embedders.c.pk.desc())).scalar(),
            counter=source.counter,
            counts=self.counts,
            spans=self.spans,
        )

    def read_records(self) -> Generator[Record, None, None]:
        """All records, those first that others name. Close it before the connection."""
        for kind, kept in get_backup_tables().items():
            with closing(self._read_rows(kept)) as rows:
                for row in rows:
                    yield kind, self._to_values(kept, row)

    def _measure(self, kind: str, kept: BackupTable) -> None:
        own = build_scope_condition(kept.table, self._scope)
        if not kept.has_key:
            query = select(func.count()).select_from(kept.table).where(own)
            self.counts[kind] = self._connection.execute(query).scalar_one()
            return
        key = kept.table.c.pk
        ends: Select[*tuple[Any, ...]] = select(func.count(), func.min(key), func.max(key)).where(own)
        self.counts[kind], first, last = self._connection.execute(ends).one()
        self._first_keys[kind] = first or 0
        self.spans[kind] = 0 if first is None else last - first + 1

    def _read_rows(self, kept: BackupTable) -> Generator[AnyRow, None, None]:
        columns: list[Any] = list(kept.columns)
        if kept.table is vectors and self._has_native:
            columns.append(literal_column(f"vector_send({_NATIVE_COLUMN})").label(_NATIVE_COLUMN))
        query = select(*columns).where(build_scope_condition(kept.table, self._scope))
        query = query.order_by(*kept.build_order(is_sqlite=self._is_sqlite))
        # The database hands them over in parts: however many there are, few are held here.
        with self._connection.execute(query, execution_options={"yield_per": _READ_BATCH_SIZE}) as rows:
            yield from rows

    def _to_values(self, kept: BackupTable, row: AnyRow) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for column, value in zip(kept.columns, row, strict=False):
            kind = kept.key_kinds.get(column.name)
            if kind is None or value is None:
                values[column.name] = encode_value(column, value)
            elif column in UNCONSTRAINED_KEYS:
                name = value - self._first_keys[kind] + 1
                is_there = 1 <= name <= self.spans[kind]
                values[column.name] = name if is_there else None if column.nullable else 0
            else:
                values[column.name] = value - self._first_keys[kind] + 1
        if kept.table is vectors and self._has_native and row[-1] is not None:
            values["vector"] = encode_value(vectors.c.vector, _decode_native_vector(row[-1]))
        return values


def _decode_native_vector(sent: bytes) -> bytes:
    # pgvector sends two small numbers, then float32 with the highest byte first; ours have the lowest first.
    numbers = array("I", sent[4:])
    numbers.byteswap()
    return numbers.tobytes()
