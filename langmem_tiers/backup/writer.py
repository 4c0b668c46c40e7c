"""Writing of backup records as database rows, in one transaction."""

from __future__ import annotations

import json
import secrets
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import exists, insert, select, text

from langmem_tiers.backup.file import parse_record
from langmem_tiers.backup.tables import (
    EPOCH_COLUMNS,
    MERGED_TABLES,
    ROOT_TABLES,
    UNCONSTRAINED_KEYS,
    belongs_to_namespace,
    build_scope_condition,
    get_backup_tables,
)
from langmem_tiers.common.namespaces import unescape
from langmem_tiers.errors import DamagedBackupError
from langmem_tiers.sessions.message_sql import from_message_row
from langmem_tiers.storage.column_types import to_storable_text, unpack_json
from langmem_tiers.storage.schema import embedders, knowledge, messages, origins, sessions, vectors
from langmem_tiers.storage.search import build_index_columns, build_knowledge_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from langmem_tiers.backup.models import BackupInfo, BackupScope, RestoreRequest
    from langmem_tiers.backup.reader import Record
    from langmem_tiers.backup.tables import BackupTable
    from langmem_tiers.common.messages import Message
    from langmem_tiers.recall.records import IndexText
    from langmem_tiers.sessions.message_sql import AnyRow

_INSERT_BATCH_SIZE = 500
# Random values of this size never repeat in practice, and fit into the integers of both databases.
_EPOCH_BITS = 48
_INSERT_NATIVE_VECTOR = text(
    """INSERT INTO lmt_vectors (pk, namespace_pk, embedder_pk, message_pk, embedding)
        VALUES (:pk, :namespace_pk, :embedder_pk, :message_pk, CAST(:vector AS vector))"""
)


class TermBuilder:
    """Builds the search terms of restored rows, for their new namespace and database.

    Args:
        index_text: Function that returns the index data of a message.
        terms_of: Function that returns the terms of a text.
    """

    def __init__(
        self, index_text: Callable[[Message], IndexText], terms_of: Callable[[str], Sequence[str]]
    ) -> None:
        self._index_text = index_text
        self._terms_of = terms_of

    def build_message_terms(self, row: Mapping[str, Any], *, is_sqlite: bool) -> str | None:
        """Return the stored terms of a message. None for a summary, which is not indexed."""
        # Only summaries have no namespace.
        if row["namespace_pk"] is None:
            return None
        # from_message_row() reads attributes, like those of a database row.
        message = from_message_row(cast("AnyRow", SimpleNamespace(**row)), (0, 0))
        terms: str = build_index_columns(self._index_text(message), row["namespace_pk"], is_sqlite)["terms"]
        return terms

    def build_knowledge_terms(self, row: Mapping[str, Any], *, is_sqlite: bool) -> str:
        """Return the stored terms of a knowledge entry."""
        value = row["value"] if row["exact"] is None else json.loads(unpack_json(row["exact"]))[0]
        found = self._terms_of(f"{unescape(row['key'])} {value}")
        terms: str = build_knowledge_columns(found, row["namespace_pk"], is_sqlite)["terms"]
        return terms


class RecordWriter:
    """Writes records to a database.

    Args:
        connection: Connection in a transaction. The caller commits, or rolls back after an error.
        info: Header of the backup.
        request: Options of the restore.
        keys: Key before the reserved range of each kind. A key of the backup plus this offset is the new key.
        terms: Builder of search terms.
    """

    def __init__(
        self,
        connection: Connection,
        info: BackupInfo,
        request: RestoreRequest,
        keys: Mapping[str, int],
        terms: TermBuilder,
    ) -> None:
        self._connection = connection
        self._info = info
        self._request = request
        self._embedder = None if request.embedder is None else to_storable_text(request.embedder)
        self._keys = keys
        self._terms = terms
        self._is_sqlite = connection.dialect.name == "sqlite"
        self.is_native = False
        self._merged_keys: dict[str, dict[int, int | None]] = {
            kind: {} for kind in get_merged_kinds(info.scope)
        }
        self.counts: dict[str, int] = {}
        self.vectors_left_out = 0
        self.embedders_left_out: list[str] = []
        self.embedders: dict[int, int] = {}

    def write_records(self, records: Iterable[Record]) -> None:
        """Write all records, in batches of the same kind."""
        rows: list[dict[str, Any]] = []
        kind = ""
        for record_kind, values in records:
            if rows and (record_kind != kind or len(rows) == _INSERT_BATCH_SIZE):
                self._insert(get_backup_tables()[kind], rows)
                rows = []
            kind = record_kind
            row = self._build_row(get_backup_tables()[kind], values)
            if row is not None:
                rows.append(row)
        if rows:
            self._insert(get_backup_tables()[kind], rows)

    def _build_row(self, backup_table: BackupTable, values: Mapping[str, Any]) -> dict[str, Any] | None:
        # Returns None for records that are not inserted: shared rows are merged, vectors of other embedders skipped.
        row = parse_record(backup_table, values, self._info)
        if backup_table.kind in self._merged_keys:
            self._merge(backup_table, row)
            return None
        for name, kind in backup_table.key_kinds.items():
            if row.get(name) is None:
                continue
            if kind in self._merged_keys:
                row[name] = self._find_merged_key(kind, row[name])
                # The embedder was skipped, and only vectors refer to embedders.
                if row[name] is None:
                    self.vectors_left_out += 1
                    return None
            # 0 in a column without a constraint means no row, and stays 0.
            elif row[name] or backup_table.table.c[name] not in UNCONSTRAINED_KEYS:
                row[name] += self._keys[kind]
        return self._complete_row(backup_table, row)

    def _complete_row(self, backup_table: BackupTable, row: dict[str, Any]) -> dict[str, Any]:
        if backup_table.table in ROOT_TABLES:
            row["path"] = self._info.scope.rename_path(row["path"], self._request.into)
        elif backup_table.table is origins:
            row["namespace"] = self._info.scope.rename_path(row["namespace"], self._request.into)
        # A new epoch invalidates what other processes have cached of a namespace of the same name.
        for column in backup_table.table.c:
            if column in EPOCH_COLUMNS:
                row[column.name] = secrets.randbits(_EPOCH_BITS)
        if backup_table.table is messages:
            row["terms"] = self._terms.build_message_terms(row, is_sqlite=self._is_sqlite)
        elif backup_table.table is knowledge:
            row["terms"] = self._terms.build_knowledge_terms(row, is_sqlite=self._is_sqlite)
        return row

    def _insert(self, backup_table: BackupTable, rows: list[dict[str, Any]]) -> None:
        self.counts[backup_table.kind] = self.counts.get(backup_table.kind, 0) + len(rows)
        if backup_table.table is vectors and self.is_native:
            self._connection.execute(
                _INSERT_NATIVE_VECTOR, [row | {"vector": _format_vector(row["vector"])} for row in rows]
            )
        else:
            self._connection.execute(insert(backup_table.table), rows)

    def _find_merged_key(self, kind: str, name: int) -> int | None:
        if name not in self._merged_keys[kind]:
            raise DamagedBackupError(
                f"a record refers to a missing record of {kind!r}: use another backup; nothing was restored"
            )
        return self._merged_keys[kind][name]

    def _merge(self, backup_table: BackupTable, row: dict[str, Any]) -> None:
        # Maps the backup's key of a shared row to that of an equal row in the database, which is inserted if missing.
        # None marks an embedder whose vectors are skipped.
        merged_keys, backup_key = self._merged_keys[backup_table.kind], row.pop("pk")
        if backup_table.table is embedders and self._embedder not in (None, row["identity"]):
            merged_keys[backup_key] = None
            self.embedders_left_out.append(row["identity"])
            return
        same = [column == row[column.name] for column in backup_table.natural_key]
        found = (
            self._connection.execute(select(backup_table.table.c.pk).where(*same)).scalar() if same else None
        )
        if found is None:
            self.counts[backup_table.kind] = self.counts.get(backup_table.kind, 0) + 1
            statement = insert(backup_table.table).values(row).returning(backup_table.table.c.pk)
            found = self._connection.execute(statement).scalar_one()
        merged_keys[backup_key] = int(found)
        if backup_table.table is embedders:
            self.embedders[int(found)] = row["dimension"]


def get_merged_kinds(scope: BackupScope) -> set[str]:
    """Return the kinds of rows that namespaces share.

    Such rows are not inserted if the target has equal ones.
    """
    return {
        kind
        for kind, backup_table in get_backup_tables().items()
        if backup_table.table in MERGED_TABLES
        or (scope.namespace is not None and not belongs_to_namespace(backup_table.table))
    }


def find_existing_kind(connection: Connection, scope: BackupScope) -> str | None:
    """Return the kind of some existing content in a part of the memory, or None if it is empty."""
    for kind, backup_table in get_backup_tables().items():
        is_content = belongs_to_namespace(backup_table.table) or (
            scope.namespace is None and backup_table.table not in MERGED_TABLES
        )
        if is_content and backup_table.table not in ROOT_TABLES:
            query = select(
                exists()
                .where(build_scope_condition(backup_table.table, scope))
                .select_from(backup_table.table)
            )
            if connection.execute(query).scalar():
                return kind
    return None


def lock_scope(connection: Connection, scope: BackupScope) -> None:
    """Prevent other writes to a part of the memory until the transaction ends.

    SQLite needs no lock, because it has one writer at a time.
    """
    if connection.dialect.name == "sqlite":
        return
    # Lock the rows of the namespaces, in a fixed order, so that two restores cannot deadlock. For the whole memory,
    # lock the tables too, so that nobody can create a namespace.
    for root in ROOT_TABLES:
        if scope.namespace is None:
            connection.execute(text(f"LOCK TABLE {root.name} IN SHARE ROW EXCLUSIVE MODE"))
        query = (
            select(root.c.pk)
            .where(build_scope_condition(root, scope))
            .order_by(root.c.path)
            .with_for_update()
        )
        connection.execute(query)


def delete_scope(connection: Connection, scope: BackupScope) -> list[int]:
    """Delete a part of the memory, and return the keys of its sessions."""
    session_keys = list(
        connection.execute(select(sessions.c.pk).where(build_scope_condition(sessions, scope))).scalars()
    )
    # Deleting the rows of namespaces deletes everything that refers to them, by ON DELETE CASCADE. Tables are in
    # reverse order, so that rows that refer to others are deleted before these.
    for backup_table in reversed(list(get_backup_tables().values())):
        is_shared = not belongs_to_namespace(backup_table.table) and backup_table.table not in MERGED_TABLES
        if backup_table.table in ROOT_TABLES or (is_shared and scope.namespace is None):
            connection.execute(
                backup_table.table.delete().where(build_scope_condition(backup_table.table, scope))
            )
    return session_keys


def _format_vector(vector: bytes | None) -> str | None:
    # The text format of pgvector. A damaged value may end within a number. struct.unpack needs complete ones, so the
    # rest is cut off.
    if vector is None:
        return None
    return (
        "["
        + ",".join(map(repr, struct.unpack(f"<{len(vector) // 4}f", vector[: len(vector) // 4 * 4])))
        + "]"
    )
