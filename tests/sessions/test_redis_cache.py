"""Redis caches the latest messages: written through, filled when cold, erased with the session."""

from __future__ import annotations

import shutil
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.servers import TemporaryRedis
from langmem_tiers import (
    CacheConfig,
    EngineConfig,
    InvalidConfigError,
    MemoryEngine,
    Message,
    MessageDraft,
    MessageToolCall,
    RedisConfig,
)
from langmem_tiers.common.messages import Role
from langmem_tiers.sessions.redis.connection import RedisConnection
from langmem_tiers.sessions.redis.message_windows import from_window_member, to_scores, to_window_member
from langmem_tiers.sessions.session_version import SessionWrite
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langmem_tiers.sessions import RedisStatus
    from langmem_tiers.testing import FrozenClock

NOT_IN_PROCESS = CacheConfig(max_characters=0)


@pytest.fixture(scope="module")
def server() -> Iterator[TemporaryRedis]:
    with TemporaryRedis() as started:
        yield started


@pytest.fixture
def client(server: TemporaryRedis) -> Iterator[Any]:
    with server.client as opened:
        opened.flushall()
        yield opened


def open_engine(
    url: object, server: TemporaryRedis, clock: FrozenClock | None = None, **redis: object
) -> MemoryEngine:
    given = RedisConfig(**{"url": server.url, "timeout_seconds": LIMIT_SECONDS, **redis})  # type: ignore[arg-type]
    config = EngineConfig(cache=NOT_IN_PROCESS, redis=given)
    return MemoryEngine(url, config=config, clock=clock, embedder=None)  # type: ignore[arg-type]


@pytest.fixture
def engine(tmp_path: Path, server: TemporaryRedis, client: Any, clock: FrozenClock) -> Iterator[MemoryEngine]:
    with open_engine(tmp_path / "memory.db", server, clock) as one:
        yield one


def status(engine: MemoryEngine) -> RedisStatus:
    assert engine.redis is not None
    return engine.redis


def list_contents(engine: MemoryEngine, count: int = 9) -> list[str]:
    return [message.content for message in engine.session("acme", "s").latest(count)]


def test_just_added_messages_are_read_from_redis(engine: MemoryEngine, client: Any) -> None:
    session = engine.session("acme", "s")
    session.add("user", "one")
    session.add_many([MessageDraft("user", "two"), MessageDraft("user", "three")])
    assert list_contents(engine) == ["one", "two", "three"]
    assert (status(engine).hits, status(engine).misses) == (1, 0)
    (key,) = client.keys()
    assert key.decode() == f"langmem-tiers:episodic:{engine.database_id}:{session.key}"
    assert client.type(key) == b"zset"
    assert 86_400 - 60 < client.ttl(key) <= 86_400


def test_messages_stored_by_a_writer_are_visible_to_other_engines(
    tmp_path: Path, server: TemporaryRedis, client: Any
) -> None:
    def reads(session: str) -> list[str]:
        return [message.content for message in other.session("acme", session).latest(9)]

    with (
        open_engine(tmp_path / "memory.db", server) as one,
        open_engine(tmp_path / "memory.db", server) as other,
        one.writer(acknowledge="queued", max_wait_ms=3_600_000) as writer,
    ):
        one.session("acme", "old").add("user", "before")
        for session in ("old", "new", "new", "another"):
            writer.add("acme", session, MessageDraft("user", f"in {session}"))
        before = client.info("commandstats")
        writer.flush()
        after = client.info("commandstats")
        assert writer.report.batches == 1
        assert after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"] == 3
        assert reads("old") == ["before", "in old"]
        assert reads("new") == ["in new", "in new"]
        assert reads("another") == ["in another"]
        assert (status(other).hits, status(other).misses, status(one).failures) == (3, 0, 0)
        one.session("acme", "new").add("user", "after")
        assert reads("new") == ["in new", "in new", "after"]
        assert (status(other).hits, status(other).misses) == (4, 0)


def test_a_writer_needs_no_redis_that_answers(tmp_path: Path) -> None:
    with (
        TemporaryRedis() as server,
        open_engine(tmp_path / "memory.db", server) as engine,
        engine.writer() as writer,
    ):
        for n in range(6):
            if n == 3:
                server.kill()
            writer.add("acme", "s", MessageDraft("user", f"{n}"))
        assert list_contents(engine) == [f"{n}" for n in range(6)]
        assert writer.report.retries == 0
        assert status(engine).failures == 1


def test_a_cold_window_is_filled_from_the_database(engine: MemoryEngine, client: Any) -> None:
    engine.session("acme", "s").add_many(MessageDraft("user", str(n)) for n in range(9))
    client.flushall()
    assert list_contents(engine, 3) == ["6", "7", "8"]
    assert list_contents(engine, 2) == ["7", "8"]
    assert (status(engine).hits, status(engine).misses) == (1, 1)
    assert list_contents(engine, 20) == [str(n) for n in range(9)]  # fewer are held, so the database answers
    assert list_contents(engine, 20) == [str(n) for n in range(9)]
    assert (status(engine).hits, status(engine).misses) == (2, 2)


def test_the_window_is_scored_by_time_and_ordered_by_the_record(engine: MemoryEngine, client: Any) -> None:
    noon = datetime(2025, 1, 15, 12, tzinfo=UTC)
    times = [noon, noon + timedelta(seconds=2), noon, noon, noon + timedelta(hours=1)]
    session = engine.session("acme", "s")
    for number, time in enumerate(times):
        session.add(MessageDraft("user", str(number), created_at=time))
    second = 1_000_000
    start = round(noon.timestamp()) * second
    expected = [
        start,
        start + 2 * second,
        start + 2 * second + 1,
        start + 2 * second + 2,
        start + 3600 * second,
    ]
    for _ in ("written through", "filled"):
        scores = [round(score) for _, score in client.zrange(client.keys()[0], 1, -1, withscores=True)]
        assert scores == expected
        client.flushall()
        assert list_contents(engine) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_messages_of_any_year_keep_their_order(engine: MemoryEngine, year: int) -> None:
    session = engine.session("acme", "s")
    for n in range(5):
        session.add(MessageDraft("user", str(n), created_at=datetime(year, 6, 1, tzinfo=UTC)))
    session.add("user", "5")
    assert list_contents(engine) == [str(n) for n in range(6)]
    assert status(engine).misses == 0


def test_a_message_is_read_back_equal() -> None:
    message = Message(
        id="i\0",
        role=Role.ASSISTANT,
        content="null \0, lone \ud83d\ude00 \udc00, real 😀, שלום, \ufffd",
        created_at=datetime(2025, 1, 15, 10, 30, 0, 7, tzinfo=UTC),
        token_count=3,
        token_counter="test",
        is_compressed=True,
        name="n\ud800",
        tool_calls=(MessageToolCall("c", "t", '{"a": "\\ud83d"}'), MessageToolCall("d", "u")),
        tool_call_id="",
        payload_json='{"x":1.0}',
    )
    assert from_window_member("key", to_window_member("key", message)) == message
    with pytest.raises(ValueError, match="not a message of this session"):
        from_window_member("another key", to_window_member("key", message))
    with pytest.raises(ValueError, match="not a message of this session"):
        from_window_member("key", to_window_member("key", message).replace(b"real", b"fake"))
    assert to_scores([message, message]) == [to_scores([message])[0], to_scores([message])[0] + 1]


def test_a_window_respects_its_limits(tmp_path: Path, server: TemporaryRedis, client: Any) -> None:
    with open_engine(tmp_path / "memory.db", server, window=4, max_window_bytes=2000) as engine:
        session = engine.session("acme", "s")
        for n in range(6):
            session.add("user", str(n))
        (key,) = client.keys()
        assert client.zcard(key) == 5
        assert list_contents(engine, 4) == ["2", "3", "4", "5"]
        session.add("user", "x" * 1500)
        assert client.zcard(key) < 5
        session.add("user", "y" * 5000)  # more than a window: not cached, and read all the same
        assert [len(text) for text in list_contents(engine, 3)] == [1, 1500, 5000]
        assert sum(len(member) for member in client.zrange(key, 0, -1)) < 2200
        session.add_many(MessageDraft("user", str(n)) for n in range(10))
        assert list_contents(engine, 12)[-10:] == [str(n) for n in range(10)]


def test_a_write_that_bypassed_redis_is_visible(tmp_path: Path, server: TemporaryRedis, client: Any) -> None:
    with open_engine(tmp_path / "memory.db", server) as one, MemoryEngine(tmp_path / "memory.db") as without:
        one.session("acme", "s").add("user", "first")
        without.session("acme", "s").add("user", "second")
        assert list_contents(one) == ["first", "second"]
        one.session("acme", "s").add("user", "third")
        assert list_contents(one) == ["first", "second", "third"]


def test_a_slow_fill_does_not_replace_later_writes(engine: MemoryEngine, client: Any) -> None:
    session = engine.session("acme", "s")
    session.add("user", "one")
    windows, stamps = engine._redis._windows, engine._redis._tails.versions  # type: ignore[union-attr]
    client.flushall()
    stamp = stamps.get(session.key)
    assert stamp is not None
    found = windows.get(session.key, stamp, 9)
    assert found is not None
    old = engine._services.short_term.messages.list_latest(session.key, 9).messages  # fills it
    session.add("user", "two")
    windows.put(session.key, stamp, old, head=found.head, whole=True)  # who was slower comes now
    before = status(engine).hits
    assert list_contents(engine) == ["one", "two"]
    assert status(engine).hits == before + 1


def test_engines_that_write_in_turns_keep_the_window_correct(
    shared_postgres: str, server: TemporaryRedis, client: Any, tenant: str
) -> None:
    with open_engine(shared_postgres, server) as one, open_engine(shared_postgres, server) as two:
        for number in range(4):
            for engine in (one, two):
                engine.session(tenant, "s").add("user", f"{number}")
        with open_engine(shared_postgres, server) as reader:
            found = reader.session(tenant, "s").latest(9)
            assert [message.content for message in found] == [*"00112233"]
            assert (status(reader).hits, status(reader).misses) == (1, 0)


def test_writers_out_of_order_leave_no_wrong_window(engine: MemoryEngine) -> None:
    session = engine.session("acme", "s")
    session.add("user", "zero")
    windows, stamps = engine._redis._windows, engine._redis._tails.versions  # type: ignore[union-attr]
    record = engine._services.short_term.messages._record  # type: ignore[attr-defined]
    now = engine._services.now()
    states = [stamps.get(session.key)]
    batches = []
    for text in ("one", "two"):  # stored, and not written through yet
        message = Message(
            id=text, role=Role.USER, content=text, created_at=now, token_count=1, token_counter="t"
        )
        record.append(session.key, [message], now)
        states.append(stamps.get(session.key))
        batches.append([message])
    for place in (1, 0):  # the later first
        before, after = states[place], states[place + 1]
        assert before is not None
        assert after is not None
        windows.extend([SessionWrite(session.key, before, after, batches[place])])
        assert list_contents(engine) == ["zero", "one", "two"]


@pytest.mark.parametrize("unread", [0, 1, 2, 3])
def test_a_restored_database_is_not_mixed_with_old_redis_data(
    tmp_path: Path, server: TemporaryRedis, client: Any, clock: FrozenClock, unread: int
) -> None:
    path, copy = tmp_path / "memory.db", tmp_path / "copy.db"
    with open_engine(path, server, clock) as engine:
        engine.session("acme", "s").add("user", "one")
    shutil.copy(path, copy)
    with open_engine(path, server, clock) as engine:
        for text in ("lost", "and lost"):
            clock.advance(seconds=1)
            engine.session("acme", "s").add("user", text)
    shutil.copy(copy, path)
    clock.advance(seconds=1)
    with open_engine(path, server, clock) as engine:
        for n in range(unread):  # through the same revisions as before
            clock.advance(seconds=0.5)
            engine.session("acme", "s").add("user", str(n))
        assert list_contents(engine) == ["one", *map(str, range(unread))]
        clock.advance(seconds=1)
        engine.session("acme", "s").add("user", "last")
        assert list_contents(engine) == ["one", *map(str, range(unread)), "last"]


def test_a_copied_database_with_reused_keys_shows_its_own_sessions(
    tmp_path: Path, server: TemporaryRedis, client: Any, clock: FrozenClock
) -> None:
    with open_engine(tmp_path / "1.db", server, clock):
        pass
    shutil.copy(tmp_path / "1.db", tmp_path / "2.db")
    with (
        open_engine(tmp_path / "1.db", server, clock) as one,
        open_engine(tmp_path / "2.db", server, clock) as other,
    ):
        one.session("alice", "s").add("user", "hers")
        other.session("bob", "s").add("user", "his")
        assert one.session("alice", "s").key == other.session("bob", "s").key
        assert [m.content for m in one.session("alice", "s").latest()] == ["hers"]
        assert [m.content for m in other.session("bob", "s").latest()] == ["his"]


def test_erased_messages_are_removed_from_redis(
    engine: MemoryEngine, server: TemporaryRedis, client: Any
) -> None:
    doomed = engine.session("acme", "s")
    doomed.add("user", "a secret of one")
    engine.session("acme", "t").add("user", "a secret of two")
    engine.session(("acme", "child"), "t").add("user", "what stays")
    doomed.delete()
    assert b"secret of one" not in everything(client)
    engine.namespace("acme").delete()
    assert b"secret" not in everything(client)
    assert b"what stays" in everything(client)
    assert status(engine).unremoved == 0


def test_a_stale_reader_does_not_restore_erased_messages(engine: MemoryEngine, client: Any) -> None:
    session = engine.session("acme", "s")
    session.add("user", "a secret")
    client.flushall()
    windows, stamps = engine._redis._windows, engine._redis._tails.versions  # type: ignore[union-attr]
    stamp = stamps.get(session.key)
    assert stamp is not None
    messages = session.latest()
    client.flushall()
    found = windows.get(session.key, stamp, 9)
    assert found is not None
    session.delete()
    windows.put(session.key, stamp, messages, head=found.head, whole=True)
    windows.put(session.key, stamp, messages, head=b"~gone", whole=True)
    windows.extend([SessionWrite(session.key, stamp, stamp.advance(2, engine._services.now()), messages)])
    assert b"secret" not in everything(client)


def test_a_recreated_session_is_empty(engine: MemoryEngine) -> None:
    engine.session("acme", "s").add("user", "old")
    engine.session("acme", "s").delete()
    assert list_contents(engine) == []
    engine.session("acme", "s").add("user", "new")
    assert list_contents(engine) == ["new"]
    engine.session("acme", "s").set_aside()
    assert list_contents(engine) == []


def test_two_databases_sharing_a_redis_are_isolated(
    tmp_path: Path, server: TemporaryRedis, client: Any, clock: FrozenClock
) -> None:
    with (
        open_engine(tmp_path / "1.db", server, clock) as one,
        open_engine(tmp_path / "2.db", server, clock) as other,
    ):
        one.session("acme", "s").add("user", "mine")
        other.session("acme", "s").add("user", "theirs")
        assert (list_contents(one), list_contents(other)) == (["mine"], ["theirs"])


def test_concurrent_threads_on_one_session_see_their_own_writes(engine: MemoryEngine) -> None:
    missing: list[str] = []

    def work(name: str) -> None:
        session = engine.session("acme", "s")
        for n in range(40):
            session.add("user", f"{name} {n}")
            seen = [m.content for m in session.latest(100) if m.content.startswith(name)]
            if seen != [f"{name} {k}" for k in range(n + 1)][-len(seen) :] or f"{name} {n}" not in seen:
                missing.append(f"{name} {n}")

    workers = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert missing == []
    assert list_contents(engine, 500) == [m.content for m in engine.session("acme", "s").messages()]
    assert status(engine).failures == 0


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://localhost:6379", "unknown Redis URL scheme 'http'"),
        ("localhost:6379", "unknown Redis URL scheme 'localhost'"),
        ("redis://", "has no valid target"),
        ("redis://host:port", "invalid Redis URL or port"),
        ("redis://host:0", "has no valid target"),
        ("redis://host/name", "has no valid target"),
        ("unix://", "has no valid target"),
        (6379, "must be a str, got int"),
    ],
)
def test_an_invalid_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        RedisConfig(url=url)


def test_an_unknown_url_parameter_is_refused_without_showing_secrets(tmp_path: Path) -> None:
    config = EngineConfig(redis=RedisConfig(url="redis://u:hidden@host?nonsense=1"))
    with pytest.raises(InvalidConfigError, match=r"redis://host.*remove the query string") as caught:
        MemoryEngine(tmp_path / "memory.db", config=config)
    assert "hidden" not in str(caught.value) + repr(config)


@pytest.mark.parametrize(
    "settings",
    [{"prefix": ""}, {"prefix": "a\0"}, {"ttl_seconds": 0}, {"window": 0}, {"timeout_seconds": -1}],
)
def test_invalid_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigError, match=next(iter(settings))):
        RedisConfig(**settings)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfigError, match="redis must be a RedisConfig or None"):
        EngineConfig(redis="redis://localhost")  # type: ignore[arg-type]


def test_a_failed_redis_is_retried_once_after_a_pause(
    tmp_path: Path, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    config = RedisConfig(url=f"unix://{tmp_path}/no.sock", retry_seconds=5.0)
    link = RedisConnection(config, clock.monotonic)
    assert link.is_up
    assert not link.ping()  # nothing listens there
    assert (link.is_up, link.failures, link.skipped) == (False, 1, 0)
    assert link.execute(lambda: pytest.fail("it was asked too early")) is None
    clock.advance(seconds=4.9)
    assert not link.ping()
    assert (link.is_up, link.failures, link.skipped) == (False, 1, 2)

    clock.advance(seconds=0.1)
    assert link.is_up
    answer = link.execute(lambda: (link.is_up, link.execute(lambda: "another"), link.skipped))
    assert answer == (False, None, 3)  # while the first one tries, no other does
    assert (link.is_up, link.failures, link.skipped) == (True, 1, 3)
    assert link.execute(lambda: "another") == "another"

    for seconds in (0, 594, 1):
        clock.advance(seconds=seconds)
        assert not link.ping()
        clock.advance(seconds=5)
    assert (link.failures, link.skipped) == (4, 3)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2  # ten minutes apart
    assert all("ConnectionError" in warning and "in 5.0 s" in warning for warning in warnings)
    link.close()


def test_an_engine_without_redis_has_no_redis_status() -> None:
    with MemoryEngine() as engine:
        assert engine.redis is None


def everything(client: Any) -> bytes:
    return b"\n".join(
        key + b"".join(client.zrange(key, 0, -1)) + client.dump(key) for key in client.scan_iter()
    )
