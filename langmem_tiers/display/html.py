"""Display content as HTML for notebooks: escaped, and readable on light and dark themes."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from langmem_tiers.display.tables import MAX_FACT_CHARACTERS, UntrustedText, format_cell, to_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from langmem_tiers.display.tables import Cell, DisplayContent, StackedBar, Table

_BORDER = "1px solid rgba(128,128,128,.35)"
_TABLE_STYLE = "border-collapse:collapse;margin:.4em 0;font-size:.92em"
_CELL_STYLE = f"padding:.15em .7em .15em 0;text-align:left;vertical-align:top;border-bottom:{_BORDER}"
_NUMBER_STYLE = (
    _CELL_STYLE.replace("text-align:left", "text-align:right") + ";font-variant-numeric:tabular-nums"
)
_SHORT_CELL_STYLE = f"{_CELL_STYLE};white-space:nowrap"
_PROSE_STYLE = "white-space:pre-wrap;overflow-wrap:break-word;max-width:60em"
_LONG_CELL_STYLE = f"{_CELL_STYLE};{_PROSE_STYLE}"
_INLINE_FACT_STYLE = "margin-right:1.2em;white-space:nowrap"
_MAX_BRIEF_CHARACTERS = 32
"""Texts up to this length are not wrapped, whatever the width."""
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


def render_html(content: DisplayContent) -> str:
    """Render the content as one HTML element.

    It sets neither background nor text color and contains neither scripts nor links.
    """
    parts = [f'<div style="line-height:1.4"><strong>{_render_label(content.title)}</strong>']
    if content.bar is not None:
        parts.extend(_render_bar(content.bar))
    parts.extend(
        _render_facts({name: to_cell(value, MAX_FACT_CHARACTERS) for name, value in content.facts.items()})
    )
    for table in content.tables:
        parts.extend(_render_table(table))
    return "".join([*parts, "</div>"])


def _render_facts(facts: Mapping[str, Cell]) -> Iterator[str]:
    # Short facts share lines, long ones get a line each.
    brief = {name: value for name, value in facts.items() if _is_brief(value)}
    if brief:
        pieces = (f"{_render_dim(name)} {_render_inline(value)}" for name, value in brief.items())
        yield (
            "<div>"
            + "".join(f'<span style="{_INLINE_FACT_STYLE}">{piece}</span> ' for piece in pieces)
            + "</div>"
        )
    for name, value in facts.items():
        if name not in brief:
            yield f'<div style="{_PROSE_STYLE}">{_render_dim(name)} {_render_inline(value)}</div>'


def _render_table(table: Table) -> Iterator[str]:
    if table.title:
        yield f'<div style="margin-top:.5em">{_render_label(table.title)}</div>'
    numeric = [_is_numeric(row[index] for row in table.rows) for index in range(len(table.columns))]
    heads = "".join(
        f'<th scope="col" '
        f'style="{_NUMBER_STYLE if right else _CELL_STYLE};white-space:nowrap">{_render_label(name)}</th>'
        for name, right in zip(table.columns, numeric, strict=True)
    )
    yield f'<table style="{_TABLE_STYLE}"><thead><tr>{heads}</tr></thead><tbody>'
    gap = len(table.rows) if table.gap_index is None else table.gap_index
    for number, row in enumerate(table.rows):
        if number == gap and table.omitted_rows:
            yield _render_omitted_rows(table)
        cells = (
            _render_cell(cell, _NUMBER_STYLE if right else _CELL_STYLE)
            for cell, right in zip(row, numeric, strict=True)
        )
        yield f"<tr>{''.join(cells)}</tr>"
    if gap >= len(table.rows) and table.omitted_rows:
        yield _render_omitted_rows(table)
    yield "</tbody></table>"


def _render_omitted_rows(table: Table) -> str:
    return (
        f'<tr><td colspan="{len(table.columns)}" '
        f'style="{_CELL_STYLE}">{_render_dim(f"and {table.omitted_rows:,} more")}</td></tr>'
    )


def _render_cell(shown: Cell, style: str) -> str:
    if isinstance(shown, int | float):
        return f'<td style="{style}">{_render_inline(shown)}</td>'
    return f'<td style="{_SHORT_CELL_STYLE if _is_brief(shown) else _LONG_CELL_STYLE}">{_render_inline(shown)}</td>'


def _render_inline(shown: Cell) -> str:
    if not isinstance(shown, UntrustedText):
        return escape(format_cell(shown))
    rest = (
        f" {_render_dim(f'… (+{shown.omitted_characters:,} characters)')}" if shown.omitted_characters else ""
    )
    # <bdi> isolates right-to-left text, so that it does not reorder the text around it.
    return f'<bdi dir="auto">{escape(shown.text)}</bdi>{rest}'


def _is_brief(shown: Cell) -> bool:
    text = format_cell(shown)
    return len(text) <= _MAX_BRIEF_CHARACTERS and "\n" not in text


def _render_dim(text: str) -> str:
    return f'<span style="opacity:.65">{escape(UntrustedText.of(text).text)}</span>'


def _render_bar(bar: StackedBar) -> Iterator[str]:
    # The parts may exceed the total, and the total may be 0.
    whole = max(1, bar.total, sum(bar.parts.values()))
    shown = [(name, size) for name, size in bar.parts.items() if size > 0]
    style = f"display:flex;height:.8em;max-width:40em;margin:.4em 0;border:{_BORDER}"
    yield f'<div style="{style}">'
    for number, (name, size) in enumerate(shown):
        color = _COLORS[number % len(_COLORS)]
        label = escape(f"{UntrustedText.of(name).text}: {size:,}")
        yield f'<span title="{label}" style="width:{100 * size / whole:.2f}%;background:{color}"></span>'
    yield "</div><div>"
    for number, (name, size) in enumerate(shown):
        square = f'<span style="color:{_COLORS[number % len(_COLORS)]}">■</span>'
        yield f'<span style="{_INLINE_FACT_STYLE}">{square} {_render_label(name)} {size:,}</span> '
    yield "</div>"


def _is_numeric(cells: Iterable[Cell]) -> bool:
    values = [cell for cell in cells if cell is not None]
    return bool(values) and all(isinstance(value, int | float) for value in values)


def _render_label(text: str) -> str:
    return f'<bdi dir="auto">{escape(UntrustedText.of(text).text)}</bdi>'
