"""The size-bounded cache: eviction, lifetime, and values that are created once."""

from __future__ import annotations

from langmem_tiers.common.lru_cache import SizedLruCache


def test_the_least_recently_used_value_is_evicted() -> None:
    cache: SizedLruCache[str] = SizedLruCache(2)
    cache.put("a", "first")
    cache.put("b", "second")
    assert cache.get("a") == "first"
    cache.put("c", "third")
    assert [cache.get(key) for key in "abc"] == ["first", None, "third"]
    assert len(cache) == 2


def test_a_value_larger_than_the_cache_replaces_its_key_by_nothing() -> None:
    cache: SizedLruCache[str] = SizedLruCache(10)
    cache.put("a", "small", 4)
    cache.put("b", "other", 4)
    cache.put("a", "large", 11)
    assert [cache.get(key) for key in "ab"] == [None, "other"]


def test_values_expire_after_their_time_to_live() -> None:
    seconds = 0.0
    cache: SizedLruCache[str] = SizedLruCache(2, 10, lambda: seconds)
    cache.put("a", "value")
    seconds = 9.0
    assert cache.get("a") == "value"
    seconds = 10.0
    assert cache.get("a") is None


def test_setdefault_returns_the_cached_value() -> None:
    cache: SizedLruCache[list[int]] = SizedLruCache(1)
    first = cache.setdefault("a", [])
    assert cache.setdefault("a", [1]) is first
    assert cache.setdefault("b", [2]) == [2]
    assert cache.get("a") is None
