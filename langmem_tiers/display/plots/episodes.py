"""A picture of a session's story."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from langmem_tiers.display.plots.drawing import (
    GRAY,
    check_plot_values,
    draw_empty_plot,
    draw_legend,
    get_color,
    resolve_axes,
    set_plot_title,
    style_axes,
    truncate_label,
)
from langmem_tiers.episodes.models import MIN_KEY_MOMENT_SIGNIFICANCE, EpisodeKind, NarrativeArc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from langmem_tiers.episodes.models import Episode

_MARKERS = {
    EpisodeKind.DECISION_MADE: "D",
    EpisodeKind.PROBLEM_SOLVED: "^",
    EpisodeKind.BREAKTHROUGH: "*",
    EpisodeKind.ISSUE_IDENTIFIED: "v",
    EpisodeKind.TASK_COMPLETED: "s",
    EpisodeKind.PIVOT: "o",
}
_MAX_NAMED = 8
_Y_AXIS_MAX = 1.12


def arc(story: NarrativeArc, *, named: int = 6, ax: Axes | None = None) -> Axes:
    """The episodes of a session along its turns: how much they matter, what they were and how they felt.

    Args:
        story: What ``session.arc()`` gave.
        named: How many of the key moments are named, the most significant first; 8 at most.
        ax: Where to draw.
    """
    (story,) = check_plot_values((story,), NarrativeArc, "session.arc()")
    episodes = [*story.beginning, *story.middle, *story.end]
    ax = resolve_axes(ax, width=9.0)
    if not episodes:
        return draw_empty_plot(
            ax, f"The story of “{truncate_label(story.session)}”", "no episodes: session.learn() finds them"
        )
    handles, labels = _draw_episodes(ax, episodes)
    line = ax.axhline(MIN_KEY_MOMENT_SIGNIFICANCE, color=GRAY, linestyle=":", linewidth=1.0)
    felt = _draw_valence(ax, episodes)
    handles, labels = [*handles, felt, line], [*labels, "how it felt (right)", "key moments lie above"]
    for number, one in enumerate(_rank_key_moments(story)[: max(0, min(named, _MAX_NAMED))], start=1):
        place = (_compute_middle_turn(one), one.significance)
        ax.annotate(str(number), place, (0, 6), textcoords="offset points", ha="center", fontsize="small")
        handles.append(ax.plot([], [], linestyle="none")[0])
        labels.append(f"{number}  {truncate_label(one.title, 34)}")
    draw_legend(ax, handles, labels, right=1.15)
    _draw_thirds(ax, story, episodes)
    key = len(story.key_moments)
    set_plot_title(
        ax, f"The story of “{truncate_label(story.session)}”: {len(episodes):,} episodes, {key:,} key moments"
    )
    return ax


def _rank_key_moments(story: NarrativeArc) -> list[Episode]:
    # By turns from each third, so that a story is not told by its beginning alone.
    thirds = (
        sorted((one for one in third if one.is_key_moment), key=lambda one: -one.significance)
        for third in (story.beginning, story.middle, story.end)
    )
    return [one for rank in zip_longest(*thirds) for one in rank if one is not None]


def _draw_episodes(ax: Axes, episodes: Sequence[Episode]) -> tuple[list[Artist], list[str]]:
    handles: list[Artist] = []
    labels: list[str] = []
    for index, (kind, marker) in enumerate(_MARKERS.items()):
        those = [one for one in episodes if one.kind is kind]
        if those:
            heights = [one.significance for one in those]
            starts, ends = [one.first_turn for one in those], [one.last_turn for one in those]
            ax.hlines(heights, starts, ends, color=get_color(index), linewidth=2.0, alpha=0.45, zorder=2)
            middles = [_compute_middle_turn(one) for one in those]
            look = {"marker": marker, "color": get_color(index), "s": 46, "linewidths": 0, "zorder": 3}
            handles.append(ax.scatter(middles, heights, **look))  # type: ignore[arg-type]  # as its own names
            labels.append(f"{kind.replace('_', ' ')}: {len(those):,}")
    return handles, labels


def _draw_thirds(ax: Axes, story: NarrativeArc, episodes: Sequence[Episode]) -> None:
    last = max(story.turns, *(one.last_turn for one in episodes), 1)
    parts = {"beginning": story.beginning, "middle": story.middle, "end": story.end}
    for number, (name, those) in enumerate(parts.items()):
        if number:
            ax.axvline(last * number / 3 + 0.5, color=GRAY, linewidth=0.8, alpha=0.5)
        middle = (number + 0.5) / 3
        said = f"{name}: {len(those):,}"
        ax.text(middle, 0.02, said, transform=ax.transAxes, ha="center", color=GRAY, fontsize="small")
    ax.set_xlim(0.5, last + 0.5)
    ax.set_ylim(0, _Y_AXIS_MAX)
    ax.set_xlabel("turn")
    ax.set_ylabel("significance")
    style_axes(ax, grid="y")


def _draw_valence(ax: Axes, episodes: Sequence[Episode]) -> Line2D:
    beside = ax.twinx()
    (line,) = beside.plot(
        [_compute_middle_turn(one) for one in episodes],
        [one.valence for one in episodes],
        color=GRAY,
        linewidth=1.0,
        alpha=0.6,
    )
    beside.set_ylim(-1, 2 * _Y_AXIS_MAX - 1)  # from 0 to 1 on the left
    beside.set_yticks([-1, 0, 1], ["bad", "neutral", "good"])
    beside.set_ylabel("how it felt")
    beside.spines["top"].set_visible(False)
    return line


def _compute_middle_turn(episode: Episode) -> float:
    return (episode.first_turn + episode.last_turn) / 2
