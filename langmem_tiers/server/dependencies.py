"""Dependencies of the endpoints: the engine, the access scope of a request and the thread pools."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Request
from starlette.convertors import Convertor, register_url_convertor

from langmem_tiers.common.lru_cache import SizedLruCache
from langmem_tiers.common.namespaces import format_namespace, parse_namespace
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
    # Starlette's own convertor "path" uses ".*", which does not match line breaks.
    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def build_path_parameter(parameter: str) -> str:
    """Return the placeholder of a path parameter that accepts any text, including slashes and line breaks."""
    register_url_convertor(_CONVERTOR_NAME, _AnyNameConvertor())
    return f"{{{parameter}:{_CONVERTOR_NAME}}}"


_MAX_CACHED_MESSAGES = 300_000
"""Maximum weight of the cache, in messages."""
_MIN_ENTRY_WEIGHT = 1_000
"""Weight added to each cache entry, so that many small entries cannot fill the memory."""
_TTL_SECONDS = 60.0


class PreviewCache:
    """Bounded cache of previews, with a lifetime of one minute. It stores no content of messages or questions."""

    def __init__(self) -> None:
        self._cache: SizedLruCache[MessageVerdicts] = SizedLruCache(_MAX_CACHED_MESSAGES, _TTL_SECONDS)

    def get_verdicts(
        self, session: Session, question: str | None, budget: TokenBudget, *, is_first: bool
    ) -> MessageVerdicts:
        """Return the state that each message of a session would have in a context.

        Args:
            session: Session to preview.
            question: Question for recall; without one, nothing is recalled.
            budget: Token budget of the context.
            is_first: True for the first page of a list, which always gets a fresh preview.
        """
        question_hash = hashlib.blake2b(
            (question or "").encode("utf-8", "surrogatepass"), digest_size=16
        ).digest()
        # Every change of the session raises its revision, so a stale preview is never found.
        key = (session.key, session.info().revision, question_hash, budget)
        verdicts = None if is_first else self._cache.get(key)
        if verdicts is None:
            verdicts = session.preview(question, budget=budget, recall=bool(question)).verdicts
            self._cache.put(key, verdicts, _MIN_ENTRY_WEIGHT + len(verdicts.reasons))
        return verdicts


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AppState:
    """Objects that all requests of a server share."""

    engine: MemoryEngine
    thread_pools: ThreadPools
    registry: CollectorRegistry | None
    preview_cache: PreviewCache = field(default_factory=PreviewCache)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Shared objects and the access scope of one request."""

    app_state: AppState
    token_scope: TokenScope

    @property
    def engine(self) -> MemoryEngine:
        """Engine with the memory."""
        return self.app_state.engine

    def resolve_path(self, namespace: str | None) -> NamespacePath:
        """Return the namespace of a request. Default: the namespace of its token, or the only one that exists.

        Raises:
            Problem: The token does not open the namespace, or the server does not serve it.
            InvalidInputError: The namespace is invalid, or missing although there are several.
        """
        if namespace is None:
            return self.token_scope.namespace or self._require_only_namespace()
        path = parse_namespace(namespace)
        if not self.token_scope.contains(path):
            reason = (
                "cannot be accessed with this token"
                if self.token_scope.is_token_bound
                else "is not served here"
            )
            raise Problem(403, "forbidden", f"{format_namespace(path)!r} {reason}")
        return path

    def _require_only_namespace(self) -> NamespacePath:
        found = find_only_namespace(self.engine)
        if found is None:
            raise InvalidInputError("namespace: required, for example namespace=acme/alice")
        return found

    def open_namespace(self, namespace: str | None) -> Namespace:
        """Return the namespace of a request, even if nothing is stored in it yet."""
        return self.engine.namespace(self.resolve_path(namespace))

    def require_namespace(self, namespace: str | None) -> Namespace:
        """Return the namespace of a request and check that something is stored in it.

        Raises:
            NotFoundError: Nothing is stored in the namespace.
        """
        # The scope is checked first, so a client cannot find out which other namespaces exist.
        path = self.resolve_path(namespace)
        if path not in find_used_namespaces(self.engine, path):
            raise NotFoundError(
                f"nothing is stored in namespace {format_namespace(path)!r}: GET /namespaces lists the namespaces"
            )
        return self.engine.namespace(path)

    def require_session(self, namespace: str | None, name: str) -> Session:
        """Return an existing session.

        Raises:
            NotFoundError: The session does not exist.
        """
        found = self.require_namespace(namespace).find_session(name)
        if found is None:
            raise SessionNotFoundError(f"no session {name!r}: GET /sessions lists the sessions")
        return found

    @staticmethod
    def build_budget(session: Session, tokens: int | None) -> TokenBudget:
        """Return the tuned budget of a session, resized to a number of tokens if one is given."""
        budget = session.tuned_budget()
        return budget.resized(budget.available if tokens is None else tokens)


async def _build_request_context(request: Request) -> RequestContext:
    return RequestContext(request.app.state.app_state, request.scope[TOKEN_SCOPE_KEY])


CurrentRequest = Annotated[RequestContext, Depends(_build_request_context)]


def run_in_thread_pool(
    job_class: JobClass = JobClass.QUICK, *, writes: bool = False
) -> Callable[[Callable[..., T]], Callable[..., Awaitable[T]]]:
    """Decorate an endpoint to run in a thread pool, because the engine blocks.

    Args:
        job_class: Expected duration, which selects the thread pool.
        writes: The endpoint is not safe to repeat after a time-out.
    """

    def decorate(work: Callable[..., T]) -> Callable[..., Awaitable[T]]:
        @wraps(work)
        async def run(**values: Any) -> T:  # noqa: ANN401 - the parameters of the endpoint
            context: RequestContext = values["context"]

            def work_checked() -> T:
                context.engine.check()
                return work(**values)

            return await context.app_state.thread_pools.run(job_class, work_checked, writes=writes)

        return run

    return decorate
