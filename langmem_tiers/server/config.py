"""Settings of the server."""

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
    """The name in a Host header, without its port; None if it is none."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # refused if it is no number
    except ValueError:
        return None
    is_plain = parts.netloc == header and not set("@/?#\\ \t") & set(header)
    return parts.hostname if is_plain else None


def parse_allowed_host(text: str) -> str:
    """A name that a server is told to answer under, as ``host_of`` gives it: in small letters, without a port.

    Raises:
        InvalidConfigError: It is none.
    """
    if text == ANY_HOST or parse_address(text) is not None:
        return text.lower()
    name = parse_host_header(text)
    if not name:
        raise InvalidConfigError(f"{text!r} is no name of a host: use e.g. 'memory.example.org'")
    return name


def is_host_allowed(host: str | None, reached_at: str | None, allowed: tuple[str, ...]) -> bool:
    """Whether a server may answer under a name.

    Args:
        host: The name that it was asked by.
        reached_at: The address at which the connection arrived.
        allowed: Names that it was told.
    """
    if host is None:
        return False
    if ANY_HOST in allowed or host in allowed:
        return True
    arrived = None if reached_at is None else parse_address(reached_at)
    if host in _LOCAL_NAMES:
        return (
            arrived is None or arrived.is_loopback
        )  # None is no network: a socket of this machine, or a test
    return arrived is not None and parse_address(host) == arrived


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text is, if it is one; an IPv4 one that is written as IPv6 is the same."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


_MIN_TOKEN_CHARACTERS = 16
_TOKEN_HINT = "python -c 'import secrets; print(secrets.token_urlsafe(32))' makes one"


@dataclass(frozen=True, slots=True)
class Token:
    """A secret, and what it opens.

    Args:
        secret: At least 16 visible ASCII characters.
        namespace: The only namespace that it opens, with all that lie below it; all, if left out.
    """

    secret: str = field(repr=False)
    namespace: NamespacePath | None = None

    def __post_init__(self) -> None:
        if not all("!" <= one <= "~" for one in str(self.secret)):
            raise InvalidConfigError(
                f"a token is made of visible ASCII characters, without spaces: {_TOKEN_HINT}"
            )
        if len(self.secret) < _MIN_TOKEN_CHARACTERS:
            raise InvalidConfigError(
                f"a token needs {_MIN_TOKEN_CHARACTERS} characters or more, one has {len(self.secret)}: {_TOKEN_HINT}"
            )


def parse_tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a file: one a line, with the namespace behind a space that it is bound to, if to any.

    Empty lines and those that begin with ``#`` say nothing.
    """
    found = []
    # Other signs that end a line for Python would part a token from the namespace that it is bound to.
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip().split(maxsplit=1)
        if not words or words[0].startswith("#"):
            continue
        try:
            found.append(Token(words[0], parse_namespace(words[1]) if len(words) > 1 else None))
        except ValueError as error:
            raise InvalidConfigError(f"line {number} of the tokens: {error}") from None
    check_distinct_tokens(found)
    return tuple(found)


def check_distinct_tokens(tokens: Collection[Token]) -> None:
    """Each secret stands there once: of two with the same, one could open more than the other was meant to.

    Raises:
        InvalidConfigError: One stands there twice.
    """
    if len({token.secret for token in tokens}) < len(tokens):
        raise InvalidConfigError("a token stands there twice: give each namespace its own")


def find_matching_token(tokens: Iterable[Token], shown: str) -> Token | None:
    """The token that was shown, found in a time that does not tell how much of it was right."""
    found = None
    for token in tokens:
        if hmac.compare_digest(token.secret.encode(), shown.encode("utf-8", "replace")):
            found = token
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Who may ask for what, and how much at once.

    Args:
        tokens: Who shows none of them gets nothing but ``/health`` and the empty pages. With none, all are answered.
            No secret may stand there twice.
        namespace: The only one that is served, with all that lie below it; all, if left out.
        allowed_hosts: Names under which the server is reached, besides those of this machine; ``*`` allows all. A port
            behind one says nothing.
        max_body_bytes: Of a request.
        max_threads: Requests that the engine works on at once.
        max_waiting: Requests that wait for that; who comes then is told to come again.
        timeout_seconds: How long a request may wait and take; ten times as long where it is known to take long.
    """

    tokens: tuple[Token, ...] = ()
    namespace: NamespacePath | None = None
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 1_000_000
    max_threads: int = 8
    max_waiting: int = 64
    timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("tokens", "allowed_hosts"):
            if isinstance(getattr(self, name), str):
                raise InvalidConfigError(f"{name} must be a list, got a str: put it into one")
            put(self, name, tuple(getattr(self, name)))
        if not all(isinstance(token, Token) for token in self.tokens):
            raise InvalidConfigError("tokens must be Token objects: use Token(secret), or tokens_of(text)")
        check_distinct_tokens(self.tokens)
        put(self, "allowed_hosts", tuple(map(parse_allowed_host, self.allowed_hosts)))
        if self.namespace is not None:
            put(self, "namespace", check_namespace(self.namespace))
        for name in ("max_body_bytes", "max_threads"):
            check_whole(getattr(self, name), 1, name)
        check_whole(self.max_waiting, 0, "max_waiting")
        check_positive(self.timeout_seconds, "timeout_seconds")
