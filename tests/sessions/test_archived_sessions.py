"""Archived sessions under another name, on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine, SessionNotFoundError
from langmem_tiers.common.namespaces import MAX_NAME_BYTES, is_archived_name
from tests.sessions.session_texts import ARCHIVED, context, drafts, list_texts, recall_texts, record_texts

if TYPE_CHECKING:
    from langmem_tiers import Session
    from langmem_tiers.testing import FrozenClock


@pytest.fixture
def session(engine: MemoryEngine, tenant: str) -> Session:
    return engine.session(tenant, "s")


def test_an_archived_session_frees_its_name_and_keeps_its_record(
    engine: MemoryEngine, session: Session, clock: FrozenClock, tenant: str
) -> None:
    session.transcript.add(drafts("the walrus one", "the walrus two"))
    session.transcript.move_oldest(1, ARCHIVED)
    name = session.set_aside()
    assert name == session.name == "s (until 2025-01-15T10:30:00.000000Z)"
    recreated = engine.session(tenant, "s")
    assert (recreated.key != session.key, recreated.count(), list_texts(recreated), context(recreated)) == (
        True,
        0,
        [],
        [],
    )
    aside = engine.namespace(tenant).find_session(name)
    assert aside is not None
    for target in (session, aside):
        assert target.info().message_count == 2
        assert list_texts(target) == record_texts(target) == ["the walrus one", "the walrus two"]
        assert list_texts(target, ARCHIVED) == ["the walrus one"]
    assert recall_texts(engine, tenant, "walrus") == {"the walrus one", "the walrus two"}
    assert {hit.session for hit in engine.namespace(tenant).recall("walrus")} == {name}
    assert {info.name for info in engine.namespace(tenant).sessions().sessions} == {"s", name}


def test_sessions_archived_at_the_same_time_get_distinct_names(
    engine: MemoryEngine, clock: FrozenClock, tenant: str
) -> None:
    names = []
    for number in range(3):
        session = engine.session(tenant, "s")
        session.add("user", f"{number}")
        names.append(session.set_aside())
    at = "s (until 2025-01-15T10:30:00.000000Z"
    assert names == [f"{at})", f"{at} 2)", f"{at} 3)"]
    assert [record_texts(engine.session(tenant, name)) for name in names] == [["0"], ["1"], ["2"]]
    clock.advance(microseconds=1)
    assert engine.session(tenant, "s").set_aside() == "s (until 2025-01-15T10:30:00.000001Z)"


@pytest.mark.parametrize("character", ["x", "%", "\0", "\ud83d", "😀", "é"])
def test_a_session_with_a_very_long_name_is_archived_under_a_truncated_name(
    engine: MemoryEngine, tenant: str, character: str
) -> None:
    stored = {"%": 3, "\0": 3, "\ud83d": 6}.get(character) or len(character.encode())
    longest = character * (MAX_NAME_BYTES // stored)
    names = set()
    for ending in ("1", "2"):  # of which only the ends differ
        session = engine.session(tenant, longest[:-1] + ending)
        session.add("user", ending)
        name = session.set_aside()
        names.add(name)
        assert name.startswith(f"{character * 100}… ")
        assert is_archived_name(name, original=longest[:-1] + ending)
        assert record_texts(engine.session(tenant, name)) == [ending]
        assert engine.namespace(tenant).find_session(longest[:-1] + ending) is None
    assert len(names) == 2
    hundred = engine.session(tenant, character * 100)
    assert hundred.set_aside().startswith(f"{character * 100} (until ")


def test_a_handle_of_a_session_archived_elsewhere_raises(engine: MemoryEngine, tenant: str) -> None:
    stale, mine = engine.session(tenant, "s"), engine.session(tenant, "s")
    mine.add("user", "one")
    name = mine.set_aside()
    recreated = engine.session(tenant, "s")
    for use in (stale.info, stale.count, stale.set_aside):
        with pytest.raises(SessionNotFoundError, match="archived: open a new one"):
            use()
    assert (mine.info().name, recreated.info().name) == (name, "s")
    stale.add("user", "two")  # what was said in the conversation that is over stays there
    assert (record_texts(mine), record_texts(recreated)) == (["one", "two"], [])


def test_an_archived_session_can_be_archived_again_and_deleted(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    session.add("user", "walrus")
    first = session.set_aside()
    second = session.set_aside()
    assert second.startswith(f"{first} (until ")
    assert record_texts(engine.session(tenant, second)) == ["walrus"]
    assert session.delete().messages == 1
    assert recall_texts(engine, tenant, "walrus") == set()
