"""Restarts of PostgreSQL: no acknowledged message is lost or duplicated, and clients continue."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from benchmarks.scale_load import Load, run
from benchmarks.servers import TemporaryPostgres, TemporaryRedis
from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft, PostgresConfig, StorageUnavailableError
from tests.faults.cutting_proxy import COMMIT
from tests.shared_servers import new_folder
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.cutting_proxy import Cut, CuttingProxy

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def server() -> Iterator[TemporaryPostgres]:
    with TemporaryPostgres(new_folder() / "pg") as own:
        yield own


def test_workers_continue_through_restarts_without_loss_duplicates_or_mixing(
    server: TemporaryPostgres, tmp_path: Path
) -> None:
    with TemporaryRedis() as redis:
        load = Load(
            url=server.new_database(),
            folder=str(tmp_path),
            messages=400,
            recalls=60,
            workers=4,
            tenants=8,
            redis_url=redis.url,
        )
        figures = run(load, server, redis, restarts=3)
    assert (figures["restarts"], figures["redis_restarts"]) == (3, 3)
    assert figures["crashes"] == []
    assert (figures["acknowledged"], figures["stored"], figures["recalls"]) == (400, 400, 60)
    assert (figures["lost"], figures["doubled"], figures["wrong_tenant"], figures["unseen"]) == (0, 0, 0, 0)


def test_a_call_waits_for_a_server_that_is_restarting(server: TemporaryPostgres) -> None:
    config = EngineConfig(postgres=PostgresConfig(reconnect_seconds=LIMIT_SECONDS))
    with MemoryEngine(server.new_database(), config=config) as engine:
        session = engine.session("acme", "s")
        session.add("user", "before")
        server.stop()
        starting = threading.Thread(target=server.start)
        starting.start()
        session.add("user", "the walrus")
        starting.join()
        assert [message.content for message in session.messages()] == ["before", "the walrus"]
        server.restart("immediate")
        assert [hit.entry.content for hit in engine.namespace("acme").search("walrus")] == ["the walrus"]


def test_a_call_without_waiting_raises_an_error_without_the_password(server: TemporaryPostgres) -> None:
    url = server.new_database().replace("postgres:@", "postgres:hunter2@")
    config = EngineConfig(postgres=PostgresConfig(reconnect_seconds=0))
    with MemoryEngine(url, config=config) as engine:
        session = engine.session("acme", "s")
        session.add("user", "before")
        server.stop()
        with pytest.raises(StorageUnavailableError, match="check that the server runs") as caught:
            session.add("user", "x")
        with pytest.raises(StorageUnavailableError):
            session.latest()
        assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
        server.start()
        session.add("user", "the walrus")
        assert [message.content for message in session.messages()] == ["before", "the walrus"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("message_id", [None, "mine"])
def test_a_commit_with_a_lost_answer_is_looked_up_and_reported_as_stored(
    proxy: CuttingProxy, when: Cut, message_id: str | None
) -> None:
    with MemoryEngine(proxy.url) as engine:
        session = engine.session("acme", "s")
        session.add("user", "first")
        proxy.cut(when, COMMIT)
        drafts = [MessageDraft("user", text, id=message_id and f"{message_id}-{text}") for text in "abc"]
        report = session.add_many(drafts)
        assert proxy.cuts == 1
        assert [message.content for message in report.stored] == ["a", "b", "c"]
        assert report.duplicates == ()
        stored = ["first", "a", "b", "c"]
        assert [message.content for message in session.messages()] == stored
        assert [message.content for message in session.latest()] == stored
        assert session.count() == 4


@pytest.mark.parametrize("when", ["before", "after"])
def test_messages_known_before_a_lost_answer_are_still_duplicates(proxy: CuttingProxy, when: Cut) -> None:
    with MemoryEngine(proxy.url) as engine:
        session = engine.session("acme", "s")
        known = MessageDraft("user", "known", id="k")
        session.add(known)
        proxy.cut(when, COMMIT)
        new = MessageDraft("user", "new", id="n")
        report = session.add_many([known, new, new])
        assert [message.id for message in report.stored] == ["n"]
        assert [message.id for message in report.duplicates] == ["k", "n"]
        assert session.count() == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_reading_continues_after_a_cut_connection(proxy: CuttingProxy, when: Cut) -> None:
    with MemoryEngine(proxy.url, embedder=None) as engine:
        session = engine.session("acme", "s")
        session.add("user", "the walrus")
        proxy.cut(when, "SELECT")
        assert [message.content for message in session.messages()] == ["the walrus"]
        proxy.cut(when, "SELECT")
        assert [message.content for message in session.view()] == ["the walrus"]
        proxy.cut(when, "SELECT")
        assert [hit.entry.content for hit in engine.namespace("acme").recall("walrus").hits] == ["the walrus"]
        assert proxy.cuts == 3


def test_an_unrepeatable_write_with_a_lost_answer_raises_an_error_with_advice(proxy: CuttingProxy) -> None:
    with MemoryEngine(proxy.url) as engine:
        known = engine.namespace("acme").knowledge
        known.store("domain", "keys", "in the drawer")
        proxy.cut("after", COMMIT)
        with pytest.raises(StorageUnavailableError, match="check whether a write was stored"):
            known.store("domain", "door", "green")
        assert {item.key for item in known} == {"keys", "door"}
