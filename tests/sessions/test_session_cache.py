from __future__ import annotations

from datetime import UTC, datetime

from langmem_tiers import CacheConfig, Message, Role
from langmem_tiers.sessions.cache import SessionCache
from langmem_tiers.sessions.models import AppendResult, VersionedMessages
from langmem_tiers.testing import FrozenClock


def message(n: int, size: int = 10) -> Message:
    return Message(
        id=str(n),
        role=Role.USER,
        content="x" * size,
        created_at=datetime(2025, 1, 1, tzinfo=UTC),
        token_count=1,
        token_counter="test",
    )


def cache(clock: FrozenClock | None = None, **config: float) -> SessionCache:
    return SessionCache(CacheConfig(**config), (clock or FrozenClock()).monotonic)  # type: ignore[arg-type] # ints and floats


def tail(*numbers: int, revision: int = 1) -> VersionedMessages:
    return VersionedMessages(tuple(message(n) for n in numbers), revision)


def added(number: int, revision: int, *, is_late: bool = False) -> AppendResult:
    return AppendResult((message(number),), (), revision, has_recovered_messages=is_late)


def test_the_cache_serves_messages_only_for_their_revision() -> None:
    session_cache = cache()
    session_cache.put(1, tail(1, 2, 3), whole=True)
    assert session_cache.get(1, 2, revision=1) == (message(2), message(3))
    assert session_cache.get(1, 2, revision=2) is None
    assert session_cache.get(1, 2, revision=1) is None  # what was stale is gone for good


def test_the_cache_refuses_requests_for_more_than_it_contains() -> None:
    session_cache = cache()
    session_cache.put(1, tail(1, 2, 3), whole=False)
    assert session_cache.can_serve(1, 3)
    assert not session_cache.can_serve(1, 4)
    assert session_cache.get(1, 4, revision=1) is None
    session_cache.put(2, tail(1, 2, 3), whole=True)
    assert session_cache.get(2, 4, revision=1) == (message(1), message(2), message(3))


def test_own_writes_extend_the_cache_unless_another_write_intervened() -> None:
    session_cache = cache(window=3)
    session_cache.put(1, tail(1, 2), whole=True)
    session_cache.extend(1, added(3, revision=2))
    assert session_cache.get(1, 9, revision=2) == (message(1), message(2), message(3))
    session_cache.extend(1, added(4, revision=3))
    assert session_cache.get(1, 3, revision=3) == (message(2), message(3), message(4))
    assert session_cache.get(1, 4, revision=3) is None  # the first one left the window
    session_cache.extend(1, added(9, revision=5))
    assert session_cache.get(1, 1, revision=5) is None


def test_a_write_reported_late_invalidates_the_cache() -> None:
    session_cache = cache()
    session_cache.put(1, tail(1, 2, revision=2), whole=True)
    session_cache.extend(1, added(2, revision=3, is_late=True))
    assert session_cache.get(1, 9, revision=3) is None


def test_cached_sessions_expire_after_the_ttl() -> None:
    clock = FrozenClock()
    session_cache = cache(clock, ttl_seconds=60)
    session_cache.put(1, tail(1), whole=True)
    clock.advance(seconds=59)
    assert session_cache.can_serve(1, 1)
    clock.advance(seconds=2)
    assert not session_cache.can_serve(1, 1)


def test_the_least_recently_used_session_is_evicted_when_the_cache_is_full() -> None:
    session_cache = cache(max_characters=2500)  # room for two sessions with one message each
    for key in (1, 2):
        session_cache.put(key, tail(1), whole=True)
    session_cache.get(1, 1, revision=1)
    session_cache.put(3, tail(1), whole=True)
    assert [session_cache.can_serve(key, 1) for key in (1, 2, 3)] == [True, False, True]


def test_a_giant_session_does_not_empty_the_cache() -> None:
    session_cache = cache(max_characters=5000)
    session_cache.put(1, tail(1), whole=True)
    session_cache.put(2, VersionedMessages((message(1, size=10_000),), 1), whole=True)
    assert session_cache.can_serve(1, 1)
    assert not session_cache.can_serve(2, 1)
