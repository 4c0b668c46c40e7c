"""Arrange the episodes of a session as a narrative arc, and merge overlapping episodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum
from typing import TYPE_CHECKING

from langmem_tiers.episodes.models import MIN_KEY_MOMENT_SIGNIFICANCE, Episode, NarrativeArc
from langmem_tiers.text.sentences import shorten_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

MAX_MERGED_SUMMARY_CHARACTERS = 1000
"""Maximum length of the summary of a merged episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedEpisode:
    """Result of merging a group of overlapping episodes."""

    keeper: Episode
    """The most significant episode, extended by the others. Its token count is the sum of all: recount it."""
    absorbed: tuple[Episode, ...]
    """The other episodes, unchanged, ordered by turn."""


def build_narrative_arc(session: str, turns: int, episodes: Sequence[Episode]) -> NarrativeArc:
    """Group the episodes of a session by the third of the session in which they begin.

    Args:
        session: Name of the session; episodes of other sessions are ignored.
        turns: Number of messages in the session.
        episodes: Episodes in any order.
    """
    ordered = sorted((episode for episode in episodes if episode.session == session), key=_sort_key)
    return NarrativeArc(
        session=session,
        turns=turns,
        beginning=tuple(episode for episode in ordered if _get_third(episode, turns) == 0),
        middle=tuple(episode for episode in ordered if _get_third(episode, turns) == 1),
        end=tuple(episode for episode in ordered if _get_third(episode, turns) == 2),
        key_moments=tuple(
            episode for episode in ordered if episode.significance >= MIN_KEY_MOMENT_SIGNIFICANCE
        ),
    )


def merge_overlapping_episodes(episodes: Sequence[Episode]) -> list[MergedEpisode]:
    """Merge episodes of the same session that share turns.

    Archived episodes and episodes without overlap are left out. If every group is replaced by its keeper, no
    overlapping episodes remain.

    Args:
        episodes: Episodes of any sessions, in any order.
    """
    groups: list[list[Episode]] = []
    # Sorted by first turn, so an episode overlaps with the current group if it begins before the group ends.
    last_turn = 0
    for episode in sorted(
        episodes, key=lambda episode: (episode.namespace, episode.session, _sort_key(episode))
    ):
        if episode.is_archived:
            continue
        if groups and _is_same_session(groups[-1][0], episode) and episode.first_turn <= last_turn:
            groups[-1].append(episode)
            last_turn = max(last_turn, episode.last_turn)
        else:
            groups.append([episode])
            last_turn = episode.last_turn
    return [_merge_group(group) for group in groups if len(group) > 1]


def _get_third(episode: Episode, turns: int) -> int:
    # Multiplied instead of divided: exact for every number of turns.
    if 3 * episode.first_turn <= turns:
        return 0
    return 1 if 3 * episode.first_turn <= 2 * turns else 2


def _sort_key(episode: Episode) -> tuple[int, int, datetime, str]:
    return episode.first_turn, episode.last_turn, episode.created_at, episode.id


def _is_same_session(first: Episode, second: Episode) -> bool:
    return (first.namespace, first.session) == (second.namespace, second.session)


def _merge_group(group: Sequence[Episode]) -> MergedEpisode:
    # Kind, title and significance come from the most significant episode, the earliest among equals.
    main = min(group, key=lambda episode: (-episode.significance, _sort_key(episode)))
    accesses = [episode.last_access_at for episode in group if episode.last_access_at is not None]
    keeper = replace(
        main,
        summary=_join_summaries(episode.summary for episode in group),
        context=group[0].context,
        participants=tuple(dict.fromkeys(name for episode in group for name in episode.participants)),
        # The latest known outcome replaces earlier ones.
        outcome=next((episode.outcome for episode in reversed(group) if episode.outcome is not None), None),
        valence=_compute_mean_valence(group),
        linked=tuple(dict.fromkeys(entry_id for episode in group for entry_id in episode.linked)),
        first_turn=group[0].first_turn,
        last_turn=max(episode.last_turn for episode in group),
        created_at=min(episode.created_at for episode in group),
        token_count=sum(episode.token_count for episode in group),
        access_count=sum(episode.access_count for episode in group),
        last_access_at=max(accesses, default=None),
    )
    return MergedEpisode(keeper=keeper, absorbed=tuple(episode for episode in group if episode is not main))


def _join_summaries(summaries: Iterable[str]) -> str:
    text = ""
    for summary in summaries:
        if len(text) > MAX_MERGED_SUMMARY_CHARACTERS:
            break  # the rest would be cut off anyway
        if summary not in text:
            text = f"{text} {summary}" if text else summary
    return shorten_text(text, MAX_MERGED_SUMMARY_CHARACTERS)


def _compute_mean_valence(group: Sequence[Episode]) -> float:
    # Weighted by significance. `fsum` makes the result independent of the order of the episodes.
    weight = fsum(episode.significance for episode in group)
    if weight > 0:
        mean = fsum(episode.valence * episode.significance for episode in group) / weight
    else:
        mean = fsum(episode.valence for episode in group) / len(group)
    # Rounding errors could exceed the valid range.
    return round(min(1.0, max(-1.0, mean)), 2)
