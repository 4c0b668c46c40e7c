"""Display content as plain text, for terminals and ``print``."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from langmem_tiers.display.tables import MAX_FACT_CHARACTERS, UntrustedText, format_cell, to_cell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.display.tables import DisplayContent, Table

_MAX_CELL_WIDTH = 72
"""Maximum width of a cell in terminal columns."""


def render_text(content: DisplayContent) -> str:
    """Render the content as lines of text."""
    return "\n".join(_render_lines(content))


def _render_lines(content: DisplayContent) -> Iterator[str]:
    yield _format_label(content.title)
    if content.bar is not None:
        parts = ", ".join(
            f"{_format_label(name)} {size:,}" for name, size in content.bar.parts.items() if size
        )
        yield f"  tokens: {parts or 'none'}"
    for name, value in content.facts.items():
        yield f"  {_format_label(name)}: {_join_lines(format_cell(to_cell(value, MAX_FACT_CHARACTERS)))}"
    for table in content.tables:
        yield from _render_table(table)


def _render_table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"  {_format_label(table.title)}:"
    rows = [[_fit_to_width(format_cell(cell)) for cell in row] for row in table.rows]
    heads = [_format_label(name) for name in table.columns]
    widths = [max(map(_measure_width, column)) for column in zip(heads, *rows, strict=True)]
    gap = len(rows) if table.gap_index is None else table.gap_index
    yield _render_row(heads, widths)
    for number, row in enumerate(rows):
        if number == gap and table.omitted_rows:
            yield f"  … and {table.omitted_rows:,} more"
        yield _render_row(row, widths)
    if gap >= len(rows) and table.omitted_rows:
        yield f"  … and {table.omitted_rows:,} more"


def _render_row(cells: list[str], widths: list[int]) -> str:
    # Not str.ljust(): wide characters take two columns, combining ones none.
    padded = (cell + " " * (width - _measure_width(cell)) for cell, width in zip(cells, widths, strict=True))
    return f"  {'  '.join(padded)}".rstrip()


def _fit_to_width(text: str) -> str:
    line = _join_lines(text)
    if _measure_width(line) <= _MAX_CELL_WIDTH:
        return line
    # Cut by width, not by length: one column is left for the ellipsis.
    kept, width = 0, 0
    while width < _MAX_CELL_WIDTH - 1:
        width += _measure_character_width(line[kept])
        kept += 1
    return f"{line[: kept - 1]}…"


def _format_label(text: str) -> str:
    return _join_lines(UntrustedText.of(text).text)


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _measure_width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_measure_character_width, text))


def _measure_character_width(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1
