"""A picture of how long-term entries relate to each other."""

from __future__ import annotations

from math import cos, pi, sin
from typing import TYPE_CHECKING, Literal

from langmem_tiers.display.plots.drawing import (
    GRAY,
    disable_text_markup,
    draw_empty_plot,
    draw_legend,
    get_color,
    resolve_axes,
    set_plot_title,
    truncate_label,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.long_term.models import Related, Relation

_Point = tuple[float, float]
_CROWDED_ENTRY_COUNT = 12
"""Beyond so many entries their texts are cut shorter, so that they hide each other less."""


def relations(start: Entry, related: Iterable[Related], *, limit: int = 40, ax: Axes | None = None) -> Axes:
    """Entries around one of them, by how they relate: an arrow from source to target, the wider the stronger.

    Args:
        start: The entry in the middle.
        related: What ``namespace.long_term.related(start.id, depth=...)`` gave.
        limit: Entries around it that are drawn at most, the nearest first; the title says how many are left out.
        ax: Where to draw.
    """
    found = list(related)
    shown = found[: max(1, limit)]
    is_crowded = len(shown) > _CROWDED_ENTRY_COUNT
    ax = resolve_axes(ax, width=10.0 if is_crowded else 8.6, height=8.0 if is_crowded else 6.0)
    about = f"“{truncate_label(start.content)}”"
    if not shown:
        return draw_empty_plot(ax, f"Relations of {about}", "no relations: long_term.relate() makes them")
    known = {start.id} | {one.entry.id for one in shown}
    edges = {
        (relation.source, relation.target, relation.kind): relation
        for one in shown
        for relation in one.path
        if relation.source in known and relation.target in known
    }
    places = _compute_positions(start.id, shown)
    _draw_entries(ax, start, shown, places, 16 if is_crowded else 30)
    _draw_arrows(ax, list(edges.values()), places)
    more = f", {len(found) - len(shown):,} more not drawn" if len(found) > len(shown) else ""
    set_plot_title(ax, f"{len(found):,} entries around {about}{more}")
    return ax


def _compute_positions(start: str, related: Sequence[Related]) -> dict[str, _Point]:
    """One ring for each step from the start; each entry on the side of the one that it was reached from."""
    before = {one.entry.id: _find_parent_id(one) for one in related}
    below: dict[str, list[str]] = {}
    for name, parent in before.items():
        below.setdefault(parent if parent in before else start, []).append(name)
    leaves = _count_leaves(start, below)
    places: dict[str, _Point] = {start: (0.0, 0.0)}
    waiting = [(start, 0.0, 2 * pi, 0)]
    while waiting:
        parent, begin, end, depth = waiting.pop()
        at = begin
        for name in below.get(parent, ()):
            width = (end - begin) * leaves[name] / leaves[parent]
            angle = pi / 2 - (at + width / 2)
            places[name] = ((depth + 1) * cos(angle), (depth + 1) * sin(angle))
            waiting.append((name, at, at + width, depth + 1))
            at += width
    return places


def _find_parent_id(related: Related) -> str:
    # The end of the last relation that is not the entry itself.
    last = related.path[-1]
    return last.source if last.target == related.entry.id else last.target


def _count_leaves(start: str, below: Mapping[str, Sequence[str]]) -> dict[str, int]:
    order, waiting = list[str](), [start]
    while waiting:
        name = waiting.pop()
        order.append(name)
        waiting.extend(below.get(name, ()))
    leaves: dict[str, int] = {}
    for name in reversed(order):  # those below come first
        leaves[name] = max(1, sum(leaves[one] for one in below.get(name, ())))
    return leaves


def _draw_entries(
    ax: Axes, start: Entry, related: Sequence[Related], places: Mapping[str, _Point], characters: int
) -> None:
    reach = max(max(abs(x), abs(y)) for x, y in places.values()) + 0.4
    ax.set_xlim(-reach * 1.2, reach * 1.2)
    ax.set_ylim(-reach, reach)
    ax.set_axis_off()
    for entry in (start, *(one.entry for one in related)):
        x, y = places[entry.id]
        is_start = entry.id == start.id
        ax.scatter([x], [y], s=150 if is_start else 50, color=get_color(1) if is_start else GRAY, zorder=4)
        across, up, side = (0, -11, "center") if is_start else _compute_label_offset(x, y)
        text = ax.annotate(
            truncate_label(entry.content, characters),
            (x, y),
            (across, up),
            textcoords="offset points",
            ha=side,
            va="center" if up == 0 else "top" if up < 0 else "bottom",
            fontsize="small",
            zorder=3,
            bbox={
                "boxstyle": "round,pad=0.1",
                "facecolor": ax.get_facecolor(),
                "edgecolor": "none",
                "alpha": 0.8,
            },
        )
        disable_text_markup(text)


def _compute_label_offset(x: float, y: float) -> tuple[int, int, Literal["left", "center", "right"]]:
    """Where the words of an entry stand: away from the middle, so that they do not lie over what is nearer to it."""
    if abs(x) < abs(y) / 12:
        return 0, 8 if y > 0 else -8, "center"
    return (7, 0, "left") if x > 0 else (-7, 0, "right")


def _draw_arrows(ax: Axes, edges: Sequence[Relation], places: Mapping[str, _Point]) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra, and here it is in use

    kinds = sorted({edge.kind for edge in edges})
    for edge in edges:
        style = {
            "arrowstyle": "-|>", "color": get_color(kinds.index(edge.kind)), "lw": 0.8 + 2.2 * edge.strength,
            "shrinkA": 7, "shrinkB": 7, "connectionstyle": "arc3,rad=0.08",
        }  # fmt: skip
        ax.annotate("", places[edge.target], places[edge.source], arrowprops=style, zorder=2)
    handles: list[Artist] = [Line2D([], [], color=get_color(n), linewidth=2) for n in range(len(kinds))]
    draw_legend(ax, handles, [truncate_label(kind.replace("_", " "), 30) for kind in kinds])
