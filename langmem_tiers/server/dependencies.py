"""What an endpoint has at hand: the engine, and how far the request may reach into it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Request
from starlette.convertors import Convertor, register_url_convertor

from langmem_tiers.common.clock import SystemClock
from langmem_tiers.common.lru_cache import WeighedCache
from langmem_tiers.common.namespaces import path_of, shown
from langmem_tiers.config import CacheConfig
from langmem_tiers.errors import InvalidInputError, NotFoundError, SessionNotFoundError
from langmem_tiers.server.error_responses import Problem
from langmem_tiers.server.namespace_listing import held_from, only_one
from langmem_tiers.server.security import REACH, Reach
from langmem_tiers.server.thread_pools import Pace, Workers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import CollectorRegistry

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.context.preview import Verdicts
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.namespace import Namespace
    from langmem_tiers.session import Session


_KIND = "langmem_tiers_name"


class _AnyName(Convertor[str]):
    regex = r"[\s\S]*"  # the dot of Starlette's own, `path`, passes over no end of a line

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def any_name(parameter: str) -> str:
    """A parameter of a path that takes any text, slashes and ends of lines included."""
    register_url_convertor(_KIND, _AnyName())
    return f"{{{parameter}:{_KIND}}}"


_MOST_MESSAGES = 300_000
"""Of all that is kept."""
_LEAST = 1_000
"""As how many messages each counts besides, so that there are not too many."""
_SECONDS = 60.0


class Timelines:
    """Keeps verdicts for a minute, a bounded number of them. Of what messages and questions say it keeps nothing."""

    def __init__(self) -> None:
        config = CacheConfig(max_characters=_MOST_MESSAGES, ttl_seconds=_SECONDS)
        self._kept: WeighedCache[Verdicts] = WeighedCache(config, SystemClock().monotonic)

    def verdicts(
        self, session: Session, question: str | None, budget: TokenBudget, *, is_first: bool
    ) -> Verdicts:
        """What becomes of the messages of a session in a context.

        Args:
            session: Whose.
            question: What memory is asked for; without one nothing is recalled.
            budget: What there is.
            is_first: Whether they are for a first page, which is told as it is now.
        """
        # What was said or erased since changes all of them: then they are made anew.
        asked = hashlib.blake2b((question or "").encode("utf-8", "surrogatepass"), digest_size=16).digest()
        key = (session.key, session.info().revision, asked, budget)
        kept = None if is_first else self._kept.get(key)
        if kept is None:
            kept = session.preview(question, budget=budget, recall=bool(question)).verdicts
            self._kept.put(key, kept, _LEAST + len(kept.reasons))
        return kept


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Served:
    """What a server serves."""

    engine: MemoryEngine
    workers: Workers
    registry: CollectorRegistry | None
    timelines: Timelines = field(default_factory=Timelines)


@dataclass(frozen=True, slots=True)
class Desk:
    """What is at hand for one request."""

    served: Served
    reach: Reach

    @property
    def engine(self) -> MemoryEngine:
        """The memory."""
        return self.served.engine

    def path(self, namespace: str | None) -> NamespacePath:
        """The namespace that is meant; if none is named, the one that it is bound to, or the only one there is.

        Raises:
            Problem: It lies outside of what the request may reach.
            InvalidInputError: None is named, or it is none.
        """
        if namespace is None:
            return self.reach.namespace or self._only()
        path = path_of(namespace)
        if not self.reach.holds(path):
            why = "is not yours to ask for with this token" if self.reach.is_bound else "is not served here"
            raise Problem(403, "forbidden", f"{shown(path)!r} {why}")
        return path

    def _only(self) -> NamespacePath:
        found = only_one(self.engine)
        if found is None:
            raise InvalidInputError("namespace: say whose memory is meant, as namespace=acme/alice")
        return found

    def made(self, namespace: str | None) -> Namespace:
        """The namespace, whether it holds anything yet or not."""
        return self.engine.namespace(self.path(namespace))

    def there(self, namespace: str | None) -> Namespace:
        """The same, if it holds anything.

        Raises:
            NotFoundError: It does not.
        """
        path = self.path(namespace)
        if path not in held_from(self.engine, path):
            raise NotFoundError(f"there is nothing in {shown(path)!r}: GET /namespaces tells what there is")
        return self.engine.namespace(path)

    def session(self, namespace: str | None, name: str) -> Session:
        """A session that is there.

        Raises:
            NotFoundError: It is not.
        """
        found = self.there(namespace).find_session(name)
        if found is None:
            raise SessionNotFoundError(f"there is no session {name!r}: GET /sessions tells which there are")
        return found

    @staticmethod
    def budget(session: Session, tokens: int | None) -> TokenBudget:
        """So many tokens for memory, divided as in contexts of a session; as many as the engine's, if left out."""
        budget = session.tuned_budget()
        return budget.resized(budget.available if tokens is None else tokens)


async def _desk(request: Request) -> Desk:
    return Desk(request.app.state.served, request.scope[REACH])


AtDesk = Annotated[Desk, Depends(_desk)]


def in_thread(
    pace: Pace = Pace.QUICK, *, writes: bool = False
) -> Callable[[Callable[..., T]], Callable[..., Awaitable[T]]]:
    """For endpoints, which wait for the engine: they run in a thread of the server's."""

    def made(work: Callable[..., T]) -> Callable[..., Awaitable[T]]:
        @wraps(work)
        async def run(**values: Any) -> T:  # noqa: ANN401 - whatever the endpoint takes
            desk: Desk = values["desk"]

            def checked() -> T:
                desk.engine.check()
                return work(**values)

            return await desk.served.workers.run(pace, checked, writes=writes)

        return run

    return made
