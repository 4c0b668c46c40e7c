"""Settings: frozen, checked where they are built, handed in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from langmem_tiers.core.errors import InvalidConfigError, InvalidInputError


class Durability(StrEnum):
    """What an acknowledged write survives."""

    FULL = "full"
    """A power cut: every commit is on the disk before it is acknowledged."""
    NORMAL = "normal"
    """A crash of the program; a power cut may take the last moments. Faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The cache of recent messages, least recently used sessions leave first.

    It is checked against the database on every read, so its limits bound memory and
    never age.
    """

    max_characters: int = 32_000_000
    """Over all sessions; 0 switches the cache off."""
    ttl_seconds: float = 1800.0
    window: int = 50
    """How many of a session's newest messages are held."""

    def __post_init__(self) -> None:
        _at_least(self.max_characters, 0, "max_characters")
        _more_than_zero(self.ttl_seconds, "ttl_seconds")
        _at_least(self.window, 1, "window", most=MAX_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How the engine treats its database."""

    durability: Durability = Durability.FULL
    busy_timeout_seconds: float = 60.0
    """How long a write waits for others before it gives up."""
    connect_timeout_seconds: float = 10.0
    pool_size: int = 10
    """Connections held at most; more callers than that wait."""
    cache: CacheConfig = field(default_factory=CacheConfig)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "durability", Durability(self.durability))
        except ValueError as error:
            raise InvalidConfigError(
                f"unknown durability {self.durability!r}: use 'full' or 'normal'"
            ) from error
        if not isinstance(self.cache, CacheConfig):
            raise InvalidConfigError(f"cache must be a CacheConfig, got {self.cache!r}")
        _more_than_zero(self.busy_timeout_seconds, "busy_timeout_seconds", most=86_400)
        _more_than_zero(self.connect_timeout_seconds, "connect_timeout_seconds", most=86_400)
        _at_least(self.pool_size, 1, "pool_size")


MAX_LIMIT = 1_000_000
"""The most that one call returns; page through more."""


def check_limit(limit: object) -> int:
    """The limit, or an error for what cannot be one."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidInputError(f"a limit must be a whole number from 1 to {MAX_LIMIT}, got {limit!r}")
    return limit


def _at_least(value: object, least: int, what: str, most: int = 2**40) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidConfigError(f"{what} must be a whole number from {least} to {most}, got {value!r}")


def _more_than_zero(value: object, what: str, most: float = 10**9) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise InvalidConfigError(f"{what} must be a number above 0 and up to {most}, got {value!r}")
