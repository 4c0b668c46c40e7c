"""Retry of repeatable operations on a new connection after a disconnect."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.storage.database import Database

P = ParamSpec("P")
T = TypeVar("T")


class _HasDatabase(Protocol):
    _database: Database


S = TypeVar("S", bound=_HasDatabase)


def retry_on_disconnect(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate a repository method to be retried if its connection breaks.

    Use it only for methods that read, or whose writes are idempotent. Do not use it for methods that run in a caller's
    transaction: a retry would lose the transaction's earlier statements.
    """

    @wraps(method)
    def run_with_retry(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.run_with_retry(lambda: method(self, *args, **kwargs))

    return run_with_retry
