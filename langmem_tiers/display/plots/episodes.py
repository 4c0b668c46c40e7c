"""A picture of a session's story."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from langmem_tiers.display.plots.drawing import (
    GREY,
    axes_for,
    colour,
    cut,
    drawn,
    empty,
    entitle,
    legend,
    tidy,
)
from langmem_tiers.episodes.models import KEY_MOMENT, EpisodeKind, NarrativeArc

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
_MOST_NAMED = 8
_TOP = 1.12


def arc(story: NarrativeArc, *, named: int = 6, ax: Axes | None = None) -> Axes:
    """The episodes of a session along its turns: how much they matter, what they were and how they felt.

    Args:
        story: What ``session.arc()`` gave.
        named: How many of the key moments are named, the most significant first; 8 at most.
        ax: Where to draw.
    """
    (story,) = drawn((story,), NarrativeArc, "session.arc()")
    episodes = [*story.beginning, *story.middle, *story.end]
    ax = axes_for(ax, width=9.0)
    if not episodes:
        return empty(ax, f"The story of “{cut(story.session)}”", "no episodes: session.learn() finds them")
    handles, labels = _draw(ax, episodes)
    line = ax.axhline(KEY_MOMENT, color=GREY, linestyle=":", linewidth=1.0)
    felt = _draw_feeling(ax, episodes)
    handles, labels = [*handles, felt, line], [*labels, "how it felt (right)", "key moments lie above"]
    for number, one in enumerate(_telling(story)[: max(0, min(named, _MOST_NAMED))], start=1):
        place = (_middle(one), one.significance)
        ax.annotate(str(number), place, (0, 6), textcoords="offset points", ha="center", fontsize="small")
        handles.append(ax.plot([], [], linestyle="none")[0])
        labels.append(f"{number}  {cut(one.title, 34)}")
    legend(ax, handles, labels, right=1.15)
    _draw_thirds(ax, story, episodes)
    key = len(story.key_moments)
    entitle(ax, f"The story of “{cut(story.session)}”: {len(episodes):,} episodes, {key:,} key moments")
    return ax


def _telling(story: NarrativeArc) -> list[Episode]:
    # By turns from each third, so that a story is not told by its beginning alone.
    thirds = (
        sorted((one for one in third if one.is_key_moment), key=lambda one: -one.significance)
        for third in (story.beginning, story.middle, story.end)
    )
    return [one for rank in zip_longest(*thirds) for one in rank if one is not None]


def _draw(ax: Axes, episodes: Sequence[Episode]) -> tuple[list[Artist], list[str]]:
    handles: list[Artist] = []
    labels: list[str] = []
    for index, (kind, marker) in enumerate(_MARKERS.items()):
        those = [one for one in episodes if one.kind is kind]
        if those:
            heights = [one.significance for one in those]
            starts, ends = [one.first_turn for one in those], [one.last_turn for one in those]
            ax.hlines(heights, starts, ends, color=colour(index), linewidth=2.0, alpha=0.45, zorder=2)
            middles = [_middle(one) for one in those]
            look = {"marker": marker, "color": colour(index), "s": 46, "linewidths": 0, "zorder": 3}
            handles.append(ax.scatter(middles, heights, **look))  # type: ignore[arg-type]  # as its own names
            labels.append(f"{kind.replace('_', ' ')}: {len(those):,}")
    return handles, labels


def _draw_thirds(ax: Axes, story: NarrativeArc, episodes: Sequence[Episode]) -> None:
    last = max(story.turns, *(one.last_turn for one in episodes), 1)
    parts = {"beginning": story.beginning, "middle": story.middle, "end": story.end}
    for number, (name, those) in enumerate(parts.items()):
        if number:
            ax.axvline(last * number / 3 + 0.5, color=GREY, linewidth=0.8, alpha=0.5)
        middle = (number + 0.5) / 3
        said = f"{name}: {len(those):,}"
        ax.text(middle, 0.02, said, transform=ax.transAxes, ha="center", color=GREY, fontsize="small")
    ax.set_xlim(0.5, last + 0.5)
    ax.set_ylim(0, _TOP)
    ax.set_xlabel("turn")
    ax.set_ylabel("significance")
    tidy(ax, grid="y")


def _draw_feeling(ax: Axes, episodes: Sequence[Episode]) -> Line2D:
    beside = ax.twinx()
    (line,) = beside.plot(
        [_middle(one) for one in episodes],
        [one.valence for one in episodes],
        color=GREY,
        linewidth=1.0,
        alpha=0.6,
    )
    beside.set_ylim(-1, 2 * _TOP - 1)  # from 0 to 1 on the left
    beside.set_yticks([-1, 0, 1], ["bad", "neutral", "good"])
    beside.set_ylabel("how it felt")
    beside.spines["top"].set_visible(False)
    return line


def _middle(episode: Episode) -> float:
    return (episode.first_turn + episode.last_turn) / 2
