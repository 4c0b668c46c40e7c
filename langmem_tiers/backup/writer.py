"""Records of a backup as rows of a database, inside one transaction."""

from __future__ import annotations

import json
import secrets
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import exists, insert, select, text

from langmem_tiers.backup.tables import (
    ALWAYS_MERGED,
    KEYS_WITHOUT_CONSTRAINT,
    RENEWED,
    ROOTS,
    is_rooted,
    kept_tables,
    within,
)
from langmem_tiers.backup.values import read_record
from langmem_tiers.common.namespaces import unescape
from langmem_tiers.errors import DamagedBackupError
from langmem_tiers.sessions.message_rows import to_message
from langmem_tiers.storage.column_types import storable, unpack_json
from langmem_tiers.storage.schema import embedders, knowledge, messages, origins, sessions, vectors
from langmem_tiers.storage.search import index_columns, known_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from langmem_tiers.backup.models import BackupInfo, BackupScope, RestoreWish
    from langmem_tiers.backup.reader import Record
    from langmem_tiers.backup.tables import Kept
    from langmem_tiers.common.messages import Message
    from langmem_tiers.recall.records import IndexText
    from langmem_tiers.sessions.message_rows import AnyRow

_AT_ONCE = 500
_EPOCH_BITS = 48
_PUT_NATIVE = text(
    """INSERT INTO lmt_vectors (pk, namespace_pk, embedder_pk, message_pk, embedding)
        VALUES (:pk, :namespace_pk, :embedder_pk, :message_pk, CAST(:vector AS vector))"""
)


class Terms:
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

    def of_message(self, row: Mapping[str, Any], *, is_sqlite: bool) -> str | None:
        """The terms of a message; None for a summary, which says nothing that the record does not."""
        if row["namespace_pk"] is None:
            return None
        message = to_message(cast("AnyRow", SimpleNamespace(**row)), (0, 0))
        terms: str = index_columns(self._index_text(message), row["namespace_pk"], is_sqlite)["terms"]
        return terms

    def of_knowledge(self, row: Mapping[str, Any], *, is_sqlite: bool) -> str:
        """The terms of something known."""
        value = row["value"] if row["exact"] is None else json.loads(unpack_json(row["exact"]))[0]
        found = self._terms_of(f"{unescape(row['key'])} {value}")
        terms: str = known_columns(found, row["namespace_pk"], is_sqlite)["terms"]
        return terms


class Writing:
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
        wish: RestoreWish,
        keys: Mapping[str, int],
        terms: Terms,
    ) -> None:
        self._connection = connection
        self._info = info
        self._wish = wish
        self._embedder = None if wish.embedder is None else storable(wish.embedder)
        self._keys = keys
        self._terms = terms
        self._is_sqlite = connection.dialect.name == "sqlite"
        self.is_native = False
        self._merged: dict[str, dict[int, int | None]] = {kind: {} for kind in merged_kinds(info.scope)}
        self.counts: dict[str, int] = {}
        self.vectors_left_out = 0
        self.embedders_left_out: list[str] = []
        self.embedders: dict[int, int] = {}

    def put(self, records: Iterable[Record]) -> None:
        """Write all of them, a few at a time."""
        rows: list[dict[str, Any]] = []
        kind = ""
        for of, values in records:
            if rows and (of != kind or len(rows) == _AT_ONCE):
                self._insert(kept_tables()[kind], rows)
                rows = []
            kind = of
            row = self._row(kept_tables()[kind], values)
            if row is not None:
                rows.append(row)
        if rows:
            self._insert(kept_tables()[kind], rows)

    def _row(self, kept: Kept, values: Mapping[str, Any]) -> dict[str, Any] | None:
        row = read_record(kept, values, self._info)
        if kept.kind in self._merged:
            self._merge(kept, row)
            return None
        for name, kind in kept.names.items():
            if row.get(name) is None:
                continue
            if kind in self._merged:
                row[name] = self._now(kind, row[name])
                if row[name] is None:
                    self.vectors_left_out += 1
                    return None
            elif row[name] or kept.table.c[name] not in KEYS_WITHOUT_CONSTRAINT:
                row[name] += self._keys[kind]
        return self._completed(kept, row)

    def _completed(self, kept: Kept, row: dict[str, Any]) -> dict[str, Any]:
        if kept.table in ROOTS:
            row["path"] = self._info.scope.renamed(row["path"], self._wish.into)
        elif kept.table is origins:
            row["namespace"] = self._info.scope.renamed(row["namespace"], self._wish.into)
        for column in kept.table.c:
            if column in RENEWED:
                row[column.name] = secrets.randbits(_EPOCH_BITS)
        if kept.table is messages:
            row["terms"] = self._terms.of_message(row, is_sqlite=self._is_sqlite)
        elif kept.table is knowledge:
            row["terms"] = self._terms.of_knowledge(row, is_sqlite=self._is_sqlite)
        return row

    def _insert(self, kept: Kept, rows: list[dict[str, Any]]) -> None:
        self.counts[kept.kind] = self.counts.get(kept.kind, 0) + len(rows)
        if kept.table is vectors and self.is_native:
            self._connection.execute(_PUT_NATIVE, [row | {"vector": _literal(row["vector"])} for row in rows])
        else:
            self._connection.execute(insert(kept.table), rows)

    def _now(self, kind: str, name: int) -> int | None:
        if name not in self._merged[kind]:
            raise DamagedBackupError(
                f"a record names one of {kind!r} that is not there: take another backup; nothing was restored"
            )
        return self._merged[kind][name]

    def _merge(self, kept: Kept, row: dict[str, Any]) -> None:
        known, name = self._merged[kept.kind], row.pop("pk")
        if kept.table is embedders and self._embedder not in (None, row["identity"]):
            known[name] = None
            self.embedders_left_out.append(row["identity"])
            return
        same = [column == row[column.name] for column in kept.natural]
        found = self._connection.execute(select(kept.table.c.pk).where(*same)).scalar() if same else None
        if found is None:
            self.counts[kept.kind] = self.counts.get(kept.kind, 0) + 1
            new = insert(kept.table).values(row).returning(kept.table.c.pk)
            found = self._connection.execute(new).scalar_one()
        known[name] = int(found)
        if kept.table is embedders:
            self.embedders[int(found)] = row["dimension"]


def merged_kinds(scope: BackupScope) -> set[str]:
    """What namespaces share: it is there already, or comes with the first that names it."""
    return {
        kind
        for kind, kept in kept_tables().items()
        if kept.table in ALWAYS_MERGED or (scope.namespace is not None and not is_rooted(kept.table))
    }


def taken_by(connection: Connection, scope: BackupScope) -> str | None:
    """The kind of something that a part of the memory holds; None if it is empty."""
    for kind, kept in kept_tables().items():
        is_content = is_rooted(kept.table) or (scope.namespace is None and kept.table not in ALWAYS_MERGED)
        if is_content and kept.table not in ROOTS:
            held = select(exists().where(within(kept.table, scope)).select_from(kept.table))
            if connection.execute(held).scalar():
                return kind
    return None


def lock(connection: Connection, scope: BackupScope) -> None:
    """See that nobody writes to a part of the memory until the transaction ends. On SQLite nobody can anyway."""
    if connection.dialect.name == "sqlite":
        return
    for root in ROOTS:
        if scope.namespace is None:
            connection.execute(text(f"LOCK TABLE {root.name} IN SHARE ROW EXCLUSIVE MODE"))
        own = select(root.c.pk).where(within(root, scope)).order_by(root.c.path).with_for_update()
        connection.execute(own)


def clear(connection: Connection, scope: BackupScope) -> list[int]:
    """Erase a part of the memory; the keys of the sessions that it held."""
    gone = list(connection.execute(select(sessions.c.pk).where(within(sessions, scope))).scalars())
    for kept in reversed(list(kept_tables().values())):
        shared = not is_rooted(kept.table) and kept.table not in ALWAYS_MERGED
        if kept.table in ROOTS or (shared and scope.namespace is None):
            connection.execute(kept.table.delete().where(within(kept.table, scope)))
    return gone


def _literal(vector: bytes | None) -> str | None:
    if vector is None:
        return None
    return (
        "["
        + ",".join(map(repr, struct.unpack(f"<{len(vector) // 4}f", vector[: len(vector) // 4 * 4])))
        + "]"
    )
