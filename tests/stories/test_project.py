"""A project of 250 turns in five conversations over 120 days: storage, decay and context."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemorySystem, RecallFilters
from langmem_tiers.common.decay import compute_entry_decay
from langmem_tiers.episodes import EpisodeKind
from langmem_tiers.long_term import Outcome
from langmem_tiers.testing import FrozenClock, seeded_ids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langmem_tiers import Entry

TURNS, DAYS_BETWEEN = 50, 30
STATEMENTS: dict[int, dict[int, str]] = {
    0: {
        1: "Our goal is to open the harbour shop before the summer fair.",
        5: "We decided to use PostgreSQL as the database.",
        21: "There is a bug in the import: it fails on files with umlauts.",
        27: "The import bug with umlauts is fixed now, the cause was a wrong encoding.",
        45: "The import is finished and deployed to the harbour server.",
    },
    1: {9: "The budget must not exceed 4,200 euros.", 31: "I prefer short answers without lists."},
    2: {13: "We decided to use MySQL as the database instead of PostgreSQL."},
    3: {7: "The target for the release is October 3, 2025."},
    4: {
        11: "The target for the release is October 17, 2025.",
        40: "All tickets of the harbour shop are done and shipped.",
    },
}
"""What matters, by conversation and turn; the rest is small talk."""


def build_small_talk(turn: int) -> str:
    return (
        f"And what about shelf {turn}, row {turn % 7}?" if turn % 2 else f"Shelf {turn} is in row {turn % 7}."
    )


class Project:
    """Five conversations of 50 turns each, 30 days apart."""

    def __init__(self, folder: Path) -> None:
        self.clock = FrozenClock()
        self.start = self.clock.now()
        self.memory = MemorySystem(
            memory_dir=folder,
            project_name="Harbour shop",
            clock=self.clock,
            ids=seeded_ids(),
            embedder=None,
        )
        for number, statements in STATEMENTS.items():
            self.clock.advance(self.start + timedelta(days=DAYS_BETWEEN * number) - self.clock.now())
            self.memory.start_conversation(f"talk-{number}")
            for turn in range(1, TURNS + 1):
                self.clock.advance(seconds=30)
                role = "user" if turn % 2 or turn in statements else "assistant"
                self.memory.add_message(role, statements.get(turn, build_small_talk(turn)))
            self.memory.end_conversation(f"Talk {number} is over")

    def day(self, number: float) -> FrozenClock:
        """Advance the clock to a day of the project."""
        self.clock.advance(self.start + timedelta(days=number) - self.clock.now())
        return self.clock

    def entry(self, words: str) -> Entry:
        """Return the stored entry that contains these words."""
        found = [
            entry
            for entry in self.memory.project.long_term.entries(valid_at=None, limit=1000)
            if words in entry.content
        ]
        assert len(found) == 1, found
        return found[0]


pytestmark = pytest.mark.xdist_group("project")  # all tests share one project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("project") / ".project-memory")
    with project.memory:
        yield project


def test_250_turns_are_25_chunks_of_ten_and_every_message_is_in_one(project: Project) -> None:
    sessions = [project.memory.project.session(f"talk-{number}") for number in STATEMENTS]
    chunks = [chunk for session in sessions for chunk in session.chunks()]
    assert len(chunks) == 25
    assert [chunk.message_count for chunk in chunks] == [10] * 25
    assert [(chunk.number, chunk.first_turn, chunk.last_turn) for chunk in chunks[:5]] == [
        (1, 1, 10), (2, 11, 20), (3, 21, 30), (4, 31, 40), (5, 41, 50),
    ]  # fmt: skip
    contents = [
        message.content
        for session in sessions
        for chunk in session.chunks()
        for message in session.messages_of(chunk)
    ]
    assert contents == [
        STATEMENTS[number].get(turn, build_small_talk(turn))
        for number in STATEMENTS
        for turn in range(1, TURNS + 1)
    ]


def test_important_statements_became_entries_and_small_talk_did_not(project: Project) -> None:
    entries = project.memory.project.long_term.entries(valid_at=None, limit=1000)
    assert {(entry.kind, entry.importance) for entry in entries} >= {
        ("goal", 0.8), ("decision", 0.7), ("constraint", 0.6), ("preference", 0.6),
    }  # fmt: skip
    assert not [entry.content for entry in entries if entry.content.startswith(("And what", "Shelf"))]
    for words in ("harbour shop before the summer fair", "4,200 euros", "short answers"):
        assert words in project.entry(words).content


def test_decay_matches_the_calculated_values(project: Project) -> None:
    goal = project.entry("summer fair")
    since = goal.last_access_at
    assert since is not None
    assert goal.access_count == 0
    for days, expected in ((0, 1.0), (15, 0.707107), (30, 0.5), (60, 0.25), (90, 0.125), (120, 0.0625)):
        assert compute_entry_decay(goal, since + timedelta(days=days)) == pytest.approx(expected, abs=1e-6)


def test_a_reversed_decision_is_answered_for_now_and_for_the_past(project: Project) -> None:
    question = "Which database did we decide to use?"
    current = project.memory.search(question, filters=RecallFilters(kinds={"decision"}))
    assert [hit.entry.content for hit in current] == [STATEMENTS[2][13]]
    at_day_45 = RecallFilters(kinds={"decision"}, valid_at=project.start + timedelta(days=45))
    assert [hit.entry.content for hit in project.memory.search(question, filters=at_day_45)] == [
        STATEMENTS[0][5]
    ]
    before = RecallFilters(kinds={"decision"}, valid_at=project.start)
    assert project.memory.search(question, filters=before) == ()
    history = project.memory.project.long_term.history(current[0].entry.id)
    assert [entry.content for entry in history] == [STATEMENTS[0][5], STATEMENTS[2][13]]
    assert history[0].valid_until == history[1].valid_from
    assert history[1].valid_until is None


def test_a_changed_date_is_answered_for_now_and_for_the_past(project: Project) -> None:
    long_term = project.memory.project.long_term
    (current,) = [
        entry for entry in long_term.entries(limit=1000) if "target for the release" in entry.content
    ]
    assert "October 17" in current.content
    at_day_100 = long_term.valid_at(project.start + timedelta(days=100), limit=1000)
    assert [entry.content for entry in at_day_100 if "target for the release" in entry.content] == [
        STATEMENTS[3][7]
    ]


def test_the_first_conversation_has_the_right_beginning_middle_and_end(project: Project) -> None:
    arc = project.memory.get_narrative_arc("talk-0")
    assert arc.turns == TURNS
    assert [(episode.kind, episode.last_turn) for episode in arc.beginning] == [
        (EpisodeKind.DECISION_MADE, 5)
    ]
    assert [(episode.kind, episode.first_turn, episode.last_turn) for episode in arc.middle] == [
        (EpisodeKind.ISSUE_IDENTIFIED, 21, 21),
        (EpisodeKind.PROBLEM_SOLVED, 21, 27),
    ]
    assert [(episode.kind, episode.last_turn) for episode in arc.end] == [
        (EpisodeKind.TASK_COMPLETED, 45),
        (EpisodeKind.TASK_COMPLETED, 50),
    ]
    assert EpisodeKind.DECISION_MADE in [episode.kind for episode in arc.key_moments]
    assert all(episode.significance >= 0.7 for episode in arc.key_moments)
    (decision,) = arc.beginning
    assert decision.linked == (project.entry("use PostgreSQL as the database.").id,)


def test_a_new_conversation_gets_goal_and_decision_in_a_small_context(project: Project) -> None:
    project.memory.start_conversation("later")
    project.memory.add_message("user", "What is our goal, and which database do we use?")
    context = project.memory.build_context("What is our goal, and which database do we use?")
    context_text = "\n".join(message.content for message in context.messages)
    assert STATEMENTS[0][1] in context_text
    assert STATEMENTS[2][13] in context_text
    assert context.allocation.total_tokens < 2000
    assert context.warnings == ()
    project.memory.pause_conversation()


def test_a_repeated_statement_is_stored_as_a_duplicate(project: Project) -> None:
    receipt = project.memory.project.long_term.store(
        "We decided to use MySQL as our database, instead of PostgreSQL!"
    )
    assert (receipt.outcome, receipt.duplicate_of) == (Outcome.DUPLICATE, project.entry("use MySQL").id)


def test_consolidation_archives_decayed_entries_and_merges_overlapping_episodes(project: Project) -> None:
    long_term = project.memory.project.long_term
    project.day(121)
    before = {entry.id: entry for entry in long_term.entries(valid_at=None, limit=1000)}
    expected = {
        name
        for name, entry in before.items()
        if entry.created_at < project.clock.now() - timedelta(days=30)
        and entry.importance * compute_entry_decay(entry, project.clock.now()) < 0.3
    }
    report = project.memory.consolidate()
    assert expected
    assert report.memories_archived == len(expected)
    remaining = {entry.id for entry in long_term.entries(valid_at=None, limit=1000)}
    assert remaining == before.keys() - expected
    assert report.memories_merged == 1  # the bug and its mending
    middle = project.memory.get_narrative_arc("talk-0").middle
    assert [(episode.first_turn, episode.last_turn) for episode in middle] == [(21, 27)]
    assert report.tokens_reclaimed > 0
    again = project.memory.consolidate()
    assert (again.memories_archived, again.memories_merged, again.tokens_reclaimed) == (0, 0, 0)
    # What is archived is not gone: as of then it is there.
    at_day_1 = long_term.valid_at(project.start + timedelta(days=1), limit=1000)
    assert STATEMENTS[0][1] in [entry.content for entry in at_day_1]
