"""Cut connections to PostgreSQL and lost replies do not lead to wrong caches."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import (
    CacheConfig,
    EngineConfig,
    MemoryEngine,
    MessageDraft,
    PostgresConfig,
    RedisConfig,
    UnsavedError,
)
from langmem_tiers.erasure.repository import ErasureRepository
from langmem_tiers.pools.repository import PoolRepository
from langmem_tiers.storage.database import Database
from tests.contract.storage import NOW
from tests.faults.cutting_proxy import COMMIT
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.cutting_proxy import Cut, CuttingProxy

pytestmark = pytest.mark.fault

NOT_IN_PROCESS = CacheConfig(max_characters=0)


@pytest.fixture
def config(redis_url: str) -> EngineConfig:
    """With Redis, and nothing held in the process."""
    return EngineConfig(cache=NOT_IN_PROCESS, redis=RedisConfig(url=redis_url, timeout_seconds=LIMIT_SECONDS))


@pytest.mark.parametrize("when", ["before", "after"])
def test_with_redis_adds_and_reads_continue_after_a_cut_connection(
    proxy: CuttingProxy, config: EngineConfig, when: Cut
) -> None:
    with MemoryEngine(proxy.url, config=config, embedder=None) as engine:
        session = engine.session("acme", "s")
        proxy.cut(when, "SELECT")
        session.add("user", "one")
        proxy.cut(when, "SELECT")
        assert [message.content for message in session.latest()] == ["one"]
        proxy.cut(when, "SELECT")
        assert [message.content for message in session.transcript.latest(9)] == ["one"]
        assert proxy.cuts == 3


@pytest.mark.parametrize("has_redis", [False, True])
def test_a_write_between_a_lost_answer_and_its_look_up_is_visible(
    proxy: CuttingProxy, config: EngineConfig, *, has_redis: bool
) -> None:
    given = config if has_redis else None
    with MemoryEngine(proxy.url, config=given) as engine, MemoryEngine(proxy.direct_url) as other:
        session = engine.session("acme", "s")
        session.add("user", "first")

        def meanwhile() -> None:
            assert [message.content for message in session.latest()] == ["first", "a walrus"]
            other.session("acme", "s").add("user", "b")

        session.latest()
        proxy.cut("after", "a walrus", meanwhile)  # one message is one statement
        assert [message.content for message in session.add("user", "a walrus").stored] == ["a walrus"]
        assert [message.content for message in session.latest()] == ["first", "a walrus", "b"]
        session.add("user", "c")
        assert [message.content for message in session.latest()] == ["first", "a walrus", "b", "c"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_message_is_stored_once_when_any_answer_is_lost(proxy: CuttingProxy, when: Cut) -> None:
    with MemoryEngine(proxy.url, embedder=None) as engine:
        session = engine.session("acme", "s")
        session.add("user", "first")
        for number in range(3):
            proxy.cut(when, f"walrus {number}")
            report = session.add("user", f"walrus {number}")
            assert [message.content for message in report.stored] == [f"walrus {number}"]
        assert proxy.cuts == 3
        assert [message.content for message in session.messages()] == [
            "first",
            *(f"walrus {n}" for n in range(3)),
        ]
        assert session.count() == 4


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_reports_stored_messages_as_stored_when_any_answer_is_lost(
    proxy: CuttingProxy, when: Cut
) -> None:
    known, new = MessageDraft("user", "known", id="k"), MessageDraft("user", "new", id="n")
    with MemoryEngine(proxy.url) as engine, engine.writer() as writer:
        writer.add("acme", "s", known)
        proxy.cut(when, COMMIT)
        report = writer.add("acme", "s", known, new, new)
        assert report is not None
        assert [message.id for message in report.stored] == ["n"]
        assert [message.id for message in report.duplicates] == ["k", "n"]
        proxy.cut(when, COMMIT)
        assert writer.add("acme", "another", MessageDraft("user", "in a new session"))
        assert proxy.cuts == 2
        assert (writer.report.stored, writer.report.duplicates) == (3, 2)
        assert engine.session("acme", "s").count() == 2


def test_a_writer_that_waits_long_for_the_server_remembers_its_sent_batch(
    proxy: CuttingProxy,
) -> None:
    config = EngineConfig(postgres=PostgresConfig(reconnect_seconds=0))
    with MemoryEngine(proxy.url, config=config) as engine, engine.writer() as writer:
        writer.add("acme", "s", MessageDraft("user", "first"))
        proxy.cut("after", COMMIT, proxy.refuse)
        future = writer.submit("acme", "s", MessageDraft("user", "second"))
        wait_until(lambda: proxy.is_refusing, "the line is cut")
        with pytest.raises(UnsavedError):
            writer.flush(0.01)
        wait_until(lambda: writer.report.retries > 0, "the writer tries again")
        proxy.accept()
        assert [message.content for message in future.result(LIMIT_SECONDS).stored] == ["second"]
        assert (writer.report.stored, writer.report.duplicates) == (2, 0)
        assert engine.session("acme", "s").count() == 2


@pytest.mark.parametrize("has_redis", [False, True])
def test_a_write_between_a_lost_answer_of_a_writer_and_its_look_up_is_visible(
    proxy: CuttingProxy, config: EngineConfig, *, has_redis: bool
) -> None:
    given = config if has_redis else None
    with (
        MemoryEngine(proxy.url, config=given) as engine,
        MemoryEngine(proxy.direct_url) as other,
        engine.writer() as writer,
    ):
        session = engine.session("acme", "s")
        session.add("user", "first")

        def meanwhile() -> None:
            assert [message.content for message in session.latest()] == ["first", "a"]
            other.session("acme", "s").add("user", "b")

        session.latest()
        proxy.cut("after", COMMIT, meanwhile)
        writer.add("acme", "s", MessageDraft("user", "a"))
        assert [message.content for message in session.latest()] == ["first", "a", "b"]
        writer.add("acme", "s", MessageDraft("user", "c"))
        assert [message.content for message in session.latest()] == ["first", "a", "b", "c"]


@contextmanager
def stores(url: str) -> Iterator[tuple[PoolRepository, ErasureRepository]]:
    with closing(Database(url, EngineConfig())) as database:
        yield PoolRepository(database), ErasureRepository(database)


def test_pools_and_erasure_plans_are_read_after_a_cut_connection(proxy: CuttingProxy) -> None:
    ada = ("acme", "ada")
    with MemoryEngine(proxy.url, embedder=None) as engine:
        engine.session(ada, "s").add("user", "the walrus")
        pool = engine.pools.create("tusks", members=[ada])
        entry = pool.contribute(ada, "A walrus has tusks.").entry
        assert entry is not None
    with stores(proxy.url) as (pools, erasure):
        info = pools.get("tusks")
        assert info is not None
        (session,) = erasure.find_sessions(ada, "s")
        places = erasure.find_messages(session, None, NOW.replace(year=9999))
        touched = erasure.find_message_impact(session, places, with_long_term=True)
        assert touched is not None
        assert touched.state is not None
        state = touched.state
        reads: list[Callable[[], object]] = [
            lambda: pools.get("tusks"),
            lambda: pools.list_pools(after=None, limit=9),
            lambda: pools.list_readable(ada),
            lambda: pools.list_members(info.id),
            lambda: pools.get_member(info.id, ada),
            lambda: pools.get_origins(info.namespace, [entry.id]),
            lambda: pools.get_updates(info.id, ada, NOW, limit=9),
            lambda: erasure.find_user_namespaces("ada"),
            lambda: erasure.find_sessions(ada, "s"),
            lambda: erasure.find_messages(session, None, NOW.replace(year=9999)),
            lambda: erasure.find_session_impact(ada, [session], ["s"]),
            lambda: erasure.find_message_impact(session, places, with_long_term=True),
            lambda: erasure.find_entry_impact(info.namespace, entry.id),
            lambda: erasure.list_summarized_messages(state, 9),
            lambda: erasure.list_old_sessions(NOW.replace(year=9999), after=0, limit=9),
        ]
        for number, read in enumerate(reads, 1):
            expected = read()
            proxy.cut("before", "SELECT")
            assert read() == expected
            assert proxy.cuts == number
