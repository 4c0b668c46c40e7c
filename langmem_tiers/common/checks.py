"""Validation of settings."""

from __future__ import annotations

from langmem_tiers.errors import InvalidConfigError


def check_whole(value: object, min_value: int, what: str, max_value: int = 2**40) -> int:
    """Return the value if it is an integer between two bounds; otherwise raise InvalidConfigError."""
    if isinstance(value, bool) or not isinstance(value, int) or not min_value <= value <= max_value:
        raise InvalidConfigError(
            f"{what} must be a whole number from {min_value} to {max_value}, got {value!r}"
        )
    return value


def check_positive(value: object, what: str, max_value: float = 10**9) -> float:
    """Return the value if it is a number above 0; otherwise raise InvalidConfigError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= max_value:
        raise InvalidConfigError(f"{what} must be a number above 0 and up to {max_value}, got {value!r}")
    return value


def check_fraction(value: object, what: str) -> float:
    """Return the value if it is a number in [0, 1]; otherwise raise InvalidConfigError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidConfigError(f"{what} must be in [0, 1], got {value!r}")
    return float(value)
