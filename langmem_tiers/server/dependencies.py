"""What an endpoint has at hand: the engine, and how far the request may reach into it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Request
from starlette.convertors import Convertor, register_url_convertor

from langmem_tiers.common.clock import SystemClock
from langmem_tiers.common.lru_cache import SizedLruCache
from langmem_tiers.common.namespaces import format_namespace, parse_namespace
from langmem_tiers.config import CacheConfig
from langmem_tiers.errors import InvalidInputError, NotFoundError, SessionNotFoundError
from langmem_tiers.server.error_responses import Problem
from langmem_tiers.server.namespace_listing import find_only_namespace, find_used_namespaces
from langmem_tiers.server.security import TOKEN_SCOPE_KEY, TokenScope
from langmem_tiers.server.thread_pools import JobClass, ThreadPools

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import CollectorRegistry

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.context.preview import MessageVerdicts
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.namespace import Namespace
    from langmem_tiers.session import Session


_CONVERTOR_NAME = "langmem_tiers_name"


class _AnyNameConvertor(Convertor[str]):
    regex = r"[\s\S]*"  # the dot of Starlette's own, `path`, passes over no end of a line

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def build_path_parameter(parameter: str) -> str:
    """A parameter of a path that takes any text, slashes and ends of lines included."""
    register_url_convertor(_CONVERTOR_NAME, _AnyNameConvertor())
    return f"{{{parameter}:{_CONVERTOR_NAME}}}"


_MAX_CACHED_MESSAGES = 300_000
"""Of all that is kept."""
_MIN_ENTRY_WEIGHT = 1_000
"""As how many messages each counts besides, so that there are not too many."""
_TTL_SECONDS = 60.0


class PreviewCache:
    """Keeps verdicts for a minute, a bounded number of them. Of what messages and questions say it keeps nothing."""

    def __init__(self) -> None:
        config = CacheConfig(max_characters=_MAX_CACHED_MESSAGES, ttl_seconds=_TTL_SECONDS)
        self._cache: SizedLruCache[MessageVerdicts] = SizedLruCache(config, SystemClock().monotonic)

    def get_verdicts(
        self, session: Session, question: str | None, budget: TokenBudget, *, is_first: bool
    ) -> MessageVerdicts:
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
        kept = None if is_first else self._cache.get(key)
        if kept is None:
            kept = session.preview(question, budget=budget, recall=bool(question)).verdicts
            self._cache.put(key, kept, _MIN_ENTRY_WEIGHT + len(kept.reasons))
        return kept


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AppState:
    """What a server serves."""

    engine: MemoryEngine
    thread_pools: ThreadPools
    registry: CollectorRegistry | None
    preview_cache: PreviewCache = field(default_factory=PreviewCache)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What is at hand for one request."""

    app_state: AppState
    token_scope: TokenScope

    @property
    def engine(self) -> MemoryEngine:
        """The memory."""
        return self.app_state.engine

    def resolve_path(self, namespace: str | None) -> NamespacePath:
        """The namespace that is meant; if none is named, the one that it is bound to, or the only one there is.

        Raises:
            Problem: It lies outside of what the request may reach.
            InvalidInputError: None is named, or it is none.
        """
        if namespace is None:
            return self.token_scope.namespace or self._require_only_namespace()
        path = parse_namespace(namespace)
        if not self.token_scope.contains(path):
            why = (
                "is not yours to ask for with this token"
                if self.token_scope.is_token_bound
                else "is not served here"
            )
            raise Problem(403, "forbidden", f"{format_namespace(path)!r} {why}")
        return path

    def _require_only_namespace(self) -> NamespacePath:
        found = find_only_namespace(self.engine)
        if found is None:
            raise InvalidInputError("namespace: say whose memory is meant, as namespace=acme/alice")
        return found

    def open_namespace(self, namespace: str | None) -> Namespace:
        """The namespace, whether it holds anything yet or not."""
        return self.engine.namespace(self.resolve_path(namespace))

    def require_namespace(self, namespace: str | None) -> Namespace:
        """The same, if it holds anything.

        Raises:
            NotFoundError: It does not.
        """
        path = self.resolve_path(namespace)
        if path not in find_used_namespaces(self.engine, path):
            raise NotFoundError(
                f"there is nothing in {format_namespace(path)!r}: GET /namespaces tells what there is"
            )
        return self.engine.namespace(path)

    def require_session(self, namespace: str | None, name: str) -> Session:
        """A session that is there.

        Raises:
            NotFoundError: It is not.
        """
        found = self.require_namespace(namespace).find_session(name)
        if found is None:
            raise SessionNotFoundError(f"there is no session {name!r}: GET /sessions tells which there are")
        return found

    @staticmethod
    def build_budget(session: Session, tokens: int | None) -> TokenBudget:
        """So many tokens for memory, divided as in contexts of a session; as many as the engine's, if left out."""
        budget = session.tuned_budget()
        return budget.resized(budget.available if tokens is None else tokens)


async def _build_request_context(request: Request) -> RequestContext:
    return RequestContext(request.app.state.served, request.scope[TOKEN_SCOPE_KEY])


CurrentRequest = Annotated[RequestContext, Depends(_build_request_context)]


def run_in_thread_pool(
    pace: JobClass = JobClass.QUICK, *, writes: bool = False
) -> Callable[[Callable[..., T]], Callable[..., Awaitable[T]]]:
    """For endpoints, which wait for the engine: they run in a thread of the server's."""

    def made(work: Callable[..., T]) -> Callable[..., Awaitable[T]]:
        @wraps(work)
        async def run(**values: Any) -> T:  # noqa: ANN401 - whatever the endpoint takes
            desk: RequestContext = values["desk"]

            def checked() -> T:
                desk.engine.check()
                return work(**values)

            return await desk.app_state.thread_pools.run(pace, checked, writes=writes)

        return run

    return made
