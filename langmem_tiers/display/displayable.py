"""How values show themselves: as HTML in notebooks, as plain text elsewhere.

To show a value never raises, and never costs more than a few look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Protocol, SupportsIndex, TypeVar, overload

from langmem_tiers.display.html import render_html
from langmem_tiers.display.tables import (
    MAX_TABLE_ROWS,
    DisplayContent,
    Table,
    format_fields,
    humanize_field_name,
    to_cell,
)
from langmem_tiers.display.text import render_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Displayable",
    "DisplayableTuple",
    "NotebookDisplayable",
    "build_list_display",
    "build_table",
    "to_display_row",
]

_T = TypeVar("_T")
_EMPTY_VALUES: tuple[object, ...] = (None, "", (), frozenset())
_MAX_ROWS_OF_SEVERAL = 5  # of each list, where a value has several


class Printer(Protocol):
    """What IPython hands to whatever prints itself."""

    def text(self, text: str) -> None:
        """Write it."""
        ...


class NotebookDisplayable:
    """Shows itself in notebooks. What it says is in ``_sheet``; a dataclass shows its fields."""

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        # IPython takes the __repr__ of a class before what its bases have.
        cls._repr_pretty_ = cls._repr_pretty_  # type: ignore[method-assign]  # as said

    def _repr_html_(self) -> str:
        return render_html(_to_display_safely(self))

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:  # noqa: FBT001 - as IPython calls it
        printer.text(repr(self) if cycle else render_text(_to_display_safely(self)))

    def _to_display(self) -> DisplayContent:
        """What it shows; may raise."""
        return _build_fields_display(self)

    def _to_row(self) -> Mapping[str, object]:
        """What it shows as one row among others."""
        return {humanize_field_name(one.name): getattr(self, one.name) for one in fields(self) if one.repr}  # type: ignore[arg-type]  # overridden where it is none

    def _to_line(self) -> str:
        """What it shows inside a fact."""
        return format_fields(self)


class Displayable(NotebookDisplayable):
    """A value that ``print`` tells in the same way; its ``repr`` stays complete."""

    __slots__ = ()

    def __str__(self) -> str:
        return render_text(_to_display_safely(self))


class DisplayableTuple(tuple[_T, ...]):
    """A tuple that shows itself as a table."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> DisplayableTuple[_T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> _T | DisplayableTuple[_T]:
        found = super().__getitem__(index)
        return DisplayableTuple(found) if isinstance(index, slice) else found  # type: ignore[arg-type,return-value]  # as above

    def _repr_html_(self) -> str:
        return render_html(_build_tuple_display(self))

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:  # noqa: FBT001 - as IPython calls it
        printer.text(repr(self) if cycle else render_text(_build_tuple_display(self)))


def build_table(
    items: Sequence[object], title: str = "", *, first: int = MAX_TABLE_ROWS, last: int = 0
) -> Table:
    """Values as rows.

    Args:
        items: Of one kind.
        title: Above the table.
        first: How many are shown from the beginning.
        last: How many from the end.
    """
    is_whole = len(items) <= first + last
    shown = list(items) if is_whole else [*items[:first], *(items[-last:] if last else ())]
    rows = [to_display_row(one) for one in shown]
    names = dict.fromkeys(name for row in rows for name in row)
    # What no row has says nothing.
    columns = tuple(name for name in names if any(row.get(name) not in _EMPTY_VALUES for row in rows))
    return Table(
        columns=columns,
        rows=tuple(tuple(to_cell(row.get(name)) for name in columns) for row in rows),
        title=title,
        omitted_rows=len(items) - len(shown),
        gap_index=first if last and not is_whole else None,
    )


def build_list_display(title: str, items: Sequence[object], what: str) -> DisplayContent:
    """A sheet with values as rows, or with the word that there are none."""
    return (
        DisplayContent(title, tables=(build_table(items, what),))
        if items
        else DisplayContent(title, {what: "none"})
    )


def to_display_row(item: object) -> Mapping[str, object]:
    """A value as one row among others."""
    if isinstance(item, Mapping):
        return item
    if isinstance(item, NotebookDisplayable):
        return item._to_row()  # noqa: SLF001 - of this module
    if is_dataclass(item) and not isinstance(item, type):
        return {humanize_field_name(one.name): getattr(item, one.name) for one in fields(item) if one.repr}
    return {"value": item}


def _to_display_safely(value: NotebookDisplayable) -> DisplayContent:
    try:
        return value._to_display()  # noqa: SLF001 - of this module
    except Exception as error:  # noqa: BLE001 - a cell that shows a value is never the place to fail
        return DisplayContent(
            get_repr_or_name(value), {"cannot be shown": f"{type(error).__name__}: {error}"}
        )


def get_repr_or_name(value: object) -> str:
    """Its ``repr``, or what kind of value it is where even that fails."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - as above
        return type(value).__name__


def _build_tuple_display(values: Sequence[object]) -> DisplayContent:
    try:
        if not values:
            return DisplayContent("none")
        kind = type(values[0]).__name__
        return DisplayContent(f"{kind}: {len(values):,}", tables=(build_table(values),))
    except Exception as error:  # noqa: BLE001 - as above
        return DisplayContent("a list", {"cannot be shown": f"{type(error).__name__}: {error}"})


def _build_fields_display(value: object) -> DisplayContent:
    told = {one.name: getattr(value, one.name) for one in fields(value) if one.repr}  # type: ignore[arg-type]  # what is none has a sheet of its own
    lists = {name: content for name, content in told.items() if _is_list_of_values(content)}
    facts = {humanize_field_name(name): content for name, content in told.items() if name not in lists}
    rows = MAX_TABLE_ROWS if len(lists) == 1 else _MAX_ROWS_OF_SEVERAL
    tables = [
        build_table(content, f"{humanize_field_name(name)} ({len(content):,})", first=rows)
        for name, content in lists.items()
    ]
    return DisplayContent(type(value).__name__, facts, tuple(tables))


def _is_list_of_values(content: object) -> bool:
    return isinstance(content, tuple | list) and bool(content) and is_dataclass(content[0])
