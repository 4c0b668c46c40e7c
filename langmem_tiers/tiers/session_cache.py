"""The newest messages of the sessions in use, held in memory and never trusted blindly."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachetools import TTLCache

from langmem_tiers.core.forks import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.core.config import CacheConfig
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.ports import Tail

_OVERHEAD = 500  # characters that a message weighs beside its text and payload


@dataclass(frozen=True, slots=True)
class _Held:
    messages: tuple[Message, ...]
    revision: int
    whole: bool
    """Whether these are all messages of the session."""
    weight: int


class SessionCache:
    """Tails of sessions, by key, each with the revision it was read at.

    A tail is given out only for the revision that the database has now, so a write by
    another process is seen at once. The least recently used leave first, and all leave
    after a while.
    """

    def __init__(self, config: CacheConfig, timer: Callable[[], float]) -> None:
        self.window = config.window
        self.enabled = config.max_characters > 0
        self._lock = threading.RLock()  # a fork hook of others may read
        watch(self)
        self._tails: TTLCache[int, _Held] = TTLCache(
            maxsize=config.max_characters,
            ttl=config.ttl_seconds,
            timer=timer,
            getsizeof=lambda held: held.weight,
        )

    def could_serve(self, key: int, count: int) -> bool:
        """Whether it is worth asking for the session's revision."""
        with self._lock:
            held = self._tails.get(key)
        return held is not None and (held.whole or count <= len(held.messages))

    def get(self, key: int, count: int, revision: int | None) -> tuple[Message, ...] | None:
        """The newest ``count`` messages, if they are held as of that revision."""
        with self._lock:
            held = self._tails.get(key)
            if held is None:
                return None
            if held.revision != revision:
                self._tails.pop(key, None)
                return None
        if count < len(held.messages):
            return held.messages[len(held.messages) - count :]
        return held.messages if held.whole or count == len(held.messages) else None

    def put(self, key: int, tail: Tail, *, whole: bool) -> None:
        """Hold what was just read."""
        if self.enabled:
            self._hold(key, tail.messages, tail.revision, whole=whole)

    def extend(self, key: int, added: Sequence[Message], revision: int) -> None:
        """Hold what this process just wrote, if nobody else wrote in between."""
        with self._lock:
            held = self._tails.get(key)
        if held is not None and held.revision == revision - 1:
            messages = held.messages + tuple(added)
            self._hold(
                key,
                messages[-self.window :],
                revision,
                whole=held.whole and len(messages) <= self.window,
            )

    def drop(self, key: int | None = None) -> None:
        """Forget one session, or all."""
        with self._lock:
            if key is None:
                self._tails.clear()
            else:
                self._tails.pop(key, None)

    def before_fork(self) -> None:
        """Let no thread be in the middle of a change."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()

    def _hold(self, key: int, messages: tuple[Message, ...], revision: int, *, whole: bool) -> None:
        weight = _OVERHEAD + sum(map(_weight, messages))
        with self._lock:
            if weight > self._tails.maxsize:
                self._tails.pop(key, None)  # one giant session must not empty the cache
            else:
                self._tails[key] = _Held(messages, revision, whole, weight)


def _weight(message: Message) -> int:
    calls = sum(len(call.arguments) for call in message.tool_calls)
    return _OVERHEAD + len(message.content) + len(message.payload_json or "") + calls
