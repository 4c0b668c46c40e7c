"""Plot of a session's narrative arc."""

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
    """Plot the episodes of a session by turn: significance, kind and valence.

    Args:
        story: Result of ``session.arc()``.
        named: Number of key moments to label, most significant first; at most 8.
        ax: Axes to draw into. Default: a new figure.
    """
    (story,) = check_plot_values((story,), NarrativeArc, "session.arc()")
    episodes = [*story.beginning, *story.middle, *story.end]
    ax = resolve_axes(ax, width=9.0)
    if not episodes:
        return draw_empty_plot(
            ax,
            f"Episodes of “{truncate_label(story.session)}”",
            "no episodes: call session.learn() to find them",
        )
    handles, labels = _draw_episodes(ax, episodes)
    line = ax.axhline(MIN_KEY_MOMENT_SIGNIFICANCE, color=GRAY, linestyle=":", linewidth=1.0)
    valence = _draw_valence(ax, episodes)
    handles, labels = [*handles, valence, line], [*labels, "valence (right)", "threshold of key moments"]
    for number, moment in enumerate(_rank_key_moments(story)[: max(0, min(named, _MAX_NAMED))], start=1):
        point = (_compute_middle_turn(moment), moment.significance)
        ax.annotate(str(number), point, (0, 6), textcoords="offset points", ha="center", fontsize="small")
        handles.append(ax.plot([], [], linestyle="none")[0])  # an invisible handle: only the title is shown
        labels.append(f"{number}  {truncate_label(moment.title, 34)}")
    draw_legend(ax, handles, labels, right=1.15)
    _draw_thirds(ax, story, episodes)
    key = len(story.key_moments)
    set_plot_title(
        ax, f"Episodes of “{truncate_label(story.session)}”: {len(episodes):,} episodes, {key:,} key moments"
    )
    return ax


def _rank_key_moments(story: NarrativeArc) -> list[Episode]:
    # Alternates between the thirds, so that not all labels belong to the beginning of the session.
    thirds = (
        sorted(
            (episode for episode in third if episode.is_key_moment), key=lambda moment: -moment.significance
        )
        for third in (story.beginning, story.middle, story.end)
    )
    return [moment for rank in zip_longest(*thirds) for moment in rank if moment is not None]


def _draw_episodes(ax: Axes, episodes: Sequence[Episode]) -> tuple[list[Artist], list[str]]:
    handles: list[Artist] = []
    labels: list[str] = []
    for index, (kind, marker) in enumerate(_MARKERS.items()):
        matching = [episode for episode in episodes if episode.kind is kind]
        if matching:
            heights = [episode.significance for episode in matching]
            starts = [episode.first_turn for episode in matching]
            ends = [episode.last_turn for episode in matching]
            ax.hlines(heights, starts, ends, color=get_color(index), linewidth=2.0, alpha=0.45, zorder=2)
            middles = [_compute_middle_turn(episode) for episode in matching]
            look = {"marker": marker, "color": get_color(index), "s": 46, "linewidths": 0, "zorder": 3}
            handles.append(ax.scatter(middles, heights, **look))  # type: ignore[arg-type]  # passed by keyword
            labels.append(f"{kind.replace('_', ' ')}: {len(matching):,}")
    return handles, labels


def _draw_thirds(ax: Axes, story: NarrativeArc, episodes: Sequence[Episode]) -> None:
    last = max(story.turns, *(episode.last_turn for episode in episodes), 1)
    parts = {"beginning": story.beginning, "middle": story.middle, "end": story.end}
    for number, (name, part) in enumerate(parts.items()):
        if number:
            ax.axvline(last * number / 3 + 0.5, color=GRAY, linewidth=0.8, alpha=0.5)
        middle = (number + 0.5) / 3
        label = f"{name}: {len(part):,}"
        ax.text(middle, 0.02, label, transform=ax.transAxes, ha="center", color=GRAY, fontsize="small")
    ax.set_xlim(0.5, last + 0.5)
    ax.set_ylim(0, _Y_AXIS_MAX)
    ax.set_xlabel("turn")
    ax.set_ylabel("significance")
    style_axes(ax, grid="y")


def _draw_valence(ax: Axes, episodes: Sequence[Episode]) -> Line2D:
    right_axes = ax.twinx()
    (line,) = right_axes.plot(
        [_compute_middle_turn(episode) for episode in episodes],
        [episode.valence for episode in episodes],
        color=GRAY,
        linewidth=1.0,
        alpha=0.6,
    )
    # Valence -1 to 1 is drawn at the heights of significance 0 to 1.
    right_axes.set_ylim(-1, 2 * _Y_AXIS_MAX - 1)
    right_axes.set_yticks([-1, 0, 1], ["bad", "neutral", "good"])
    right_axes.set_ylabel("valence")
    right_axes.spines["top"].set_visible(False)
    return line


def _compute_middle_turn(episode: Episode) -> float:
    return (episode.first_turn + episode.last_turn) / 2
