"""In-process caches of sessions: their newest messages and their views, validated on each read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.lru_cache import SizedLruCache
from langmem_tiers.config import MAX_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.config import CacheConfig
    from langmem_tiers.sessions.models import AppendResult, StoredView, VersionedMessages
    from langmem_tiers.sessions.override_repository import OverrideRepository


# Estimated memory of a message besides its text and payload, in characters.
_OVERHEAD_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class _CachedTail:
    messages: tuple[Message, ...]
    revision: int
    is_whole: bool
    """True if these are all messages of the session."""


class SessionCache:
    """Cache of the newest messages of sessions, by session key, each with the revision at which it was read.

    An entry is used only if the database still has its revision, so writes of other processes are visible at once.
    The least recently used entries are evicted first, and each entry expires after a while.
    """

    def __init__(self, config: CacheConfig, timer: Callable[[], float]) -> None:
        self.window = config.window
        self.is_enabled = config.max_characters > 0
        self._tails: SizedLruCache[_CachedTail] = SizedLruCache(
            config.max_characters, config.ttl_seconds, timer
        )

    def can_serve(self, key: int, count: int) -> bool:
        """Return True if ``get()`` can succeed, so that reading the session's revision is worthwhile."""
        tail = self._tails.get(key)
        return tail is not None and (tail.is_whole or count <= len(tail.messages))

    def get(self, key: int, count: int, revision: int | None) -> tuple[Message, ...] | None:
        """Return the newest ``count`` messages, or None if they are not cached for this revision."""
        tail = self._tails.get(key)
        if tail is None:
            return None
        if tail.revision != revision:
            self._tails.invalidate(key)
            return None
        if count < len(tail.messages):
            return tail.messages[len(tail.messages) - count :]
        return tail.messages if tail.is_whole or count == len(tail.messages) else None

    def put(self, key: int, tail: VersionedMessages, *, whole: bool) -> None:
        """Cache messages that were just read; ``whole`` if these are all messages of the session."""
        if self.is_enabled:
            self._put(key, tail.messages, tail.revision, whole=whole)

    def extend(self, key: int, done: AppendResult) -> None:
        """Append messages that this process just wrote, if no other process wrote in between."""
        # Some messages were stored by an earlier attempt. Its revision is unknown, so the cached messages may
        # or may not contain them.
        if done.has_recovered_messages:
            self._tails.invalidate(key)
            return
        tail = self._tails.get(key)
        if tail is not None and tail.revision == done.revision - 1:
            messages = tail.messages + done.stored
            self._put(
                key,
                messages[-self.window :],
                done.revision,
                whole=tail.is_whole and len(messages) <= self.window,
            )

    def invalidate(self, key: int | None = None) -> None:
        """Remove one session from the cache, or all."""
        self._tails.invalidate(key)

    def _put(self, key: int, messages: tuple[Message, ...], revision: int, *, whole: bool) -> None:
        self._tails.put(
            key,
            _CachedTail(messages, revision, whole),
            _OVERHEAD_CHARACTERS + sum(estimate_message_weight(message) for message in messages),
        )


def estimate_message_weight(message: Message) -> int:
    """Estimate the memory of a message, in characters."""
    calls = sum(len(call.arguments) for call in message.tool_calls)
    return _OVERHEAD_CHARACTERS + len(message.content) + len(message.payload_json or "") + calls


@dataclass(frozen=True, slots=True)
class _CachedView:
    view: StoredView
    weight: int


class ViewCache:
    """Cache of session views. Each read asks the database for changes since the last one.

    Args:
        entries: Store from which views are read.
        config: Cache limits; a limit of 0 disables the cache.
        timer: Monotonic clock in seconds.
    """

    def __init__(self, entries: OverrideRepository, config: CacheConfig, timer: Callable[[], float]) -> None:
        self._entries = entries
        self._views: SizedLruCache[_CachedView] = SizedLruCache(
            config.max_characters, config.ttl_seconds, timer
        )

    def get(self, key: int) -> StoredView:
        """Return the current view of a session, including writes of other processes."""
        cached = self._views.get(key)
        if cached is None:
            view = self._entries.get_view(key, MAX_LIMIT)
            self._views.put(key, _CachedView(view, weight := _estimate_view_weight(view.items)), weight)
            return view
        view = self._entries.get_view(key, MAX_LIMIT, known_view=cached.view)
        # The store returns the same object if nothing has changed.
        if view is not cached.view:
            # With the same view revision only messages were added: values computed from the old view can be reused.
            known = len(cached.view.items) if view.revision == cached.view.revision else 0
            if known:
                view.set_previous(cached.view)
            weight = (cached.weight if known else 0) + _estimate_view_weight(view.items[known:])
            self._views.put(key, _CachedView(view, weight), weight)
        return view

    def invalidate(self, key: int | None = None) -> None:
        """Remove one session from the cache, or all."""
        self._views.invalidate(key)


def _estimate_view_weight(items: Iterable[ViewItem]) -> int:
    # The original message plus the compressed text of its override, if it has one.
    return sum(
        estimate_message_weight(item.message)
        + len("" if item.override is None else item.override.content or "")
        for item in items
    )
