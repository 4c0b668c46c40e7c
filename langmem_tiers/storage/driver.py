"""Statements for hot paths: compiled once, run on the driver itself.

SQLAlchemy's execution of a statement costs more than SQLite's own work for a small one.
Where a statement runs for every message, its SQL text is made once per database, from the
same expression on each, and handed to the driver inside SQLAlchemy's transaction.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

from sqlalchemy import TypeDecorator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import ClauseElement, Dialect
    from sqlalchemy.pool import PoolProxiedConnection


class DriverStatement:
    """One statement in the words of one database.

    Args:
        statement: A SQLAlchemy expression.
        dialect: The database's.
        columns: The columns that an INSERT fills.
    """

    def __init__(
        self, statement: ClauseElement, dialect: Dialect, columns: Sequence[str] | None = None
    ) -> None:
        compiled: Any = statement.compile(dialect=dialect, column_keys=columns)
        self._sql: str = compiled.string
        self._order: Sequence[str] | None = compiled.positiontup if compiled.positional else None
        is_select = bool(getattr(statement, "is_select", False))
        self._returns: bool = is_select or bool(compiled.effective_returning)
        self._constants = {name: value for name, value in compiled.params.items() if value is not None}
        self._convert: dict[str, Callable[[Any], Any]] = {}
        for name, bind in compiled.binds.items():
            convert = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if convert is not None:
                self._convert[name] = convert

        selected: Any = getattr(statement, "selected_columns", ())
        self._read: dict[int, Callable[[Any], Any]] = {}
        for place, column in enumerate(selected):
            if isinstance(column.type, TypeDecorator):
                read = column.type.dialect_impl(dialect).result_processor(dialect, None)
                if read is not None:
                    self._read[place] = read
        names = [column.name for column in selected]
        self._row: Any = namedtuple("_Row", names, rename=True)  # type: ignore[misc]  # noqa: PYI024 - of its columns

    def run(self, connection: PoolProxiedConnection, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a driver's row
        """Run it once; the first row, if it returns any."""
        cursor = connection.cursor()
        try:
            cursor.execute(self._sql, self._arguments(values))
            return cursor.fetchone() if self._returns else None
        finally:
            cursor.close()

    def all(self, connection: PoolProxiedConnection, values: Mapping[str, Any]) -> list[Any]:
        """Run it once; all its rows, as the driver gives them."""
        cursor = connection.cursor()
        try:
            cursor.execute(self._sql, self._arguments(values))
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def named(self, connection: PoolProxiedConnection, values: Mapping[str, Any]) -> list[Any]:
        """Run it once; all its rows with names, and their values as SQLAlchemy would give them."""
        rows = [list(row) for row in self.all(connection, values)]
        for row in rows:
            for place, convert in self._read.items():
                if row[place] is not None:
                    row[place] = convert(row[place])
        return [self._row(*row) for row in rows]

    def run_many(self, connection: PoolProxiedConnection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run it once for each row."""
        cursor = connection.cursor()
        try:
            cursor.executemany(self._sql, [self._arguments(row) for row in rows])
        finally:
            cursor.close()

    def _arguments(self, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the driver takes
        merged = {**self._constants, **values}
        for name, convert in self._convert.items():
            merged[name] = convert(merged[name])
        return merged if self._order is None else [merged[name] for name in self._order]
