"""Plot of a conversation's messages and their state in a context."""

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
    from langmem_tiers.context.models import MemoryContext

MAX_BARS = 120
"""Maximum number of bars; longer conversations show several messages per bar."""
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
        name: NO_ROOM_REASON if context.reasons.get(name) == NO_ROOM_REASON else _ARCHIVED
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
