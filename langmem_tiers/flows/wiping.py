"""What is owed after rows are gone: their bytes may still be in the files of the database."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langmem_tiers.core.upkeep import Scrubbed
    from langmem_tiers.flows.parts import MemoryParts


class WipeOwed:
    """A note in the database that rows are gone whose bytes may still be in its files, for whoever comes next.

    Args:
        parts: The clock, and where leases are kept: it is one that does not run out.
    """

    _NAME, _ASKS = "wipe", "who asks"
    _YEARS = timedelta(days=36_500)

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts

    def is_noted(self) -> bool:
        """Whether somebody was stopped, or chose not to wipe."""
        now = self._parts.now()
        if not self._parts.tuning.acquire(self._NAME, self._ASKS, now, now):
            return True
        self._parts.tuning.release(self._NAME, self._ASKS)
        return False

    def note(self) -> None:
        """Before rows go."""
        now = self._parts.now()
        self._parts.tuning.acquire(self._NAME, self._NAME, now, now + self._YEARS)

    def settle(self, wiped: Scrubbed) -> None:
        """After a wipe that left nothing."""
        if not wiped.left:
            self._parts.tuning.release(self._NAME, self._NAME)
