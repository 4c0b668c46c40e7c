"""Tokens: what a client shows, and which namespaces it may ask for with it."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import InvalidConfigError
from langmem_tiers.core.paths import path_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from langmem_tiers.core.names import NamespacePath

_SHORTEST = 16
_HOW = "python -c 'import secrets; print(secrets.token_urlsafe(32))' makes one"


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
            raise InvalidConfigError(f"a token is made of visible ASCII characters, without spaces: {_HOW}")
        if len(self.secret) < _SHORTEST:
            raise InvalidConfigError(
                f"a token needs {_SHORTEST} characters or more, one has {len(self.secret)}: {_HOW}"
            )


def tokens_of(text: str) -> tuple[Token, ...]:
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
            found.append(Token(words[0], path_of(words[1]) if len(words) > 1 else None))
        except ValueError as error:
            raise InvalidConfigError(f"line {number} of the tokens: {error}") from None
    check_distinct(found)
    return tuple(found)


def check_distinct(tokens: Collection[Token]) -> None:
    """Each secret stands there once: of two with the same, one could open more than the other was meant to.

    Raises:
        InvalidConfigError: One stands there twice.
    """
    if len({token.secret for token in tokens}) < len(tokens):
        raise InvalidConfigError("a token stands there twice: give each namespace its own")


def matching(tokens: Iterable[Token], shown: str) -> Token | None:
    """The token that was shown, found in a time that does not tell how much of it was right."""
    found = None
    for token in tokens:
        if hmac.compare_digest(token.secret.encode(), shown.encode("utf-8", "replace")):
            found = token
    return found
