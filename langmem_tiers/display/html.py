"""Sheets as HTML for notebooks: escaped, in the colours of whoever shows it, light or dark."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from langmem_tiers.display.tables import FACT_CHARACTERS, Text, cell, cell_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from langmem_tiers.display.tables import Bar, Cell, Sheet, Table

_LINE = "1px solid rgba(128,128,128,.35)"
_TABLE = "border-collapse:collapse;margin:.4em 0;font-size:.92em"
_CELL = f"padding:.15em .7em .15em 0;text-align:left;vertical-align:top;border-bottom:{_LINE}"
_NUMBER = _CELL.replace("text-align:left", "text-align:right") + ";font-variant-numeric:tabular-nums"
_SHORT = f"{_CELL};white-space:nowrap"
_PROSE = "white-space:pre-wrap;overflow-wrap:break-word;max-width:60em"
_TEXT = f"{_CELL};{_PROSE}"
_PIECE = "margin-right:1.2em;white-space:nowrap"
_BRIEF = 32
"""Up to so many letters stand on one line, whatever the width."""
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


def as_html(sheet: Sheet) -> str:
    """The sheet as one element. It sets no ground and no colour of letters, and holds no script and no link."""
    parts = [f'<div style="line-height:1.4"><strong>{_words(sheet.title)}</strong>']
    if sheet.bar is not None:
        parts.extend(_bar(sheet.bar))
    parts.extend(_facts({name: cell(value, FACT_CHARACTERS) for name, value in sheet.facts.items()}))
    for table in sheet.tables:
        parts.extend(_table(table))
    return "".join([*parts, "</div>"])


def _facts(facts: Mapping[str, Cell]) -> Iterator[str]:
    # Short ones flow in lines, long ones have lines of their own.
    brief = {name: value for name, value in facts.items() if _is_brief(value)}
    if brief:
        pieces = (f"{_dim(name)} {_inline(value)}" for name, value in brief.items())
        yield "<div>" + "".join(f'<span style="{_PIECE}">{piece}</span> ' for piece in pieces) + "</div>"
    for name, value in facts.items():
        if name not in brief:
            yield f'<div style="{_PROSE}">{_dim(name)} {_inline(value)}</div>'


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f'<div style="margin-top:.5em">{_words(table.title)}</div>'
    numeric = [_is_numeric(row[place] for row in table.rows) for place in range(len(table.columns))]
    heads = "".join(
        f'<th scope="col" style="{_NUMBER if right else _CELL};white-space:nowrap">{_words(name)}</th>'
        for name, right in zip(table.columns, numeric, strict=True)
    )
    yield f'<table style="{_TABLE}"><thead><tr>{heads}</tr></thead><tbody>'
    gap = len(table.rows) if table.gap_at is None else table.gap_at
    for number, row in enumerate(table.rows):
        if number == gap and table.left_out:
            yield _more(table)
        cells = (_cell(one, _NUMBER if right else _CELL) for one, right in zip(row, numeric, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    if gap >= len(table.rows) and table.left_out:
        yield _more(table)
    yield "</tbody></table>"


def _more(table: Table) -> str:
    return f'<tr><td colspan="{len(table.columns)}" style="{_CELL}">{_dim(f"and {table.left_out:,} more")}</td></tr>'


def _cell(shown: Cell, style: str) -> str:
    if isinstance(shown, int | float):
        return f'<td style="{style}">{_inline(shown)}</td>'
    return f'<td style="{_SHORT if _is_brief(shown) else _TEXT}">{_inline(shown)}</td>'


def _inline(shown: Cell) -> str:
    if not isinstance(shown, Text):
        return escape(cell_text(shown))
    rest = f" {_dim(f'… (+{shown.left_out:,} characters)')}" if shown.left_out else ""
    return f'<bdi dir="auto">{escape(shown.words)}</bdi>{rest}'


def _is_brief(shown: Cell) -> bool:
    text = cell_text(shown)
    return len(text) <= _BRIEF and "\n" not in text


def _dim(text: str) -> str:
    return f'<span style="opacity:.65">{escape(Text.of(text).words)}</span>'


def _bar(bar: Bar) -> Iterator[str]:
    whole = max(1, bar.whole, sum(bar.parts.values()))
    shown = [(name, size) for name, size in bar.parts.items() if size > 0]
    style = f"display:flex;height:.8em;max-width:40em;margin:.4em 0;border:{_LINE}"
    yield f'<div style="{style}">'
    for number, (name, size) in enumerate(shown):
        colour = _COLOURS[number % len(_COLOURS)]
        label = escape(f"{Text.of(name).words}: {size:,}")
        yield f'<span title="{label}" style="width:{100 * size / whole:.2f}%;background:{colour}"></span>'
    yield "</div><div>"
    for number, (name, size) in enumerate(shown):
        square = f'<span style="color:{_COLOURS[number % len(_COLOURS)]}">■</span>'
        yield f'<span style="{_PIECE}">{square} {_words(name)} {size:,}</span> '
    yield "</div>"


def _is_numeric(cells: Iterable[Cell]) -> bool:
    told = [one for one in cells if one is not None]
    return bool(told) and all(isinstance(one, int | float) for one in told)


def _words(text: str) -> str:
    return f'<bdi dir="auto">{escape(Text.of(text).words)}</bdi>'
