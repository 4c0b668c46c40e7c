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

from langmem_tiers.common.fork_safety import watch
from langmem_tiers.common.tool_call_groups import tool_spans
from langmem_tiers.common.ttl_sweeper import Sweeper
from langmem_tiers.errors import LangmemTiersError
from langmem_tiers.working_memory.models import WorkingStatus
from langmem_tiers.working_memory.session_writer import WorkingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.config import WorkingConfig
    from langmem_tiers.sessions.service import ShortTermParts
    from langmem_tiers.working_memory.session_writer import Place


def size_of(value: object) -> int:
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
class Held:
    """One working memory; whoever touches it holds its lock."""

    scratchpad: str | None = None
    """None as long as nobody asked for it, or wrote it."""
    stored_scratchpad: str | None = None
    messages: dict[str, Message] = field(default_factory=dict)
    """By id, oldest first."""
    saved: set[str] = field(default_factory=set)
    """Ids of those that the session has."""
    token_count: int = 0
    """Of its messages."""
    size: int = 0
    used_at: float = 0.0
    is_gone: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def unsaved(self) -> int:
        """How many messages the session does not have."""
        return len(self.messages) - len(self.saved)


class WorkingShelf:
    """All working memories of an engine."""

    def __init__(self, parts: ShortTermParts, config: WorkingConfig) -> None:
        self._timer = parts.clock.monotonic
        self._sessions = WorkingStore(parts)
        self._config = config
        self._held: OrderedDict[Place, Held] = OrderedDict()
        self._size = 0
        self._lock = threading.RLock()  # for the dictionary and the sizes; never while something is stored
        self._sweeper = Sweeper(self.expire)
        self._has_warned = False
        self.is_closed = False
        watch(self)

    @contextmanager
    def look(self, place: Place, *, uses: bool = False) -> Iterator[Held | None]:
        """The memory, locked, if there is one."""
        while True:
            with self._lock:
                held = self._held.get(place)
                if held is None:
                    break
                if uses:
                    self._touch(place, held)
            with held.lock:
                if not held.is_gone:
                    yield held
                    return
        yield None

    @contextmanager
    def use(self, place: Place) -> Iterator[Held]:
        """The memory, locked; it is made if there is none."""
        self._sweeper.start(_SWEEP_SECONDS)
        while True:
            with self._lock:
                held = self._held.setdefault(place, Held())
                if not held.size:
                    self._grow_by(held, size_of(place) + size_of(held))
            with held.lock:
                if not held.is_gone:
                    with self._lock:
                        self._touch(place, held)
                    yield held
                    return

    def put(self, held: Held, message: Message) -> None:
        """Add a message to a memory."""
        held.messages[message.id] = message
        held.token_count += message.token_count
        with self._lock:
            self._grow_by(held, size_of(message))

    def scratchpad(self, place: Place, held: Held | None) -> str:
        """What the agent noted, now or before its memory left."""
        if held is None:
            return self._sessions.scratchpad(place)
        if held.scratchpad is None:
            held.stored_scratchpad = self._sessions.scratchpad(place)
            self.note(held, held.stored_scratchpad)
        return held.scratchpad or ""

    def note(self, held: Held, text: str) -> None:
        """Put a text in place of what the agent noted."""
        with self._lock:
            self._grow_by(held, size_of(text) - size_of(held.scratchpad))
        held.scratchpad = text

    def make_room(self, place: Place, size: int) -> None:
        """Store memories and let them go until there is room for so many bytes at a place."""
        room = self._config.max_megabytes * _MEGABYTE
        while True:
            with self._lock:
                too_many = place not in self._held and len(self._held) >= self._config.max_agents
                if not too_many and self._size + size <= room:
                    return
                victim = next((other for other in self._held if other != place), None)
            if victim is None:  # it is large by itself
                self.flush(place)
                return
            self._retire(victim)

    def expire(self) -> int:
        """Store and let go of what nobody used for too long; what cannot be stored stays."""
        count = 0
        while True:
            with self._lock:
                oldest = next(iter(self._held.items()), None)
            now = self._timer()
            if oldest is None or oldest[1].used_at + self._config.ttl_seconds > now:
                return count
            try:
                count += self._retire(oldest[0])
            except LangmemTiersError as error:
                self._warn(error)
                return count

    def flush(self, place: Place) -> int:
        """Store the messages of a memory; how many were new. What is stored leaves, but for calls that wait."""
        with self.look(place) as held:
            return 0 if held is None else self._store(place, held)

    def save(self, place: Place) -> int:
        """The same, and what the agent noted."""
        with self.look(place) as held:
            if held is None:
                return 0
            count = self._store(place, held)
            self._keep_notes(place, held)
            return count

    def try_flush(self, place: Place) -> tuple[int, str | None]:
        """The same; or why it could not be done."""
        try:
            return self.flush(place), None
        except LangmemTiersError as error:
            self._warn(error)
            return 0, f"{type(error).__name__}: {error}"

    def places(self, namespace: NamespacePath | None = None, session: str | None = None) -> list[Place]:
        """Where something is held: everywhere, or in a namespace, or in one conversation."""
        with self._lock:
            return [
                place for place in self._held if namespace in (None, place[0]) and session in (None, place[1])
            ]

    def drop(self, namespace: NamespacePath, session: str | None) -> None:
        """Let go of what is being erased, and of what was stored beside it."""
        for place in self.places(namespace, session):
            self._drop(place)
        if session is not None:
            self._sessions.erase_scratchpad((namespace, session))

    def drop_all(self, is_meant: Callable[[NamespacePath], bool]) -> None:
        """Let go of what is held in some namespaces, and of nothing that is stored."""
        for place in self.places():
            if is_meant(place[0]):
                self._drop(place)

    def take_out(self, place: Place, ids: Collection[str]) -> None:
        """Let go of some messages of a memory, stored or not."""
        with self.look(place) as held:
            if held is not None:
                self._hold_only(held, [one for one in held.messages.values() if one.id not in ids])

    def unsaved(self) -> dict[Place, tuple[Message, ...]]:
        """What is in no session yet."""
        found = {}
        for place in self.places():
            with self.look(place) as held:
                if held is not None and held.unsaved:
                    found[place] = tuple(_unsaved(held))
        return found

    def status(self) -> WorkingStatus:
        """What is held."""
        with self._lock:
            held, size = list(self._held.values()), self._size
        return WorkingStatus(
            agents=len(held), megabytes=size / _MEGABYTE, unsaved=sum(one.unsaved for one in held)
        )

    def close(self) -> None:
        """Store everything and hold nothing on that is stored; the first error, once all was tried."""
        self.is_closed = True
        self._sweeper.stop()
        failed: LangmemTiersError | None = None
        for place in self.places():
            try:
                self._retire(place)
            except LangmemTiersError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def abandon(self) -> None:
        """Store what is left of an engine that nobody closed; nobody is there to be told of an error."""
        self._sweeper.stop(0)
        with suppress(LangmemTiersError):
            self.close()

    def before_fork(self) -> None:
        """Let no thread be in the middle of a change."""
        self._lock.acquire()

    def after_fork_in_child(self) -> None:
        """Threads that were storing are not here; what both processes store is stored once, by its ids."""
        for held in self._held.values():
            held.lock = threading.RLock()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()

    def _retire(self, place: Place) -> bool:
        with self.look(place) as held:
            if held is None:
                return False
            self._store(place, held)
            self._keep_notes(place, held)
            self._remove(place, held)
            return True

    def _drop(self, place: Place) -> None:
        with self.look(place) as held:
            if held is not None:
                self._remove(place, held)

    def _keep_notes(self, place: Place, held: Held) -> None:
        if held.scratchpad is not None and held.scratchpad != held.stored_scratchpad:
            self._sessions.keep_scratchpad(place, held.scratchpad)
            held.stored_scratchpad = held.scratchpad

    def _store(self, place: Place, held: Held) -> int:
        waiting = _unsaved(held)
        count = self._sessions.keep(place, waiting) if waiting else 0
        messages = list(held.messages.values())
        held.saved = set(held.messages)
        waits = [start for start, end in tool_spans(messages) if end > len(messages)]
        self._hold_only(held, messages[min(waits) :] if waits else [])
        return count

    def _hold_only(self, held: Held, messages: Sequence[Message]) -> None:
        left = {one.id: one for one in messages}
        gone = [one for name, one in held.messages.items() if name not in left]
        with self._lock:
            self._grow_by(held, -sum(map(size_of, gone)))
        held.messages = left
        held.token_count = sum(one.token_count for one in messages)
        held.saved.intersection_update(left)

    def _remove(self, place: Place, held: Held) -> None:
        with self._lock:
            held.is_gone = True
            self._size -= held.size
            self._held.pop(place, None)

    def _touch(self, place: Place, held: Held) -> None:
        held.used_at = self._timer()
        self._held.move_to_end(place)

    def _grow_by(self, held: Held, size: int) -> None:
        held.size += size
        self._size += size

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("working memory is not stored and held on: %s", type(error).__name__)


def _unsaved(held: Held) -> list[Message]:
    return [message for message in held.messages.values() if message.id not in held.saved]
