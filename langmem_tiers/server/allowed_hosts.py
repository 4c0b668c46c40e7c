"""Which names a server is asked by: a page that lets its own name point here (DNS rebinding) is none of them."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from langmem_tiers.core.errors import InvalidConfigError

_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_HOST = "*"


def host_of(header: str) -> str | None:
    """The name in a Host header, without its port; None if it is none."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # refused if it is no number
    except ValueError:
        return None
    is_plain = parts.netloc == header and not set("@/?#\\ \t") & set(header)
    return parts.hostname if is_plain else None


def allowed_name(text: str) -> str:
    """A name that a server is told to answer under, as ``host_of`` gives it: in small letters, without a port.

    Raises:
        InvalidConfigError: It is none.
    """
    if text == ANY_HOST or address_of(text) is not None:
        return text.lower()
    name = host_of(text)
    if not name:
        raise InvalidConfigError(f"{text!r} is no name of a host: use e.g. 'memory.example.org'")
    return name


def is_allowed(host: str | None, reached_at: str | None, allowed: tuple[str, ...]) -> bool:
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
    arrived = None if reached_at is None else address_of(reached_at)
    if host in _THIS_MACHINE:
        return (
            arrived is None or arrived.is_loopback
        )  # None is no network: a socket of this machine, or a test
    return arrived is not None and address_of(host) == arrived


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text is, if it is one; an IPv4 one that is written as IPv6 is the same."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
