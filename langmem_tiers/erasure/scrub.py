"""What is owed after rows are gone: their bytes may still be in the files of the database."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.services import MemoryParts

_START = "wipe "
_AT_WORK = timedelta(hours=1)
"""How long one may be at it; a note that is older was left by somebody who was stopped."""


class WipeOwed:
    """Notes in the database that rows are gone whose bytes may still be in its files, for whoever comes next.

    Each forgetting has a note of its own: who is done takes back that one, and of those that others left only what
    was there before all files were gone over.

    Args:
        parts: The clock, and where leases are kept: notes are leases with a name of their own.
    """

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self._own = f"{_START}{secrets.token_hex(8)}"
        self._left_by_others: frozenset[str] = frozenset()

    def note(self) -> None:
        """Before rows go."""
        self._keep(self._parts.now() + _AT_WORK)

    def is_all(self, *, erases: bool) -> bool:
        """Whether the files have to be gone over as a whole, for what somebody left.

        Args:
            erases: Whether rows went just now. Where none did, they may have gone with somebody who was stopped a
                moment ago; where some did, somebody else may well be at work and wipe what is his.
        """
        now, notes = self._parts.now(), dict(self._parts.tuning.leases(_START))
        notes.pop(self._own, None)
        self._left_by_others = frozenset(name for name, until in notes.items() if until <= now)
        return bool(self._left_by_others) or (bool(notes) and not erases)

    def keep(self) -> None:
        """Leave the note for whoever comes next: what is gone was not wiped."""
        self._keep(self._parts.now())

    def settle(self, *, all_of_it: bool) -> None:
        """After a wipe that left nothing, or where there was nothing to wipe."""
        for name in (self._own, *(self._left_by_others if all_of_it else ())):
            self._parts.tuning.release(name, name)

    def _keep(self, until: datetime) -> None:
        self._parts.tuning.acquire(self._own, self._own, self._parts.now(), until)
