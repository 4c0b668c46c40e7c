"""Where working memories lie: the least recently used leave first, and none before it is stored.

Caches of cachetools let things go when others come in; here they have to be stored first, which takes time and may
fail, and others must go on meanwhile. So this is an ordered dictionary with a lock, and a lock for each memory.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING

from langmem_tiers.common.fork_safety import register_fork_aware
from langmem_tiers.common.tool_call_groups import find_tool_spans
from langmem_tiers.common.ttl_sweeper import Sweeper
from langmem_tiers.errors import LangmemTiersError
from langmem_tiers.working_memory.models import WorkingStatus
from langmem_tiers.working_memory.session_writer import WorkingMemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.config import WorkingConfig
    from langmem_tiers.sessions.service import SessionDependencies
    from langmem_tiers.working_memory.session_writer import SessionAddress


def measure_bytes(value: object) -> int:
    """The bytes of a value and of all that it holds, each object once; what everybody shares takes none."""
    seen: set[int] = set()
    waiting, size = [value], 0
    while waiting:
        one = waiting.pop()
        if one is None or isinstance(one, bool | Enum | type) or id(one) in seen:
            continue
        seen.add(id(one))
        size += sys.getsizeof(one)
        if isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, tuple | list | set | frozenset):
            waiting += one
        elif is_dataclass(one):
            waiting += [getattr(one, field.name) for field in fields(one)]
    return size


_log = logging.getLogger("langmem_tiers")
_MEGABYTE = 1_000_000
_SWEEP_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class CachedWorkingMemory:
    """One working memory; whoever touches it holds its lock."""

    scratchpad: str | None = None
    """None as long as nobody asked for it, or wrote it."""
    stored_scratchpad: str | None = None
    messages: dict[str, Message] = field(default_factory=dict)
    """By id, oldest first."""
    saved_ids: set[str] = field(default_factory=set)
    """Ids of those that the session has."""
    token_count: int = 0
    """Of its messages."""
    size_bytes: int = 0
    used_at: float = 0.0
    is_removed: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def unsaved_count(self) -> int:
        """How many messages the session does not have."""
        return len(self.messages) - len(self.saved_ids)


class WorkingMemoryCache:
    """All working memories of an engine."""

    def __init__(self, parts: SessionDependencies, config: WorkingConfig) -> None:
        self._timer = parts.clock.monotonic
        self._session_writer = WorkingMemoryWriter(parts)
        self._config = config
        self._memories: OrderedDict[SessionAddress, CachedWorkingMemory] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.RLock()  # for the dictionary and the sizes; never while something is stored
        self._sweeper = Sweeper(self.expire)
        self._has_warned = False
        self.is_closed = False
        register_fork_aware(self)

    @contextmanager
    def lock_existing(
        self, place: SessionAddress, *, uses: bool = False
    ) -> Iterator[CachedWorkingMemory | None]:
        """The memory, locked, if there is one."""
        while True:
            with self._lock:
                held = self._memories.get(place)
                if held is None:
                    break
                if uses:
                    self._touch(place, held)
            with held.lock:
                if not held.is_removed:
                    yield held
                    return
        yield None

    @contextmanager
    def lock_or_create(self, place: SessionAddress) -> Iterator[CachedWorkingMemory]:
        """The memory, locked; it is made if there is none."""
        self._sweeper.start(_SWEEP_SECONDS)
        while True:
            with self._lock:
                held = self._memories.setdefault(place, CachedWorkingMemory())
                if not held.size_bytes:
                    self._grow_by(held, measure_bytes(place) + measure_bytes(held))
            with held.lock:
                if not held.is_removed:
                    with self._lock:
                        self._touch(place, held)
                    yield held
                    return

    def add_message(self, held: CachedWorkingMemory, message: Message) -> None:
        """Add a message to a memory."""
        held.messages[message.id] = message
        held.token_count += message.token_count
        with self._lock:
            self._grow_by(held, measure_bytes(message))

    def get_scratchpad(self, place: SessionAddress, held: CachedWorkingMemory | None) -> str:
        """What the agent noted, now or before its memory left."""
        if held is None:
            return self._session_writer.load_scratchpad(place)
        if held.scratchpad is None:
            held.stored_scratchpad = self._session_writer.load_scratchpad(place)
            self.set_scratchpad(held, held.stored_scratchpad)
        return held.scratchpad or ""

    def set_scratchpad(self, held: CachedWorkingMemory, text: str) -> None:
        """Put a text in place of what the agent noted."""
        with self._lock:
            self._grow_by(held, measure_bytes(text) - measure_bytes(held.scratchpad))
        held.scratchpad = text

    def make_room(self, place: SessionAddress, size: int) -> None:
        """Store memories and let them go until there is room for so many bytes at a place."""
        room = self._config.max_megabytes * _MEGABYTE
        while True:
            with self._lock:
                too_many = place not in self._memories and len(self._memories) >= self._config.max_agents
                if not too_many and self._size_bytes + size <= room:
                    return
                victim = next((other for other in self._memories if other != place), None)
            if victim is None:  # it is large by itself
                self.flush(place)
                return
            self._evict(victim)

    def expire(self) -> int:
        """Store and let go of what nobody used for too long; what cannot be stored stays."""
        count = 0
        while True:
            with self._lock:
                oldest = next(iter(self._memories.items()), None)
            now = self._timer()
            if oldest is None or oldest[1].used_at + self._config.ttl_seconds > now:
                return count
            try:
                count += self._evict(oldest[0])
            except LangmemTiersError as error:
                self._warn_once(error)
                return count

    def flush(self, place: SessionAddress) -> int:
        """Store the messages of a memory; how many were new. What is stored leaves, but for calls that wait."""
        with self.lock_existing(place) as held:
            return 0 if held is None else self._store_messages(place, held)

    def save(self, place: SessionAddress) -> int:
        """The same, and what the agent noted."""
        with self.lock_existing(place) as held:
            if held is None:
                return 0
            count = self._store_messages(place, held)
            self._save_scratchpad(place, held)
            return count

    def try_flush(self, place: SessionAddress) -> tuple[int, str | None]:
        """The same; or why it could not be done."""
        try:
            return self.flush(place), None
        except LangmemTiersError as error:
            self._warn_once(error)
            return 0, f"{type(error).__name__}: {error}"

    def list_addresses(
        self, namespace: NamespacePath | None = None, session: str | None = None
    ) -> list[SessionAddress]:
        """Where something is held: everywhere, or in a namespace, or in one conversation."""
        with self._lock:
            return [
                place
                for place in self._memories
                if namespace in (None, place[0]) and session in (None, place[1])
            ]

    def delete(self, namespace: NamespacePath, session: str | None) -> None:
        """Let go of what is being erased, and of what was stored beside it."""
        for place in self.list_addresses(namespace, session):
            self._discard(place)
        if session is not None:
            self._session_writer.delete_scratchpad((namespace, session))

    def invalidate(self, is_meant: Callable[[NamespacePath], bool]) -> None:
        """Let go of what is held in some namespaces, and of nothing that is stored."""
        for place in self.list_addresses():
            if is_meant(place[0]):
                self._discard(place)

    def remove_messages(self, place: SessionAddress, ids: Collection[str]) -> None:
        """Let go of some messages of a memory, stored or not."""
        with self.lock_existing(place) as held:
            if held is not None:
                self._keep_only(held, [one for one in held.messages.values() if one.id not in ids])

    def list_unsaved(self) -> dict[SessionAddress, tuple[Message, ...]]:
        """What is in no session yet."""
        found = {}
        for place in self.list_addresses():
            with self.lock_existing(place) as held:
                if held is not None and held.unsaved_count:
                    found[place] = tuple(_list_unsaved(held))
        return found

    def status(self) -> WorkingStatus:
        """What is held."""
        with self._lock:
            held, size = list(self._memories.values()), self._size_bytes
        return WorkingStatus(
            agents=len(held), megabytes=size / _MEGABYTE, unsaved=sum(one.unsaved_count for one in held)
        )

    def close(self) -> None:
        """Store everything and hold nothing on that is stored; the first error, once all was tried."""
        self.is_closed = True
        self._sweeper.stop()
        failed: LangmemTiersError | None = None
        for place in self.list_addresses():
            try:
                self._evict(place)
            except LangmemTiersError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close_quietly(self) -> None:
        """Store what is left of an engine that nobody closed; nobody is there to be told of an error."""
        self._sweeper.stop(0)
        with suppress(LangmemTiersError):
            self.close()

    def before_fork(self) -> None:
        """Let no thread be in the middle of a change."""
        self._lock.acquire()

    def after_fork_in_child(self) -> None:
        """Threads that were storing are not here; what both processes store is stored once, by its ids."""
        for held in self._memories.values():
            held.lock = threading.RLock()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()

    def _evict(self, place: SessionAddress) -> bool:
        with self.lock_existing(place) as held:
            if held is None:
                return False
            self._store_messages(place, held)
            self._save_scratchpad(place, held)
            self._remove(place, held)
            return True

    def _discard(self, place: SessionAddress) -> None:
        with self.lock_existing(place) as held:
            if held is not None:
                self._remove(place, held)

    def _save_scratchpad(self, place: SessionAddress, held: CachedWorkingMemory) -> None:
        if held.scratchpad is not None and held.scratchpad != held.stored_scratchpad:
            self._session_writer.save_scratchpad(place, held.scratchpad)
            held.stored_scratchpad = held.scratchpad

    def _store_messages(self, place: SessionAddress, held: CachedWorkingMemory) -> int:
        waiting = _list_unsaved(held)
        count = self._session_writer.save_messages(place, waiting) if waiting else 0
        messages = list(held.messages.values())
        held.saved_ids = set(held.messages)
        waits = [start for start, end in find_tool_spans(messages) if end > len(messages)]
        self._keep_only(held, messages[min(waits) :] if waits else [])
        return count

    def _keep_only(self, held: CachedWorkingMemory, messages: Sequence[Message]) -> None:
        left = {one.id: one for one in messages}
        gone = [one for name, one in held.messages.items() if name not in left]
        with self._lock:
            self._grow_by(held, -sum(map(measure_bytes, gone)))
        held.messages = left
        held.token_count = sum(one.token_count for one in messages)
        held.saved_ids.intersection_update(left)

    def _remove(self, place: SessionAddress, held: CachedWorkingMemory) -> None:
        with self._lock:
            held.is_removed = True
            self._size_bytes -= held.size_bytes
            self._memories.pop(place, None)

    def _touch(self, place: SessionAddress, held: CachedWorkingMemory) -> None:
        held.used_at = self._timer()
        self._memories.move_to_end(place)

    def _grow_by(self, held: CachedWorkingMemory, size: int) -> None:
        held.size_bytes += size
        self._size_bytes += size

    def _warn_once(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("working memory is not stored and held on: %s", type(error).__name__)


def _list_unsaved(held: CachedWorkingMemory) -> list[Message]:
    return [message for message in held.messages.values() if message.id not in held.saved_ids]
