from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.episodes.models import Episode, EpisodeKind
from langmem_tiers.episodes.narrative_arc import (
    MergedEpisode,
    build_narrative_arc,
    merge_overlapping_episodes,
)
from tests.messages import NOW
from tests.work_counters import count_function_calls

if TYPE_CHECKING:
    from random import Random


def episode(first: int, last: int | None = None, **given: Any) -> Episode:
    plain = Episode(
        id=f"e{first}-{last}",
        namespace=("team",),
        session="s",
        created_at=NOW + timedelta(minutes=first),
        kind=EpisodeKind.DECISION_MADE,
        title=f"title {first}",
        summary=f"summary {first}.",
        first_turn=first,
        last_turn=first if last is None else last,
    )
    return replace(plain, **given)


def applied(episodes: list[Episode], merged: list[MergedEpisode]) -> list[Episode]:
    """The episodes with each group replaced by its keeper."""
    gone = {episode.id for group in merged for episode in (group.keeper, *group.absorbed)}
    return [episode for episode in episodes if episode.id not in gone] + [group.keeper for group in merged]


@pytest.mark.parametrize(
    ("turns", "first_turn", "part"),
    [
        (9, 1, "beginning"),
        (9, 3, "beginning"),
        (9, 4, "middle"),
        (9, 6, "middle"),
        (9, 7, "end"),
        (9, 9, "end"),
        (10, 3, "beginning"),
        (10, 4, "middle"),
        (10, 6, "middle"),
        (10, 7, "end"),
        (2, 1, "middle"),
        (2, 2, "end"),
        (1, 1, "end"),
        (0, 1, "end"),
    ],
)
def test_an_episode_belongs_to_the_third_in_which_it_starts(turns: int, first_turn: int, part: str) -> None:
    arc = build_narrative_arc("s", turns, [episode(first_turn, first_turn + 20)])
    assert [name for name in ("beginning", "middle", "end") if getattr(arc, name)] == [part]


def test_key_moments_have_significance_of_at_least_0_7_and_are_sorted_by_turn() -> None:
    episodes = [episode(8, significance=0.7), episode(1, significance=0.9), episode(4, significance=0.69)]
    arc = build_narrative_arc("s", 9, episodes)
    assert [moment.first_turn for moment in arc.key_moments] == [1, 8]
    assert (arc.session, arc.turns) == ("s", 9)


def test_the_order_is_by_first_turn_last_turn_time_and_id() -> None:
    late = NOW + timedelta(days=1)
    episodes = [
        episode(2, 2, id="d", created_at=late),
        episode(2, 2, id="c", created_at=NOW),
        episode(2, 2, id="b", created_at=NOW),
        episode(1, 3, id="a", created_at=late),
        episode(1, 2, id="z", created_at=late),
    ]
    assert [episode.id for episode in build_narrative_arc("s", 100, episodes).beginning] == [
        "z",
        "a",
        "b",
        "c",
        "d",
    ]


def test_an_empty_session_has_an_empty_arc_and_other_sessions_are_ignored() -> None:
    for turns in (0, 1):
        arc = build_narrative_arc("s", turns, [episode(1, session="other")])
        assert (arc.beginning, arc.middle, arc.end, arc.key_moments) == ((), (), (), ())


def test_the_most_significant_of_a_group_absorbs_the_others() -> None:
    issue = episode(
        2,
        5,
        kind=EpisodeKind.ISSUE_IDENTIFIED,
        summary="The parser fails.",
        context="before it",
        participants=("user",),
        valence=-0.4,
        significance=0.5,
        linked=("k1", "k2"),
        token_count=10,
        access_count=3,
        last_access_at=NOW,
    )
    solved = episode(
        4,
        7,
        kind=EpisodeKind.PROBLEM_SOLVED,
        summary="Fixed the parser.",
        context="between them",
        participants=("assistant", "user"),
        outcome="one more token",
        valence=0.5,
        significance=0.6,
        linked=("k2", "k3"),
        token_count=20,
        access_count=1,
        last_access_at=NOW + timedelta(hours=1),
    )
    alone = episode(9)
    (merged,) = merge_overlapping_episodes([alone, solved, issue])
    assert merged.absorbed == (issue,)
    assert merged.keeper == replace(
        solved,
        summary="The parser fails. Fixed the parser.",
        context="before it",
        participants=("user", "assistant"),
        first_turn=2,
        last_turn=7,
        valence=0.09,
        linked=("k1", "k2", "k3"),
        created_at=issue.created_at,
        token_count=30,
        access_count=4,
        last_access_at=NOW + timedelta(hours=1),
    )


def test_the_last_existing_outcome_is_kept() -> None:
    episodes = [episode(1, 3, outcome="a"), episode(2, 3, outcome="b"), episode(3, outcome=None)]
    assert merge_overlapping_episodes(episodes)[0].keeper.outcome == "b"


def test_overlaps_are_transitive_and_shared_turns_overlap_but_adjacent_do_not() -> None:
    episodes = [episode(1, 4), episode(4, 6), episode(6, 6), episode(7, 8), episode(9, 9)]
    (merged,) = merge_overlapping_episodes(episodes)
    assert (merged.keeper.first_turn, merged.keeper.last_turn, len(merged.absorbed)) == (1, 6, 2)


def test_a_long_episode_overlaps_all_episodes_inside_it() -> None:
    (merged,) = merge_overlapping_episodes([episode(1, 9), episode(2), episode(8)])
    assert len(merged.absorbed) == 2


def test_the_earliest_of_equally_significant_episodes_is_kept() -> None:
    episodes = [episode(2, 3, id="a"), episode(1, 3, id="c"), episode(1, 3, id="b", created_at=NOW)]
    assert merge_overlapping_episodes(episodes)[0].keeper.id == "b"


@pytest.mark.parametrize("other", [{"session": "t"}, {"namespace": ("else",)}, {"is_archived": True}])
def test_other_sessions_other_namespaces_and_archived_episodes_are_not_merged(
    other: dict[str, object],
) -> None:
    assert merge_overlapping_episodes([episode(1, 5), episode(2, 3, **other)]) == []


def test_merged_summaries_are_deduplicated_and_truncated_at_a_word() -> None:
    episodes = [episode(1, 4, summary="Same."), episode(2, 4, summary="Same."), episode(3, 4, summary="New.")]
    assert merge_overlapping_episodes(episodes)[0].keeper.summary == "Same. New."
    long = [episode(n, 9, summary=f"word{n} " * 100) for n in range(1, 6)]
    summary = merge_overlapping_episodes(long)[0].keeper.summary
    assert len(summary) <= 1000
    assert summary.endswith(" word2...")


def test_episodes_without_any_significance_merge_by_their_plain_mean() -> None:
    episodes = [episode(1, 2, valence=1.0, significance=0.0), episode(2, valence=0.0, significance=0.0)]
    assert merge_overlapping_episodes(episodes)[0].keeper.valence == 0.5


@pytest.mark.parametrize("length", [3, 1_000], ids=["short overlaps", "one long overlap"])
def test_twice_as_many_episodes_take_twice_as_many_calls(length: int) -> None:
    episodes = [episode(n, n + n % length, id=f"e{n}") for n in range(1, 1_001)]
    half = count_function_calls(lambda: merge_overlapping_episodes(episodes[:500]))
    assert count_function_calls(lambda: merge_overlapping_episodes(episodes)) < 2.2 * half
    assert [len(group.absorbed) for group in merge_overlapping_episodes(episodes)] == [999]


scores = st.integers(0, 10).map(lambda tenths: tenths / 10)


@st.composite
def many(draw: st.DrawFn) -> list[Episode]:
    episodes = []
    for number in range(draw(st.integers(0, 12))):
        first = draw(st.integers(1, 20))
        episodes.append(
            episode(
                first,
                first + draw(st.integers(0, 4)),
                id=f"e{number}",
                session=draw(st.sampled_from("st")),
                created_at=NOW + timedelta(minutes=draw(st.integers(0, 3))),
                summary=draw(st.sampled_from(["One.", "Two.", "Three. " * 90])),
                outcome=draw(st.sampled_from([None, "x", "y"])),
                participants=tuple(draw(st.lists(st.sampled_from("abc"), max_size=3))),
                valence=draw(scores) * 2 - 1,
                significance=draw(scores),
                access_count=draw(st.integers(0, 3)),
                last_access_at=draw(st.sampled_from([None, NOW])),
                is_archived=draw(st.integers(0, 9)) == 0,
            )
        )
    return episodes


@given(many(), st.randoms())
def test_the_order_of_episodes_does_not_matter(told: list[Episode], chance: Random) -> None:
    shuffled = list(told)
    chance.shuffle(shuffled)
    assert merge_overlapping_episodes(shuffled) == merge_overlapping_episodes(told)
    assert build_narrative_arc("s", 20, shuffled) == build_narrative_arc("s", 20, told)


@given(many())
def test_merging_is_idempotent(told: list[Episode]) -> None:
    assert merge_overlapping_episodes(applied(told, merge_overlapping_episodes(told))) == []


@given(many())
def test_merging_loses_no_turn_or_access_and_names_all_absorbed_episodes(told: list[Episode]) -> None:
    merged = merge_overlapping_episodes(told)
    after = applied(told, merged)
    assert sum(episode.access_count for episode in after) == sum(episode.access_count for episode in told)
    assert len(after) + sum(len(group.absorbed) for group in merged) == len(told)
    for session in "st":
        kept = [episode for episode in after if episode.session == session and not episode.is_archived]
        before = [episode for episode in told if episode.session == session and not episode.is_archived]
        ranges = sorted((episode.first_turn, episode.last_turn) for episode in kept)
        assert all(earlier[1] < later[0] for earlier, later in pairwise(ranges))
        covered = {turn for first, last in ranges for turn in range(first, last + 1)}
        assert covered == {
            turn for episode in before for turn in range(episode.first_turn, episode.last_turn + 1)
        }


@given(many(), st.integers(0, 30))
def test_every_episode_of_a_session_is_in_one_part_of_its_arc(told: list[Episode], turns: int) -> None:
    arc = build_narrative_arc("s", turns, told)
    parts = [*arc.beginning, *arc.middle, *arc.end]
    assert sorted(episode.id for episode in parts) == sorted(
        episode.id for episode in told if episode.session == "s"
    )
    assert parts == sorted(parts, key=lambda one: (one.first_turn, one.last_turn, one.created_at, one.id))
    assert list(arc.key_moments) == [episode for episode in parts if episode.is_key_moment]
