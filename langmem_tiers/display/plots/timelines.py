"""Pictures of what changes with time: the optimizer's parameters, and what is left of what is not used."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_positive
from langmem_tiers.common.clock import SystemClock
from langmem_tiers.common.decay import HALF_LIFE_DAYS, compute_entry_decay
from langmem_tiers.common.decay import compute_decay as left_of
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
    """What the optimizer did to its parameters and to how full the fullest session is, run by run.

    Args:
        history: What ``engine.optimizer.history(namespace)`` gave, in any order.
        ax: Where to draw; the number of messages in full has an axis of its own on the right.
    """
    given = check_plot_values(history, TuningSnapshot, "engine.optimizer.history(namespace)")
    runs = sorted(given, key=lambda run: run.created_at)
    for run in runs:
        if not (isfinite(run.usage_before) and isfinite(run.usage_after)):
            raise InvalidInputError(
                f"the run of {run.created_at} has a usage of {run.usage_before} before and {run.usage_after} after, "
                "and only finite ones can be drawn: leave it out"
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
    beside = ax.twinx()
    window = [run.parameters.full_message_window for run in runs]
    handles += beside.plot(
        times, window, color=get_color(1), drawstyle="steps-post", linewidth=1.4, marker=marker
    )
    labels = [*lines, "messages in full (right)"]
    taken_back = [time for time, run in zip(times, runs, strict=True) if run.is_reverted]
    if taken_back:
        handles.append(
            ax.scatter(taken_back, [0.0] * len(taken_back), marker="x", color=get_color(5), clip_on=False)
        )
        labels.append("taken back")
    draw_legend(ax, handles, labels, right=1.13)
    ax.set_ylim(0, max(1.0, *(run.usage_before for run in runs)) * 1.05)
    beside.set_ylim(0, max(window) * 1.15)
    ax.set_ylabel("share of the budget; relevance")
    beside.set_ylabel("messages")
    saved = sum(run.tokens_saved for run in runs)
    set_plot_title(ax, f"{len(runs):,} runs of the optimizer saved {saved:,} tokens")
    style_axes(ax, grid="y")
    beside.spines["top"].set_visible(False)
    return ax


def _build_time_axis(ax: Axes, runs: Sequence[TuningSnapshot]) -> list[float]:
    if runs[0].created_at == runs[-1].created_at:  # one run, or a clock that stands still
        ax.set_xlabel("run")
        ax.locator_params(axis="x", integer=True)
        return [float(number) for number in range(1, len(runs) + 1)]
    from matplotlib import dates  # noqa: PLC0415 - an extra, and here it is in use

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
    """What is left of a memory that is not used, by how often it was, and where entries stand on that way.

    Args:
        entries: Such as ``namespace.long_term.latest()``; the curves alone, if left out.
        now: The time that they are seen from; the clock's, if left out.
        half_life_days: After how many days half is left.
        ax: Where to draw.
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
        curve = [left_of(day, uses, half_life_days) for day in days]
        handles += ax.plot(days, curve, color=get_color((0, 4, 2, 3)[index]), linewidth=1.6)
    labels = [
        "never used",
        "used once",
        *(f"used {uses} times" for uses in _USE_COUNTS[2:-1]),
        f"{_USE_COUNTS[-1]} times or more",
    ]
    if shown:
        left = [compute_entry_decay(entry, moment, half_life_days) for entry in shown]
        handles.append(ax.scatter(ages, left, s=22, color=get_color(5), alpha=0.75, linewidths=0, zorder=3))
        labels.append(f"entries: {len(shown):,}")
    handles.append(ax.axvline(half_life_days, color=GRAY, linestyle=":", linewidth=1.0))
    labels.append(f"half-life: {half_life_days:g} days")
    draw_legend(ax, handles, labels)
    ax.set_xlim(0, most)
    ax.set_ylim(0, 1.05)
    ax.set_xlabel("days since it was last used")
    ax.set_ylabel("what is left")
    set_plot_title(ax, "What is left of a memory that is not used")
    style_axes(ax, grid="y")
    return ax


def _count_days_unused(entry: Entry, now: datetime) -> float:
    return (now - (entry.last_access_at or entry.created_at)).total_seconds() / _DAY_SECONDS
