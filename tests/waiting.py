"""Wait for a condition, not for time: a test that does so gives the same verdict on a busy machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_SECONDS = 120.0
"""Guards against hanging; no claim depends on it."""
_PAUSE_SECONDS = 0.005


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Return as soon as the condition is true.

    Args:
        condition: Called again and again.
        what: What is waited for, for the error message.

    Raises:
        AssertionError: The condition did not become true.
    """
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {LIMIT_SECONDS:.0f} s: {what}")
        time.sleep(_PAUSE_SECONDS)
