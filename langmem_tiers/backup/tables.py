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

from langmem_tiers.common.namespaces import BESIDE, namespace_key
from langmem_tiers.storage.schema import (
    SCHEMAS,
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

LEFT_OUT: dict[Table, str] = {
    schema_versions: "the header says it",
    databases: "what is restored is another database",
    leases: "who works on what at this moment",
    trials: "made again when one is needed",
    embedding_cache: "made again when it is needed, and of all tenants together",
}
REMADE = frozenset({messages.c.terms, knowledge.c.terms})
"""They begin with the key of their namespace, and each database writes them in its own way."""
RENEWED = frozenset({namespaces.c.erased, item_namespaces.c.erased, memory_spaces.c.erased})
"""By these whoever holds something in memory sees that it is another's now: a copied one would say that it is not."""
FORGOTTEN = frozenset({memory_spaces.c.consolidation})
"""Where a work stands that begins anew."""
KEYS_WITHOUT_CONSTRAINT: dict[AnyColumn, Table] = {
    messages.c.namespace_pk: namespaces,
    vectors.c.namespace_pk: namespaces,
    sessions.c.view_message: messages,  # 0 for none
}
ROOTS = (namespaces, item_namespaces)
"""Rows with a path: all others belong to a namespace by way of these."""
ALWAYS_MERGED = frozenset({embedders})
"""They hold nothing of anybody, and indexes bear their keys: those that something names are in a backup."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A table in a backup."""

    table: Table
    columns: tuple[AnyColumn, ...]
    """Those that are in a record."""
    names: Mapping[str, str]
    """Columns that name a row, and the kind of that row; ``pk`` names its own."""

    @property
    def kind(self) -> str:
        """What its records are called."""
        return kind_of(self.table)

    @property
    def has_key(self) -> bool:
        """Whether its rows can be named by others."""
        return "pk" in self.names

    def order(self, *, is_sqlite: bool) -> list[ColumnElement[Any]]:
        """An order of its rows that is the same on every database."""
        return [
            column.collate("C") if isinstance(column.type, String) and not is_sqlite else column
            for column in self.table.primary_key
        ]

    @property
    def natural(self) -> tuple[AnyColumn, ...]:
        """The columns that tell its rows apart, whatever database they are in."""
        if not self.has_key:
            return tuple(self.table.primary_key)
        unique = [one for one in self.table.constraints if isinstance(one, UniqueConstraint)]
        return tuple(unique[0].columns) if unique else ()


@cache
def kept_tables() -> Mapping[str, Kept]:
    """The tables by kind, each behind those that its rows name."""
    every = [table for tables in SCHEMAS for table in tables.tables.values()]
    return {kind_of(table): _kept(table) for table in sort_tables(every) if table not in LEFT_OUT}


def kind_of(table: Table) -> str:
    """What the records of a table are called."""
    return table.name.removeprefix("lmt_")


def is_rooted(table: Table) -> bool:
    """Whether each of its rows belongs to a namespace."""
    return table in ROOTS or any(is_rooted(parent) for parent in _parents(table) if parent is not table)


def within(table: Table, scope: BackupScope) -> ColumnElement[bool]:
    """The condition on rows that belong to a part of the memory."""
    if table in ALWAYS_MERGED:
        return _is_named_within(table, scope)
    if scope.namespace is None:
        return true()
    if table in ROOTS:
        return _path_within(table, scope)
    if not is_rooted(table):
        return _is_named_within(table, scope)
    # By what each row names: where a column may be empty, its rows are found by another.
    rooted = [
        one
        for one in table.foreign_key_constraints
        if is_rooted(one.referred_table) and not any(column.nullable for column in one.columns)
    ]
    direct = [one for one in rooted if one.referred_table in ROOTS]
    condition: ColumnElement[bool] = true()
    for constraint in direct or rooted:
        condition = condition & _names_within(constraint, scope)
    return condition


def _kept(table: Table) -> Kept:
    left_out = REMADE | RENEWED | FORGOTTEN
    columns = tuple(column for column in table.c if column not in left_out)
    names = {column.name: kind_of(named) for column in columns if (named := _named_by(column)) is not None}
    return Kept(table, columns, names)


def _named_by(column: AnyColumn) -> Table | None:
    # The table whose rows a column names; a key that names what has the key of another names that one.
    if column in KEYS_WITHOUT_CONSTRAINT:
        return KEYS_WITHOUT_CONSTRAINT[column]
    if list(column.table.primary_key) == [column] and column.name == "pk":
        return column.table
    found = (_named_by(key.column) for key in column.foreign_keys)
    return next((table for table in found if table is not None), None)


def _parents(table: Table) -> list[Table]:
    return [one.referred_table for one in table.foreign_key_constraints]


def _path_within(table: Table, scope: BackupScope) -> ColumnElement[bool]:
    own = scope.namespace or ()
    places = [own, *((label, *own) for label in BESIDE)] if table is item_namespaces else [own]
    conditions: list[ColumnElement[bool]] = []
    for key in map(namespace_key, places):
        conditions.append(table.c.path == key)
        if scope.prefix:
            # "0" follows "/" in every byte order: between them lie the children and nothing else.
            conditions.append((table.c.path > f"{key}/") & (table.c.path < f"{key}0"))
    return or_(*conditions)


def _names_within(constraint: ForeignKeyConstraint, scope: BackupScope) -> ColumnElement[bool]:
    parent = constraint.referred_table
    named = select(*(element.column for element in constraint.elements)).where(within(parent, scope))
    own = list(constraint.columns)
    return own[0].in_(named) if len(own) == 1 else tuple_(*own).in_(named)


def _is_named_within(table: Table, scope: BackupScope) -> ColumnElement[bool]:
    # Shared by all namespaces: those rows that something of this one names.
    condition: ColumnElement[bool] = false()
    for other in kept_tables().values():
        for name, kind in other.names.items():
            if kind == kind_of(table) and other.table is not table:
                named = select(other.table.c[name]).where(within(other.table, scope))
                condition = condition | table.c.pk.in_(named)
    return condition
