"""What may be done twice: if the connection breaks in the middle of it, it is done once more on a new one."""

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
    """For methods of stores that only read, or whose writes come to the same if they are made again.

    Nothing that runs in a transaction of its caller's is: what came before in it would be missing.
    """

    @wraps(method)
    def repeated(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.run_with_retry(lambda: method(self, *args, **kwargs))

    return repeated
