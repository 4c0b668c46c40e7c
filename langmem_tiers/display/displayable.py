"""How values show themselves: as HTML in notebooks, as plain text elsewhere.

To show a value never raises, and never costs more than a few look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Protocol, SupportsIndex, TypeVar, overload

from langmem_tiers.display.html import as_html
from langmem_tiers.display.tables import ROWS, Sheet, Table, cell, fields_text, words
from langmem_tiers.display.text import as_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Listed", "Showing", "Told", "listing", "row_of", "table_of"]

_T = TypeVar("_T")
_NOTHING: tuple[object, ...] = (None, "", (), frozenset())
_FEW_ROWS = 5  # of each list, where a value has several


class Printer(Protocol):
    """What IPython hands to whatever prints itself."""

    def text(self, text: str) -> None:
        """Write it."""
        ...


class Showing:
    """Shows itself in notebooks. What it says is in ``_sheet``; a dataclass shows its fields."""

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        # IPython takes the __repr__ of a class before what its bases have.
        cls._repr_pretty_ = cls._repr_pretty_  # type: ignore[method-assign]  # as said

    def _repr_html_(self) -> str:
        return as_html(_shown(self))

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:  # noqa: FBT001 - as IPython calls it
        printer.text(repr(self) if cycle else as_text(_shown(self)))

    def _sheet(self) -> Sheet:
        """What it shows; may raise."""
        return _sheet_of_fields(self)

    def _row(self) -> Mapping[str, object]:
        """What it shows as one row among others."""
        return {words(one.name): getattr(self, one.name) for one in fields(self) if one.repr}  # type: ignore[arg-type]  # overridden where it is none

    def _line(self) -> str:
        """What it shows inside a fact."""
        return fields_text(self)


class Told(Showing):
    """A value that ``print`` tells in the same way; its ``repr`` stays complete."""

    __slots__ = ()

    def __str__(self) -> str:
        return as_text(_shown(self))


class Listed(tuple[_T, ...]):
    """A tuple that shows itself as a table."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> Listed[_T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> _T | Listed[_T]:
        found = super().__getitem__(index)
        return Listed(found) if isinstance(index, slice) else found  # type: ignore[arg-type,return-value]  # as above

    def _repr_html_(self) -> str:
        return as_html(_listed(self))

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:  # noqa: FBT001 - as IPython calls it
        printer.text(repr(self) if cycle else as_text(_listed(self)))


def table_of(items: Sequence[object], title: str = "", *, first: int = ROWS, last: int = 0) -> Table:
    """Values as rows.

    Args:
        items: Of one kind.
        title: Above the table.
        first: How many are shown from the beginning.
        last: How many from the end.
    """
    is_whole = len(items) <= first + last
    shown = list(items) if is_whole else [*items[:first], *(items[-last:] if last else ())]
    rows = [row_of(one) for one in shown]
    names = dict.fromkeys(name for row in rows for name in row)
    # What no row has says nothing.
    columns = tuple(name for name in names if any(row.get(name) not in _NOTHING for row in rows))
    return Table(
        columns=columns,
        rows=tuple(tuple(cell(row.get(name)) for name in columns) for row in rows),
        title=title,
        left_out=len(items) - len(shown),
        gap_at=first if last and not is_whole else None,
    )


def listing(title: str, items: Sequence[object], what: str) -> Sheet:
    """A sheet with values as rows, or with the word that there are none."""
    return Sheet(title, tables=(table_of(items, what),)) if items else Sheet(title, {what: "none"})


def row_of(item: object) -> Mapping[str, object]:
    """A value as one row among others."""
    if isinstance(item, Mapping):
        return item
    if isinstance(item, Showing):
        return item._row()  # noqa: SLF001 - of this module
    if is_dataclass(item) and not isinstance(item, type):
        return {words(one.name): getattr(item, one.name) for one in fields(item) if one.repr}
    return {"value": item}


def _shown(value: Showing) -> Sheet:
    try:
        return value._sheet()  # noqa: SLF001 - of this module
    except Exception as error:  # noqa: BLE001 - a cell that shows a value is never the place to fail
        return Sheet(repr_or_name(value), {"cannot be shown": f"{type(error).__name__}: {error}"})


def repr_or_name(value: object) -> str:
    """Its ``repr``, or what kind of value it is where even that fails."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - as above
        return type(value).__name__


def _listed(values: Sequence[object]) -> Sheet:
    try:
        if not values:
            return Sheet("none")
        kind = type(values[0]).__name__
        return Sheet(f"{kind}: {len(values):,}", tables=(table_of(values),))
    except Exception as error:  # noqa: BLE001 - as above
        return Sheet("a list", {"cannot be shown": f"{type(error).__name__}: {error}"})


def _sheet_of_fields(value: object) -> Sheet:
    told = {one.name: getattr(value, one.name) for one in fields(value) if one.repr}  # type: ignore[arg-type]  # what is none has a sheet of its own
    lists = {name: content for name, content in told.items() if _is_list_of_values(content)}
    facts = {words(name): content for name, content in told.items() if name not in lists}
    rows = ROWS if len(lists) == 1 else _FEW_ROWS
    tables = [
        table_of(content, f"{words(name)} ({len(content):,})", first=rows) for name, content in lists.items()
    ]
    return Sheet(type(value).__name__, facts, tuple(tables))


def _is_list_of_values(content: object) -> bool:
    return isinstance(content, tuple | list) and bool(content) and is_dataclass(content[0])
