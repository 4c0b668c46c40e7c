"""Plots of contexts: token usage of a single context, and of a series of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.entries import Tier
from langmem_tiers.context.models import MemoryContext
from langmem_tiers.display.plots.drawing import (
    GRAY,
    check_plot_values,
    draw_empty_plot,
    draw_legend,
    get_color,
    get_hatch,
    resolve_axes,
    set_plot_title,
    style_axes,
)
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.projects.models import ContextBuildResult, ContextItemKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.recall.models import Hit

_FREE = "free"
_SECTIONS = ("frame", "summary", "conversation", "known", "memories")
_RESERVE_NAMES = ("system", "tools", "current turn", "answer", "memory")
_COLOR_INDEXES = {name: number for number, name in enumerate((*_SECTIONS, *Tier, *_RESERVE_NAMES))} | {
    ContextItemKind.SYSTEM_PROMPT: 0,
    ContextItemKind.CHUNK: 1,
    ContextItemKind.MESSAGE: 2,
    ContextItemKind.MEMORY: 4,
}
"""Color of each section and tier; the same in all plots."""
_FREE_STYLE: dict[str, Any] = {"facecolor": "none", "edgecolor": GRAY, "linestyle": ":"}
_TIERS_BY_ITEM_KIND = {
    ContextItemKind.SYSTEM_PROMPT: Tier.WORKING,
    ContextItemKind.MESSAGE: Tier.SHORT_TERM,
    ContextItemKind.CHUNK: Tier.SHORT_TERM,
}


def budget(
    context: MemoryContext | ContextBuildResult, *, window: TokenBudget | None = None, ax: Axes | None = None
) -> Axes:
    """Plot the tokens of a context by section and by tier, and the free tokens.

    Memories share the tokens of their section in proportion to their sizes, including the text around them.

    Args:
        context: Context of a session, a namespace or a ``MemorySystem``.
        window: Budget of the context, such as ``engine.config.budget``; also draws the reserved tokens.
        ax: Axes to draw into. Default: a new figure.
    """
    sections, tiers, limit = _split_tokens(context)
    used = sum(sections.values())
    rows = {"by section": sections, "by tier": tiers}
    if window is None:
        rows = {name: {**parts, _FREE: limit - used} for name, parts in rows.items()}
    else:
        rows["whole window"] = _build_reserves(window, used)
    drawn = {name: {part: size for part, size in parts.items() if size > 0} for name, parts in rows.items()}
    ax = resolve_axes(ax, height=max(2.6, 0.9 + 0.21 * sum(len(parts) + 1 for parts in drawn.values())))
    _draw_rows(ax, drawn)
    ax.set_xlim(0, max(1, limit if window is None else window.context_tokens))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("tokens")
    set_plot_title(ax, f"{used:,} of {limit:,} tokens in use ({used / max(1, limit):.0%})")
    style_axes(ax)
    return ax


def usage(contexts: Iterable[MemoryContext], *, ax: Axes | None = None) -> Axes:
    """Plot the tokens of each context of a conversation by section, and its budget.

    Args:
        contexts: Contexts in order, such as one per turn.
        ax: Axes to draw into. Default: a new figure.
    """
    turns = check_plot_values(contexts, MemoryContext, "build_context() of each turn")
    ax = resolve_axes(ax)
    if not turns:
        return draw_empty_plot(ax, "Tokens of each turn", "no context was built yet")
    edges = [number + 0.5 for number in range(len(turns) + 1)]
    names = [name for name in _SECTIONS if any(turn.sections.get(name, 0) for turn in turns)]
    bottoms = [0] * len(turns)
    handles: list[Artist] = []
    for name in names:
        tops = [bottom + turn.sections.get(name, 0) for bottom, turn in zip(bottoms, turns, strict=True)]
        color = get_color(_SECTIONS.index(name))
        handles.append(ax.stairs(tops, edges, baseline=bottoms, fill=True, color=color, linewidth=0))
        bottoms = tops
    budgets = [turn.token_budget for turn in turns]
    line = ax.stairs(budgets, edges, baseline=None, color="#D55E00", linestyle="--", linewidth=1.2)
    draw_legend(ax, [line, *reversed(handles)], ["budget", *reversed(names)])
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, max(budgets) * 1.05)
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("turn")
    ax.set_ylabel("tokens")
    fullest = max(turn.usage for turn in turns)
    set_plot_title(ax, f"{len(turns):,} contexts, up to {fullest:.0%} of the budget in use")
    style_axes(ax, grid="y")
    return ax


def _draw_rows(ax: Axes, rows: Mapping[str, Mapping[str, int]]) -> None:
    # One legend for all rows. An invisible patch with the name of the row precedes its parts.
    from matplotlib.patches import Patch  # noqa: PLC0415 - optional dependency, loaded already

    handles: list[Artist] = []
    labels: list[str] = []
    for index, (row, parts) in enumerate(rows.items()):
        handles.append(Patch(alpha=0.0))
        labels.append(row)
        left = 0
        for name, tokens in parts.items():
            number = _COLOR_INDEXES.get(name, 0)
            look = _FREE_STYLE if name == _FREE else {"color": get_color(number), "hatch": get_hatch(number)}
            bars = ax.barh(len(rows) - 1 - index, tokens, left=left, height=0.62, linewidth=0.8, **look)
            handles.append(bars.patches[0])
            labels.append(f"{name.replace('_', ' ')}: {tokens:,}")
            left += tokens
    draw_legend(ax, handles, labels)
    ax.set_yticks(range(len(rows)), list(rows)[::-1])
    ax.set_ylim(-0.6, len(rows) - 0.4)


def _split_tokens(context: object) -> tuple[dict[str, int], dict[str, int], int]:
    if isinstance(context, MemoryContext):
        known = {name: context.sections.get(name, 0) for name in _SECTIONS}
        return known | dict(context.sections), _count_tier_tokens(context), context.token_budget
    if isinstance(context, ContextBuildResult):
        sections, tiers = Counter[str](), Counter[str]()
        found = {hit.entry.id: hit.entry.tier for hit in context.retrieval_results}
        for item in context.allocation.items:
            sections[item.kind] += item.token_count
            tiers[_TIERS_BY_ITEM_KIND.get(item.kind) or found.get(item.id, Tier.LONG_TERM)] += (
                item.token_count
            )
        used = sum(sections.values())
        return dict(sections), dict(tiers), max(used, context.budget.used + context.budget.available)
    raise InvalidInputError(
        f"expected a MemoryContext or ContextBuildResult, got {type(context).__name__}: "
        "pass the result of build_context()"
    )


def _count_tier_tokens(context: MemoryContext) -> dict[str, int]:
    sections = Counter(context.sections)
    tiers = Counter[str](
        {
            Tier.WORKING: sections["frame"],
            Tier.SHORT_TERM: sections["summary"] + sections["conversation"],
            Tier.KNOWLEDGE: sections["known"],
        }
    )
    tiers.update(_distribute_tokens(sections["memories"], context.recalled or context.left_out))
    return dict(tiers)


def _distribute_tokens(tokens: int, hits: Sequence[Hit]) -> dict[str, int]:
    # Rounds the running total instead of each share, so that the shares add up to exactly ``tokens``.
    weights = Counter[str]()
    for hit in hits:
        weights[hit.entry.tier] += max(1, hit.entry.token_count)
    total, given, before = sum(weights.values()), 0, 0
    shares: dict[str, int] = {}
    for tier, weight in weights.items():
        before += weight
        shares[tier] = round(tokens * before / total) - given
        given += shares[tier]
    return shares or {Tier.SHORT_TERM: tokens}


def _build_reserves(window: TokenBudget, used: int) -> dict[str, int]:
    sizes = (window.system_tokens, window.tools_tokens, window.working_tokens, window.response_tokens, used)
    return {**dict(zip(_RESERVE_NAMES, sizes, strict=True)), _FREE: window.available - used}
