"""Sheets as plain text, for terminals and ``print``."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from langmem_tiers.display.tables import FACT_CHARACTERS, Text, cell, cell_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.display.tables import Sheet, Table

_MOST = 72
"""Columns of a terminal that one cell takes."""


def as_text(sheet: Sheet) -> str:
    """The sheet in lines."""
    return "\n".join(_lines(sheet))


def _lines(sheet: Sheet) -> Iterator[str]:
    yield _name(sheet.title)
    if sheet.bar is not None:
        parts = ", ".join(f"{_name(name)} {size:,}" for name, size in sheet.bar.parts.items() if size)
        yield f"  tokens: {parts or 'none'}"
    for name, value in sheet.facts.items():
        yield f"  {_name(name)}: {_on_one_line(cell_text(cell(value, FACT_CHARACTERS)))}"
    for table in sheet.tables:
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"  {_name(table.title)}:"
    rows = [[_fitted(cell_text(one)) for one in row] for row in table.rows]
    heads = [_name(name) for name in table.columns]
    widths = [max(map(_width, column)) for column in zip(heads, *rows, strict=True)]
    gap = len(rows) if table.gap_at is None else table.gap_at
    yield _row(heads, widths)
    for number, row in enumerate(rows):
        if number == gap and table.left_out:
            yield f"  … and {table.left_out:,} more"
        yield _row(row, widths)
    if gap >= len(rows) and table.left_out:
        yield f"  … and {table.left_out:,} more"


def _row(cells: list[str], widths: list[int]) -> str:
    padded = (one + " " * (width - _width(one)) for one, width in zip(cells, widths, strict=True))
    return f"  {'  '.join(padded)}".rstrip()


def _fitted(text: str) -> str:
    line = _on_one_line(text)
    if _width(line) <= _MOST:
        return line
    kept, width = 0, 0
    while width < _MOST - 1:
        width += _letter_width(line[kept])
        kept += 1
    return f"{line[: kept - 1]}…"


def _name(text: str) -> str:
    return _on_one_line(Text.of(text).words)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_letter_width, text))


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1
