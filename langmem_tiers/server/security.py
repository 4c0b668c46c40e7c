"""Checks of every request (host, origin, token, size) and the security headers of every response."""

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

TOKEN_SCOPE_KEY = "langmem_tiers.token_scope"
"""Key of the ``TokenScope`` in the ASGI scope of a request."""
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
    """Namespaces that a request may access: one namespace with all below it, or all."""

    namespace: NamespacePath | None = None
    is_token_bound: bool = False
    """True if the token of the request sets the namespace, False if the server configuration does."""

    def contains(self, path: NamespacePath) -> bool:
        """Return True if the request may access a namespace."""
        return self.namespace is None or path[: len(self.namespace)] == self.namespace


class SecurityMiddleware:
    """ASGI middleware that rejects forbidden requests and adds security headers.

    Args:
        app: Application behind the middleware.
        config: Access rules and limits.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # the server has no web sockets
        path = _get_path(scope)
        sending = _HeaderSender(send, is_page=_is_page(path))
        # All checks come before the application, which reads the body.
        try:
            headers = Headers(scope=scope)
            self._check_host(scope, headers)
            _check_origin(scope, headers)
            token_scope = self._authorize(headers, is_open=_is_public(scope, path))
            _check_content(scope, headers)
            self._check_size(headers)
        except Problem as problem:
            await problem.to_response()(scope, receive, sending)
            return
        scope[TOKEN_SCOPE_KEY] = token_scope
        try:
            await self._app(scope, _LimitedReceive(receive, self._config), sending)
        except Exception as error:  # noqa: BLE001 - the client gets a response and the server keeps running
            response = to_problem(error).to_response()  # also writes the log entry
            # After the response has started, its status cannot be changed any more.
            if not sending.has_begun:
                await response(scope, receive, sending)

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        hosts = headers.getlist("host")
        server = scope.get("server")
        # Two Host headers are ambiguous: a proxy may check one of them and this server the other.
        host = parse_host_header(hosts[0]) if len(hosts) == 1 else None
        if not is_host_allowed(host, server[0] if server else None, self._config.allowed_hosts):
            raise Problem(
                421,
                "wrong_host",
                "the server does not answer under this host name: to allow it, start the server with --allowed-host "
                "or ServerConfig(allowed_hosts=...)",
            )

    def _authorize(self, headers: Headers, *, is_open: bool) -> TokenScope:
        server_scope = TokenScope(self._config.namespace)
        if not self._config.tokens or is_open:
            return server_scope
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        token = (
            find_matching_token(self._config.tokens, secret.strip()) if scheme.lower() == "bearer" else None
        )
        if token is None:
            raise Problem(
                401,
                "unauthorized",
                "a token is required: send the header Authorization: Bearer ...",
                {"WWW-Authenticate": "Bearer"},
            )
        if token.namespace is None:
            return server_scope
        if not server_scope.contains(token.namespace):
            raise Problem(403, "forbidden", "the token is for a namespace that is not served here")
        return TokenScope(token.namespace, is_token_bound=True)

    def _check_size(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        # str.isdigit() alone accepts digits of other scripts.
        if not (length.isascii() and length.isdigit()):
            raise Problem(400, "invalid", "Content-Length must be a number")
        # 20 digits are enough to exceed any limit; int() of a very long text raises ValueError.
        if int(length[:20]) > self._config.max_body_bytes:
            raise build_too_large_problem(self._config.max_body_bytes)


def build_too_large_problem(max_bytes: int) -> Problem:
    """Build the response to a request body that is too large."""
    return Problem(413, "too_large", f"a request must not exceed {max_bytes:,} bytes: send less at once")


class _LimitedReceive:
    """ASGI receive function that limits the size and the duration of a request body.

    It counts the bytes that arrive, because a chunked request has no Content-Length.
    """

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
            raise Problem(
                408, "timeout", "the request was incomplete at the time-out: send it again"
            ) from error
        self._is_complete = not message.get("more_body", False)
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self._max_bytes:
            raise build_too_large_problem(self._max_bytes)
        return message


class _HeaderSender:
    """ASGI send function that adds the security headers to every response."""

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
    # Browsers state the origin of a request in these headers, other clients do not send them. A page of another origin
    # may link to this server (a navigation), but it can neither read nor change anything.
    site = headers.get("sec-fetch-site", "none")
    origin = headers.get("origin")
    is_own = origin is None or _is_same_origin(origin, headers.get("host", ""))
    is_navigation = scope["method"] in _SAFE_METHODS and headers.get("sec-fetch-mode") == "navigate"
    if not is_own or (site not in ("none", "same-origin") and not is_navigation):
        raise Problem(403, "cross_origin", "requests from pages of other origins are rejected")


def _is_same_origin(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() and bool(host)
    except ValueError:
        return False


def _check_content(scope: Scope, headers: Headers) -> None:
    if scope["method"] in _SAFE_METHODS:
        return
    # HTML forms of other sites cannot send this content type, so this also protects against forged requests.
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, "unsupported_media_type", "send JSON with Content-Type: application/json")
