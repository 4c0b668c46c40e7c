"""The newest messages of the sessions in use, held in memory and never trusted blindly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.lru_cache import SizedLruCache
from langmem_tiers.config import MAX_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.ports import EntryStore
    from langmem_tiers.config import CacheConfig
    from langmem_tiers.sessions.models import AppendResult, StoredView, VersionedMessages


_OVERHEAD_CHARACTERS = 500  # characters that a message weighs beside its text and payload


@dataclass(frozen=True, slots=True)
class _CachedTail:
    messages: tuple[Message, ...]
    revision: int
    is_whole: bool
    """Whether these are all messages of the session."""


class SessionCache:
    """Tails of sessions, by key, each with the revision it was read at.

    A tail is given out only for the revision that the database has now, so a write by
    another process is seen at once. The least recently used leave first, and all leave
    after a while.
    """

    def __init__(self, config: CacheConfig, timer: Callable[[], float]) -> None:
        self.window = config.window
        self.is_enabled = config.max_characters > 0
        self._tails: SizedLruCache[_CachedTail] = SizedLruCache(config, timer)

    def can_serve(self, key: int, count: int) -> bool:
        """Whether it is worth asking for the session's revision."""
        held = self._tails.get(key)
        return held is not None and (held.is_whole or count <= len(held.messages))

    def get(self, key: int, count: int, revision: int | None) -> tuple[Message, ...] | None:
        """The newest ``count`` messages, if they are held as of that revision."""
        held = self._tails.get(key)
        if held is None:
            return None
        if held.revision != revision:
            self._tails.invalidate(key)
            return None
        if count < len(held.messages):
            return held.messages[len(held.messages) - count :]
        return held.messages if held.is_whole or count == len(held.messages) else None

    def put(self, key: int, tail: VersionedMessages, *, whole: bool) -> None:
        """Hold what was just read."""
        if self.is_enabled:
            self._put(key, tail.messages, tail.revision, whole=whole)

    def extend(self, key: int, done: AppendResult) -> None:
        """Hold what this process just wrote, if nobody else wrote in between."""
        if (
            done.has_recovered_messages
        ):  # a tail may be of before it or of after it, which its revision does not tell
            self._tails.invalidate(key)
            return
        held = self._tails.get(key)
        if held is not None and held.revision == done.revision - 1:
            messages = held.messages + done.stored
            self._put(
                key,
                messages[-self.window :],
                done.revision,
                whole=held.is_whole and len(messages) <= self.window,
            )

    def invalidate(self, key: int | None = None) -> None:
        """Forget one session, or all."""
        self._tails.invalidate(key)

    def _put(self, key: int, messages: tuple[Message, ...], revision: int, *, whole: bool) -> None:
        self._tails.put(
            key,
            _CachedTail(messages, revision, whole),
            _OVERHEAD_CHARACTERS + sum(estimate_message_weight(each) for each in messages),
        )


def estimate_message_weight(message: Message) -> int:
    """Characters that a message takes in memory, about."""
    calls = sum(len(call.arguments) for call in message.tool_calls)
    return _OVERHEAD_CHARACTERS + len(message.content) + len(message.payload_json or "") + calls


@dataclass(frozen=True, slots=True)
class _CachedView:
    view: StoredView
    weight: int


class ViewCache:
    """Views of the sessions in use. Each read asks the database what has changed since the last one.

    Args:
        entries: Where views are read.
        config: How much is held; nothing, if its limit is 0.
        timer: Tells how long something has been held.
    """

    def __init__(self, entries: EntryStore, config: CacheConfig, timer: Callable[[], float]) -> None:
        self._entries = entries
        self._views: SizedLruCache[_CachedView] = SizedLruCache(config, timer)

    def get(self, key: int) -> StoredView:
        """What a session shows now, whoever wrote to it."""
        held = self._views.get(key)
        if held is None:
            view = self._entries.get_view(key, MAX_LIMIT)
            self._views.put(key, _CachedView(view, weight := _estimate_view_weight(view.items)), weight)
            return view
        view = self._entries.get_view(key, MAX_LIMIT, held=held.view)
        if view is not held.view:
            known = len(held.view.items) if view.revision == held.view.revision else 0
            if known:
                view.set_previous(held.view)
            weight = (held.weight if known else 0) + _estimate_view_weight(view.items[known:])
            self._views.put(key, _CachedView(view, weight), weight)
        return view

    def invalidate(self, key: int | None = None) -> None:
        """Forget one session, or all."""
        self._views.invalidate(key)


def _estimate_view_weight(items: Iterable[ViewItem]) -> int:
    # The compressed form is made of what the mark holds already.
    return sum(
        estimate_message_weight(item.message)
        + len("" if item.override is None else item.override.content or "")
        for item in items
    )
