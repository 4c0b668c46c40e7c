"""LRU cache of working memories, which saves each memory before it is evicted.

The caches of cachetools evict entries when others are inserted. Here, an entry has to be saved first, which takes time
and may fail, and other threads must not wait for it. Therefore this is an ordered dictionary with a lock, plus a lock
for each memory.

Lock order: the lock of a memory may be held while the dictionary's lock is acquired, never the other way round. The
dictionary's lock is held for short operations only, never while something is saved.
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
from langmem_tiers.common.workers import Sweeper
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
    """Return the size of a value and of everything it contains, in bytes. Each object is counted once.

    Objects that the whole process shares, such as None, enum members and classes, are not counted.
    """
    seen: set[int] = set()
    pending, size = [value], 0
    while pending:
        item = pending.pop()
        if item is None or isinstance(item, bool | Enum | type) or id(item) in seen:
            continue
        seen.add(id(item))
        size += sys.getsizeof(item)
        if isinstance(item, Mapping):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, tuple | list | set | frozenset):
            pending += item
        elif is_dataclass(item):
            pending += [getattr(item, field.name) for field in fields(item)]
    return size


_log = logging.getLogger("langmem_tiers")
_MEGABYTE = 1_000_000
_SWEEP_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class CachedWorkingMemory:
    """One working memory. Hold ``lock`` while using it."""

    scratchpad: str | None = None
    """Current notes. None until they are read or written for the first time."""
    stored_scratchpad: str | None = None
    """Notes as they are stored. None if they were not loaded."""
    messages: dict[str, Message] = field(default_factory=dict)
    """Messages by id, oldest first."""
    saved_ids: set[str] = field(default_factory=set)
    """Ids of the messages that are in the session."""
    token_count: int = 0
    """Number of tokens of the messages."""
    size_bytes: int = 0
    used_at: float = 0.0
    """Monotonic time of the last use."""
    is_removed: bool = False
    """True after it was removed from the cache. A thread that waited for the lock then has to look again."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def unsaved_count(self) -> int:
        """Number of messages that are not in the session."""
        return len(self.messages) - len(self.saved_ids)


class WorkingMemoryCache:
    """Working memories of an engine, least recently used first."""

    def __init__(self, dependencies: SessionDependencies, config: WorkingConfig) -> None:
        self._timer = dependencies.clock.monotonic
        self._session_writer = WorkingMemoryWriter(dependencies)
        self._config = config
        self._memories: OrderedDict[SessionAddress, CachedWorkingMemory] = OrderedDict()
        self._size_bytes = 0
        # Protects the dictionary and the sizes.
        self._lock = threading.RLock()
        self._sweeper = Sweeper(self.expire)
        self._has_warned = False
        self.is_closed = False
        register_fork_aware(self)

    @contextmanager
    def lock_existing(
        self, address: SessionAddress, *, uses: bool = False
    ) -> Iterator[CachedWorkingMemory | None]:
        """Lock a working memory and yield it, or yield None if it does not exist.

        Args:
            address: Namespace and session.
            uses: True to count this as a use, which postpones eviction. Default: False.
        """
        # The memory may be removed while this thread waits for its lock. Then look again.
        while True:
            with self._lock:
                memory = self._memories.get(address)
                if memory is None:
                    break
                if uses:
                    self._touch(address, memory)
            with memory.lock:
                if not memory.is_removed:
                    yield memory
                    return
        yield None

    @contextmanager
    def lock_or_create(self, address: SessionAddress) -> Iterator[CachedWorkingMemory]:
        """Lock a working memory and yield it. It is created if it does not exist."""
        self._sweeper.start(_SWEEP_SECONDS)
        while True:
            with self._lock:
                memory = self._memories.setdefault(address, CachedWorkingMemory())
                # Size 0 means that setdefault() has just created it.
                if not memory.size_bytes:
                    self._grow_by(memory, measure_bytes(address) + measure_bytes(memory))
            with memory.lock:
                if not memory.is_removed:
                    with self._lock:
                        self._touch(address, memory)
                    yield memory
                    return

    def add_message(self, memory: CachedWorkingMemory, message: Message) -> None:
        """Append a message to a locked memory."""
        memory.messages[message.id] = message
        memory.token_count += message.token_count
        with self._lock:
            self._grow_by(memory, measure_bytes(message))

    def get_scratchpad(self, address: SessionAddress, memory: CachedWorkingMemory | None) -> str:
        """Return the current notes, or the stored ones if the memory has none."""
        if memory is None:
            return self._session_writer.load_scratchpad(address)
        if memory.scratchpad is None:
            memory.stored_scratchpad = self._session_writer.load_scratchpad(address)
            self.set_scratchpad(memory, memory.stored_scratchpad)
        return memory.scratchpad or ""

    def set_scratchpad(self, memory: CachedWorkingMemory, text: str) -> None:
        """Replace the notes of a locked memory."""
        with self._lock:
            self._grow_by(memory, measure_bytes(text) - measure_bytes(memory.scratchpad))
        memory.scratchpad = text

    def make_room(self, address: SessionAddress, size: int) -> None:
        """Evict memories until one can grow by ``size`` bytes.

        Args:
            address: Namespace and session of the memory that will grow. It is not evicted itself.
            size: Additional size in bytes.

        Raises:
            StorageError: A memory could not be saved, so it was not evicted.
        """
        max_bytes = self._config.max_megabytes * _MEGABYTE
        # Other threads may add messages while this one saves, so check again after each eviction.
        while True:
            with self._lock:
                too_many = address not in self._memories and len(self._memories) >= self._config.max_agents
                if not too_many and self._size_bytes + size <= max_bytes:
                    return
                victim = next((other for other in self._memories if other != address), None)
            if victim is None:
                # No other memory is left: this one is too large. Save its messages, which removes them.
                self.flush(address)
                return
            self._evict(victim)

    def expire(self) -> int:
        """Save and evict memories that were unused for too long, and return their number.

        A memory that cannot be saved remains.
        """
        count = 0
        while True:
            with self._lock:
                # The dictionary is in order of use, so only the first memory has to be checked.
                oldest = next(iter(self._memories.items()), None)
            now = self._timer()
            if oldest is None or oldest[1].used_at + self._config.ttl_seconds > now:
                return count
            try:
                count += self._evict(oldest[0])
            except LangmemTiersError as error:
                self._warn_once(error)
                return count

    def flush(self, address: SessionAddress) -> int:
        """Save the messages of a memory, and return the number of new ones in the session.

        Saved messages are removed from the memory, except from the first tool call without a result on.
        """
        with self.lock_existing(address) as memory:
            return 0 if memory is None else self._store_messages(address, memory)

    def save(self, address: SessionAddress) -> int:
        """Save the messages and the notes of a memory. Return the number of new messages in the session."""
        with self.lock_existing(address) as memory:
            if memory is None:
                return 0
            count = self._store_messages(address, memory)
            self._save_scratchpad(address, memory)
            return count

    def try_flush(self, address: SessionAddress) -> tuple[int, str | None]:
        """Save the messages of a memory. Return the number of new messages, or 0 and the error as text."""
        try:
            return self.flush(address), None
        except LangmemTiersError as error:
            self._warn_once(error)
            return 0, f"{type(error).__name__}: {error}"

    def list_addresses(
        self, namespace: NamespacePath | None = None, session: str | None = None
    ) -> list[SessionAddress]:
        """Return the addresses of all memories, or of those in a namespace or session."""
        with self._lock:
            return [
                address
                for address in self._memories
                if namespace in (None, address[0]) and session in (None, address[1])
            ]

    def delete(self, namespace: NamespacePath, session: str | None) -> None:
        """Discard memories without saving them, and delete the stored notes of a session."""
        for address in self.list_addresses(namespace, session):
            self._discard(address)
        if session is not None:
            self._session_writer.delete_scratchpad((namespace, session))

    def invalidate(self, is_meant: Callable[[NamespacePath], bool]) -> None:
        """Discard the memories of matching namespaces without saving them. Stored notes remain."""
        for address in self.list_addresses():
            if is_meant(address[0]):
                self._discard(address)

    def remove_messages(self, address: SessionAddress, ids: Collection[str]) -> None:
        """Remove messages from a memory, saved or not."""
        with self.lock_existing(address) as memory:
            if memory is not None:
                self._keep_only(
                    memory, [message for message in memory.messages.values() if message.id not in ids]
                )

    def list_unsaved(self) -> dict[SessionAddress, tuple[Message, ...]]:
        """Return the messages that are not in a session yet, by address."""
        found = {}
        for address in self.list_addresses():
            with self.lock_existing(address) as memory:
                if memory is not None and memory.unsaved_count:
                    found[address] = tuple(_list_unsaved(memory))
        return found

    def status(self) -> WorkingStatus:
        """Return the number and the size of the memories."""
        with self._lock:
            memories, size = list(self._memories.values()), self._size_bytes
        return WorkingStatus(
            agents=len(memories),
            megabytes=size / _MEGABYTE,
            unsaved=sum(memory.unsaved_count for memory in memories),
        )

    def close(self) -> None:
        """Save and evict all memories. After trying all of them, raise the first error."""
        self.is_closed = True
        self._sweeper.stop()
        failed: LangmemTiersError | None = None
        for address in self.list_addresses():
            try:
                self._evict(address)
            except LangmemTiersError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close_quietly(self) -> None:
        """Save what is left of an engine that was not closed. Errors are ignored, because nobody can handle them."""
        self._sweeper.stop(0)
        with suppress(LangmemTiersError):
            self.close()

    def before_fork(self) -> None:
        """Acquire the lock, so that no thread changes the dictionary during the fork."""
        self._lock.acquire()

    def after_fork_in_child(self) -> None:
        """Replace the locks of the memories.

        They may be held by threads that do not exist in the child. Parent and child may both save the same messages,
        but a session stores each message id once.
        """
        for memory in self._memories.values():
            memory.lock = threading.RLock()

    def after_fork(self) -> None:
        """Release the lock."""
        self._lock.release()

    def _evict(self, address: SessionAddress) -> bool:
        with self.lock_existing(address) as memory:
            if memory is None:
                return False
            self._store_messages(address, memory)
            self._save_scratchpad(address, memory)
            self._remove(address, memory)
            return True

    def _discard(self, address: SessionAddress) -> None:
        with self.lock_existing(address) as memory:
            if memory is not None:
                self._remove(address, memory)

    def _save_scratchpad(self, address: SessionAddress, memory: CachedWorkingMemory) -> None:
        if memory.scratchpad is not None and memory.scratchpad != memory.stored_scratchpad:
            self._session_writer.save_scratchpad(address, memory.scratchpad)
            memory.stored_scratchpad = memory.scratchpad

    def _store_messages(self, address: SessionAddress, memory: CachedWorkingMemory) -> int:
        unsaved = _list_unsaved(memory)
        count = self._session_writer.save_messages(address, unsaved) if unsaved else 0
        messages = list(memory.messages.values())
        memory.saved_ids = set(memory.messages)
        # A tool call whose results are incomplete has a span that reaches beyond the last message. Keep it and all
        # messages after it, because an agent needs the call together with its result.
        open_starts = [start for start, end in find_tool_spans(messages) if end > len(messages)]
        self._keep_only(memory, messages[min(open_starts) :] if open_starts else [])
        return count

    def _keep_only(self, memory: CachedWorkingMemory, messages: Sequence[Message]) -> None:
        kept = {message.id: message for message in messages}
        removed = [message for message_id, message in memory.messages.items() if message_id not in kept]
        with self._lock:
            self._grow_by(memory, -sum(map(measure_bytes, removed)))
        memory.messages = kept
        memory.token_count = sum(message.token_count for message in messages)
        memory.saved_ids.intersection_update(kept)

    def _remove(self, address: SessionAddress, memory: CachedWorkingMemory) -> None:
        with self._lock:
            memory.is_removed = True
            self._size_bytes -= memory.size_bytes
            self._memories.pop(address, None)

    def _touch(self, address: SessionAddress, memory: CachedWorkingMemory) -> None:
        memory.used_at = self._timer()
        self._memories.move_to_end(address)

    def _grow_by(self, memory: CachedWorkingMemory, size: int) -> None:
        memory.size_bytes += size
        self._size_bytes += size

    def _warn_once(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "working memory could not be saved (%s): it remains in memory and is saved later",
                type(error).__name__,
            )


def _list_unsaved(memory: CachedWorkingMemory) -> list[Message]:
    return [message for message in memory.messages.values() if message.id not in memory.saved_ids]
