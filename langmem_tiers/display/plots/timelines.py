"""Plots of changes over time: the optimizer's parameters, and the decay of unused memories."""

from __future__ import annotations

from collections import Counter
from math import isfinite
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_positive
from langmem_tiers.common.clock import SystemClock
from langmem_tiers.common.decay import HALF_LIFE_DAYS, compute_decay, compute_entry_decay
from langmem_tiers.common.entries import Entry
from langmem_tiers.common.messages import check_time
from langmem_tiers.context.models import DID_NOT_FIT_REASON, RECALLED_REASON, SUMMARIZED_REASON
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
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from langmem_tiers.common.messages import Message
    from langmem_tiers.context.models import MemoryContext


MAX_BARS = 120
"""Maximum number of bars; longer conversations show several messages per bar."""
_FULL, _COMPRESSED, _SAVED_TOKENS = "in full", "compressed", "saved by compression"
_BEHIND_SUMMARY, _ARCHIVED, _NOT_SHOWN = "replaced by a summary", "archived", "not shown"
_COLORS = {
    _FULL: "#0072B2",
    _COMPRESSED: "#E69F00",
    _SAVED_TOKENS: "#F0D9A8",
    RECALLED_REASON: "#009E73",
    SUMMARIZED_REASON: "#56B4E9",
    _BEHIND_SUMMARY: "#CC79A7",
    _ARCHIVED: "#A07855",
    DID_NOT_FIT_REASON: "#D55E00",
    _NOT_SHOWN: GRAY,
}


def conversation(context: MemoryContext, messages: Iterable[Message], *, ax: Axes | None = None) -> Axes:
    """Plot the state of each message in a context: full, compressed, recalled, summarized or left out.

    Args:
        context: Result of ``session.build_context()``.
        messages: The conversation in order: ``session.messages()``. Summaries in it are skipped.
        ax: Axes to draw into. Default: a new figure.
    """
    turns = [message for message in messages if not message.is_summary]
    ax = resolve_axes(ax)
    if not turns:
        return draw_empty_plot(ax, "State of each message", "no messages yet")
    step = -(-len(turns) // MAX_BARS)  # messages per bar, rounded up
    sums = [Counter[str]() for _ in range(0, len(turns), step)]
    counts = Counter[str]()
    for number, (state, tokens) in enumerate(_iter_tokens_by_state(context, turns)):
        counts[state] += 1
        sums[number // step] += tokens
    handles = _draw_bars(ax, sums, step)
    labels = [f"{state}: {counts[state]:,}" if counts[state] else state for state in handles]
    draw_legend(ax, handles.values(), labels)
    ax.set_xlim(0.5, len(turns) + 0.5)
    ax.set_xlabel("message" if step == 1 else f"message ({step} per bar)")
    ax.set_ylabel("original tokens")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    set_plot_title(ax, f"{len(turns):,} messages in a context of {context.token_count:,} tokens")
    style_axes(ax, grid="y")
    return ax


def _draw_bars(ax: Axes, sums: Sequence[Counter[str]], step: int) -> dict[str, Artist]:
    centers = [1 + number * step + (step - 1) / 2 for number in range(len(sums))]
    bottoms = [0] * len(sums)
    handles: dict[str, Artist] = {}
    for state, color in _COLORS.items():
        heights = [tokens[state] for tokens in sums]
        if any(heights):
            bars = ax.bar(centers, heights, bottom=bottoms, width=step * 0.9, color=color, linewidth=0)
            handles[state] = bars.patches[0]
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    return handles


def _iter_tokens_by_state(
    context: MemoryContext, messages: Sequence[Message]
) -> Iterator[tuple[str, Counter[str]]]:
    full, compressed = set(context.full), set(context.compressed)
    shown = {message.id: message.token_count for message in context.messages}
    dropped = {
        name: DID_NOT_FIT_REASON if context.reasons.get(name) == DID_NOT_FIT_REASON else _ARCHIVED
        for name in context.dropped
    }
    for message in messages:
        tokens = max(1, message.token_count)
        if message.id in compressed:
            kept = min(tokens, shown.get(message.id, tokens))
            yield _COMPRESSED, Counter({_COMPRESSED: kept, _SAVED_TOKENS: tokens - kept})
            continue
        shown_as = _FULL if message.id in full else _find_recall_state(context.reasons.get(message.id, ""))
        state = (
            shown_as or dropped.get(message.id) or (_BEHIND_SUMMARY if message.is_compressed else _NOT_SHOWN)
        )
        yield state, Counter({state: tokens})


def _find_recall_state(reason: str) -> str | None:
    # Memories of other sessions have other reasons, even if their ids are the same.
    return next(
        (state for state in (RECALLED_REASON, SUMMARIZED_REASON) if reason.startswith(f"{state}:")), None
    )


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
    max_age = max(4 * half_life_days, max(ages, default=0.0) * 1.05)
    ax = resolve_axes(ax)
    days = [max_age * point / _CURVE_POINTS for point in range(_CURVE_POINTS + 1)]
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
    ax.set_xlim(0, max_age)
    ax.set_ylim(0, 1.05)
    ax.set_xlabel("days since last use")
    ax.set_ylabel("remaining weight")
    set_plot_title(ax, "Decay of unused memories")
    style_axes(ax, grid="y")
    return ax


def _count_days_unused(entry: Entry, now: datetime) -> float:
    return (now - (entry.last_access_at or entry.created_at)).total_seconds() / _DAY_SECONDS
