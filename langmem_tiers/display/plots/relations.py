"""Plot of the relations between long-term entries."""

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
"""Number of entries above which their texts are cut shorter, so that they overlap less."""


def relations(start: Entry, related: Iterable[Related], *, limit: int = 40, ax: Axes | None = None) -> Axes:
    """Plot the entries related to one of them; arrows go from source to target, wider for stronger relations.

    Args:
        start: Entry in the center.
        related: Result of ``namespace.long_term.related(start.id, depth=...)``.
        limit: Maximum number of related entries to draw, nearest first; the title gives the number of omitted ones.
        ax: Axes to draw into. Default: a new figure.
    """
    found = list(related)
    shown = found[: max(1, limit)]
    is_crowded = len(shown) > _CROWDED_ENTRY_COUNT
    ax = resolve_axes(ax, width=10.0 if is_crowded else 8.6, height=8.0 if is_crowded else 6.0)
    about = f"“{truncate_label(start.content)}”"
    if not shown:
        return draw_empty_plot(
            ax, f"Relations of {about}", "no relations: call long_term.relate() to add some"
        )
    known = {start.id} | {item.entry.id for item in shown}
    edges = {
        (relation.source, relation.target, relation.kind): relation
        for item in shown
        for relation in item.path
        if relation.source in known and relation.target in known
    }
    positions = _compute_positions(start.id, shown)
    _draw_entries(ax, start, shown, positions, 16 if is_crowded else 30)
    _draw_arrows(ax, list(edges.values()), positions)
    more = f", {len(found) - len(shown):,} more not drawn" if len(found) > len(shown) else ""
    set_plot_title(ax, f"{len(found):,} entries around {about}{more}")
    return ax


def _compute_positions(start: str, related: Sequence[Related]) -> dict[str, _Point]:
    """Place entries on one ring per step from the start, each on the side of the entry it was reached from."""
    parents = {item.entry.id: _find_parent_id(item) for item in related}
    children: dict[str, list[str]] = {}
    for entry_id, parent in parents.items():
        # The start is not a key of ``parents``; entries whose parent is unknown are placed around it, too.
        children.setdefault(parent if parent in parents else start, []).append(entry_id)
    leaves = _count_leaves(start, children)
    positions: dict[str, _Point] = {start: (0.0, 0.0)}
    pending = [(start, 0.0, 2 * pi, 0)]
    while pending:
        parent, begin, end, depth = pending.pop()
        at = begin
        for entry_id in children.get(parent, ()):
            # Each subtree gets a sector in proportion to its leaves; angles run clockwise from the top.
            width = (end - begin) * leaves[entry_id] / leaves[parent]
            angle = pi / 2 - (at + width / 2)
            positions[entry_id] = ((depth + 1) * cos(angle), (depth + 1) * sin(angle))
            pending.append((entry_id, at, at + width, depth + 1))
            at += width
    return positions


def _find_parent_id(related: Related) -> str:
    # The other end of the last relation of the path.
    last = related.path[-1]
    return last.source if last.target == related.entry.id else last.target


def _count_leaves(start: str, children: Mapping[str, Sequence[str]]) -> dict[str, int]:
    order, pending = list[str](), [start]
    while pending:
        entry_id = pending.pop()
        order.append(entry_id)
        pending.extend(children.get(entry_id, ()))
    leaves: dict[str, int] = {}
    for entry_id in reversed(order):  # children before their parents
        leaves[entry_id] = max(1, sum(leaves[child] for child in children.get(entry_id, ())))
    return leaves


def _draw_entries(
    ax: Axes, start: Entry, related: Sequence[Related], positions: Mapping[str, _Point], characters: int
) -> None:
    reach = max(max(abs(x), abs(y)) for x, y in positions.values()) + 0.4
    ax.set_xlim(-reach * 1.2, reach * 1.2)
    ax.set_ylim(-reach, reach)
    ax.set_axis_off()
    for entry in (start, *(item.entry for item in related)):
        x, y = positions[entry.id]
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
    """Return the offset and alignment of a label: away from the center, so that it does not cover inner entries."""
    if abs(x) < abs(y) / 12:
        return 0, 8 if y > 0 else -8, "center"
    return (7, 0, "left") if x > 0 else (-7, 0, "right")


def _draw_arrows(ax: Axes, edges: Sequence[Relation], positions: Mapping[str, _Point]) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - optional dependency, loaded already

    kinds = sorted({edge.kind for edge in edges})
    for edge in edges:
        style = {
            "arrowstyle": "-|>", "color": get_color(kinds.index(edge.kind)), "lw": 0.8 + 2.2 * edge.strength,
            "shrinkA": 7, "shrinkB": 7, "connectionstyle": "arc3,rad=0.08",
        }  # fmt: skip
        ax.annotate("", positions[edge.target], positions[edge.source], arrowprops=style, zorder=2)
    handles: list[Artist] = [Line2D([], [], color=get_color(n), linewidth=2) for n in range(len(kinds))]
    draw_legend(ax, handles, [truncate_label(kind.replace("_", " "), 30) for kind in kinds])
