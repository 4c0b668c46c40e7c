"""Notes: sentences without a key, corrected and removed by id, on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import InvalidInputError, Knowledge, MemoryEngine
from langmem_tiers.knowledge.models import NOTE_CATEGORY, name_from_id
from langmem_tiers.testing.threads import run_in_threads
from tests.messages import NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.knowledge import KnowledgeBase, KnowledgeReport
    from langmem_tiers.testing import FrozenClock

JAZZ = "The user likes jazz on Sundays."


@pytest.fixture
def base(engine: MemoryEngine, tenant: str) -> KnowledgeBase:
    return engine.namespace(tenant).knowledge


def values(base: KnowledgeBase) -> list[str]:
    return sorted(item.value for item in base)


def test_a_note_is_recalled_and_shown_without_its_key(engine: MemoryEngine, tenant: str) -> None:
    space = engine.namespace(tenant)
    noted = space.knowledge.note(JAZZ, source="chat 7").knowledge
    assert (noted.category, noted.confidence, noted.source) == (NOTE_CATEGORY, 0.5, "chat 7")
    (hit,) = space.recall("Does the user like jazz?")
    assert (hit.entry.content, hit.entry.id) == (JAZZ, noted.id)
    content = space.build_context("Does the user like jazz?").messages[0].content
    assert JAZZ in content
    assert noted.key not in content


def test_a_session_context_includes_a_relevant_note(engine: MemoryEngine, tenant: str) -> None:
    engine.namespace(tenant).knowledge.note(JAZZ)
    session = engine.session(tenant, "s")
    session.add("user", "Which music does the user like on Sundays?")
    assert any(JAZZ in message.content for message in session.build_context().messages)


def test_a_repeated_sentence_is_one_note_with_higher_confidence(base: KnowledgeBase) -> None:
    first, again = base.note(JAZZ), base.note(f"  {JAZZ.replace(' ', '  ')}")
    assert (first.is_new, again.is_new) == (True, False)
    assert again.knowledge.id == first.knowledge.id
    assert again.knowledge.confidence == 0.6


def test_a_corrected_value_supersedes_and_the_history_keeps_both(
    base: KnowledgeBase, clock: FrozenClock
) -> None:
    noted = base.note(JAZZ).knowledge
    clock.advance(hours=1)
    report = base.correct(noted.category, noted.key, "The user likes rock.")
    assert report is not None
    assert (report.is_new, report.knowledge.value) == (False, "The user likes rock.")
    assert report.superseded is not None
    assert report.superseded.value == JAZZ
    assert base.remove(noted.category, noted.key)
    assert values(base) == []
    past = [(old.value, old.reason) for old in base.history(noted.category, noted.key)]
    assert past == [(JAZZ, "superseded"), ("The user likes rock.", "removed")]


def test_unknown_knowledge_is_not_corrected(base: KnowledgeBase, engine: MemoryEngine, tenant: str) -> None:
    assert base.correct(NOTE_CATEGORY, "nowhere", "new") is None
    assert base.get(NOTE_CATEGORY, "nowhere") is None
    assert engine.namespaces(tenant) == ()
    noted = base.note(JAZZ).knowledge
    base.remove(noted.category, noted.key)
    assert base.correct(noted.category, noted.key, "back again") is None
    assert values(base) == []


def test_a_corrected_sentence_can_be_noted_again_next_to_its_correction(base: KnowledgeBase) -> None:
    noted = base.note(JAZZ).knowledge
    base.correct(noted.category, noted.key, "The user likes rock.")
    again = base.note(JAZZ)
    assert again.is_new
    assert again.knowledge.id != noted.id
    assert values(base) == [JAZZ, "The user likes rock."]
    assert base.note(JAZZ).knowledge.id == again.knowledge.id


def test_concurrent_equal_notes_are_stored_once(base: KnowledgeBase) -> None:
    reports: list[KnowledgeReport] = []
    run_in_threads(8, lambda: reports.append(base.note(JAZZ)))
    assert len({report.knowledge.id for report in reports}) == 1
    assert sum(report.is_new for report in reports) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda base: base.note(""),
        lambda base: base.note(7),
        lambda base: base.note(JAZZ, confidence=2),
        lambda base: base.correct("", "key", "x"),
        lambda base: base.correct(NOTE_CATEGORY, "key", " "),
    ],
)
def test_a_blank_note_is_refused(base: KnowledgeBase, call: Callable[[KnowledgeBase], object]) -> None:
    with pytest.raises(InvalidInputError):
        call(base)
    assert values(base) == []


@given(
    names=st.lists(
        st.tuples(st.text(alphabet="a/%2F5u", min_size=1), st.text(alphabet="a/%2F5u", min_size=1)),
        min_size=2,
        max_size=6,
        unique=True,
    )
)
def test_an_id_names_one_category_and_key(names: list[tuple[str, str]]) -> None:
    ids = [
        Knowledge(
            category=category,
            key=key,
            value="v",
            confidence=0.5,
            created_at=NOW,
            updated_at=NOW,
            fresh_at=NOW,
        ).id
        for category, key in names
    ]
    assert [name_from_id(message_id) for message_id in ids] == names
    assert len(set(ids)) == len(names)


@pytest.mark.parametrize("text", ["", "note", "/key", "note/"])
def test_an_invalid_knowledge_id_has_no_name(text: str) -> None:
    assert name_from_id(text) is None
