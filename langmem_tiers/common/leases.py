"""Leases: exclusive jobs among all processes that share a database."""

from __future__ import annotations

import secrets
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import build_namespace_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.tuning.repository import TuningRepository


class Lease:
    """A time-limited exclusive right to run a job. It expires if its process dies.

    Args:
        leases: Repository of the leases.
        now: Returns the current time.
        name: Name of the lease.
        seconds: Duration after each acquisition or renewal.
    """

    def __init__(
        self, leases: TuningRepository, now: Callable[[], datetime], name: str, seconds: float
    ) -> None:
        self._leases = leases
        self._now = now
        self._duration_seconds = seconds
        self.name = name
        # A new holder per object, so that two threads of a process also exclude each other.
        self.holder = secrets.token_hex(8)

    def acquire(self) -> bool:
        """Acquire or renew the lease; return True on success."""
        now = self._now()
        return self._leases.acquire_lease(
            self.name, self.holder, now, now + timedelta(seconds=self._duration_seconds)
        )

    def release(self) -> None:
        """Release the lease so that other processes can acquire it."""
        self._leases.release_lease(self.name, self.holder)


class LeaseKind(StrEnum):
    """Jobs that one process at a time runs in a namespace. Erasing a namespace also deletes its leases."""

    OPTIMIZER = "optimizer"
    CONSOLIDATE = "consolidate"
    EMBED = "embed"


def build_lease_name(kind: LeaseKind, namespace: NamespacePath) -> str:
    """Return the name of the lease for a job in a namespace."""
    return f"{kind}:{build_namespace_key(namespace)}"
