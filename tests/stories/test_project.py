"""A project of 250 turns in five conversations over 120 days: what is kept, what ages, what is told."""

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
SAID: dict[int, dict[int, str]] = {
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


def small_talk(turn: int) -> str:
    return (
        f"And what about shelf {turn}, row {turn % 7}?" if turn % 2 else f"Shelf {turn} is in row {turn % 7}."
    )


class Project:
    """The story, told once: five conversations of fifty turns, thirty days apart."""

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
        for number, said in SAID.items():
            self.clock.advance(self.start + timedelta(days=DAYS_BETWEEN * number) - self.clock.now())
            self.memory.start_conversation(f"talk-{number}")
            for turn in range(1, TURNS + 1):
                self.clock.advance(seconds=30)
                role = "user" if turn % 2 or turn in said else "assistant"
                self.memory.add_message(role, said.get(turn, small_talk(turn)))
            self.memory.end_conversation(f"Talk {number} is over")

    def day(self, number: float) -> FrozenClock:
        """The clock on that day of the project."""
        self.clock.advance(self.start + timedelta(days=number) - self.clock.now())
        return self.clock

    def entry(self, words: str) -> Entry:
        """The stored entry that says so."""
        found = [
            one
            for one in self.memory.project.long_term.entries(valid_at=None, limit=1000)
            if words in one.content
        ]
        assert len(found) == 1, found
        return found[0]


pytestmark = pytest.mark.xdist_group("project")  # all tests share one project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    told = Project(tmp_path_factory.mktemp("project") / ".project-memory")
    with told.memory:
        yield told


def test_250_turns_are_25_chunks_of_ten_and_every_message_is_in_one(project: Project) -> None:
    sessions = [project.memory.project.session(f"talk-{number}") for number in SAID]
    chunks = [chunk for session in sessions for chunk in session.chunks()]
    assert len(chunks) == 25
    assert [chunk.message_count for chunk in chunks] == [10] * 25
    assert [(chunk.number, chunk.first_turn, chunk.last_turn) for chunk in chunks[:5]] == [
        (1, 1, 10), (2, 11, 20), (3, 21, 30), (4, 31, 40), (5, 41, 50),
    ]  # fmt: skip
    said = [
        message.content
        for session in sessions
        for chunk in session.chunks()
        for message in session.messages_of(chunk)
    ]
    assert said == [
        SAID[number].get(turn, small_talk(turn)) for number in SAID for turn in range(1, TURNS + 1)
    ]


def test_what_matters_became_entries_and_small_talk_did_not(project: Project) -> None:
    entries = project.memory.project.long_term.entries(valid_at=None, limit=1000)
    assert {(entry.kind, entry.importance) for entry in entries} >= {
        ("goal", 0.8), ("decision", 0.7), ("constraint", 0.6), ("preference", 0.6),
    }  # fmt: skip
    assert not [entry.content for entry in entries if entry.content.startswith(("And what", "Shelf"))]
    for words in ("harbour shop before the summer fair", "4,200 euros", "short answers"):
        assert words in project.entry(words).content


def test_decay_is_what_a_pencil_gives(project: Project) -> None:
    goal = project.entry("summer fair")
    since = goal.last_access_at
    assert since is not None
    assert goal.access_count == 0
    for days, left in ((0, 1.0), (15, 0.707107), (30, 0.5), (60, 0.25), (90, 0.125), (120, 0.0625)):
        assert compute_entry_decay(goal, since + timedelta(days=days)) == pytest.approx(left, abs=1e-6)


def test_a_reversed_decision_is_answered_now_and_as_of_then(project: Project) -> None:
    question = "Which database did we decide to use?"
    now = project.memory.search(question, filters=RecallFilters(kinds={"decision"}))
    assert [hit.entry.content for hit in now] == [SAID[2][13]]
    then = RecallFilters(kinds={"decision"}, valid_at=project.start + timedelta(days=45))
    assert [hit.entry.content for hit in project.memory.search(question, filters=then)] == [SAID[0][5]]
    before = RecallFilters(kinds={"decision"}, valid_at=project.start)
    assert project.memory.search(question, filters=before) == ()
    history = project.memory.project.long_term.history(now[0].entry.id)
    assert [entry.content for entry in history] == [SAID[0][5], SAID[2][13]]
    assert history[0].valid_until == history[1].valid_from
    assert history[1].valid_until is None


def test_a_date_that_moved_is_answered_now_and_as_of_then(project: Project) -> None:
    long_term = project.memory.project.long_term
    (now,) = [one for one in long_term.entries(limit=1000) if "target for the release" in one.content]
    assert "October 17" in now.content
    then = long_term.valid_at(project.start + timedelta(days=100), limit=1000)
    assert [one.content for one in then if "target for the release" in one.content] == [SAID[3][7]]


def test_the_first_conversation_has_the_right_beginning_middle_and_end(project: Project) -> None:
    arc = project.memory.get_narrative_arc("talk-0")
    assert arc.turns == TURNS
    assert [(one.kind, one.last_turn) for one in arc.beginning] == [(EpisodeKind.DECISION_MADE, 5)]
    assert [(one.kind, one.first_turn, one.last_turn) for one in arc.middle] == [
        (EpisodeKind.ISSUE_IDENTIFIED, 21, 21),
        (EpisodeKind.PROBLEM_SOLVED, 21, 27),
    ]
    assert [(one.kind, one.last_turn) for one in arc.end] == [
        (EpisodeKind.TASK_COMPLETED, 45),
        (EpisodeKind.TASK_COMPLETED, 50),
    ]
    assert EpisodeKind.DECISION_MADE in [one.kind for one in arc.key_moments]
    assert all(one.significance >= 0.7 for one in arc.key_moments)
    (decision,) = arc.beginning
    assert decision.linked == (project.entry("use PostgreSQL as the database.").id,)


def test_a_new_conversation_knows_all_that_in_little_room(project: Project) -> None:
    project.memory.start_conversation("later")
    project.memory.add_message("user", "What is our goal, and which database do we use?")
    context = project.memory.build_context("What is our goal, and which database do we use?")
    told = "\n".join(message.content for message in context.messages)
    assert SAID[0][1] in told
    assert SAID[2][13] in told
    assert context.allocation.total_tokens < 2000
    assert context.warnings == ()
    project.memory.pause_conversation()


def test_saying_it_again_stores_nothing_new(project: Project) -> None:
    receipt = project.memory.project.long_term.store(
        "We decided to use MySQL as our database, instead of PostgreSQL!"
    )
    assert (receipt.outcome, receipt.duplicate_of) == (Outcome.DUPLICATE, project.entry("use MySQL").id)


def test_consolidation_archives_what_a_pencil_says_and_merges_what_overlaps(project: Project) -> None:
    long_term = project.memory.project.long_term
    project.day(121)
    before = {one.id: one for one in long_term.entries(valid_at=None, limit=1000)}
    due = {
        name
        for name, one in before.items()
        if one.created_at < project.clock.now() - timedelta(days=30)
        and one.importance * compute_entry_decay(one, project.clock.now()) < 0.3
    }
    report = project.memory.consolidate()
    assert due
    assert report.memories_archived == len(due)
    left = {one.id for one in long_term.entries(valid_at=None, limit=1000)}
    assert left == before.keys() - due
    assert report.memories_merged == 1  # the bug and its mending
    middle = project.memory.get_narrative_arc("talk-0").middle
    assert [(one.first_turn, one.last_turn) for one in middle] == [(21, 27)]
    assert report.tokens_reclaimed > 0
    again = project.memory.consolidate()
    assert (again.memories_archived, again.memories_merged, again.tokens_reclaimed) == (0, 0, 0)
    # What is archived is not gone: as of then it is there.
    then = long_term.valid_at(project.start + timedelta(days=1), limit=1000)
    assert SAID[0][1] in [one.content for one in then]
