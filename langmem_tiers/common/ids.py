"""Ids that sort by creation time: a base-36 time prefix plus randomness."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Protocol

from langmem_tiers.common.fork_safety import register_fork_aware

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PREFIX_WIDTH = 9  # milliseconds in base 36 stay sortable as text until the year 5188
_RANDOM_BITS = 63  # one bit less than 16 hex digits hold, so that counting up does not overflow them


class IdSource(Protocol):
    """Source of ids for new messages."""

    def new(self, now: datetime) -> str:
        """Return a new, unique id."""
        ...


class TimeSortedIds:
    """Ids such as ``0mi1k2x9a-1f3c5d7e9b2a4c6e``, sorted by creation order.

    Within one millisecond, or if the clock moves backwards, the random part counts up. Ids of
    one process therefore neither repeat nor change order. A forked child starts with new randomness.

    Args:
        random_bits: Source of randomness; pass a seeded one for reproducible ids.
    """

    def __init__(self, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._random_bits = random_bits
        self._lock = threading.RLock()  # reentrant: another fork hook may request an id while forking
        self._millisecond = -1
        self._random = 0
        self._prefix = ""
        register_fork_aware(self)

    def new(self, now: datetime) -> str:
        """Return a new id for ``now``."""
        millisecond = int(now.timestamp() * 1000)
        with self._lock:
            # An empty prefix marks the first id of a process or a forked child.
            if millisecond > self._millisecond or not self._prefix:
                self._millisecond = max(millisecond, self._millisecond, 0)
                self._prefix = _base36(self._millisecond).rjust(_PREFIX_WIDTH, "0")
                self._random = self._random_bits(_RANDOM_BITS)
            else:
                self._random += 1
            return f"{self._prefix}-{self._random:016x}"

    def before_fork(self) -> None:
        """Lock, so that no thread is creating an id during the fork."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Discard the random state, so that parent and child never create the same id."""
        self._prefix = ""
        self._lock.release()


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return digits
