"""Tables of a backup, the references between their rows, and the conditions on rows of a namespace.

Everything is derived from the table definitions, so a new table is part of the next backup automatically. This module
lists the exceptions: references without a constraint, and columns that must not be copied. Tests verify that the lists
are complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, String, Table, UniqueConstraint, false, or_, select, true, tuple_
from sqlalchemy.schema import sort_tables

from langmem_tiers.common.namespaces import SESSION_ITEM_LABELS, build_namespace_key
from langmem_tiers.storage.schema import (
    ALL_METADATA,
    databases,
    embedder_trust,
    embedders,
    embedding_cache,
    item_namespaces,
    knowledge,
    leases,
    memory_namespaces,
    messages,
    namespaces,
    schema_versions,
    sessions,
    vectors,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import ColumnElement, ForeignKeyConstraint

    from langmem_tiers.backup.models import BackupScope

    AnyColumn = Column[Any]

EXCLUDED_TABLES: dict[Table, str] = {
    schema_versions: "the header contains the version",
    databases: "identifies the database, and the target is another one",
    leases: "locks of running processes",
    embedder_trust: "measured again when needed",
    embedding_cache: "a cache, shared by all tenants",
}
"""Tables that are not in a backup, with the reasons."""
REBUILT_COLUMNS = frozenset({messages.c.terms, knowledge.c.terms})
"""Columns that are computed again: they contain the namespace's key, and their format depends on the database."""
EPOCH_COLUMNS = frozenset(
    {namespaces.c.erasure_epoch, item_namespaces.c.erasure_epoch, memory_namespaces.c.erasure_epoch}
)
"""Erasure counters, which get random values: a copied one could equal the previous value, and caches would be kept."""
RESET_COLUMNS = frozenset({memory_namespaces.c.consolidation})
"""Columns with the state of a background task, which starts again after a restore."""
# sessions.view_message is 0 if it refers to none.
UNCONSTRAINED_KEYS: dict[AnyColumn, Table] = {
    messages.c.namespace_pk: namespaces,
    vectors.c.namespace_pk: namespaces,
    sessions.c.view_message: messages,
}
"""Columns that refer to rows of a table without a foreign key."""
ROOT_TABLES = (namespaces, item_namespaces)
"""Tables with the paths of namespaces. The rows of other tables belong to a namespace through references to these."""
MERGED_TABLES = frozenset({embedders})
"""Tables without user data, whose keys are in the names of indexes. A backup contains the rows that are referenced."""


@dataclass(frozen=True, slots=True, eq=False)
class BackupTable:
    """A table of a backup."""

    table: Table
    columns: tuple[AnyColumn, ...]
    """Columns that are in a record."""
    key_kinds: Mapping[str, str]
    """Columns that contain keys, with the kind of the referenced row. ``pk`` is the key of the row itself."""

    @property
    def kind(self) -> str:
        """Kind of its records."""
        return get_record_kind(self.table)

    @property
    def has_key(self) -> bool:
        """True if other rows can refer to its rows."""
        return "pk" in self.key_kinds

    def build_order(self, *, is_sqlite: bool) -> list[ColumnElement[Any]]:
        """Return an order of the rows that is the same on every database."""
        # PostgreSQL sorts text by the locale. The collation "C" compares bytes, like SQLite.
        return [
            column.collate("C") if isinstance(column.type, String) and not is_sqlite else column
            for column in self.table.primary_key
        ]

    @property
    def natural_key(self) -> tuple[AnyColumn, ...]:
        """Columns that identify a row independent of the database. Empty if there are none."""
        if not self.has_key:
            return tuple(self.table.primary_key)
        unique = [
            constraint for constraint in self.table.constraints if isinstance(constraint, UniqueConstraint)
        ]
        return tuple(unique[0].columns) if unique else ()


@cache
def get_backup_tables() -> Mapping[str, BackupTable]:
    """Return the tables by kind. Referenced tables come before those that refer to them."""
    all_tables = [table for metadata in ALL_METADATA for table in metadata.tables.values()]
    return {
        get_record_kind(table): _build_backup_table(table)
        for table in sort_tables(all_tables)
        if table not in EXCLUDED_TABLES
    }


def get_record_kind(table: Table) -> str:
    """Return the kind of a table's records: the table name without its prefix."""
    return table.name.removeprefix("lmt_")


def belongs_to_namespace(table: Table) -> bool:
    """Return True if each row of a table belongs to a namespace."""
    return table in ROOT_TABLES or any(
        belongs_to_namespace(parent) for parent in _list_parents(table) if parent is not table
    )


def build_scope_condition(table: Table, scope: BackupScope) -> ColumnElement[bool]:
    """Build the SQL condition for the rows of a table that belong to a part of the memory."""
    if table in MERGED_TABLES:
        return _build_referenced_condition(table, scope)
    if scope.namespace is None:
        return true()
    if table in ROOT_TABLES:
        return _build_path_condition(table, scope)
    if not belongs_to_namespace(table):
        return _build_referenced_condition(table, scope)
    # Follow the foreign keys that lead to a namespace. A nullable column would miss rows, so only constraints without
    # such columns are used. A direct reference to a namespace is preferred, because it needs no further subquery.
    rooted = [
        constraint
        for constraint in table.foreign_key_constraints
        if belongs_to_namespace(constraint.referred_table)
        and not any(column.nullable for column in constraint.columns)
    ]
    direct = [constraint for constraint in rooted if constraint.referred_table in ROOT_TABLES]
    condition: ColumnElement[bool] = true()
    for constraint in direct or rooted:
        condition = condition & _build_reference_condition(constraint, scope)
    return condition


def _build_backup_table(table: Table) -> BackupTable:
    excluded = REBUILT_COLUMNS | EPOCH_COLUMNS | RESET_COLUMNS
    columns = tuple(column for column in table.c if column not in excluded)
    key_kinds = {
        column.name: get_record_kind(referenced)
        for column in columns
        if (referenced := _find_referenced_table(column)) is not None
    }
    return BackupTable(table, columns, key_kinds)


def _find_referenced_table(column: AnyColumn) -> Table | None:
    # Returns the table that a key column refers to, or None. A foreign key may point to a column that is itself a
    # foreign key, as in a table that extends another one: then follow it to the table that owns the key.
    if column in UNCONSTRAINED_KEYS:
        return UNCONSTRAINED_KEYS[column]
    if list(column.table.primary_key) == [column] and column.name == "pk":
        return column.table
    found = (_find_referenced_table(key.column) for key in column.foreign_keys)
    return next((table for table in found if table is not None), None)


def _list_parents(table: Table) -> list[Table]:
    return [constraint.referred_table for constraint in table.foreign_key_constraints]


def _build_path_condition(table: Table, scope: BackupScope) -> ColumnElement[bool]:
    own = scope.namespace or ()
    # Context files and conversations of a namespace are items under a reserved first label.
    paths = [own, *((label, *own) for label in SESSION_ITEM_LABELS)] if table is item_namespaces else [own]
    conditions: list[ColumnElement[bool]] = []
    for key in map(build_namespace_key, paths):
        conditions.append(table.c.path == key)
        if scope.prefix:
            # "0" is the character after "/". The keys between "a/" and "a0" are exactly the children of "a", and this
            # range can use the index.
            conditions.append((table.c.path > f"{key}/") & (table.c.path < f"{key}0"))
    return or_(*conditions)


def _build_reference_condition(constraint: ForeignKeyConstraint, scope: BackupScope) -> ColumnElement[bool]:
    parent = constraint.referred_table
    referenced = select(*(element.column for element in constraint.elements)).where(
        build_scope_condition(parent, scope)
    )
    own = list(constraint.columns)
    return own[0].in_(referenced) if len(own) == 1 else tuple_(*own).in_(referenced)


def _build_referenced_condition(table: Table, scope: BackupScope) -> ColumnElement[bool]:
    # A table that namespaces share: select the rows that rows in the scope refer to.
    condition: ColumnElement[bool] = false()
    for other in get_backup_tables().values():
        for name, kind in other.key_kinds.items():
            if kind == get_record_kind(table) and other.table is not table:
                referenced = select(other.table.c[name]).where(build_scope_condition(other.table, scope))
                condition = condition | table.c.pk.in_(referenced)
    return condition
