"""Records of deleted rows whose bytes may still be in the files of the database."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from langmem_tiers.tuning.repository import TuningRepository

_LEASE_PREFIX = "scrub "
_MAX_SCRUB_TIME = timedelta(hours=1)
"""Maximum duration of an erasure; an older record was left by a process that was interrupted."""


class PendingScrub:
    """Record in the database that bytes of deleted rows must still be scrubbed.

    Each erasure has its own record, stored as a lease with a unique name. When an erasure is done, it deletes its own
    record. After a full scrub it also deletes the records that interrupted processes had left before the scrub began.

    Args:
        leases: Repository of the leases.
        now: Returns the current time.
    """

    def __init__(self, leases: TuningRepository, now: Callable[[], datetime]) -> None:
        self._leases = leases
        self._now = now
        self._own_lease = f"{_LEASE_PREFIX}{secrets.token_hex(8)}"
        self._abandoned_leases: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Write the record; call it before rows are deleted."""
        self._save_lease(self._now() + _MAX_SCRUB_TIME)

    def is_full_scrub_due(self, *, erases: bool) -> bool:
        """Return True if all files must be scrubbed because of an interrupted erasure.

        Args:
            erases: True if this erasure deleted rows. If it did not, an erasure of the same data may have been
                interrupted a moment ago, so every other record counts. If it did, other recent records most likely
                belong to erasures that are still running and scrub their own rows.
        """
        now, records = self._now(), dict(self._leases.list_leases(_LEASE_PREFIX))
        records.pop(self._own_lease, None)
        self._abandoned_leases = frozenset(name for name, until in records.items() if until <= now)
        return bool(self._abandoned_leases) or (bool(records) and not erases)

    def leave_pending(self) -> None:
        """Keep the record as expired, so that the next erasure scrubs the bytes."""
        self._save_lease(self._now())

    def complete(self, *, all_of_it: bool) -> None:
        """Delete the record after a successful scrub, or if there was nothing to scrub.

        Args:
            all_of_it: All files were scrubbed, so the abandoned records are deleted too.
        """
        for name in (self._own_lease, *(self._abandoned_leases if all_of_it else ())):
            self._leases.release_lease(name, name)

    def _save_lease(self, until: datetime) -> None:
        self._leases.acquire_lease(self._own_lease, self._own_lease, self._now(), until)
