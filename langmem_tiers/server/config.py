"""Settings of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.core.checks import check_positive, check_whole
from langmem_tiers.core.errors import InvalidConfigError
from langmem_tiers.core.names import check_namespace
from langmem_tiers.server.allowed_hosts import allowed_name
from langmem_tiers.server.tokens import Token, check_distinct

if TYPE_CHECKING:
    from langmem_tiers.core.names import NamespacePath


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
        check_distinct(self.tokens)
        put(self, "allowed_hosts", tuple(map(allowed_name, self.allowed_hosts)))
        if self.namespace is not None:
            put(self, "namespace", check_namespace(self.namespace))
        for name in ("max_body_bytes", "max_threads"):
            check_whole(getattr(self, name), 1, name)
        check_whole(self.max_waiting, 0, "max_waiting")
        check_positive(self.timeout_seconds, "timeout_seconds")
