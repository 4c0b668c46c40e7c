"""Configuration of the server."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from langmem_tiers.common.checks import check_positive, check_whole
from langmem_tiers.common.namespaces import check_namespace, parse_namespace
from langmem_tiers.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from langmem_tiers.common.namespaces import NamespacePath


_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_HOST = "*"


def parse_host_header(header: str) -> str | None:
    """Return the name in a Host header without the port, or None if the header is invalid."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises ValueError if the port is not a number
    except ValueError:
        return None
    # A header with a user, a path or a query could make urlsplit() see another name than a proxy does.
    is_plain = parts.netloc == header and not set("@/?#\\ \t") & set(header)
    return parts.hostname if is_plain else None


def parse_allowed_host(text: str) -> str:
    """Return an allowed host name in the form of ``parse_host_header``: lower case, without a port.

    Raises:
        InvalidConfigError: The text is not a host name.
    """
    if text == ANY_HOST or parse_address(text) is not None:
        return text.lower()
    name = parse_host_header(text)
    if not name:
        raise InvalidConfigError(f"{text!r} is not a host name: use for example 'memory.example.org'")
    return name


def is_host_allowed(host: str | None, reached_at: str | None, allowed: tuple[str, ...]) -> bool:
    """Return True if the server may answer a request for a host name.

    This protects against DNS rebinding: a page of another site could point its own name at this machine.

    Args:
        host: Host name of the request.
        reached_at: Local address of the connection, or None if there is none.
        allowed: Host names from the configuration.
    """
    if host is None:
        return False
    if ANY_HOST in allowed or host in allowed:
        return True
    address = None if reached_at is None else parse_address(reached_at)
    if host in _LOCAL_NAMES:
        # A connection without an address does not use the network: it is a Unix socket or a test.
        return address is None or address.is_loopback
    return address is not None and parse_address(host) == address


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an IP address, or None if the text is not one; an IPv4-mapped IPv6 address becomes IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


_MIN_TOKEN_CHARACTERS = 16
_TOKEN_HINT = "create one with python -c 'import secrets; print(secrets.token_urlsafe(32))'"


@dataclass(frozen=True, slots=True)
class Token:
    """A secret and the namespaces that it gives access to.

    Args:
        secret: At least 16 visible ASCII characters.
        namespace: Namespace that the token opens, with all below it. Default: all namespaces.
    """

    secret: str = field(repr=False)
    namespace: NamespacePath | None = None

    def __post_init__(self) -> None:
        if not all("!" <= character <= "~" for character in str(self.secret)):
            raise InvalidConfigError(
                f"a token must consist of visible ASCII characters, without spaces: {_TOKEN_HINT}"
            )
        if len(self.secret) < _MIN_TOKEN_CHARACTERS:
            raise InvalidConfigError(
                f"a token must have at least {_MIN_TOKEN_CHARACTERS} characters, got {len(self.secret)}: {_TOKEN_HINT}"
            )


def parse_tokens(text: str) -> tuple[Token, ...]:
    """Parse a token file: one token per line, optionally followed by a space and its namespace.

    Empty lines and lines that start with ``#`` are skipped.
    """
    tokens = []
    # Not splitlines(): it also splits at characters other than line breaks, and a token that is cut off from its
    # namespace would open all namespaces.
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip().split(maxsplit=1)
        if not words or words[0].startswith("#"):
            continue
        try:
            tokens.append(Token(words[0], parse_namespace(words[1]) if len(words) > 1 else None))
        except ValueError as error:
            raise InvalidConfigError(f"line {number} of the tokens: {error}") from None
    check_distinct_tokens(tokens)
    return tuple(tokens)


def check_distinct_tokens(tokens: Collection[Token]) -> None:
    """Check that no secret occurs twice: one of the two could open more than the other was meant to.

    Raises:
        InvalidConfigError: A secret occurs twice.
    """
    if len({token.secret for token in tokens}) < len(tokens):
        raise InvalidConfigError("a token occurs twice: use a different token for each namespace")


def find_matching_token(tokens: Iterable[Token], secret: str) -> Token | None:
    """Return the token with a secret; the time taken does not reveal how much of a wrong secret is right."""
    found = None
    # No early exit, and a constant-time comparison: the duration must not depend on the match.
    for token in tokens:
        if hmac.compare_digest(token.secret.encode(), secret.encode("utf-8", "replace")):
            found = token
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Access rules and limits of the server.

    Args:
        tokens: Tokens that give access. Requests without a valid token only get ``/health`` and the inspector without
            data. If empty, every request is answered. No secret may occur twice.
        namespace: Namespace to serve, with all below it. Default: all namespaces.
        allowed_hosts: Host names of the server besides those of this machine; ``*`` allows all. Ports are ignored.
        max_body_bytes: Maximum size of a request body.
        max_threads: Maximum number of requests that the engine processes at once.
        max_waiting: Maximum number of requests that wait for a thread; further requests are rejected with 503.
        timeout_seconds: Maximum time of a request, including the wait. Ten times as long for slow operations.
    """

    tokens: tuple[Token, ...] = ()
    namespace: NamespacePath | None = None
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 1_000_000
    max_threads: int = 8
    max_waiting: int = 64
    timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        put = object.__setattr__  # the dataclass is frozen
        for name in ("tokens", "allowed_hosts"):
            if isinstance(getattr(self, name), str):
                raise InvalidConfigError(f"{name} must be a list, got a str: pass a list with this value")
            put(self, name, tuple(getattr(self, name)))
        if not all(isinstance(token, Token) for token in self.tokens):
            raise InvalidConfigError("tokens must be Token objects: use Token(secret) or parse_tokens(text)")
        check_distinct_tokens(self.tokens)
        put(self, "allowed_hosts", tuple(map(parse_allowed_host, self.allowed_hosts)))
        if self.namespace is not None:
            put(self, "namespace", check_namespace(self.namespace))
        for name in ("max_body_bytes", "max_threads"):
            check_whole(getattr(self, name), 1, name)
        check_whole(self.max_waiting, 0, "max_waiting")
        check_positive(self.timeout_seconds, "timeout_seconds")
