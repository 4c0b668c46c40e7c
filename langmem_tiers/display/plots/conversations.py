"""A picture of what became of a conversation in a context."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from langmem_tiers.context.models import NO_ROOM_REASON, RECALLED_REASON, SUMMARIZED_REASON
from langmem_tiers.display.plots.drawing import (
    GRAY,
    draw_empty_plot,
    draw_legend,
    resolve_axes,
    set_plot_title,
    style_axes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from langmem_tiers.common.messages import Message
    from langmem_tiers.context.models import Context

MAX_BARS = 120
"""Beyond so many messages, a bar stands for several."""
_FULL, _COMPRESSED, _SAVED_TOKENS = "in full", "compressed", "saved by compressing"
_BEHIND_SUMMARY, _ARCHIVED, _NOT_SHOWN = "behind the summary", "archived", "not shown"
_COLORS = {
    _FULL: "#0072B2",
    _COMPRESSED: "#E69F00",
    _SAVED_TOKENS: "#F0D9A8",
    RECALLED_REASON: "#009E73",
    SUMMARIZED_REASON: "#56B4E9",
    _BEHIND_SUMMARY: "#CC79A7",
    _ARCHIVED: "#A07855",
    NO_ROOM_REASON: "#D55E00",
    _NOT_SHOWN: GRAY,
}


def conversation(context: Context, messages: Iterable[Message], *, ax: Axes | None = None) -> Axes:
    """What of a conversation is in a context: kept, compressed, recalled, behind the summary, or left out.

    Args:
        context: What ``session.build_context()`` gave.
        messages: The conversation in its order: ``session.messages()``. Summaries among them are left out.
        ax: Where to draw.
    """
    said = [message for message in messages if not message.is_summary]
    ax = resolve_axes(ax)
    if not said:
        return draw_empty_plot(ax, "What became of each message", "nothing was said yet")
    step = -(-len(said) // MAX_BARS)
    sums = [Counter[str]() for _ in range(0, len(said), step)]
    counts = Counter[str]()
    for number, (state, tokens) in enumerate(_iter_tokens_by_state(context, said)):
        counts[state] += 1
        sums[number // step] += tokens
    handles = _draw_bars(ax, sums, step)
    labels = [f"{state}: {counts[state]:,}" if counts[state] else state for state in handles]
    draw_legend(ax, handles.values(), labels)
    ax.set_xlim(0.5, len(said) + 0.5)
    ax.set_xlabel("message" if step == 1 else f"message ({step} in a bar)")
    ax.set_ylabel("tokens as said")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    set_plot_title(ax, f"{len(said):,} messages in a context of {context.token_count:,} tokens")
    style_axes(ax, grid="y")
    return ax


def _draw_bars(ax: Axes, sums: Sequence[Counter[str]], step: int) -> dict[str, Artist]:
    places = [1 + number * step + (step - 1) / 2 for number in range(len(sums))]
    bottoms = [0] * len(sums)
    handles: dict[str, Artist] = {}
    for state, shade in _COLORS.items():
        heights = [one[state] for one in sums]
        if any(heights):
            bars = ax.bar(places, heights, bottom=bottoms, width=step * 0.9, color=shade, linewidth=0)
            handles[state] = bars.patches[0]
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    return handles


def _iter_tokens_by_state(context: Context, said: Sequence[Message]) -> Iterator[tuple[str, Counter[str]]]:
    full, compressed = set(context.full), set(context.compressed)
    shown = {message.id: message.token_count for message in context.messages}
    dropped = {
        name: NO_ROOM_REASON if context.reasons.get(name) == NO_ROOM_REASON else _ARCHIVED
        for name in context.dropped
    }
    for message in said:
        tokens = max(1, message.token_count)
        if message.id in compressed:
            kept = min(tokens, shown.get(message.id, tokens))
            yield _COMPRESSED, Counter({_COMPRESSED: kept, _SAVED_TOKENS: tokens - kept})
            continue
        told = _FULL if message.id in full else _find_recall_state(context.reasons.get(message.id, ""))
        state = told or dropped.get(message.id) or (_BEHIND_SUMMARY if message.is_compressed else _NOT_SHOWN)
        yield state, Counter({state: tokens})


def _find_recall_state(reason: str) -> str | None:
    # Memories of other sessions are named otherwise, whatever their ids are.
    return next((one for one in (RECALLED_REASON, SUMMARIZED_REASON) if reason.startswith(f"{one}:")), None)
