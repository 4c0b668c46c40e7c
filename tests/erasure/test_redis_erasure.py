"""Erasure reaches Redis and working memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis import Redis

from benchmarks.servers import TemporaryRedis
from langmem_tiers import CacheConfig, EngineConfig, MemoryEngine, RedisConfig
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from langmem_tiers.testing import FrozenClock

WORD = b"quorraxvault"


@pytest.mark.parametrize("what", ["message", "session", "namespace", "user"])
def test_no_byte_of_a_forgotten_message_is_left_in_redis(url: str, tenant: str, what: str) -> None:
    with TemporaryRedis() as server:
        config = EngineConfig(redis=RedisConfig(url=server.url, timeout_seconds=LIMIT_SECONDS))
        with MemoryEngine(url, embedder=None, config=config) as engine:
            session = engine.session(tenant, "s")
            message = session.add("user", f"The code is {WORD.decode()}.").stored[0]
            session.add("user", "And the boat is green.")
            session.latest(10)
            assert WORD in list_texts_in_redis(server)
            asked = {"message": {"session": "s", "message": message.id}, "session": {"session": "s"}}
            engine.forget(
                **({"user": tenant} if what == "user" else {"namespace": tenant, **asked.get(what, {})}),
                scrub=False,
            )
            assert WORD not in list_texts_in_redis(server)
            left = [message.content for message in engine.session(tenant, "s").latest(10)]
            assert left == (["And the boat is green."] if what == "message" else [])


def list_texts_in_redis(server: TemporaryRedis) -> bytes:
    """Everything that Redis would write to its file."""
    with server.client as client:
        return b"".join(client.dump(key) or b"" for key in client.scan_iter("*"))


def test_forgetting_a_message_keeps_others_in_working_memory(url: str, tenant: str) -> None:
    with MemoryEngine(url, embedder=None) as engine:
        stored = engine.session(tenant, "s").add("user", "Forget me.").stored[0]
        engine.working.append(tenant, "s", "user", "Keep me.")
        engine.forget(namespace=tenant, session="s", message=stored.id, scrub=False)
        assert [message.content for message in engine.session(tenant, "s").latest(10)] == ["Keep me."]


@pytest.mark.parametrize("what", ["message", "session", "namespace"])
def test_a_receipt_reports_that_redis_was_unreachable(file_url: str, what: str, clock: FrozenClock) -> None:
    with TemporaryRedis() as server:
        config = EngineConfig(
            redis=RedisConfig(url=server.url, timeout_seconds=LIMIT_SECONDS, retry_seconds=5)
        )
        with MemoryEngine(file_url, embedder=None, config=config, clock=clock) as engine:
            message = engine.session("acme", "s").add("user", "The boat is green.").stored[0]
            asked = {"message": {"session": "s", "message": message.id}, "session": {"session": "s"}}
            server.kill()
            receipt = engine.forget(namespace="acme", **asked.get(what, {}), scrub=False)
            assert not receipt.is_complete
            assert "Redis at 'unix://" in receipt.left[0]
            assert "forget the same data again" in receipt.left[0]
            server.start()
            clock.advance(seconds=6)
            assert engine.forget(namespace="acme", **asked.get(what, {}), scrub=False).is_complete


@pytest.mark.parametrize("how", ["forgotten", "aged"])
def test_a_remaining_session_is_cached_again_immediately(
    file_url: str, how: str, redis_url: str, clock: FrozenClock
) -> None:
    config = EngineConfig(
        cache=CacheConfig(max_characters=0), redis=RedisConfig(url=redis_url, timeout_seconds=LIMIT_SECONDS)
    )
    with MemoryEngine(file_url, embedder=None, config=config, clock=clock) as engine:
        session = engine.session("acme", "s")
        first = session.add("user", "The boat is green.").stored[0]
        clock.advance(days=91)
        session.add("user", "The boat is red.")
        if how == "forgotten":
            engine.forget(namespace="acme", session="s", message=first.id, scrub=False)
        else:
            engine.maintenance.run()
        for said in (["The boat is red."], ["The boat is red.", "It sails."]):
            assert [message.content for message in session.latest(9)] == said
            before = engine.redis
            assert [message.content for message in session.latest(9)] == said
            after = engine.redis
            assert before is not None
            assert after is not None
            assert (after.hits - before.hits, after.misses - before.misses) == (1, 0)
            session.add("user", "It sails.")


def test_a_stale_reader_does_not_restore_an_erased_session(file_url: str, redis_url: str) -> None:
    config = EngineConfig(redis=RedisConfig(url=redis_url, timeout_seconds=LIMIT_SECONDS))
    with MemoryEngine(file_url, embedder=None, config=config) as engine:
        assert engine._redis is not None
        cached, key = engine._redis._tails, engine.session("acme", "s").key
        first = engine.session("acme", "s").add("user", f"The code is {WORD.decode()}.").stored[0]
        stamp = cached.versions.get(key)
        assert stamp is not None
        tail = engine.services.short_term.messages.list_latest(key, 9)
        engine.forget(namespace="acme", session="s", message=first.id, scrub=False)
        found = cached.windows.get(key, stamp, 9)  # a slow one, between what it read and what it fills
        assert found is not None
        cached.windows.put(key, stamp, tail.messages, head=found.head, whole=True)
        with Redis.from_url(redis_url) as client:
            assert WORD not in (client.dump(cached.windows.build_key(key)) or b"")


def test_an_empty_session_deleted_by_retention_leaves_only_a_short_lived_redis_key(
    file_url: str, clock: FrozenClock
) -> None:
    with TemporaryRedis() as server, server.client as client:
        redis = RedisConfig(url=server.url, timeout_seconds=LIMIT_SECONDS)
        config = EngineConfig(cache=CacheConfig(max_characters=0), redis=redis)

        def longest_ttl() -> int:
            return max(int(client.ttl(key)) for key in client.scan_iter("*"))

        with MemoryEngine(file_url, embedder=None, config=config, clock=clock) as engine:
            session = engine.session("acme", "s")
            message = session.add("user", "The boat is green.").stored[0]
            engine.forget(namespace="acme", session="s", message=message.id, scrub=False)
            assert session.latest(9) == ()
            assert longest_ttl() > 3600
            clock.advance(days=91)
            assert engine.maintenance.run().erased.sessions == 1
            assert longest_ttl() <= 3600
