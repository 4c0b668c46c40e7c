"""Retry of writes that lost against a concurrent write."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from langmem_tiers.errors import StorageBusyError
from langmem_tiers.storage.driver_errors import ConcurrentWriteError

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
# A conflict means that another writer succeeded, so a few concurrent writers never need this many attempts.
_MAX_ATTEMPTS = 100


def retry_on_conflict(
    attempt: Callable[[], _T | None], busy: str, *, conflict: type[Exception] = ConcurrentWriteError
) -> _T:
    """Repeat an attempt until it returns a result.

    Args:
        attempt: Reads what it depends on, and writes. If a concurrent write came first, it returns None or raises
            ``conflict``, with nothing written.
        busy: Message of the error if no attempt succeeds.
        conflict: Error of an attempt that lost.

    Raises:
        StorageBusyError: No attempt succeeded.
    """
    for _ in range(_MAX_ATTEMPTS):
        with suppress(conflict):
            result = attempt()
            if result is not None:
                return result
    raise StorageBusyError(busy)
