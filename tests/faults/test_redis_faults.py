"""A Redis that is down, slow, full, locked or broken makes memory slower, but never wrong."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from benchmarks.servers import TemporaryRedis
from langmem_tiers import CacheConfig, EngineConfig, MemoryEngine, MessageDraft, RedisConfig
from langmem_tiers.testing import FrozenClock
from tests.fixed_reply_server import FixedReplyServer
from tests.forking import fork, wait
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from langmem_tiers.sessions import RedisStatus

pytestmark = pytest.mark.fault

KEEPS_ITS_DATA = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def server() -> Iterator[TemporaryRedis]:
    with TemporaryRedis() as started:
        yield started


def open_engine(path: Path, url: str, clock: FrozenClock | None = None, **redis: float) -> MemoryEngine:
    given = RedisConfig(url=url, **{"timeout_seconds": LIMIT_SECONDS, **redis})  # type: ignore[arg-type]
    config = EngineConfig(cache=CacheConfig(max_characters=0), redis=given)
    return MemoryEngine(path / "memory.db", config=config, clock=clock, embedder=None)


def status(engine: MemoryEngine) -> RedisStatus:
    assert engine.redis is not None
    return engine.redis


def use(engine: MemoryEngine, name: str = "s", times: int = 5) -> None:
    """Write and read, and see everything."""
    session = engine.session("acme", name)
    before = [m.content for m in session.messages()]
    for n in range(times):
        session.add("user", f"message {n}")
        assert [m.content for m in session.latest(1000)] == [*before, *(f"message {k}" for k in range(n + 1))]


@pytest.mark.smoke
def test_an_unreachable_redis_is_logged_once_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FrozenClock()
    with open_engine(tmp_path, f"unix://u:hidden@{tmp_path}/none.sock", clock) as engine:
        use(engine)
        clock.advance(seconds=6)
        use(engine)
        now = status(engine)
    assert not now.is_connected
    assert now.failures == 2
    assert now.skipped > 5
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "none.sock is unavailable (ConnectionError): all data is read from the database" in caplog.text
    assert "hidden" not in caplog.text + repr(now)


def test_a_wrong_password_is_reported_and_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with TemporaryRedis("--requirepass", "right-one") as server:
        path = server.url.removeprefix("unix://")
        with open_engine(tmp_path, f"unix://:wrong-one@{path}") as engine:
            use(engine)
            assert not status(engine).is_connected
        assert "(AuthenticationError)" in caplog.text
        assert "wrong-one" not in caplog.text
        with open_engine(tmp_path, f"unix://:right-one@{path}") as engine:
            use(engine)
            assert (status(engine).is_connected, status(engine).failures) == (True, 0)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol", marks=pytest.mark.smoke),
        pytest.param(b"\x00\xff\r\n" * 50, id="bytes"),
        pytest.param(b"+OK\r\n", id="always ok"),
        pytest.param(b":1\r\n", id="always one"),
        pytest.param(b"$-1\r\n", id="always nothing"),
        pytest.param(b"*-1\r\n", id="no list"),
        pytest.param(b"*0\r\n", id="an empty list"),
        pytest.param(b"*1\r\n$0\r\n\r\n", id="always cold"),
        pytest.param(b"*2\r\n$4\r\n~a~1\r\n$1\r\n1\r\n", id="a window of nothing"),
        pytest.param(
            b"*3\r\n$4\r\n~a~1\r\n$1\r\n1\r\n$20\r\n0123456789abcdef[{}]\r\n", id="a window of others"
        ),
        pytest.param(b"$99999999999\r\nabc", id="a promise"),
        pytest.param(b"*1\r\n" * 3000, id="a deep list"),
        pytest.param(b"-ERR go away\r\n", id="errors"),
        pytest.param(b"-LOADING soon\r\n", id="loading"),
        pytest.param(None, id="silence"),
    ],
)
def test_a_redis_that_returns_garbage_is_not_used(tmp_path: Path, answer: bytes | None) -> None:
    clock = FrozenClock()
    with (
        FixedReplyServer(answer) as server,
        open_engine(tmp_path, server.url, clock, timeout_seconds=0.05) as engine,
    ):
        for _ in range(2):
            use(engine, times=3)
            clock.advance(seconds=10)
        engine.session("acme", "s").delete()
        assert engine.session("acme", "s").latest() == ()


def test_a_damaged_redis_window_is_not_used(tmp_path: Path) -> None:
    with TemporaryRedis() as server, open_engine(tmp_path, server.url) as engine, server.client as client:
        session = engine.session("acme", "s")
        session.add("user", "one")
        (key,) = client.keys()
        member = client.zrange(key, 1, 1)[0]
        client.zrem(key, member)
        assert [m.content for m in session.latest()] == ["one"]


def test_calls_after_a_timeout_do_not_wait_for_a_redis_that_hangs(
    tmp_path: Path, server: TemporaryRedis
) -> None:
    clock = FrozenClock()
    with open_engine(tmp_path, server.url, clock, timeout_seconds=0.2) as engine:
        use(engine)
        before = status(engine)
        clock.advance(seconds=6)
        os.kill(server.pid, signal.SIGSTOP)
        use(engine, times=20)
        now = status(engine)
        assert (now.failures - before.failures, now.is_connected) == (1, False)
        assert now.skipped - before.skipped >= 20
        os.kill(server.pid, signal.SIGCONT)

        def serves_again() -> bool:
            clock.advance(seconds=6)
            use(engine)
            return status(engine).hits > before.hits and status(engine).is_connected

        wait_until(serves_again, "Redis serves again")


def test_writes_during_a_redis_outage_are_visible_after_redis_returns_with_old_data(tmp_path: Path) -> None:
    clock = FrozenClock()
    with (
        TemporaryRedis(*KEEPS_ITS_DATA) as server,
        open_engine(tmp_path, server.url, clock) as engine,
        engine.writer() as writer,
    ):
        names = ("left alone", "added to", "written to by a writer")
        for name in names:
            engine.session("acme", name).add("user", "before")
        server.kill()
        engine.session("acme", "added to").add("user", "meanwhile")
        writer.add("acme", "written to by a writer", MessageDraft("user", "meanwhile"))
        server.start()
        clock.advance(seconds=6)
        before = status(engine).hits
        seen = [[m.content for m in engine.session("acme", name).latest()] for name in names]
        assert seen == [["before"], ["before", "meanwhile"], ["before", "meanwhile"]]
        assert status(engine).hits == before + 1  # what is as it was comes from there
        for name in names:
            engine.session("acme", name).latest()
        assert status(engine).hits == before + 4


def test_a_call_contacts_a_hanging_redis_at_most_once(tmp_path: Path, server: TemporaryRedis) -> None:
    clock = FrozenClock()
    with open_engine(tmp_path, server.url, clock, timeout_seconds=0.1) as engine, engine.writer() as writer:
        session = engine.session("acme", "s")
        session.add("user", "first")
        before = status(engine).failures
        clock.advance(seconds=6)
        calls: list[Callable[[], object]] = [
            lambda: session.add("user", "one"),
            session.latest,
            lambda: session.transcript.latest(9),
            lambda: writer.add("acme", "s", MessageDraft("user", "two")),
            session.latest,
        ]
        os.kill(server.pid, signal.SIGSTOP)
        try:
            for number, call in enumerate(calls, 1):
                call()
                assert status(engine).failures - before == number  # one time limit
                call()
                assert status(engine).failures - before == number  # it is left alone
                clock.advance(seconds=6)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert [m.content for m in session.latest()] == ["first", "one", "one", "two", "two"]


def test_messages_erased_during_a_redis_outage_are_removed_when_it_returns(
    tmp_path: Path, server: TemporaryRedis
) -> None:
    clock, hidden = FrozenClock(), server.folder / "hidden.sock"
    with open_engine(tmp_path, server.url, clock) as engine, server.client as client:
        engine.session("acme", "s").add("user", "a secret")
        client.ping()
        server.socket.rename(hidden)  # nobody finds it, and those who had are thrown out
        client.client_kill_filter(_type="normal", skipme=True)
        engine.session("acme", "s").delete()
        assert status(engine).unremoved == 1
        hidden.rename(server.socket)
        assert any(
            b"a secret" in member for key in client.scan_iter() for member in client.zrange(key, 0, -1)
        )
        clock.advance(seconds=6)
        engine.session("acme", "t").add("user", "another")
        assert status(engine).unremoved == 0
        assert not any(
            b"a secret" in member for key in client.scan_iter() for member in client.zrange(key, 0, -1)
        )


@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
def test_a_full_redis_is_only_slower(tmp_path: Path, policy: str) -> None:
    with (
        TemporaryRedis("--maxmemory", "2mb", "--maxmemory-policy", policy) as server,
        open_engine(tmp_path, server.url, retry_seconds=0.001) as engine,
    ):
        for n in range(60):
            session = engine.session("acme", f"s{n % 20}")
            session.add("user", f"{n} " + "x" * 50_000)
            assert [int(m.content.split()[0]) for m in session.latest()] == list(range(n % 20, n + 1, 20))
        assert status(engine).is_connected


def test_a_forked_child_has_its_own_connections(tmp_path: Path, server: TemporaryRedis) -> None:
    with open_engine(tmp_path, server.url) as engine:
        use(engine)
        assert wait(fork(lambda: use(engine))) == 0
        use(engine)
        assert status(engine).failures == 0


@pytest.mark.parametrize("settings", [(), KEEPS_ITS_DATA], ids=["without its data", "with its data"])
def test_a_redis_kill_and_restart_under_load_lose_and_invent_nothing(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    stop, wrong = threading.Event(), list[str]()
    written = dict.fromkeys("abcd", 0)

    def work(engine: MemoryEngine, name: str) -> None:
        session, n = engine.session("acme", "shared"), 0
        while not stop.is_set():
            session.add(MessageDraft("user", f"{name} {n}", id=f"{name} {n}"))
            mine = [m.content for m in session.latest(20) if m.content.startswith(name)]
            if mine and mine != [f"{name} {k}" for k in range(n - len(mine) + 1, n + 1)]:
                wrong.append(f"{name} {n}: {mine}")
            n += 1
            written[name] = n

    def go_on() -> None:
        """Wait until each worker has begun and finished a round since now."""
        before = dict(written)
        wait_until(lambda: all(written[name] > before[name] + 1 for name in before), "all workers go on")

    with TemporaryRedis(*settings) as server, open_engine(tmp_path, server.url, retry_seconds=0.05) as engine:
        workers = [threading.Thread(target=work, args=(engine, name)) for name in "abcd"]
        for worker in workers:
            worker.start()
        for _ in range(4):
            go_on()
            server.kill()
            go_on()
            server.start()
        before = status(engine).hits
        wait_until(lambda: status(engine).hits > before, "Redis serves again")
        stop.set()
        for worker in workers:
            worker.join()
        assert wrong == []
        stored = {m.id for m in engine.session("acme", "shared").messages()}
        assert stored == {f"{name} {n}" for name, count in written.items() for n in range(count)}
        assert status(engine).failures > 0


WORKER = """
import itertools, select, sys
from langmem_tiers import CacheConfig, EngineConfig, MemoryEngine, MessageDraft, RedisConfig
url, redis, tenant, name, seconds = sys.argv[1:]
near = RedisConfig(url=redis, retry_seconds=0.05, timeout_seconds=float(seconds))
config = EngineConfig(cache=CacheConfig(max_characters=0), redis=near)
with MemoryEngine(url, config=config, embedder=None) as engine:
    for n in itertools.count():
        if select.select([sys.stdin], [], [], 0)[0]:
            break  # the parent has closed it
        session = engine.session(tenant, f"s{n % 3}")
        session.add(MessageDraft("user", f"{name} {n}", id=f"{name} {n}"))
        seen = session.latest(12)
        record = tuple(session.messages())
        ids = [m.id for m in record]
        start = ids.index(seen[0].id)
        assert tuple(seen) == record[start:start + len(seen)], (seen, record)
        assert f"{name} {n}" in ids and (f"{name} {n}" in [m.id for m in seen] or len(ids) > 12)
    status = engine.redis
print(n, status.hits, flush=True)
"""


def test_processes_on_one_postgresql_and_one_redis_see_each_other(
    shared_postgres: str, tenant: str, server: TemporaryRedis
) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, shared_postgres, server.url, tenant, f"w{n}", str(LIMIT_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    with server.client as client:
        for _ in range(3):
            wait_until(client.dbsize, "the children fill Redis")
            server.kill()
            server.start()
        wait_until(client.dbsize, "the children fill Redis again")
    with MemoryEngine(shared_postgres, embedder=None) as engine:
        sessions = [engine.session(tenant, f"s{n}") for n in range(3)]
        wait_until(lambda: sum(session.count() for session in sessions) >= 90, "the children write more")
        outputs = [child.communicate(timeout=LIMIT_SECONDS) for child in children]
        assert [child.returncode for child in children] == [0, 0], outputs
        counts, hits = zip(*(map(int, out.split()) for out, _ in outputs), strict=True)
        assert sum(hits) > 0
        stored = [m.id for session in sessions for m in session.messages()]
        assert sorted(stored) == sorted(f"w{n} {k}" for n, count in enumerate(counts) for k in range(count))
