"""A writer shared by many threads: acknowledged messages are stored, none lost or duplicated."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    EngineClosedError,
    EngineConfig,
    InvalidConfigError,
    InvalidInputError,
    InvalidMessageError,
    MemoryEngine,
    MessageConflictError,
    MessageDraft,
    StorageBusyError,
    UnsavedError,
)
from langmem_tiers.sessions.batch_repository import BatchRepository
from langmem_tiers.testing.threads import run_in_threads
from tests.backends import ON_ALL_BACKENDS, ON_FILE_AND_SERVER
from tests.faults.write_lock import hold_write_lock
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langmem_tiers.sessions.models import SessionAppendResult

IMPATIENT = EngineConfig(busy_timeout_seconds=0.05)
HOUR_MS = 3_600_000


def build_draft(text: str, message_id: str | None = None) -> MessageDraft:
    return MessageDraft("user", text, id=message_id)


def texts(engine: MemoryEngine, tenant: str, session: str) -> list[str]:
    return [message.content for message in engine.session(tenant, session).messages()]


@pytest.fixture
def hasty(url: str) -> Iterator[MemoryEngine]:
    """An engine that does not wait long for others."""
    with MemoryEngine(url, config=IMPATIENT) as engine:
        yield engine


def test_add_returns_after_storing(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine, engine.writer() as writer:
        report = writer.add(tenant, "s", build_draft("one"), build_draft("two"))
        assert report is not None
        assert [message.content for message in report.stored] == ["one", "two"]
        if url != "sqlite://":
            with MemoryEngine(url) as other:
                assert texts(other, tenant, "s") == ["one", "two"]
        assert texts(engine, tenant, "s") == ["one", "two"]
        (found,) = engine.namespace(tenant).search("two")
        assert found.entry.content == "two"


@ON_ALL_BACKENDS
def test_concurrent_threads_share_transactions_and_each_session_keeps_its_order(
    engine: MemoryEngine, tenant: str
) -> None:
    threads, each = 8, 30
    numbers = iter(range(threads))
    with engine.writer() as writer:

        def write() -> None:
            mine = next(numbers)
            for n in range(each):
                writer.add(tenant, f"s{mine % 3}", build_draft(f"{mine}/{n}"))

        run_in_threads(threads, write)
        report = writer.report
    assert (report.stored, report.pending, report.refused) == (threads * each, 0, 0)
    assert report.batches < threads * each
    stored = [text for session in range(3) for text in texts(engine, tenant, f"s{session}")]
    assert Counter(stored) == Counter(f"{t}/{n}" for t in range(threads) for n in range(each))
    for thread in range(threads):
        assert [text for text in stored if text.startswith(f"{thread}/")] == [
            f"{thread}/{n}" for n in range(each)
        ]


@ON_ALL_BACKENDS
def test_queued_messages_are_stored_by_flush_and_close(engine: MemoryEngine, tenant: str) -> None:
    with engine.writer(acknowledge="queued", max_wait_ms=HOUR_MS) as writer:
        assert writer.add(tenant, "s", build_draft("one")) is None
        assert [message.content for batch in writer.unsaved for message in batch.messages] == ["one"]
        assert writer.flush().stored == 1
        assert texts(engine, tenant, "s") == ["one"]
        writer.add(tenant, "s", build_draft("two"))
    assert texts(engine, tenant, "s") == ["one", "two"]


def test_a_batch_starts_at_its_size_limit_or_time_limit(engine: MemoryEngine, tenant: str) -> None:
    with engine.writer(acknowledge="queued", max_messages=10, max_wait_ms=HOUR_MS) as writer:
        futures = [writer.submit(tenant, "s", build_draft(f"{n}")) for n in range(10)]
        assert not wait(futures, timeout=LIMIT_SECONDS).not_done
        assert writer.report.batches == 1
    with engine.writer(acknowledge="queued", max_wait_ms=20) as writer:
        assert writer.submit(tenant, "s", build_draft("alone")).result(30).message.content == "alone"


def test_messages_of_one_add_are_never_split(engine: MemoryEngine, tenant: str) -> None:
    with engine.writer(max_messages=3, acknowledge="queued", max_wait_ms=HOUR_MS) as writer:
        first = writer.submit(tenant, "s", build_draft("1"), build_draft("2"))
        second = writer.submit(tenant, "s", build_draft("3"), build_draft("4"))
        large = writer.submit(tenant, "s", *(build_draft(f"{n}") for n in range(5, 12)))
        writer.flush()
        assert writer.report.batches == 3
        assert [len(future.result().stored) for future in (first, second, large)] == [2, 2, 7]
    assert texts(engine, tenant, "s") == [f"{n}" for n in range(1, 12)]


@ON_ALL_BACKENDS
def test_a_refused_add_does_not_affect_others_and_is_reported(engine: MemoryEngine, tenant: str) -> None:
    engine.session(tenant, "s").add(build_draft("taken", "x"))
    with engine.writer(acknowledge="queued", max_wait_ms=HOUR_MS, report_path=None) as writer:
        good = [writer.submit(tenant, name, build_draft(f"good {name}")) for name in "sab"]
        bad = writer.submit(tenant, "s", build_draft("new"), build_draft("another", "x"))
        last = writer.submit(tenant, "s", build_draft("last"))
        writer.flush()
        assert [future.result().message.content for future in (*good, last)] == [
            "good s",
            "good a",
            "good b",
            "last",
        ]
        with pytest.raises(MessageConflictError, match="'x'"):
            bad.result()
        (unsaved,) = writer.unsaved
        assert [message.content for message in unsaved.messages] == ["new", "another"]
        assert "MessageConflictError" in str(unsaved.problem)
        assert writer.report.refused == 2
        with pytest.raises(UnsavedError, match="2 messages"):
            writer.close()
    assert texts(engine, tenant, "s") == ["taken", "good s", "last"]


@ON_ALL_BACKENDS
def test_known_ids_are_duplicates_also_within_one_batch(engine: MemoryEngine, tenant: str) -> None:
    with engine.writer(acknowledge="queued", max_wait_ms=HOUR_MS) as writer:
        futures = [writer.submit(tenant, "s", build_draft("one", "x")) for _ in range(3)]
        writer.flush()
        assert [len(future.result().stored) for future in futures] == [1, 0, 0]
        assert [len(future.result().duplicates) for future in futures] == [0, 1, 1]
        assert (writer.report.stored, writer.report.duplicates) == (1, 2)


def test_text_injected_by_a_context_is_not_stored(engine: MemoryEngine, tenant: str) -> None:
    engine.session(tenant, "s").add("user", "The walrus is called Ole.")
    (told,) = engine.namespace(tenant).build_context("What is the walrus called?").messages
    with engine.writer() as writer:
        report = writer.add(tenant, "t", build_draft(told.content))
        assert report is not None
        assert (len(report.stored), len(report.echoes)) == (0, 1)
        assert writer.add(tenant, "t") is not None


@ON_ALL_BACKENDS
def test_an_erased_session_is_created_again(engine: MemoryEngine, tenant: str) -> None:
    with engine.writer() as writer:
        writer.add(tenant, "s", build_draft("one"))
        engine.session(tenant, "s").delete()
        writer.add(tenant, "s", build_draft("two"))
        engine.namespace(tenant).delete()
        writer.add(tenant, "s", build_draft("three"))
    assert texts(engine, tenant, "s") == ["three"]


@ON_FILE_AND_SERVER
def test_a_failing_store_is_retried_until_it_works_without_duplicates(
    url: str, hasty: MemoryEngine, tenant: str
) -> None:
    with hasty.writer(timeout_seconds=30) as writer:
        with hold_write_lock(url):
            futures = [writer.submit(tenant, f"s{n % 2}", build_draft(f"{n}")) for n in range(6)]
            with pytest.raises(UnsavedError, match="do not add them again"):
                writer.add(tenant, "s0", build_draft("6"), timeout_seconds=0.2)
            with pytest.raises(UnsavedError, match="7 messages"):
                writer.flush(0.05)
            assert sum(len(batch.messages) for batch in writer.unsaved) == 7
            wait_until(lambda: writer.report.retries > 0, "the writer tries again")
        assert [future.result(30).message.content for future in futures] == [f"{n}" for n in range(6)]
        report = writer.flush()
        assert (report.stored, report.problem) == (7, None)
    assert texts(hasty, tenant, "s0") == ["0", "2", "4", "6"]
    assert texts(hasty, tenant, "s1") == ["1", "3", "5"]


def test_only_a_retry_looks_up_ids_because_they_may_be_stored_already(
    engine: MemoryEngine, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_all, assumed_new = BatchRepository.append_all, list[bool]()

    def fail_first(self: BatchRepository, *given: Any, new_ids: bool) -> tuple[SessionAppendResult, ...]:
        assumed_new.append(new_ids)
        if len(assumed_new) == 1:
            raise StorageBusyError("the reply was lost")
        return append_all(self, *given, new_ids=new_ids)

    monkeypatch.setattr(BatchRepository, "append_all", fail_first)
    with engine.writer() as writer:
        writer.add(tenant, "s", build_draft("one"))
        writer.add(tenant, "s", build_draft("two"))
    assert assumed_new == [True, False, True]  # the second time is the retry
    assert texts(engine, tenant, "s") == ["one", "two"]


@pytest.mark.soak
@ON_FILE_AND_SERVER
def test_an_add_above_the_queue_limit_waits_or_raises(url: str, hasty: MemoryEngine, tenant: str) -> None:
    with hasty.writer(acknowledge="queued", max_pending=5, timeout_seconds=30) as writer:
        with hold_write_lock(url):
            for n in range(5):
                writer.add(tenant, "s", build_draft(f"{n}"))
            with pytest.raises(StorageBusyError, match="nothing was accepted"):
                writer.add(tenant, "s", build_draft("too much"), timeout_seconds=0.05)
            waiting = threading.Thread(target=lambda: writer.add(tenant, "s", build_draft("5")))
            waiting.start()
        waiting.join(30)
        assert not waiting.is_alive()
        writer.flush()
        with pytest.raises(InvalidInputError, match="exceed max_pending=5"):
            writer.add(tenant, "s", *(build_draft(f"{n}") for n in range(6)))
    assert texts(hasty, tenant, "s") == ["0", "1", "2", "3", "4", "5"]


@ON_FILE_AND_SERVER
@pytest.mark.parametrize("acknowledge", ["stored", "queued"])
def test_unsaved_messages_are_in_the_report_and_can_be_recovered(
    url: str, hasty: MemoryEngine, tenant: str, tmp_path: Path, acknowledge: Any
) -> None:
    path = tmp_path / "unsaved.jsonl"
    writer = hasty.writer(acknowledge=acknowledge, report_path=path)
    writer.submit(tenant, "a", build_draft("stored")).result(30) if acknowledge == "stored" else writer.add(
        tenant, "a", build_draft("stored")
    )
    writer.flush(30)
    with hold_write_lock(url):
        futures = [writer.submit(tenant, "ab"[n % 2], build_draft(f"{n}")) for n in range(4)]
        wait_until(lambda: writer.report.retries > 0, "the writer tries again")
        report = writer.close(timeout_seconds=0.2)
    assert report.path == path
    assert report.messages == 4
    assert "StorageBusyError" in str(report.problem)
    assert writer.close() is report
    for future in futures:
        with pytest.raises(UnsavedError):
            future.result(0)
    with pytest.raises(EngineClosedError):
        writer.add(tenant, "a", build_draft("late"))
    with pytest.raises(InvalidConfigError, match="contains 4 messages that were not stored"):
        hasty.writer(report_path=path)
    with hasty.writer(timeout_seconds=30) as other:
        assert other.recover(path).stored == 4
    assert not path.exists()
    assert texts(hasty, tenant, "a") == ["stored", "0", "2"]
    assert texts(hasty, tenant, "b") == ["1", "3"]


def test_a_missing_report_is_refused_and_creates_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with MemoryEngine() as engine, engine.writer() as writer:
        for name in ("nothing.jsonl", "folder"):
            with pytest.raises(InvalidInputError, match="no file"):
                writer.recover(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_the_report_of_an_active_writer_is_not_recovered(file_url: str, tmp_path: Path) -> None:
    path = tmp_path / "unsaved.jsonl"
    with MemoryEngine(file_url) as engine, MemoryEngine(file_url) as other, other.writer() as taker:
        writer = engine.writer(acknowledge="queued", max_wait_ms=HOUR_MS, report_path=path)
        writer.add("a", "s", build_draft("one"))
        with pytest.raises(InvalidInputError, match="a writer is using"):
            taker.recover(path)
        writer.add("a", "s", build_draft("two"))
        assert path.read_text().count("one") == path.read_text().count("two") == 1
        assert writer.close().messages == 0
        assert texts(engine, "a", "s") == ["one", "two"]


@ON_FILE_AND_SERVER
def test_without_a_report_file_unsaved_messages_raise_an_error_on_close(
    url: str, hasty: MemoryEngine, tenant: str
) -> None:
    writer = hasty.writer(acknowledge="queued")
    with hold_write_lock(url):
        writer.add(tenant, "s", build_draft("one"))
        with pytest.raises(UnsavedError, match="1 messages were not stored"):
            writer.close(timeout_seconds=0.1)
    assert [message.content for batch in writer.unsaved for message in batch.messages] == ["one"]


def test_an_engine_that_closes_has_its_writers_store_the_rest(file_url: str, tmp_path: Path) -> None:
    path = tmp_path / "unsaved.jsonl"
    engine = MemoryEngine(file_url)
    writer = engine.writer(acknowledge="queued", max_wait_ms=HOUR_MS, report_path=path)
    writer.add("a", "s", build_draft("one"))
    assert path.exists()
    engine.close()
    assert not list(tmp_path.glob("*unsaved*"))
    with MemoryEngine(file_url) as again:
        assert texts(again, "a", "s") == ["one"]


def test_two_writers_do_not_report_to_one_file(engine: MemoryEngine, tmp_path: Path) -> None:
    path = tmp_path / "unsaved.jsonl"
    with engine.writer(report_path=path), pytest.raises(InvalidConfigError, match="another writer"):
        engine.writer(report_path=path)
    with engine.writer(report_path=path):
        pass


def test_a_report_keeps_refused_messages(engine: MemoryEngine, tenant: str, tmp_path: Path) -> None:
    path = tmp_path / "unsaved.jsonl"
    engine.session(tenant, "s").add(build_draft("taken", "x"))
    writer = engine.writer(acknowledge="queued", report_path=path)
    writer.add(tenant, "s", build_draft("another", "x"))
    writer.add(tenant, "s", build_draft("good"))
    assert writer.close().messages == 1
    with engine.writer() as other:
        report = other.recover(path)
        assert (report.stored, report.duplicates, report.refused) == (0, 0, 1)
        assert other.recover(path).refused == 1
    assert "another" in path.read_text()


@pytest.mark.parametrize(
    ("wrong", "said_so"),
    [
        ({"max_messages": 0}, "max_messages"),
        ({"max_wait_ms": 0}, "max_wait_ms"),
        ({"max_pending": 0}, "max_pending"),
        ({"acknowledge": "sent"}, "'stored' or 'queued'"),
        ({"timeout_seconds": -1}, "timeout_seconds"),
        ({"report_path": 3}, "path"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], said_so: str) -> None:
    with MemoryEngine() as engine, pytest.raises(InvalidConfigError, match=said_so):
        engine.writer(**wrong)


def test_an_invalid_message_is_refused() -> None:
    wrong: Any = "hello"
    with MemoryEngine() as engine, engine.writer() as writer, pytest.raises(InvalidMessageError):
        writer.add("a", "s", wrong)
