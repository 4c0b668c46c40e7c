"""What is owed after rows are gone: their bytes may still be in the files of the database."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.services import EngineServices

_LEASE_PREFIX = "wipe "
_MAX_SCRUB_TIME = timedelta(hours=1)
"""How long one may be at it; a note that is older was left by somebody who was stopped."""


class PendingScrub:
    """Notes in the database that rows are gone whose bytes may still be in its files, for whoever comes next.

    Each forgetting has a note of its own: who is done takes back that one, and of those that others left only what
    was there before all files were gone over.

    Args:
        parts: The clock, and where leases are kept: notes are leases with a name of their own.
    """

    def __init__(self, parts: EngineServices) -> None:
        self._services = parts
        self._own_lease = f"{_LEASE_PREFIX}{secrets.token_hex(8)}"
        self._abandoned_leases: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Before rows go."""
        self._save_lease(self._services.now() + _MAX_SCRUB_TIME)

    def is_full_scrub_due(self, *, erases: bool) -> bool:
        """Whether the files have to be gone over as a whole, for what somebody left.

        Args:
            erases: Whether rows went just now. Where none did, they may have gone with somebody who was stopped a
                moment ago; where some did, somebody else may well be at work and wipe what is his.
        """
        now, notes = self._services.now(), dict(self._services.tuning.list_leases(_LEASE_PREFIX))
        notes.pop(self._own_lease, None)
        self._abandoned_leases = frozenset(name for name, until in notes.items() if until <= now)
        return bool(self._abandoned_leases) or (bool(notes) and not erases)

    def leave_pending(self) -> None:
        """Leave the note for whoever comes next: what is gone was not wiped."""
        self._save_lease(self._services.now())

    def complete(self, *, all_of_it: bool) -> None:
        """After a wipe that left nothing, or where there was nothing to wipe."""
        for name in (self._own_lease, *(self._abandoned_leases if all_of_it else ())):
            self._services.tuning.release_lease(name, name)

    def _save_lease(self, until: datetime) -> None:
        self._services.tuning.acquire_lease(self._own_lease, self._own_lease, self._services.now(), until)
