"""Polling with a time limit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_SECONDS = 0.02


def wait_until(is_done: Callable[[], bool], patience_seconds: float) -> bool:
    """Poll until ``is_done()`` is true; return False if the time limit passes first."""
    # Attempts are counted instead of reading a clock: only the clock module reads the time.
    for attempt in range(int(patience_seconds / _PAUSE_SECONDS) + 1):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        if is_done():
            return True
    return False
