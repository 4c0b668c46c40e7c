"""What is forgotten is forgotten in Redis and in working memory, too."""

from __future__ import annotations

import pytest

from langmem_tiers import EngineConfig, MemoryEngine, RedisConfig
from tests.redis_servers import RedisServer

WORD = b"quorraxvault"


@pytest.mark.parametrize("what", ["message", "session", "namespace", "user"])
def test_no_byte_of_what_is_forgotten_is_left_in_redis(url: str, tenant: str, what: str) -> None:
    with RedisServer() as server:
        config = EngineConfig(redis=RedisConfig(url=server.url))
        with MemoryEngine(url, embedder=None, config=config) as engine:
            session = engine.session(tenant, "s")
            message = session.add("user", f"The code is {WORD.decode()}.").stored[0]
            session.add("user", "And the boat is green.")
            session.latest(10)
            assert WORD in held_in(server)
            asked = {"message": {"session": "s", "message": message.id}, "session": {"session": "s"}}
            engine.forget(
                **({"user": tenant} if what == "user" else {"namespace": tenant, **asked.get(what, {})}),
                scrub=False,
            )
            assert WORD not in held_in(server)
            left = [one.content for one in engine.session(tenant, "s").latest(10)]
            assert left == (["And the boat is green."] if what == "message" else [])


def held_in(server: RedisServer) -> bytes:
    """Everything that Redis would write to its file."""
    client = server.client
    return b"".join(client.dump(key) or b"" for key in client.scan_iter("*"))


def test_a_message_that_is_forgotten_takes_no_others_from_working_memory(url: str, tenant: str) -> None:
    with MemoryEngine(url, embedder=None) as engine:
        stored = engine.session(tenant, "s").add("user", "Forget me.").stored[0]
        engine.working.append(tenant, "s", "user", "Keep me.")
        engine.forget(namespace=tenant, session="s", message=stored.id, scrub=False)
        assert [one.content for one in engine.session(tenant, "s").latest(10)] == ["Keep me."]
