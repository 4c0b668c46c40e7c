"""Base classes of values that render themselves: as HTML in notebooks, as plain text elsewhere.

Rendering a value never raises and costs only a few look-ups.
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
_MAX_ROWS_OF_SEVERAL = 5  # per list, if a value has several


class Printer(Protocol):
    """The pretty printer that IPython passes to ``_repr_pretty_``."""

    def text(self, text: str) -> None:
        """Write the text."""
        ...


class NotebookDisplayable:
    """Renders itself in notebooks. Override ``_to_display``; the default shows the fields of a dataclass."""

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        # IPython prefers a __repr__ of the class itself (every dataclass has one) to an inherited _repr_pretty_.
        cls._repr_pretty_ = cls._repr_pretty_  # type: ignore[method-assign]  # on purpose

    def _repr_html_(self) -> str:
        return render_html(_to_display_safely(self))

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:  # noqa: FBT001 - as IPython calls it
        printer.text(repr(self) if cycle else render_text(_to_display_safely(self)))

    def _to_display(self) -> DisplayContent:
        """Return the content to display; may raise."""
        return _build_fields_display(self)

    def _to_row(self) -> Mapping[str, object]:
        """Return the value as one row of a table."""
        return {
            humanize_field_name(field.name): getattr(self, field.name)
            for field in fields(self)  # type: ignore[arg-type]  # classes that are not dataclasses override this
            if field.repr
        }

    def _to_line(self) -> str:
        """Return the value as one line inside a fact."""
        return format_fields(self)


class Displayable(NotebookDisplayable):
    """A value whose ``str`` is the same plain text; its ``repr`` stays complete."""

    __slots__ = ()

    def __str__(self) -> str:
        return render_text(_to_display_safely(self))


class DisplayableTuple(tuple[_T, ...]):
    """A tuple that renders itself as a table."""

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
    """Build a table with one row per value.

    Args:
        items: Values of the same type.
        title: Title above the table.
        first: Maximum number of rows from the beginning.
        last: Maximum number of rows from the end.
    """
    is_whole = len(items) <= first + last
    shown = list(items) if is_whole else [*items[:first], *(items[-last:] if last else ())]
    rows = [to_display_row(item) for item in shown]
    names = dict.fromkeys(name for row in rows for name in row)
    # Columns without any value are left out.
    columns = tuple(name for name in names if any(row.get(name) not in _EMPTY_VALUES for row in rows))
    return Table(
        columns=columns,
        rows=tuple(tuple(to_cell(row.get(name)) for name in columns) for row in rows),
        title=title,
        omitted_rows=len(items) - len(shown),
        gap_index=first if last and not is_whole else None,
    )


def build_list_display(title: str, items: Sequence[object], what: str) -> DisplayContent:
    """Build the display content of a list: a table, or a fact that there are none."""
    return (
        DisplayContent(title, tables=(build_table(items, what),))
        if items
        else DisplayContent(title, {what: "none"})
    )


def to_display_row(item: object) -> Mapping[str, object]:
    """Return a value as one row of a table."""
    if isinstance(item, Mapping):
        return item
    if isinstance(item, NotebookDisplayable):
        return item._to_row()  # noqa: SLF001 - defined in this module
    if is_dataclass(item) and not isinstance(item, type):
        return {
            humanize_field_name(field.name): getattr(item, field.name) for field in fields(item) if field.repr
        }
    return {"value": item}


def _to_display_safely(value: NotebookDisplayable) -> DisplayContent:
    try:
        return value._to_display()  # noqa: SLF001 - defined in this module
    except Exception as error:  # noqa: BLE001 - displaying a value in a notebook must never fail
        return DisplayContent(
            get_repr_or_name(value), {"cannot be shown": f"{type(error).__name__}: {error}"}
        )


def get_repr_or_name(value: object) -> str:
    """Return the ``repr`` of a value, or the name of its type if that fails."""
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
    contents = {field.name: getattr(value, field.name) for field in fields(value) if field.repr}  # type: ignore[arg-type]  # other classes override _to_display
    lists = {name: content for name, content in contents.items() if _is_list_of_values(content)}
    facts = {humanize_field_name(name): content for name, content in contents.items() if name not in lists}
    # Several tables would fill the screen, so each of them gets fewer rows.
    rows = MAX_TABLE_ROWS if len(lists) == 1 else _MAX_ROWS_OF_SEVERAL
    tables = [
        build_table(content, f"{humanize_field_name(name)} ({len(content):,})", first=rows)
        for name, content in lists.items()
    ]
    return DisplayContent(type(value).__name__, facts, tuple(tables))


def _is_list_of_values(content: object) -> bool:
    return isinstance(content, tuple | list) and bool(content) and is_dataclass(content[0])
