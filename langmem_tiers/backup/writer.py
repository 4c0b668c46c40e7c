"""Records of a backup as rows of a database, inside one transaction."""

from __future__ import annotations

import json
import secrets
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import exists, insert, select, text

from langmem_tiers.backup.tables import (
    EPOCH_COLUMNS,
    MERGED_TABLES,
    ROOT_TABLES,
    UNCONSTRAINED_KEYS,
    belongs_to_namespace,
    build_scope_condition,
    get_backup_tables,
)
from langmem_tiers.backup.values import parse_record
from langmem_tiers.common.namespaces import unescape
from langmem_tiers.errors import DamagedBackupError
from langmem_tiers.sessions.message_rows import from_message_row
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
    from langmem_tiers.sessions.message_rows import AnyRow

_INSERT_BATCH_SIZE = 500
_EPOCH_BITS = 48
_INSERT_NATIVE_VECTOR = text(
    """INSERT INTO lmt_vectors (pk, namespace_pk, embedder_pk, message_pk, embedding)
        VALUES (:pk, :namespace_pk, :embedder_pk, :message_pk, CAST(:vector AS vector))"""
)


class TermBuilder:
    """Makes the terms of rows again, for the namespace and the database that they are in now.

    Args:
        index_text: What recall is to find of a message.
        terms_of: The terms of a text.
    """

    def __init__(
        self, index_text: Callable[[Message], IndexText], terms_of: Callable[[str], Sequence[str]]
    ) -> None:
        self._index_text = index_text
        self._terms_of = terms_of

    def build_message_terms(self, row: Mapping[str, Any], *, is_sqlite: bool) -> str | None:
        """The terms of a message; None for a summary, which says nothing that the record does not."""
        if row["namespace_pk"] is None:
            return None
        message = from_message_row(cast("AnyRow", SimpleNamespace(**row)), (0, 0))
        terms: str = build_index_columns(self._index_text(message), row["namespace_pk"], is_sqlite)["terms"]
        return terms

    def build_knowledge_terms(self, row: Mapping[str, Any], *, is_sqlite: bool) -> str:
        """The terms of something known."""
        value = row["value"] if row["exact"] is None else json.loads(unpack_json(row["exact"]))[0]
        found = self._terms_of(f"{unescape(row['key'])} {value}")
        terms: str = build_knowledge_columns(found, row["namespace_pk"], is_sqlite)["terms"]
        return terms


class RecordWriter:
    """Puts records into a database.

    Args:
        connection: A transaction that is kept whole or not at all.
        info: What the backup says of itself.
        wish: Where to, and with which vectors.
        keys: For each kind the key before the first that is free.
        terms: Makes terms again.
    """

    def __init__(
        self,
        connection: Connection,
        info: BackupInfo,
        wish: RestoreRequest,
        keys: Mapping[str, int],
        terms: TermBuilder,
    ) -> None:
        self._connection = connection
        self._info = info
        self._request = wish
        self._embedder = None if wish.embedder is None else to_storable_text(wish.embedder)
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
        """Write all of them, a few at a time."""
        rows: list[dict[str, Any]] = []
        kind = ""
        for of, values in records:
            if rows and (of != kind or len(rows) == _INSERT_BATCH_SIZE):
                self._insert(get_backup_tables()[kind], rows)
                rows = []
            kind = of
            row = self._build_row(get_backup_tables()[kind], values)
            if row is not None:
                rows.append(row)
        if rows:
            self._insert(get_backup_tables()[kind], rows)

    def _build_row(self, kept: BackupTable, values: Mapping[str, Any]) -> dict[str, Any] | None:
        row = parse_record(kept, values, self._info)
        if kept.kind in self._merged_keys:
            self._merge(kept, row)
            return None
        for name, kind in kept.key_kinds.items():
            if row.get(name) is None:
                continue
            if kind in self._merged_keys:
                row[name] = self._find_merged_key(kind, row[name])
                if row[name] is None:
                    self.vectors_left_out += 1
                    return None
            elif row[name] or kept.table.c[name] not in UNCONSTRAINED_KEYS:
                row[name] += self._keys[kind]
        return self._complete_row(kept, row)

    def _complete_row(self, kept: BackupTable, row: dict[str, Any]) -> dict[str, Any]:
        if kept.table in ROOT_TABLES:
            row["path"] = self._info.scope.rename_path(row["path"], self._request.into)
        elif kept.table is origins:
            row["namespace"] = self._info.scope.rename_path(row["namespace"], self._request.into)
        for column in kept.table.c:
            if column in EPOCH_COLUMNS:
                row[column.name] = secrets.randbits(_EPOCH_BITS)
        if kept.table is messages:
            row["terms"] = self._terms.build_message_terms(row, is_sqlite=self._is_sqlite)
        elif kept.table is knowledge:
            row["terms"] = self._terms.build_knowledge_terms(row, is_sqlite=self._is_sqlite)
        return row

    def _insert(self, kept: BackupTable, rows: list[dict[str, Any]]) -> None:
        self.counts[kept.kind] = self.counts.get(kept.kind, 0) + len(rows)
        if kept.table is vectors and self.is_native:
            self._connection.execute(
                _INSERT_NATIVE_VECTOR, [row | {"vector": _format_vector(row["vector"])} for row in rows]
            )
        else:
            self._connection.execute(insert(kept.table), rows)

    def _find_merged_key(self, kind: str, name: int) -> int | None:
        if name not in self._merged_keys[kind]:
            raise DamagedBackupError(
                f"a record names one of {kind!r} that is not there: take another backup; nothing was restored"
            )
        return self._merged_keys[kind][name]

    def _merge(self, kept: BackupTable, row: dict[str, Any]) -> None:
        known, name = self._merged_keys[kept.kind], row.pop("pk")
        if kept.table is embedders and self._embedder not in (None, row["identity"]):
            known[name] = None
            self.embedders_left_out.append(row["identity"])
            return
        same = [column == row[column.name] for column in kept.natural_key]
        found = self._connection.execute(select(kept.table.c.pk).where(*same)).scalar() if same else None
        if found is None:
            self.counts[kept.kind] = self.counts.get(kept.kind, 0) + 1
            new = insert(kept.table).values(row).returning(kept.table.c.pk)
            found = self._connection.execute(new).scalar_one()
        known[name] = int(found)
        if kept.table is embedders:
            self.embedders[int(found)] = row["dimension"]


def get_merged_kinds(scope: BackupScope) -> set[str]:
    """What namespaces share: it is there already, or comes with the first that names it."""
    return {
        kind
        for kind, kept in get_backup_tables().items()
        if kept.table in MERGED_TABLES
        or (scope.namespace is not None and not belongs_to_namespace(kept.table))
    }


def find_existing_kind(connection: Connection, scope: BackupScope) -> str | None:
    """The kind of something that a part of the memory holds; None if it is empty."""
    for kind, kept in get_backup_tables().items():
        is_content = belongs_to_namespace(kept.table) or (
            scope.namespace is None and kept.table not in MERGED_TABLES
        )
        if is_content and kept.table not in ROOT_TABLES:
            held = select(exists().where(build_scope_condition(kept.table, scope)).select_from(kept.table))
            if connection.execute(held).scalar():
                return kind
    return None


def lock_scope(connection: Connection, scope: BackupScope) -> None:
    """See that nobody writes to a part of the memory until the transaction ends. On SQLite nobody can anyway."""
    if connection.dialect.name == "sqlite":
        return
    for root in ROOT_TABLES:
        if scope.namespace is None:
            connection.execute(text(f"LOCK TABLE {root.name} IN SHARE ROW EXCLUSIVE MODE"))
        own = (
            select(root.c.pk)
            .where(build_scope_condition(root, scope))
            .order_by(root.c.path)
            .with_for_update()
        )
        connection.execute(own)


def delete_scope(connection: Connection, scope: BackupScope) -> list[int]:
    """Erase a part of the memory; the keys of the sessions that it held."""
    gone = list(
        connection.execute(select(sessions.c.pk).where(build_scope_condition(sessions, scope))).scalars()
    )
    for kept in reversed(list(get_backup_tables().values())):
        shared = not belongs_to_namespace(kept.table) and kept.table not in MERGED_TABLES
        if kept.table in ROOT_TABLES or (shared and scope.namespace is None):
            connection.execute(kept.table.delete().where(build_scope_condition(kept.table, scope)))
    return gone


def _format_vector(vector: bytes | None) -> str | None:
    if vector is None:
        return None
    return (
        "["
        + ",".join(map(repr, struct.unpack(f"<{len(vector) // 4}f", vector[: len(vector) // 4 * 4])))
        + "]"
    )
