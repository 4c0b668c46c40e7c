"""Maintenance: retention to the microsecond, expired items, compaction, figures, and runs by a schedule."""

from __future__ import annotations

import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    EngineConfig,
    InvalidConfigError,
    MaintenanceConfig,
    MaintenanceReport,
    MemoryEngine,
    MessageDraft,
)
from langmem_tiers.common.leases import Lease
from langmem_tiers.maintenance import service
from langmem_tiers.testing import FrozenClock
from tests.erasure_helpers import CONFIG, SECRET, fill, make_tool_call, open_test_engine
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAY, TICK = timedelta(days=1), timedelta(microseconds=1)


@pytest.fixture
def engine(new_database: str, clock: FrozenClock) -> Iterator[MemoryEngine]:
    with open_test_engine(new_database, clock) as engine:
        yield engine


@pytest.fixture
def new_database(backend: str, request: pytest.FixtureRequest) -> str:
    """A database of one's own: maintenance goes over all of it."""
    if backend == "postgresql":
        create: Callable[[], str] = request.getfixturevalue("new_postgres_database")
        return create()
    return str(request.getfixturevalue("url"))


def at(clock: FrozenClock, days_ago: float, *, less: timedelta = timedelta()) -> datetime:
    return clock.now() - timedelta(days=days_ago) + less


def test_a_damaged_message_does_not_block_other_sessions(clock: FrozenClock, file_url: str) -> None:
    with open_test_engine(file_url, clock) as engine:
        for name in ("a", "b"):
            engine.session("acme", name).add(MessageDraft("tool", "7", tool_call_id="c", payload={"a": 1}))
        with sqlite3.connect(file_url.removeprefix("sqlite:///")) as database:
            broken = "SELECT pk FROM lmt_sessions WHERE name = 'a'"
            database.execute(f"UPDATE lmt_messages SET extra = '{{' WHERE session_pk = ({broken})")
        database.close()
        clock.advance(days=91)
        report = engine.maintenance.run()
        assert report.erased.messages == 1
        assert report.compacted is not None
        assert [
            problem
            for problem in report.problems
            if problem.startswith("session 'a' of 'acme' was not changed: ")
        ]


def test_only_messages_older_than_ninety_days_are_erased(engine: MemoryEngine, clock: FrozenClock) -> None:
    session = engine.session("acme", "monday")
    times = {
        "older": at(clock, 90, less=-TICK),
        "exactly": at(clock, 90),
        "younger": at(clock, 90, less=TICK),
        "imported": at(clock, 4000),  # later in the record, and older
        "new": clock.now(),
    }
    session.add_many(
        [MessageDraft("user", f"{name} tiles", id=name, created_at=t) for name, t in times.items()]
    )
    report = engine.maintenance.run()
    assert [message.id for message in session.messages()] == ["exactly", "younger", "new"]
    assert (report.erased.messages, report.is_complete, report.problems) == (2, True, ())
    clock.advance(TICK)
    assert engine.maintenance.run().erased.messages == 1
    assert session.info().message_count == 2
    assert {hit.entry.id for hit in engine.namespace("acme").recall("tiles").hits} == {"younger", "new"}


def test_learned_and_promoted_entries_survive_their_message(engine: MemoryEngine, clock: FrozenClock) -> None:
    ids = fill(engine, "acme")
    namespace = engine.namespace("acme")
    namespace.knowledge.store("domain", "tea", "green", source="session monday")
    entries = namespace.long_term.entries()
    clock.advance(days=91)
    report = engine.maintenance.run()
    session = namespace.find_session("monday")
    assert session is not None
    left = [message for message in session.messages() if not message.is_summary]
    assert [message.id for message in left] == [ids[7]]  # it was promoted
    assert namespace.long_term.entries() == entries
    assert [item.key for item in namespace.knowledge] == ["tea"]
    assert report.erased.messages == 29
    assert (report.erased.entries, report.erased.knowledge) == (0, 0)
    assert "tiles" not in session.view()[0].content
    assert all(SECRET not in chunk.summary or chunk.first_turn == 8 for chunk in session.chunks())


def test_a_tool_call_is_erased_only_with_its_last_result(engine: MemoryEngine, clock: FrozenClock) -> None:
    session = engine.session("acme", "monday")
    old, new = at(clock, 91), clock.now()
    (call_1, result_1), (call_2, result_2) = (
        make_tool_call(1, created_at=old),
        make_tool_call(2, created_at=old),
    )
    late = MessageDraft("tool", "Found more.", id="late", tool_call_id="c2", created_at=new)
    session.add_many([call_1, result_1, call_2, result_2, late])
    engine.maintenance.run()
    assert [message.id for message in session.messages()] == ["call-2", "result-2", "late"]


def test_an_empty_old_session_is_deleted_and_a_new_one_kept(engine: MemoryEngine, clock: FrozenClock) -> None:
    engine.session("acme", "old").add("user", "Hello.")
    engine.session("acme", "opened long ago")
    clock.advance(days=91)
    engine.session("acme", "new")
    report = engine.maintenance.run()
    assert [info.name for info in engine.namespace("acme").sessions().sessions] == ["new"]
    assert report.erased.sessions == 2


def test_without_retention_nothing_is_erased(new_database: str, clock: FrozenClock) -> None:
    config = EngineConfig(maintenance=MaintenanceConfig(retention_days=None, compaction=False))
    with open_test_engine(new_database, clock, config=config) as engine:
        engine.session("acme", "s").add("user", "Hello.")
        engine.items.put("acme", "k", {"a": 1}, ttl_seconds=60)
        clock.advance(days=10_000)
        report = engine.maintenance.run()
        assert engine.session("acme", "s").count() == 1
        assert (report.erased.total, report.expired_items, report.compacted) == (0, 1, None)


def test_the_report_of_a_run_lists_erased_and_remaining_records(
    engine: MemoryEngine, clock: FrozenClock
) -> None:
    session = engine.session("acme", "monday")
    times = [at(clock, 91)] * 2 + [clock.now()] * 6
    session.add_many([MessageDraft("user", f"Tile {n}.", created_at=t) for n, t in enumerate(times)])
    session.learn(whole=True)
    engine.items.put("acme", "k", {"a": 1}, ttl_seconds=60)
    clock.advance(minutes=2)
    steps: list[int] = []
    report = engine.maintenance.run(steps.append)
    assert report.started_at == report.ended_at == clock.now()
    assert (report.is_complete, report.is_elsewhere, report.problems) == (True, False, ())
    assert (report.erased.messages, report.expired_items, report.remade, steps) == (2, 1, 1, [2])
    assert report.compacted is not None
    now = engine.statistics()
    assert report.statistics is not None
    assert report.statistics.taken_at == clock.now()
    assert (report.statistics.sessions, report.statistics.messages) == (now.sessions, now.messages)
    assert report.statistics.tokens == now.tokens
    assert now.messages == session.count() == 6
    fields = report.as_dict()
    assert (fields["started_at"], fields["statistics"]) == (
        clock.now().isoformat(),
        report.statistics.as_dict(),
    )
    assert engine.maintenance.last == report


def test_a_stopped_run_continues_where_it_stopped(
    new_database: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_MESSAGE_BATCH_SIZE", 10)
    with open_test_engine(new_database, clock) as engine:
        session = engine.session("acme", "s")
        session.add_many([MessageDraft("user", f"tile {number}") for number in range(35)])
        clock.advance(days=91)
        held = Lease.acquire
        left = [True, True, True, False]  # somebody else takes over after two batches
        monkeypatch.setattr(Lease, "acquire", lambda lease: held(lease) and left.pop(0))
        report = engine.maintenance.run()
        assert (report.erased.messages, report.is_complete) == (20, False)
        assert session.count() == 15
        monkeypatch.setattr(Lease, "acquire", held)
        report = engine.maintenance.run()
        assert (report.erased.messages, report.is_complete) == (15, True)


def test_compaction_merges_full_text_and_frees_disk_space(tmp_path: Any, clock: FrozenClock) -> None:
    with open_test_engine(f"sqlite:///{tmp_path / 'memory.db'}", clock) as engine:
        for number in range(20):
            engine.session("acme", str(number)).add_many(
                [MessageDraft("user", f"tile {number} {index} " * 50) for index in range(20)]
            )
        clock.advance(days=91)
        report = engine.maintenance.run()
        assert report.compacted is not None
        assert "vacuumed" in report.compacted.steps
        assert report.compacted.bytes_after < report.compacted.bytes_before
        segments = "SELECT count(*) FROM lmt_messages_terms_idx"
        with engine._database.read() as connection:
            assert connection.exec_driver_sql(segments).scalar_one() <= 1


def test_figures_are_those_of_the_tables(engine: MemoryEngine, clock: FrozenClock) -> None:
    fill(engine, "acme")
    engine.namespace("acme").knowledge.store("domain", "tea", "green")
    found = engine.statistics()
    info = engine.session("acme", "monday").info()
    assert (found.namespaces, found.sessions) == (1, 1)
    assert (found.messages, found.tokens) == (info.message_count, info.token_count)
    tables = {table.name: table for table in found.tables}
    assert tables["lmt_messages"].rows == 32
    assert tables["lmt_messages"].bytes > 1000
    tiers = {name: tier.count for name, tier in found.tiers.items()}
    # One of 32 messages is promoted; the short-term tier also contains the chunks of the conversation.
    assert tiers == {"short_term": 37, "long_term": 3, "episodic": 1, "procedural": 0, "knowledge": 1}
    tiers_of_namespace = {
        name: tier.entries for name, tier in engine.namespace("acme").holdings().tiers.items()
    }
    assert {name: tiers.get(name) for name in tiers_of_namespace} == tiers_of_namespace
    assert all(tier.bytes > 0 for name, tier in found.tiers.items() if tier.count)
    assert not any(tier.is_estimate for tier in found.tiers.values())
    said, kept, known = (
        sum(tables[f"lmt_{name}"].bytes for name in names)
        for names in (
            ("messages", "vectors", "entries", "listings", "accesses"),
            ("memories", "memory_vectors", "memory_tags", "relations", "extracted_facts"),
            ("knowledge", "knowledge_history"),
        )
    )
    memories = tables["lmt_memories"].rows
    assert memories > 3  # parts of the conversation too, which belong to the short term
    assert {name: tier.bytes for name, tier in found.tiers.items()} == {
        "short_term": said - said // 32 + kept * (memories - 3) // memories,
        "long_term": said // 32 + kept * 2 // memories,
        "episodic": kept // memories,
        "procedural": 0,
        "knowledge": known,
    }
    assert found.total_bytes > sum(table.bytes for table in found.tables) / 2
    assert found.taken_at == clock.now()
    assert found.as_dict()["messages"] == 32


@pytest.mark.soak
def test_a_large_table_of_postgresql_is_not_counted(
    new_postgres_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_test_engine(new_postgres_database()) as engine:
        fill(engine, "acme")
        engine.maintenance.run()
        monkeypatch.setattr("langmem_tiers.maintenance.statistics._MAX_COUNTED_ROWS", 3)
        found = engine.statistics()
    assert "rows of lmt_messages" in found.estimated
    assert found.messages == 32  # from the session, of which there is one
    tiers = found.tiers
    assert tiers["long_term"].is_estimate
    # Three, one of them a promoted message; what the server hears of rows only after it has counted them, it counts
    # once more.
    assert 3 <= tiers["long_term"].count <= 6


@pytest.mark.parametrize(
    ("line", "zone", "due"),
    [
        ("0 3 * * *", "UTC", datetime(2025, 1, 16, 3, tzinfo=UTC)),
        ("0 3 * * *", "Europe/Berlin", datetime(2025, 1, 16, 2, tzinfo=UTC)),
        ("*/15 * * * *", "UTC", datetime(2025, 1, 15, 10, 45, tzinfo=UTC)),
        ("0 0 29 2 *", "UTC", datetime(2028, 2, 29, tzinfo=UTC)),
        ("0 3 * * MON", "UTC", datetime(2025, 1, 20, 3, tzinfo=UTC)),
    ],
)
def test_a_cron_line_determines_the_next_run(line: str, zone: str, due: datetime) -> None:
    config = EngineConfig(maintenance=MaintenanceConfig(schedule=line, time_zone=zone))
    with open_test_engine("sqlite://", config=config) as engine:
        assert engine.maintenance.next_run() == due


@pytest.mark.parametrize(
    "given",
    [
        {"schedule": "every night"},
        {"schedule": "0 25 * * *"},
        {"schedule": "0 3 * *"},
        {"schedule": "0 0 31 2 *"},
        {"schedule": ""},
        {"schedule": 3},
        {"time_zone": "Mars/Olympus"},
        {"time_zone": "../etc/passwd"},
        {"retention_days": 0},
        {"retention_days": -1},
        {"retention_days": "90"},
        {"retention_days": True},
        {"compaction": "yes"},
    ],
)
def test_an_invalid_setting_is_refused_before_a_database_is_opened(
    tmp_path: Any, given: dict[str, Any]
) -> None:
    file = tmp_path / "memory.db"
    with pytest.raises(InvalidConfigError) as raised:
        MemoryEngine(f"sqlite:///{file}", config=EngineConfig(maintenance=MaintenanceConfig(**given)))
    assert repr(next(iter(given.values()))) in str(raised.value)
    assert not file.exists()


class Racing(FrozenClock):
    """A clock that comes an hour further each time it is looked at."""

    def now(self) -> datetime:
        return self.advance(hours=1)


def _watched(engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    ran, run = threading.Event(), engine.maintenance.run

    def noted() -> MaintenanceReport:
        try:
            return run()
        finally:
            ran.set()

    monkeypatch.setattr(engine.maintenance, "run", noted)
    engine.maintenance._poll_seconds = 0.001
    return ran


def test_maintenance_runs_on_schedule_only_after_start(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FrozenClock()
    with open_test_engine("sqlite://", clock) as engine:
        ran = _watched(engine, monkeypatch)
        clock.advance(days=2)
        is_running = [engine.maintenance.is_running]
        engine.maintenance.start()
        engine.maintenance.start()
        is_running.append(engine.maintenance.is_running)
        assert is_running == [False, True]
        assert not ran.wait(0.05)
        clock.advance(days=1)
        assert ran.wait(LIMIT_SECONDS)
        assert engine.maintenance.stop()
        assert engine.maintenance.last is not None
    assert not engine.maintenance.is_running


def test_a_failed_run_is_counted_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_test_engine("sqlite://", Racing()) as engine:
        again = threading.Event()

        def broken() -> MaintenanceReport:
            if engine.maintenance.failures:
                again.set()
            raise OSError("no")

        monkeypatch.setattr(engine.maintenance, "run", broken)
        engine.maintenance._poll_seconds = 0.001
        engine.maintenance.start()
        assert again.wait(LIMIT_SECONDS)


def test_only_one_of_two_processes_runs_each_scheduled_time(tmp_path: Any) -> None:
    clock, url = FrozenClock(), f"sqlite:///{tmp_path / 'memory.db'}"
    with open_test_engine(url, clock) as one, open_test_engine(url, clock) as other:
        due = one.maintenance.next_run()
        taken = [engine.maintenance._claim_run(due) for engine in (one, other, one)]
        assert taken == [True, False, False]
        assert other.maintenance._claim_run(due + DAY)


def test_a_second_concurrent_run_does_nothing(tmp_path: Any) -> None:
    clock, url = FrozenClock(), f"sqlite:///{tmp_path / 'memory.db'}"
    with (
        open_test_engine(url, clock, config=CONFIG) as one,
        open_test_engine(url, clock, config=CONFIG) as other,
    ):
        lease = one.services.get_lease("maintenance")
        assert lease.acquire()
        report = other.maintenance.run()
        assert (report.is_elsewhere, report.is_complete) == (True, False)
        assert (report.erased.total, report.compacted, report.statistics) == (0, None, None)
        assert report.as_dict()["statistics"] is None
        assert other.maintenance.last is None
        lease.release()
        assert other.maintenance.run().is_complete
