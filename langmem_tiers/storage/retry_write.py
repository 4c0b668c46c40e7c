"""Retry of writes that lost against a concurrent write."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from langmem_tiers.errors import StorageBusyError
from langmem_tiers.storage.driver_errors import ConcurrentWriteError

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_MAX_ATTEMPTS = 20  # far more than two concurrent writers need


def retry_on_conflict(
    attempt: Callable[[], _T | None], busy: str, *, max_attempts: int = _MAX_ATTEMPTS
) -> _T:
    """Repeat an attempt until it returns a result.

    Args:
        attempt: Reads what it depends on, and writes. It returns None or raises ``ConcurrentWriteError``, with nothing
            written, if a concurrent write came first.
        busy: Message of the error if no attempt succeeds.
        max_attempts: Maximum number of attempts.

    Raises:
        StorageBusyError: No attempt succeeded.
    """
    for _ in range(max_attempts):
        with suppress(ConcurrentWriteError):
            result = attempt()
            if result is not None:
                return result
    raise StorageBusyError(busy)
