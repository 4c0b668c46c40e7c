"""Regressions of project memory: shared folders, stale files, repeated endings, search."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import InvalidConfigError
from langmem_tiers.common import EntryState
from langmem_tiers.common.recall_strategy import TfIdfWeights
from langmem_tiers.long_term.models import EntryDraft
from langmem_tiers.projects.memory_system import MemorySystem
from langmem_tiers.projects.models import ConversationStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from langmem_tiers import Entry
    from langmem_tiers.testing import FrozenClock

DECIDED = "We decided to use PostgreSQL."
TEAS = ("The green tea comes from Kyoto.", "The black tea comes from Assam.")


@pytest.fixture
def open_system(tmp_path: Path, clock: FrozenClock) -> Iterator[Callable[..., MemorySystem]]:
    """Opens memory of the same folder, again if asked to."""
    systems: list[MemorySystem] = []

    def open_one(**settings: Any) -> MemorySystem:
        systems.append(MemorySystem(memory_dir=tmp_path / "memory", clock=clock, embedder=None, **settings))
        return systems[-1]

    yield open_one
    for system in systems:
        system.engine.close()


@pytest.fixture
def memory(open_system: Callable[..., MemorySystem]) -> MemorySystem:
    return open_system()


def stored(memory: MemorySystem, content: str, **about: Any) -> Entry:
    entry = memory.project.long_term.store(content, **about).entry
    assert entry is not None
    return entry


def found(memory: MemorySystem, text: str, **how: Any) -> list[str]:
    return [hit.entry.content for hit in memory.search(text, **how)]


# Two projects


def started(memory: MemorySystem) -> None:
    memory.start_conversation("monday")


def stored_only(memory: MemorySystem) -> None:
    stored(memory, DECIDED)


@pytest.mark.parametrize("begin", [started, stored_only])
def test_two_projects_in_one_folder_are_refused_by_both_names(
    open_system: Callable[..., MemorySystem], begin: Callable[[MemorySystem], None]
) -> None:
    first = open_system(project_name="Tea")
    begin(first)
    first.close()
    with pytest.raises(InvalidConfigError, match="the project 'Tea': use another memory_dir for 'Coffee'"):
        open_system(project_name="Coffee")
    assert open_system(project_name="Tea").project.path == ("Tea",)


# Files


@pytest.mark.parametrize("change", ["archive", "restore", "use"])
def test_each_change_of_an_entry_is_written_by_the_next_flush(memory: MemorySystem, change: str) -> None:
    long_term = memory.project.long_term
    entry = stored(memory, DECIDED)
    if change == "restore":
        long_term.archive(entry.id)
    assert memory.flush()
    assert memory.flush() == ()
    if change == "use":
        assert long_term.search("PostgreSQL")
    else:
        getattr(long_term, change)(entry.id)
    assert memory.flush()
    assert memory.flush() == ()


def test_restoring_one_entry_and_archiving_another_is_written_too(
    memory: MemorySystem, clock: FrozenClock
) -> None:
    green, black = stored(memory, TEAS[0], importance=1.0), stored(memory, TEAS[1], importance=0.1)
    memory.project.long_term.archive(green.id)
    assert memory.flush()
    clock.advance(days=40)
    assert memory.project.long_term.restore(green.id)
    assert memory.consolidate().memories_archived == 1  # the black one
    assert memory.flush()
    text = (memory.folder / "long-term-memory.json").read_text("utf-8")
    states = {record["id"]: record["state"] for record in json.loads(text)}
    assert states == {green.id: EntryState.FULL.value, black.id: EntryState.ARCHIVED.value}
    assert memory.flush() == ()


# Ending


@pytest.mark.parametrize("outcome", ["", " \n", None])
def test_a_blank_outcome_is_stored_as_none(memory: MemorySystem, outcome: str | None) -> None:
    memory.start_conversation("monday")
    memory.add_message("user", "Hello.")
    ended = memory.end_conversation(outcome)
    assert (ended.status, ended.outcome) == (ConversationStatus.ENDED, None)
    assert memory.project.episodes.page() == ()


def test_ending_again_after_a_crash_records_one_end(
    open_system: Callable[..., MemorySystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*given: object) -> Any:
        raise KeyboardInterrupt

    first = open_system()
    first.start_conversation("monday")
    first.add_message("user", "Hello.")
    with monkeypatch.context() as patch:
        patch.setattr(MemorySystem, "_close_conversation", crash)
        with pytest.raises(KeyboardInterrupt):
            first.end_conversation("All said")
    first.engine.close()
    again = open_system()
    again.start_conversation("monday")
    assert again.end_conversation("All said, at last").status is ConversationStatus.ENDED
    (episode,) = again.project.episodes.page()
    assert (episode.title, episode.outcome) == ("Conversation ended", "All said, at last")


# Questions that say nothing by themselves


@pytest.mark.parametrize("is_added", [False, True], ids=["asked", "added"])
def test_a_short_question_is_extended_with_the_preceding_messages(
    memory: MemorySystem, *, is_added: bool
) -> None:
    memory.start_conversation("monday")
    memory.add_message("user", DECIDED)
    memory.end_conversation()
    memory.start_conversation("tuesday")
    memory.add_message("user", "Are we still on PostgreSQL?")
    memory.add_message("assistant", "Yes, as before.")
    if is_added:
        memory.add_message("user", "And why was that?")
    context = memory.build_context() if is_added else memory.build_context("And why was that?")
    assert DECIDED in [hit.entry.content for hit in context.retrieval_results]


# Searching


def test_the_weights_of_a_search_are_applied(memory: MemorySystem) -> None:
    both, one = "The green tea is on the shelf.", "The green tin is on the shelf."
    stored(memory, both, importance=0.4)
    stored(memory, one, importance=0.9)
    by_words = TfIdfWeights(semantic=0, keyword=1, recency=0, importance=0)
    by_importance = TfIdfWeights(semantic=0, keyword=0, recency=0, importance=1)
    assert found(memory, "green tea", weights=by_words) == [both, one]
    assert found(memory, "green tea", weights=by_importance) == [one, both]
    assert [hit.score for hit in memory.search("green tea", weights=by_importance)] == [0.9, 0.4]


@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("wanted", [0, 1])
def test_conversation_context_breaks_ties_between_equal_hits(
    memory: MemorySystem, wanted: int, limit: int | None
) -> None:
    memory.project.long_term.store_many([EntryDraft(content=text) for text in TEAS], compared=True)
    place = ("Kyoto", "Assam")[wanted]
    best = found(memory, "Where does the tea come from?", context=f"We flew to {place}.", limit=limit)
    assert best[0] == TEAS[wanted]


@pytest.mark.parametrize("context", ["", "...", "and of the"])
def test_conversation_context_without_terms_keeps_the_order(memory: MemorySystem, context: str) -> None:
    memory.project.long_term.store_many([EntryDraft(content=text) for text in TEAS], compared=True)
    question = "Where does the green tea come from?"
    assert found(memory, question, context=context) == found(memory, question) == [*TEAS]
