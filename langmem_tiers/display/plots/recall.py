"""Plot of the hits of a recall and the signals behind their scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.display.plots.drawing import (
    check_plot_values,
    disable_text_markup,
    draw_empty_plot,
    draw_legend,
    get_color,
    get_hatch,
    replace_missing_glyphs,
    resolve_axes,
    set_plot_title,
    style_axes,
    truncate_label,
)
from langmem_tiers.recall.models import Hit, Recall

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


def scores(hits: Recall | Iterable[Hit], *, limit: int = 20, ax: Axes | None = None) -> Axes:
    """Plot the contribution of each signal to the score of each hit, best hit on top.

    Args:
        hits: Result of ``recall()`` or ``search()``.
        limit: Maximum number of hits to draw; the title gives the number of omitted hits.
        ax: Axes to draw into. Default: a new figure.
    """
    found = check_plot_values(hits, Hit, "recall() or search()")
    shown = found[: max(1, limit)]
    ax = resolve_axes(ax, height=max(2.4, 1.1 + 0.3 * len(shown)))
    query = f" for “{truncate_label(hits.query)}”" if isinstance(hits, Recall) else ""
    if not shown:
        return draw_empty_plot(ax, f"Nothing was found{query}", "no hits")
    signals = _rank_signals(shown)
    handles: list[Artist] = []
    # Positive contributions are stacked to the right of zero, negative ones to the left.
    rights, lefts = [0.0] * len(shown), [0.0] * len(shown)
    for index, signal in enumerate(signals):
        values = [hit.signals.get(signal, 0.0) for hit in shown]
        starts = [
            right if value >= 0 else left for value, right, left in zip(values, rights, lefts, strict=True)
        ]
        bars = ax.barh(
            range(len(shown)),
            values,
            left=starts,
            height=0.72,
            color=get_color(index),
            hatch=get_hatch(index),
        )
        handles.append(bars.patches[0])
        rights = [right + max(0.0, value) for right, value in zip(rights, values, strict=True)]
        lefts = [left + min(0.0, value) for left, value in zip(lefts, values, strict=True)]
    for row, (hit, right) in enumerate(zip(shown, rights, strict=True)):
        ax.annotate(
            f"{hit.score:.2f}",
            (right, row),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    ax.set_yticks(
        range(len(shown)),
        [replace_missing_glyphs(truncate_label(_get_hit_text(hit))) for hit in shown],
        fontsize="small",
    )
    for label in ax.get_yticklabels():
        disable_text_markup(label)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.margins(x=0.09)
    ax.set_xlabel("score by signal")
    draw_legend(ax, handles, [signal.replace("_", " ") for signal in signals])
    more = f", {len(found) - len(shown):,} more not drawn" if len(found) > len(shown) else ""
    set_plot_title(ax, f"{len(found):,} hits{query}{more}")
    style_axes(ax, grid="x")
    return ax


def _rank_signals(hits: Sequence[Hit]) -> list[str]:
    # Largest total contribution first, so that it is drawn at the beginning of the bars.
    totals: dict[str, float] = {}
    for hit in hits:
        for name, value in hit.signals.items():
            totals[name] = totals.get(name, 0.0) + abs(value)
    return sorted((name for name, total in totals.items() if total > 0), key=lambda name: -totals[name])


def _get_hit_text(hit: Hit) -> str:
    return hit.knowledge.text if hit.knowledge is not None else hit.entry.content
