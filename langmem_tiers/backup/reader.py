"""Reading of database rows as backup records, in batches."""

from __future__ import annotations

from array import array
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, literal_column, select, text

from langmem_tiers.backup.file import encode_value
from langmem_tiers.backup.models import BackupInfo
from langmem_tiers.backup.tables import UNCONSTRAINED_KEYS, build_scope_condition, get_backup_tables
from langmem_tiers.storage.column_types import to_storable_text
from langmem_tiers.storage.schema import SCHEMA_VERSION, embedders, vectors

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias

    from sqlalchemy import Connection, Select

    from langmem_tiers.backup.models import BackupScope, BackupSource
    from langmem_tiers.backup.tables import BackupTable
    from langmem_tiers.sessions.message_sql import AnyRow

    Record: TypeAlias = tuple[str, dict[str, Any]]

_READ_BATCH_SIZE = 500
_HAS_NATIVE_QUERY = text(
    """SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('lmt_vectors')
        AND attname = 'embedding' AND NOT attisdropped)"""
)
_NATIVE_COLUMN = "embedding"


class RecordReader:
    """Reads a part of the memory as records.

    In a backup, the keys of each table are renumbered: 1 is the lowest key in the scope, and gaps remain. So the keys
    reveal nothing about the rest of the database, keep their order, and need no mapping table. A restore adds an
    offset to them.

    Args:
        connection: Connection with a snapshot: all of its statements must see the same state.
        scope: Part of the memory to read.
    """

    def __init__(self, connection: Connection, scope: BackupScope) -> None:
        self._connection = connection
        self._scope = scope
        self._is_sqlite = connection.dialect.name == "sqlite"
        self._has_native = not self._is_sqlite and bool(connection.execute(_HAS_NATIVE_QUERY).scalar())
        self._first_keys: dict[str, int] = {}
        self.spans: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        for kind, backup_table in get_backup_tables().items():
            self._measure(kind, backup_table)

    def build_info(self, source: BackupSource) -> BackupInfo:
        """Build the header of the backup."""
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
        """Yield all records. Referenced records come before those that refer to them.

        Close the generator before the connection.
        """
        for kind, backup_table in get_backup_tables().items():
            with closing(self._read_rows(backup_table)) as rows:
                for row in rows:
                    yield kind, self._to_values(backup_table, row)

    def _measure(self, kind: str, backup_table: BackupTable) -> None:
        # Counts the rows in the scope, and finds the range of their keys.
        condition = build_scope_condition(backup_table.table, self._scope)
        if not backup_table.has_key:
            query = select(func.count()).select_from(backup_table.table).where(condition)
            self.counts[kind] = self._connection.execute(query).scalar_one()
            return
        key = backup_table.table.c.pk
        ends: Select[*tuple[Any, ...]] = select(func.count(), func.min(key), func.max(key)).where(condition)
        self.counts[kind], first, last = self._connection.execute(ends).one()
        self._first_keys[kind] = first or 0
        self.spans[kind] = 0 if first is None else last - first + 1

    def _read_rows(self, backup_table: BackupTable) -> Generator[AnyRow, None, None]:
        columns: list[Any] = list(backup_table.columns)
        if backup_table.table is vectors and self._has_native:
            columns.append(literal_column(f"vector_send({_NATIVE_COLUMN})").label(_NATIVE_COLUMN))
        query = select(*columns).where(build_scope_condition(backup_table.table, self._scope))
        query = query.order_by(*backup_table.build_order(is_sqlite=self._is_sqlite))
        # yield_per uses a server-side cursor, so that only one batch of rows is in memory.
        with self._connection.execute(query, execution_options={"yield_per": _READ_BATCH_SIZE}) as rows:
            yield from rows

    def _to_values(self, backup_table: BackupTable, row: AnyRow) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for column, value in zip(backup_table.columns, row, strict=False):
            kind = backup_table.key_kinds.get(column.name)
            if kind is None or value is None:
                values[column.name] = encode_value(column, value)
            elif column in UNCONSTRAINED_KEYS:
                # Without a constraint, the referenced row may not exist or be outside of the scope: write no key then.
                number = value - self._first_keys[kind] + 1
                is_in_range = 1 <= number <= self.spans[kind]
                values[column.name] = number if is_in_range else None if column.nullable else 0
            else:
                values[column.name] = value - self._first_keys[kind] + 1
        if backup_table.table is vectors and self._has_native and row[-1] is not None:
            values["vector"] = encode_value(vectors.c.vector, _decode_native_vector(row[-1]))
        return values


def _decode_native_vector(sent: bytes) -> bytes:
    # The binary format of pgvector: two 16-bit numbers, then float32 values in big-endian order. Backups and SQLite use
    # little-endian order.
    numbers = array("I", sent[4:])
    numbers.byteswap()
    return numbers.tobytes()
