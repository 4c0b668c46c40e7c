"""Statements for hot paths: compiled once, run on the driver itself.

SQLAlchemy's execution of a statement costs more than SQLite's own work for a small one.
Where a statement runs for every message, its SQL text is made once per database, from the
same expression on each, and handed to the driver inside SQLAlchemy's transaction.
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
    """A statement as the driver takes it, and how its values are told."""

    sql: str
    parameter_order: Sequence[str] | None
    returns_rows: bool
    constants: Mapping[str, Any]
    bind_processors: Mapping[str, Callable[[Any], Any]]
    result_processors: Mapping[int, Callable[[Any], Any]]
    row_type: Callable[..., Any]


class DriverStatement:
    """One statement in the words of one database, compiled when it is first run.

    Args:
        statement: A SQLAlchemy expression.
        dialect: The database's.
        columns: The columns that an INSERT fills.
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
        reads = {place: self._find_result_processor(column.type) for place, column in enumerate(selected)}
        names = [column.name for column in selected]
        return _CompiledStatement(
            sql=compiled.string,
            parameter_order=compiled.positiontup if compiled.positional else None,
            returns_rows=is_select or bool(compiled.effective_returning),
            constants={name: value for name, value in compiled.params.items() if value is not None},
            bind_processors={name: convert for name, convert in binds.items() if convert is not None},
            result_processors={place: read for place, read in reads.items() if read is not None},
            row_type=namedtuple("_Row", names, rename=True),  # noqa: PYI024 - of its columns
        )

    def _find_bind_processor(self, kind: TypeEngine[Any]) -> Callable[[Any], Any] | None:
        return kind.dialect_impl(self._dialect).bind_processor(self._dialect)

    def _find_result_processor(self, kind: TypeEngine[Any]) -> Callable[[Any], Any] | None:
        if not isinstance(kind, TypeDecorator):
            return None
        return kind.dialect_impl(self._dialect).result_processor(self._dialect, None)

    def run(self, connection: PoolProxiedConnection, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a driver's row
        """Run it once; the first row, if it returns any."""
        cursor = connection.cursor()
        try:
            cursor.execute(self._compiled.sql, self._build_arguments(values))
            return cursor.fetchone() if self._compiled.returns_rows else None
        finally:
            cursor.close()

    def fetch_all(self, connection: PoolProxiedConnection, values: Mapping[str, Any]) -> list[Any]:
        """Run it once; all its rows, as the driver gives them."""
        cursor = connection.cursor()
        try:
            cursor.execute(self._compiled.sql, self._build_arguments(values))
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def fetch_named(self, connection: PoolProxiedConnection, values: Mapping[str, Any]) -> list[Any]:
        """Run it once; all its rows with names, and their values as SQLAlchemy would give them."""
        rows = [list(row) for row in self.fetch_all(connection, values)]
        for row in rows:
            for place, convert in self._compiled.result_processors.items():
                if row[place] is not None:
                    row[place] = convert(row[place])
        return [self._compiled.row_type(*row) for row in rows]

    def run_many(self, connection: PoolProxiedConnection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run it once for each row."""
        cursor = connection.cursor()
        try:
            cursor.executemany(self._compiled.sql, [self._build_arguments(row) for row in rows])
        finally:
            cursor.close()

    def _build_arguments(self, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the driver takes
        compiled = self._compiled
        merged = {**compiled.constants, **values}
        for name, convert in compiled.bind_processors.items():
            merged[name] = convert(merged[name])
        return (
            merged
            if compiled.parameter_order is None
            else [merged[name] for name in compiled.parameter_order]
        )
