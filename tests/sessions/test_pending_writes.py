"""Pending writes of a process are stored before they are forgotten, backed up or moved."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.servers import TemporaryRedis
from langmem_tiers import (
    CacheConfig,
    EngineConfig,
    MemoryEngine,
    MessageConflictError,
    MessageDraft,
    RedisConfig,
)
from langmem_tiers.sessions.batch_repository import BatchRepository
from tests.erasure_helpers import SECRET, make_tool_call
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langmem_tiers.erasure import ErasedIds
    from langmem_tiers.sessions.batch_writer import BatchWriter
    from langmem_tiers.testing import FrozenClock

ASKED: dict[str, dict[str, Any]] = {
    "message": {"session": "s", "message": "m"},
    "session": {"session": "s"},
    "namespace": {},
}


@pytest.fixture
def engine(url: str) -> Iterator[MemoryEngine]:
    with MemoryEngine(url, embedder=None) as opened:
        yield opened


def patient(engine: MemoryEngine, **given: Any) -> BatchWriter:
    """A writer that lets messages wait for long."""
    return engine.writer(max_wait_ms=60_000, acknowledge="queued", **given)


def stored(engine: MemoryEngine, *labels: str, session: str = "s") -> list[str]:
    found = engine.namespace(*labels).find_session(session)
    return [] if found is None else [message.content for message in found.messages()]


@pytest.mark.parametrize("what", [*ASKED, "user"])
def test_messages_pending_in_a_writer_are_forgotten(
    engine: MemoryEngine, tenant: str, tmp_path: Path, what: str
) -> None:
    report = tmp_path / "unsaved.jsonl"
    writer = patient(engine, report_path=report)
    writer.add(tenant, "s", MessageDraft("user", SECRET, id="m"))
    assert SECRET in report.read_text()
    asked = {"user": tenant} if what == "user" else {"namespace": tenant, **ASKED[what]}
    receipt = engine.forget(**asked, scrub=False)
    assert (receipt.counts.messages, receipt.is_complete) == (1, True)
    assert SECRET not in report.read_text()
    writer.close()
    assert stored(engine, tenant) == []


def test_the_report_of_a_busy_writer_contains_no_forgotten_message(
    engine: MemoryEngine, tenant: str, tmp_path: Path
) -> None:
    report = tmp_path / "unsaved.jsonl"
    writer = patient(engine, report_path=report)
    writer.add(tenant, "s", MessageDraft("user", SECRET, id="m"))

    def goes_on(_erased: ErasedIds) -> dict[str, int]:
        writer.add("bob", tenant, MessageDraft("user", "Hi."))
        return {}

    engine.services.erasers.insert(0, goes_on)
    engine.forget(namespace=tenant, scrub=False)
    assert SECRET not in report.read_text()
    assert [batch.session for batch in writer.unsaved] == [tenant]
    assert "Hi." in report.read_text()


def test_messages_refused_by_a_writer_are_forgotten(
    engine: MemoryEngine, tenant: str, tmp_path: Path
) -> None:
    report = tmp_path / "unsaved.jsonl"
    writer = engine.writer(report_path=report)
    engine.session(tenant, "s").add(MessageDraft("user", "Hello.", id="m"))
    with pytest.raises(MessageConflictError):
        writer.add(tenant, "s", MessageDraft("user", SECRET, id="m"), MessageDraft("user", "Bye.", id="n"))
    engine.forget(namespace=tenant, session="s", message="m", scrub=False)
    assert [message.id for batch in writer.unsaved for message in batch.messages] == ["n"]
    engine.forget(namespace=tenant, session="s", scrub=False)
    assert not writer.unsaved
    writer.close()
    assert not report.exists()


def test_a_receipt_reports_messages_not_stored_in_time(
    engine: MemoryEngine, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_store, append_all = threading.Event(), BatchRepository.append_all

    def late(*arguments: Any, **named: Any) -> Any:
        assert may_store.wait(LIMIT_SECONDS)
        return append_all(*arguments, **named)

    monkeypatch.setattr(BatchRepository, "append_all", late)
    writer = patient(engine, timeout_seconds=0.01)
    writer.submit(tenant, "s", MessageDraft("user", SECRET))
    left = engine.forget(namespace=tenant, scrub=False).left
    assert "forget the same data again" in left[0]
    may_store.set()
    writer.flush(LIMIT_SECONDS)
    assert engine.forget(namespace=tenant, scrub=False).is_complete
    assert stored(engine, tenant) == []


@pytest.mark.timeout(120)
def test_a_closed_writer_does_not_delay_others(file_url: str, tmp_path: Path) -> None:
    with MemoryEngine(file_url, embedder=None) as engine:
        writer = engine.writer(timeout_seconds=3600)
        engine.session("acme", "s").add(MessageDraft("user", "Hello.", id="m"))
        with pytest.raises(MessageConflictError):
            writer.add("acme", "s", MessageDraft("user", "Bye.", id="m"))
        with suppress(Exception):
            writer.close()
        engine.flush()
        engine.backup(tmp_path / "b.gz")


@pytest.mark.parametrize("what", ASKED)
def test_messages_only_in_working_memory_are_forgotten(engine: MemoryEngine, tenant: str, what: str) -> None:
    engine.working.append(tenant, "s", MessageDraft("user", SECRET, id="m"))
    engine.working.append("bob", tenant, "user", "At hand.")
    receipt = engine.forget(namespace=tenant, **ASKED[what], scrub=False)
    assert (receipt.counts.messages, receipt.is_complete) == (1, True)
    engine.working.flush(tenant)
    assert stored(engine, tenant) == []
    assert engine.working.get("bob", tenant).unsaved == 1
    engine.forget(namespace="bob", session=tenant, scrub=False)


def test_a_call_in_working_memory_is_forgotten_with_its_result(engine: MemoryEngine, tenant: str) -> None:
    waits, result = make_tool_call(1)
    engine.working.append(tenant, "s", "user", "Look it up.")
    engine.working.append(tenant, "s", waits)
    engine.working.flush()
    engine.working.append(tenant, "s", result)
    engine.forget(namespace=tenant, session="s", message="result-1", scrub=False)
    assert engine.working.get(tenant, "s").messages == ()
    assert stored(engine, tenant) == ["Look it up."]


@pytest.mark.parametrize("where", ["at hand", "stored"])
def test_notes_outlive_forgotten_messages_and_are_deleted_with_their_session(
    engine: MemoryEngine, tenant: str, where: str
) -> None:
    engine.session(tenant, "s").add(MessageDraft("user", SECRET, id="m"))
    engine.working.set_scratchpad(tenant, "s", "try the other door")
    if where == "stored":
        engine.working.flush()
        engine.working.delete((tenant,))
    engine.forget(namespace=tenant, session="s", message="m", scrub=False)
    assert engine.working.get(tenant, "s").scratchpad == "try the other door"
    engine.forget(namespace=tenant, session="s", scrub=False)
    assert engine.working.get(tenant, "s").scratchpad == ""
    assert engine.namespace(tenant).sessions().sessions == ()


def test_maintenance_keeps_notes_and_working_memory_of_active_sessions(clock: FrozenClock) -> None:
    with MemoryEngine(embedder=None, clock=clock) as engine:
        for session in ("s", "t"):
            engine.session("acme", session).add("user", "Long ago.")
        clock.advance(days=91)
        engine.session("acme", "s").add("user", "Today.")
        engine.working.set_scratchpad("acme", "s", "try the other door")
        engine.working.append("acme", "s", "user", "Now.")
        engine.working.append("acme", "t", "user", "Back again.")
        for _ in range(2):
            engine.maintenance.run()
            assert engine.working.get("acme", "s").scratchpad == "try the other door"
        engine.working.flush()
        assert stored(engine, "acme") == ["Today.", "Now."]
        assert stored(engine, "acme", session="t") == ["Back again."]


def fill(engine: MemoryEngine) -> BatchWriter:
    """Messages and notes that wait."""
    writer = patient(engine)
    writer.add("acme", "s", MessageDraft("user", "In a writer."))
    engine.working.append("acme", "s", "user", "At hand.")
    engine.working.set_scratchpad("acme", "s", "try the other door")
    return writer


def test_flush_stores_all_pending_messages(engine: MemoryEngine, tenant: str) -> None:
    writer = patient(engine)
    writer.add(tenant, "s", MessageDraft("user", "In a writer."))
    engine.working.append(tenant, "s", "user", "At hand.")
    engine.flush()
    assert stored(engine, tenant) == ["In a writer.", "At hand."]
    assert (writer.unsaved, engine.working.status().unsaved) == ((), 0)


@pytest.mark.parametrize("way", ["backup", "move_to", "snapshot"])
def test_pending_messages_are_included_in_copies(tmp_path: Path, way: str) -> None:
    place = tmp_path / ("copy.db" if way == "snapshot" else "b.gz")
    with MemoryEngine(tmp_path / "one.db", embedder=None) as engine:
        writer = fill(engine)
        if way == "move_to":
            with MemoryEngine(tmp_path / "copy.db", embedder=None) as other:
                engine.move_to(other, namespace="acme")
        elif way == "backup":
            engine.backup(place)
            with MemoryEngine(tmp_path / "copy.db", embedder=None) as other:
                other.restore(place)
        else:
            engine.snapshot(place)
        writer.close()
    with MemoryEngine(tmp_path / "copy.db", embedder=None) as copy:
        assert stored(copy, "acme") == ["In a writer.", "At hand."]
        assert copy.working.get("acme", "s").scratchpad == "try the other door"


@pytest.mark.parametrize("scope", [{}, {"namespace": "acme"}, {"namespace": "acme", "prefix": True}])
def test_pending_messages_are_not_written_into_a_restored_memory(
    tmp_path: Path, scope: dict[str, Any]
) -> None:
    with MemoryEngine(tmp_path / "one.db", embedder=None) as engine:
        engine.session("acme", "s").add("user", "Then.")
        engine.backup(tmp_path / "b.gz", **scope)
        writer = fill(engine)
        engine.working.append("other", "s", "user", "Of another.")
        engine.restore(tmp_path / "b.gz", replace=True)
        writer.close()
        engine.working.flush()
        assert stored(engine, "acme") == ["Then."]
        assert engine.working.get("acme", "s").scratchpad == ""
        assert stored(engine, "other") == (["Of another."] if scope else [])


def test_redis_keeps_nothing_of_a_replaced_memory(tmp_path: Path) -> None:
    with TemporaryRedis() as server:
        config = EngineConfig(
            cache=CacheConfig(max_characters=0),
            redis=RedisConfig(url=server.url, timeout_seconds=LIMIT_SECONDS),
        )
        with MemoryEngine(tmp_path / "one.db", embedder=None, config=config) as engine:
            for tenant in ("acme", "other"):
                engine.session(tenant, "s").add("user", "Then.")
            engine.backup(tmp_path / "b.gz", namespace="acme")
            for tenant, word in (("acme", SECRET), ("other", "walrus")):
                engine.session(tenant, "s").add("user", word)
            engine.restore(tmp_path / "b.gz", replace=True)
            with server.client as client:
                content = b"".join(client.dump(key) for key in client.scan_iter("*"))
            assert SECRET.encode() not in content
            assert b"walrus" in content
            assert [message.content for message in engine.session("acme", "s").latest(9)] == ["Then."]
