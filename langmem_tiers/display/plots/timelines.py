"""Plots of changes over time: the optimizer's parameters, and the decay of unused memories."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_positive
from langmem_tiers.common.clock import SystemClock
from langmem_tiers.common.decay import HALF_LIFE_DAYS, compute_decay, compute_entry_decay
from langmem_tiers.common.entries import Entry
from langmem_tiers.common.messages import check_time
from langmem_tiers.display.plots.drawing import (
    GRAY,
    check_plot_values,
    draw_empty_plot,
    draw_legend,
    get_color,
    resolve_axes,
    set_plot_title,
    style_axes,
)
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tuning.models import TuningSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


_USE_COUNTS = (0, 1, 3, 5)
_CURVE_POINTS = 200
_MAX_MARKERS = 40
_DAY_SECONDS = 86_400


def tuning(history: Iterable[TuningSnapshot], *, ax: Axes | None = None) -> Axes:
    """Plot the optimizer's parameters and the usage of the fullest session, run by run.

    Args:
        history: Result of ``engine.optimizer.history(namespace)``, in any order.
        ax: Axes to draw into. Default: a new figure. The number of messages in full has its own axis on the right.
    """
    snapshots = check_plot_values(history, TuningSnapshot, "engine.optimizer.history(namespace)")
    runs = sorted(snapshots, key=lambda run: run.created_at)
    for run in runs:
        if not (isfinite(run.usage_before) and isfinite(run.usage_after)):
            raise InvalidInputError(
                f"the run of {run.created_at} has a usage of {run.usage_before} before and {run.usage_after} after, "
                "expected finite numbers: leave the run out"
            )
    ax = resolve_axes(ax, width=8.6)
    if not runs:
        return draw_empty_plot(ax, "The optimizer", "it has not run yet")
    times = _build_time_axis(ax, runs)
    lines = {
        "usage before": ([run.usage_before for run in runs], GRAY, ":"),
        "usage after": ([run.usage_after for run in runs], get_color(0), "-"),
        "target usage": ([run.parameters.target_usage for run in runs], get_color(2), "--"),
        "compression trigger": ([run.parameters.compression_trigger for run in runs], get_color(5), "-"),
        "minimum relevance": ([run.parameters.min_relevance for run in runs], get_color(3), "-"),
    }
    marker = "." if len(runs) <= _MAX_MARKERS else ""
    handles: list[Artist] = []
    for values, shade, style in lines.values():
        handles += ax.plot(times, values, color=shade, linestyle=style, linewidth=1.4, marker=marker)
    right_axes = ax.twinx()
    window = [run.parameters.full_message_window for run in runs]
    handles += right_axes.plot(
        times, window, color=get_color(1), drawstyle="steps-post", linewidth=1.4, marker=marker
    )
    labels = [*lines, "messages in full (right)"]
    reverted = [time for time, run in zip(times, runs, strict=True) if run.is_reverted]
    if reverted:
        handles.append(
            ax.scatter(reverted, [0.0] * len(reverted), marker="x", color=get_color(5), clip_on=False)
        )
        labels.append("reverted")
    draw_legend(ax, handles, labels, right=1.13)
    ax.set_ylim(0, max(1.0, *(run.usage_before for run in runs)) * 1.05)
    right_axes.set_ylim(0, max(window) * 1.15)
    ax.set_ylabel("share of the budget; relevance")
    right_axes.set_ylabel("messages")
    saved = sum(run.tokens_saved for run in runs)
    set_plot_title(ax, f"{len(runs):,} optimizer runs saved {saved:,} tokens")
    style_axes(ax, grid="y")
    right_axes.spines["top"].set_visible(False)
    return ax


def _build_time_axis(ax: Axes, runs: Sequence[TuningSnapshot]) -> list[float]:
    if runs[0].created_at == runs[-1].created_at:  # a single run, or a frozen clock
        ax.set_xlabel("run")
        ax.locator_params(axis="x", integer=True)
        return [float(number) for number in range(1, len(runs) + 1)]
    from matplotlib import dates  # noqa: PLC0415 - optional dependency, loaded already

    locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]  # it has no types
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # as above
    ax.set_xlabel("time (UTC)")
    return [float(dates.date2num(run.created_at)) for run in runs]  # type: ignore[no-untyped-call]  # as above


def decay(
    entries: Iterable[Entry] = (),
    *,
    now: datetime | None = None,
    half_life_days: float = HALF_LIFE_DAYS,
    ax: Axes | None = None,
) -> Axes:
    """Plot the decay of unused memories by number of accesses, and the entries on these curves.

    Args:
        entries: Entries such as ``namespace.long_term.latest()``. Default: draw only the curves.
        now: Time at which decay is computed. Default: the system clock.
        half_life_days: Days after which half of the weight is left.
        ax: Axes to draw into. Default: a new figure.
    """
    check_positive(half_life_days, "half_life_days")
    shown = check_plot_values(entries, Entry, "namespace.long_term.latest()")
    moment = SystemClock().now() if now is None else check_time(now)
    ages = [max(0.0, _count_days_unused(entry, moment)) for entry in shown]
    most = max(4 * half_life_days, max(ages, default=0.0) * 1.05)
    ax = resolve_axes(ax)
    days = [most * point / _CURVE_POINTS for point in range(_CURVE_POINTS + 1)]
    handles: list[Artist] = []
    for index, uses in enumerate(_USE_COUNTS):
        curve = [compute_decay(day, uses, half_life_days) for day in days]
        handles += ax.plot(days, curve, color=get_color((0, 4, 2, 3)[index]), linewidth=1.6)
    labels = [
        "never used",
        "used once",
        *(f"used {uses} times" for uses in _USE_COUNTS[2:-1]),
        f"{_USE_COUNTS[-1]} times or more",
    ]
    if shown:
        weights = [compute_entry_decay(entry, moment, half_life_days) for entry in shown]
        handles.append(
            ax.scatter(ages, weights, s=22, color=get_color(5), alpha=0.75, linewidths=0, zorder=3)
        )
        labels.append(f"entries: {len(shown):,}")
    handles.append(ax.axvline(half_life_days, color=GRAY, linestyle=":", linewidth=1.0))
    labels.append(f"half-life: {half_life_days:g} days")
    draw_legend(ax, handles, labels)
    ax.set_xlim(0, most)
    ax.set_ylim(0, 1.05)
    ax.set_xlabel("days since last use")
    ax.set_ylabel("remaining weight")
    set_plot_title(ax, "Decay of unused memories")
    style_axes(ax, grid="y")
    return ax


def _count_days_unused(entry: Entry, now: datetime) -> float:
    return (now - (entry.last_access_at or entry.created_at)).total_seconds() / _DAY_SECONDS
