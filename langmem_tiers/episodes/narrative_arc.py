"""Episodes of a session as a story, and which of them are one."""

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
"""What the summary of a merged episode may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedEpisode:
    """Episodes that became one."""

    keeper: Episode
    """The most significant of them with what the others add. Its token count is their sum: count it again."""
    absorbed: tuple[Episode, ...]
    """The others, in the order of their turns, as they were."""


def build_narrative_arc(session: str, turns: int, episodes: Sequence[Episode]) -> NarrativeArc:
    """The episodes of a session by the third of it in which they begin.

    Args:
        session: Its name; episodes of others are left out.
        turns: How many messages it has.
        episodes: In any order.
    """
    told = sorted((episode for episode in episodes if episode.session == session), key=_sort_key)
    return NarrativeArc(
        session=session,
        turns=turns,
        beginning=tuple(episode for episode in told if _get_third(episode, turns) == 0),
        middle=tuple(episode for episode in told if _get_third(episode, turns) == 1),
        end=tuple(episode for episode in told if _get_third(episode, turns) == 2),
        key_moments=tuple(episode for episode in told if episode.significance >= MIN_KEY_MOMENT_SIGNIFICANCE),
    )


def merge_overlapping_episodes(episodes: Sequence[Episode]) -> list[MergedEpisode]:
    """Which episodes of the same session share turns, and the one that each such group becomes.

    Groups of one are left out, and so is what is archived. With each group replaced by its keeper,
    nothing is left to merge.

    Args:
        episodes: In any order, of any sessions.
    """
    groups: list[list[Episode]] = []
    last_turn = 0
    for episode in sorted(episodes, key=lambda one: (one.namespace, one.session, _sort_key(one))):
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
    if 3 * episode.first_turn <= turns:
        return 0
    return 1 if 3 * episode.first_turn <= 2 * turns else 2


def _sort_key(episode: Episode) -> tuple[int, int, datetime, str]:
    return episode.first_turn, episode.last_turn, episode.created_at, episode.id


def _is_same_session(one: Episode, other: Episode) -> bool:
    return (one.namespace, one.session) == (other.namespace, other.session)


def _merge_group(group: Sequence[Episode]) -> MergedEpisode:
    kept = min(group, key=lambda one: (-one.significance, _sort_key(one)))
    accesses = [one.last_access_at for one in group if one.last_access_at is not None]
    keeper = replace(
        kept,
        summary=_join_summaries(one.summary for one in group),
        context=group[0].context,
        participants=tuple(dict.fromkeys(name for one in group for name in one.participants)),
        outcome=next((one.outcome for one in reversed(group) if one.outcome is not None), None),
        valence=_compute_mean_valence(group),
        linked=tuple(dict.fromkeys(id_ for one in group for id_ in one.linked)),
        first_turn=group[0].first_turn,
        last_turn=max(one.last_turn for one in group),
        created_at=min(one.created_at for one in group),
        token_count=sum(one.token_count for one in group),
        access_count=sum(one.access_count for one in group),
        last_access_at=max(accesses, default=None),
    )
    return MergedEpisode(keeper=keeper, absorbed=tuple(one for one in group if one is not kept))


def _join_summaries(summaries: Iterable[str]) -> str:
    text = ""
    for summary in summaries:
        if len(text) > MAX_MERGED_SUMMARY_CHARACTERS:
            break  # no more of it would be kept
        if summary not in text:
            text = f"{text} {summary}" if text else summary
    return shorten_text(text, MAX_MERGED_SUMMARY_CHARACTERS)


def _compute_mean_valence(group: Sequence[Episode]) -> float:
    weight = fsum(one.significance for one in group)
    if weight > 0:
        mean = fsum(one.valence * one.significance for one in group) / weight
    else:
        mean = fsum(one.valence for one in group) / len(group)
    return round(min(1.0, max(-1.0, mean)), 2)
