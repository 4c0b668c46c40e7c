"""Which tables are in a backup, what their rows name, and which rows belong to a namespace.

All of it follows from the tables themselves: a new one is in the next backup. What does not show in a table
(a key without a constraint, a column that must not be copied) is said here, and tests hold that nothing is missing.
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
    embedders,
    embedding_cache,
    item_namespaces,
    knowledge,
    leases,
    memory_spaces,
    messages,
    namespaces,
    schema_versions,
    sessions,
    trials,
    vectors,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import ColumnElement, ForeignKeyConstraint

    from langmem_tiers.backup.models import BackupScope

    AnyColumn = Column[Any]

EXCLUDED_TABLES: dict[Table, str] = {
    schema_versions: "the header says it",
    databases: "what is restored is another database",
    leases: "who works on what at this moment",
    trials: "made again when one is needed",
    embedding_cache: "made again when it is needed, and of all tenants together",
}
REBUILT_COLUMNS = frozenset({messages.c.terms, knowledge.c.terms})
"""They begin with the key of their namespace, and each database writes them in its own way."""
EPOCH_COLUMNS = frozenset({namespaces.c.erased, item_namespaces.c.erased, memory_spaces.c.erased})
"""By these whoever holds something in memory sees that it is another's now: a copied one would say that it is not."""
RESET_COLUMNS = frozenset({memory_spaces.c.consolidation})
"""Where a work stands that begins anew."""
UNCONSTRAINED_KEYS: dict[AnyColumn, Table] = {
    messages.c.namespace_pk: namespaces,
    vectors.c.namespace_pk: namespaces,
    sessions.c.view_message: messages,  # 0 for none
}
ROOT_TABLES = (namespaces, item_namespaces)
"""Rows with a path: all others belong to a namespace by way of these."""
MERGED_TABLES = frozenset({embedders})
"""They hold nothing of anybody, and indexes bear their keys: those that something names are in a backup."""


@dataclass(frozen=True, slots=True, eq=False)
class BackupTable:
    """A table in a backup."""

    table: Table
    columns: tuple[AnyColumn, ...]
    """Those that are in a record."""
    key_kinds: Mapping[str, str]
    """Columns that name a row, and the kind of that row; ``pk`` names its own."""

    @property
    def kind(self) -> str:
        """What its records are called."""
        return get_record_kind(self.table)

    @property
    def has_key(self) -> bool:
        """Whether its rows can be named by others."""
        return "pk" in self.key_kinds

    def build_order(self, *, is_sqlite: bool) -> list[ColumnElement[Any]]:
        """An order of its rows that is the same on every database."""
        return [
            column.collate("C") if isinstance(column.type, String) and not is_sqlite else column
            for column in self.table.primary_key
        ]

    @property
    def natural_key(self) -> tuple[AnyColumn, ...]:
        """The columns that tell its rows apart, whatever database they are in."""
        if not self.has_key:
            return tuple(self.table.primary_key)
        unique = [one for one in self.table.constraints if isinstance(one, UniqueConstraint)]
        return tuple(unique[0].columns) if unique else ()


@cache
def get_backup_tables() -> Mapping[str, BackupTable]:
    """The tables by kind, each behind those that its rows name."""
    every = [table for tables in ALL_METADATA for table in tables.tables.values()]
    return {
        get_record_kind(table): _build_backup_table(table)
        for table in sort_tables(every)
        if table not in EXCLUDED_TABLES
    }


def get_record_kind(table: Table) -> str:
    """What the records of a table are called."""
    return table.name.removeprefix("lmt_")


def belongs_to_namespace(table: Table) -> bool:
    """Whether each of its rows belongs to a namespace."""
    return table in ROOT_TABLES or any(
        belongs_to_namespace(parent) for parent in _list_parents(table) if parent is not table
    )


def build_scope_condition(table: Table, scope: BackupScope) -> ColumnElement[bool]:
    """The condition on rows that belong to a part of the memory."""
    if table in MERGED_TABLES:
        return _build_referenced_condition(table, scope)
    if scope.namespace is None:
        return true()
    if table in ROOT_TABLES:
        return _build_path_condition(table, scope)
    if not belongs_to_namespace(table):
        return _build_referenced_condition(table, scope)
    # By what each row names: where a column may be empty, its rows are found by another.
    rooted = [
        one
        for one in table.foreign_key_constraints
        if belongs_to_namespace(one.referred_table) and not any(column.nullable for column in one.columns)
    ]
    direct = [one for one in rooted if one.referred_table in ROOT_TABLES]
    condition: ColumnElement[bool] = true()
    for constraint in direct or rooted:
        condition = condition & _build_reference_condition(constraint, scope)
    return condition


def _build_backup_table(table: Table) -> BackupTable:
    left_out = REBUILT_COLUMNS | EPOCH_COLUMNS | RESET_COLUMNS
    columns = tuple(column for column in table.c if column not in left_out)
    names = {
        column.name: get_record_kind(named)
        for column in columns
        if (named := _find_referenced_table(column)) is not None
    }
    return BackupTable(table, columns, names)


def _find_referenced_table(column: AnyColumn) -> Table | None:
    # The table whose rows a column names; a key that names what has the key of another names that one.
    if column in UNCONSTRAINED_KEYS:
        return UNCONSTRAINED_KEYS[column]
    if list(column.table.primary_key) == [column] and column.name == "pk":
        return column.table
    found = (_find_referenced_table(key.column) for key in column.foreign_keys)
    return next((table for table in found if table is not None), None)


def _list_parents(table: Table) -> list[Table]:
    return [one.referred_table for one in table.foreign_key_constraints]


def _build_path_condition(table: Table, scope: BackupScope) -> ColumnElement[bool]:
    own = scope.namespace or ()
    places = [own, *((label, *own) for label in SESSION_ITEM_LABELS)] if table is item_namespaces else [own]
    conditions: list[ColumnElement[bool]] = []
    for key in map(build_namespace_key, places):
        conditions.append(table.c.path == key)
        if scope.prefix:
            # "0" follows "/" in every byte order: between them lie the children and nothing else.
            conditions.append((table.c.path > f"{key}/") & (table.c.path < f"{key}0"))
    return or_(*conditions)


def _build_reference_condition(constraint: ForeignKeyConstraint, scope: BackupScope) -> ColumnElement[bool]:
    parent = constraint.referred_table
    named = select(*(element.column for element in constraint.elements)).where(
        build_scope_condition(parent, scope)
    )
    own = list(constraint.columns)
    return own[0].in_(named) if len(own) == 1 else tuple_(*own).in_(named)


def _build_referenced_condition(table: Table, scope: BackupScope) -> ColumnElement[bool]:
    # Shared by all namespaces: those rows that something of this one names.
    condition: ColumnElement[bool] = false()
    for other in get_backup_tables().values():
        for name, kind in other.key_kinds.items():
            if kind == get_record_kind(table) and other.table is not table:
                named = select(other.table.c[name]).where(build_scope_condition(other.table, scope))
                condition = condition | table.c.pk.in_(named)
    return condition
