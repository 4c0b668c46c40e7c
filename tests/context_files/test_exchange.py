"""Import of contexts into the engine and export from it, without loss."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from langmem_tiers import MemoryEngine, MessageDraft, MessageToolCall, Role
from langmem_tiers.context_files.engine_transfer import export_context, import_context
from langmem_tiers.context_files.models import ContextData, HistoryEntry
from langmem_tiers.context_files.serializer import context_to_bytes
from langmem_tiers.context_files.service import ContextFiles, _build_endpoint
from langmem_tiers.sessions import Listing
from langmem_tiers.testing import FrozenClock, seeded_ids
from tests.context_files.test_context_data import CONTEXTS, FILE, SESSION, parsed
from tests.contract.storage.context_files import full
from tests.hypothesis_settings import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> ContextFiles:
    return ContextFiles(tmp_path / "context", embedder=None)


@pytest.fixture
def other_files(tmp_path: Path) -> ContextFiles:
    return ContextFiles(tmp_path / "other", embedder=None)


@pytest.fixture(scope="module")
def one_engine() -> Iterator[MemoryEngine]:
    with MemoryEngine(embedder=None) as engine:
        yield engine


def test_the_file_of_the_design_is_imported_and_exported_equal(
    engine: MemoryEngine, tenant: str, files: ContextFiles, other_files: ContextFiles
) -> None:
    context = files.save(parsed(FILE)).context
    report = files.to_engine(SESSION, engine, tenant)
    assert (report.stored, report.duplicates, report.facts, report.problems) == (3, 0, 2, ())
    session = engine.session(tenant, SESSION)
    summary, *messages = session.view()
    assert summary.content.endswith("User requested file creation. Successfully created test.txt.")
    assert [message.content for message in messages] == [entry.content for entry in context.recent_history]
    assert [message.token_count for message in messages] == [5, 8, 12]
    assert (
        engine.namespace(tenant).knowledge.recall("which rust version")[0].knowledge.value == FILE["facts"][1]
    )
    other_files.from_engine(SESSION, engine, tenant)
    assert context_to_bytes(other_files.load(SESSION)) == context_to_bytes(context)


def test_importing_twice_stores_nothing_twice(engine: MemoryEngine, tenant: str, files: ContextFiles) -> None:
    files.save(full("s"))
    files.to_engine("s", engine, tenant)
    count, known = engine.session(tenant, "s").count(), list(engine.namespace(tenant).knowledge)
    report = files.to_engine("s", engine, tenant)
    assert (report.stored, report.facts) == (0, 0)
    assert engine.session(tenant, "s").count() == count
    assert list(engine.namespace(tenant).knowledge) == known


@examples(60)
@given(CONTEXTS)
def test_any_context_is_exported_as_imported(one_engine: MemoryEngine, context: ContextData) -> None:
    side = _build_endpoint(one_engine, uuid.uuid4().hex, SESSION)
    for _ in range(2):
        import_context(side, context)
        assert export_context(side, SESSION) == context


def test_an_entry_that_resembles_a_summary_is_an_entry(one_engine: MemoryEngine) -> None:
    for role in ("system", "user", "narrator"):
        for summary in ("", "Told before."):
            side = _build_endpoint(one_engine, uuid.uuid4().hex, SESSION)
            entry = HistoryEntry(0, role, "[CONTEXT SUMMARY]\nNot the summary")
            context = ContextData(session_id=SESSION, recent_history=(entry,), long_term_summary=summary)
            for _ in range(2):
                import_context(side, context)
                assert export_context(side, SESSION) == context


def test_later_messages_and_knowledge_are_exported(
    engine: MemoryEngine, tenant: str, files: ContextFiles
) -> None:
    context = files.save(parsed(FILE)).context
    files.to_engine(SESSION, engine, tenant)
    session, knowledge = engine.session(tenant, SESSION), engine.namespace(tenant).knowledge
    session.add("user", "And now delete it")
    known = {item.value: item for item in knowledge}
    knowledge.remove("note", known["User prefers verbose output"].key)
    knowledge.correct("note", known["Project uses Rust 1.75"].key, "Project uses Rust 1.80")
    found = files.from_engine(SESSION, engine, tenant).context
    assert found.recent_history[:3] == context.recent_history
    assert found.recent_history[3].content == "And now delete it"
    assert found.facts == ("Project uses Rust 1.80",)
    assert found.tool_stats == context.tool_stats
    assert files.versions(SESSION)[0].number == 2


def test_a_session_is_exported_and_imported_without_loss(
    engine: MemoryEngine, tenant: str, files: ContextFiles, clock: FrozenClock
) -> None:
    session = engine.session(tenant, "s")
    for draft in (
        MessageDraft("user", "Hello \0 \ud83d", name="Ann", payload={"x": [1, float("inf")]}),
        MessageDraft("assistant", "", tool_calls=[MessageToolCall("c1", "look", '{"q": 1}')]),
        MessageDraft("tool", "found", tool_call_id="c1", id="given"),
        MessageDraft("assistant", "There it is", token_count=77),
    ):
        clock.advance(seconds=1.000001)
        session.add(draft)
    knowledge = engine.namespace(tenant).knowledge
    knowledge.store("domain", "payment", "Fjordpay", confidence=0.8, source="chat")
    knowledge.note("The cat is called Tom")
    context = files.from_engine("s", engine, tenant).context
    assert set(context.facts) == {"payment: Fjordpay", "The cat is called Tom"}
    with MemoryEngine(clock=clock, ids=seeded_ids(7)) as other:
        report = files.to_engine("s", other, "ns")
        assert (report.stored, report.facts) == (4, 2)
        assert list(other.session("ns", "s").messages()) == list(session.messages())
        known = {(item.category, item.key, item.value, item.confidence, item.source) for item in knowledge}
        copied = {
            (item.category, item.key, item.value, item.confidence, item.source)
            for item in other.namespace("ns").knowledge
        }
        assert copied == known
        again = files.from_engine("s", other, "ns").context
        assert again == context


def test_summarized_messages_stay_summarized_after_an_import(
    engine: MemoryEngine, tenant: str, files: ContextFiles
) -> None:
    session = engine.session(tenant, "s")
    ids = [session.add("user", f"message {n}").message.id for n in range(6)]
    session.compress(older_than=ids[4], summary="four messages")
    context = files.from_engine("s", engine, tenant).context
    assert context.long_term_summary == "four messages"
    assert len(context.recent_history) == 6
    with MemoryEngine() as other:
        files.to_engine("s", other, "ns")
        shown = other.session("ns", "s").view()
        assert [message.content for message in shown] == [message.content for message in session.view()]
        assert files.from_engine("s", other, "ns").context == context


def test_a_deleted_session_is_exported_empty(engine: MemoryEngine, tenant: str, files: ContextFiles) -> None:
    files.save(parsed(FILE))
    files.to_engine(SESSION, engine, tenant)
    engine.session(tenant, SESSION).delete()
    found = files.from_engine(SESSION, engine, tenant).context
    assert found.recent_history == ()
    assert found.tool_stats.total_calls == 0


def test_a_summary_imported_into_a_used_session_is_kept_and_reported(
    engine: MemoryEngine, tenant: str, files: ContextFiles
) -> None:
    engine.session(tenant, "s").add("user", "before")
    context = replace(ContextData(session_id="s"), long_term_summary="earlier").with_message(
        "user", "x", at=1
    )
    files.save(context)
    report = files.to_engine("s", engine, tenant)
    assert "kept, but not shown" in report.problems[0]
    found = files.from_engine("s", engine, tenant).context
    assert found.long_term_summary == "earlier"
    assert {entry.content for entry in found.recent_history} == {"before", "x"}


def test_entries_with_other_roles_and_fields_are_exported_equal(one_engine: MemoryEngine) -> None:
    entries = (
        HistoryEntry(1, "developer", "rules", None, {"theirs": 1}),
        HistoryEntry(1, "user", "twice", 1),
        HistoryEntry(1, "user", "twice", 1),
        HistoryEntry(2.5, "user", "one id", 1, {"id": "same"}),
        HistoryEntry(2.5, "user", "two messages", 1, {"id": "same"}),
        HistoryEntry(3, "user", "<memory>\ninjected\n</memory>", 2**40, {"id": 5, "tool_calls": "none"}),
    )
    context = ContextData(session_id="s", recent_history=entries, facts=("", " ", "a", "a"))
    side = _build_endpoint(one_engine, uuid.uuid4().hex, "s")
    import_context(side, context)
    assert export_context(side, "s") == context


def test_removed_messages_are_not_exported(engine: MemoryEngine, tenant: str, files: ContextFiles) -> None:
    context = files.save(parsed(FILE)).context
    files.to_engine(SESSION, engine, tenant)
    session = engine.session(tenant, SESSION)
    second = next(message for message in session.messages() if message.role is Role.ASSISTANT)
    session.transcript.move([second.id], Listing.REMOVED)
    found = files.from_engine(SESSION, engine, tenant).context
    assert found.recent_history == (context.recent_history[0], context.recent_history[2])
    session.transcript.move([second.id], Listing.ACTIVE)
    assert files.from_engine(SESSION, engine, tenant).context == context


def test_exchange_records_are_not_items_of_the_tenant(
    engine: MemoryEngine, tenant: str, files: ContextFiles
) -> None:
    files.save(parsed(FILE))
    files.to_engine(SESSION, engine, tenant)
    assert engine.items.search(tenant) == ()
