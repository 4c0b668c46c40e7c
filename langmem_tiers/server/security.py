"""What stands before every request: its Host, its origin, its token, its size; and what goes with every answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from langmem_tiers.server.config import find_matching_token, is_host_allowed, parse_host_header
from langmem_tiers.server.error_responses import Problem, to_problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.server.config import ServerConfig

TOKEN_SCOPE_KEY = "langmem_tiers.reach"
"""Where in the scope of a request it stands how far it may reach."""
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = {
    "content-security-policy": _CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_PUBLIC_PATHS = frozenset({"/", "/health", "/favicon.ico", "/inspector"})
_PUBLIC_PREFIX = "/inspector/"


@dataclass(frozen=True, slots=True)
class TokenScope:
    """How far a request may reach: one namespace with all below it, or everything."""

    namespace: NamespacePath | None = None
    is_token_bound: bool = False
    """Whether its token says so, rather than the server for all."""

    def contains(self, path: NamespacePath) -> bool:
        """Whether a namespace lies within it."""
        return self.namespace is None or path[: len(self.namespace)] == self.namespace


class SecurityMiddleware:
    """Lets a request through, or answers it.

    Args:
        app: What it stands before.
        config: Who may ask for what.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there are no web sockets here
        path = _get_path(scope)
        sending = _HeaderSender(send, is_page=_is_page(path))
        try:
            headers = Headers(scope=scope)
            self._check_host(scope, headers)
            _check_origin(scope, headers)
            reach = self._authorize(headers, is_open=_is_public(scope, path))
            _check_content(scope, headers)
            self._check_size(headers)
        except Problem as problem:
            await problem.to_response()(scope, receive, sending)
            return
        scope[TOKEN_SCOPE_KEY] = reach
        try:
            await self._app(scope, _LimitedReceive(receive, self._config), sending)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer and the server goes on
            answer = to_problem(error).to_response()
            if not sending.has_begun:
                await answer(scope, receive, sending)

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        given = headers.getlist("host")
        server = scope.get("server")
        host = parse_host_header(given[0]) if len(given) == 1 else None
        if not is_host_allowed(host, server[0] if server else None, self._config.allowed_hosts):
            raise Problem(
                421,
                "wrong_host",
                "this server does not answer under that name: if it is its own, start it with --allowed-host, "
                "or with ServerConfig(allowed_hosts=...)",
            )

    def _authorize(self, headers: Headers, *, is_open: bool) -> TokenScope:
        served = TokenScope(self._config.namespace)
        if not self._config.tokens or is_open:
            return served
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        token = (
            find_matching_token(self._config.tokens, shown.strip()) if scheme.lower() == "bearer" else None
        )
        if token is None:
            raise Problem(
                401,
                "unauthorized",
                "this needs a token: send Authorization: Bearer ...",
                {"WWW-Authenticate": "Bearer"},
            )
        if token.namespace is None:
            return served
        if not served.contains(token.namespace):
            raise Problem(403, "forbidden", "the token is of a namespace that is not served here")
        return TokenScope(token.namespace, is_token_bound=True)

    def _check_size(self, headers: Headers) -> None:
        told = headers.get("content-length", "0")
        if not (told.isascii() and told.isdigit()):
            raise Problem(400, "invalid", "Content-Length must be a number")
        if int(told[:20]) > self._config.max_body_bytes:
            raise build_too_large_problem(self._config.max_body_bytes)


def build_too_large_problem(most: int) -> Problem:
    """The answer to a body that is too large."""
    return Problem(413, "too_large", f"a request may have {most:,} bytes: send less at once")


class _LimitedReceive:
    """Counts what comes in, also where nobody said how much it would be; all of it has to come in time."""

    def __init__(self, receive: Receive, config: ServerConfig) -> None:
        self._receive = receive
        self._max_bytes = config.max_body_bytes
        self._deadline = asyncio.get_running_loop().time() + config.timeout_seconds
        self._received_bytes = 0
        self._is_complete = False

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            raise Problem(408, "timeout", "the request did not come to its end: send it again") from error
        self._is_complete = not message.get("more_body", False)
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self._max_bytes:
            raise build_too_large_problem(self._max_bytes)
        return message


class _HeaderSender:
    """Adds what goes with every answer."""

    def __init__(self, send: Send, *, is_page: bool) -> None:
        self._send = send
        self._cache = "no-cache" if is_page else "no-store"
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers[name] = value
            headers["cache-control"] = self._cache
        await self._send(message)


def _get_path(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def _is_page(path: str) -> bool:
    return path == "/" or path.startswith(_PUBLIC_PREFIX)


def _is_public(scope: Scope, path: str) -> bool:
    return scope["method"] in _SAFE_METHODS and (path in _PUBLIC_PATHS or path.startswith(_PUBLIC_PREFIX))


def _check_origin(scope: Scope, headers: Headers) -> None:
    # Browsers say where a request comes from. One of another page changes nothing here, and reads nothing.
    site = headers.get("sec-fetch-site", "none")
    origin = headers.get("origin")
    is_own = origin is None or _is_same_origin(origin, headers.get("host", ""))
    is_visit = scope["method"] in _SAFE_METHODS and headers.get("sec-fetch-mode") == "navigate"
    if not is_own or (site not in ("none", "same-origin") and not is_visit):
        raise Problem(403, "cross_origin", "pages of other origins are not answered")


def _is_same_origin(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() and bool(host)
    except ValueError:
        return False


def _check_content(scope: Scope, headers: Headers) -> None:
    if scope["method"] in _SAFE_METHODS:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "unsupported_media_type", "send JSON, as Content-Type: application/json")
