"""Statements for hot paths: compiled once, executed directly on the driver.

SQLAlchemy's overhead per statement exceeds SQLite's own work for small statements. A
statement that runs for every message is compiled once per database from a SQLAlchemy
expression and executed by the driver within SQLAlchemy's transaction.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import TypeDecorator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import ClauseElement, Dialect
    from sqlalchemy.pool import PoolProxiedConnection
    from sqlalchemy.types import TypeEngine


@dataclass(frozen=True, slots=True)
class _CompiledStatement:
    """A statement in the driver's form, with the conversions of its values."""

    sql: str
    parameter_order: Sequence[str] | None
    returns_rows: bool
    constants: Mapping[str, Any]
    bind_processors: Mapping[str, Callable[[Any], Any]]
    result_processors: Mapping[int, Callable[[Any], Any]]
    row_type: Callable[..., Any]


class DriverStatement:
    """A SQLAlchemy statement compiled for one database on first use.

    Args:
        statement: A SQLAlchemy expression.
        dialect: Dialect of the database.
        columns: Columns that an INSERT fills.
    """

    def __init__(
        self, statement: ClauseElement, dialect: Dialect, columns: Sequence[str] | None = None
    ) -> None:
        self._statement = statement
        self._dialect = dialect
        self._columns = columns

    @cached_property
    def _compiled(self) -> _CompiledStatement:
        compiled: Any = self._statement.compile(dialect=self._dialect, column_keys=self._columns)
        selected = list(getattr(self._statement, "selected_columns", ()))
        is_select = bool(getattr(self._statement, "is_select", False))
        binds = {name: self._find_bind_processor(bind.type) for name, bind in compiled.binds.items()}
        reads = {index: self._find_result_processor(column.type) for index, column in enumerate(selected)}
        names = [column.name for column in selected]
        return _CompiledStatement(
            sql=compiled.string,
            parameter_order=compiled.positiontup if compiled.positional else None,
            returns_rows=is_select or bool(compiled.effective_returning),
            constants={name: value for name, value in compiled.params.items() if value is not None},
            bind_processors={name: convert for name, convert in binds.items() if convert is not None},
            result_processors={index: read for index, read in reads.items() if read is not None},
            row_type=namedtuple("_Row", names, rename=True),  # noqa: PYI024 - the columns are known only here
        )

    def _find_bind_processor(self, kind: TypeEngine[Any]) -> Callable[[Any], Any] | None:
        return kind.dialect_impl(self._dialect).bind_processor(self._dialect)

    def _find_result_processor(self, kind: TypeEngine[Any]) -> Callable[[Any], Any] | None:
        # Drivers return the built-in types as they are; only the types of this package need a conversion.
        if not isinstance(kind, TypeDecorator):
            return None
        return kind.dialect_impl(self._dialect).result_processor(self._dialect, None)

    def run(self, connection: PoolProxiedConnection, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a driver's row
        """Execute the statement; return the first row, if it returns rows."""
        cursor = connection.cursor()
        try:
            cursor.execute(self._compiled.sql, self._build_arguments(values))
            return cursor.fetchone() if self._compiled.returns_rows else None
        finally:
            cursor.close()

    def fetch_all(self, connection: PoolProxiedConnection, values: Mapping[str, Any]) -> list[Any]:
        """Execute the statement and return all rows as the driver returns them."""
        cursor = connection.cursor()
        try:
            cursor.execute(self._compiled.sql, self._build_arguments(values))
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def fetch_named(self, connection: PoolProxiedConnection, values: Mapping[str, Any]) -> list[Any]:
        """Execute the statement and return all rows as named tuples with converted values."""
        rows = [list(row) for row in self.fetch_all(connection, values)]
        for row in rows:
            for index, convert in self._compiled.result_processors.items():
                if row[index] is not None:
                    row[index] = convert(row[index])
        return [self._compiled.row_type(*row) for row in rows]

    def run_many(self, connection: PoolProxiedConnection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Execute the statement once per row."""
        cursor = connection.cursor()
        try:
            cursor.executemany(self._compiled.sql, [self._build_arguments(row) for row in rows])
        finally:
            cursor.close()

    def _build_arguments(self, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the driver takes
        compiled = self._compiled
        # Constants are literals of the statement that SQLAlchemy turned into parameters.
        merged = {**compiled.constants, **values}
        for name, convert in compiled.bind_processors.items():
            merged[name] = convert(merged[name])
        return (
            merged
            if compiled.parameter_order is None
            else [merged[name] for name in compiled.parameter_order]
        )
