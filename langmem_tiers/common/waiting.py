"""Looking again and again until something is done, for as long as there is patience."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_SECONDS = 0.02


def wait_until(is_done: Callable[[], bool], patience_seconds: float) -> bool:
    """Whether it came to be done in that time."""
    for attempt in range(int(patience_seconds / _PAUSE_SECONDS) + 1):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        if is_done():
            return True
    return False
