"""Leases: exclusive jobs among all processes that share a database."""

from __future__ import annotations

import secrets
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import build_namespace_key

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.services import EngineServices


class Lease:
    """A time-limited exclusive right to run a job. It expires if its process dies.

    Args:
        parts: Services that provide the clock and the lease store.
        name: Name of the lease.
        seconds: Duration after each acquisition or renewal. Default: the optimizer's ``lease_seconds``.
    """

    def __init__(self, parts: EngineServices, name: str, seconds: float | None = None) -> None:
        self._services = parts
        self._duration_seconds = parts.config.optimizer.lease_seconds if seconds is None else seconds
        self.name = name
        # A new holder per object, so that two threads of a process also exclude each other.
        self.holder = secrets.token_hex(8)

    @classmethod
    def of(
        cls, parts: EngineServices, kind: LeaseKind, namespace: NamespacePath, seconds: float | None = None
    ) -> Lease:
        """Return the lease for a kind of job in a namespace."""
        return cls(parts, build_lease_name(kind, namespace), seconds)

    def acquire(self) -> bool:
        """Acquire or renew the lease; return True on success."""
        now = self._services.now()
        return self._services.tuning.acquire_lease(
            self.name, self.holder, now, now + timedelta(seconds=self._duration_seconds)
        )

    def release(self) -> None:
        """Release the lease so that other processes can acquire it."""
        self._services.tuning.release_lease(self.name, self.holder)


class LeaseKind(StrEnum):
    """Jobs that one process at a time runs in a namespace. Erasing a namespace also deletes its leases."""

    OPTIMIZER = "optimizer"
    CONSOLIDATE = "consolidate"
    EMBED = "embed"


def build_lease_name(kind: LeaseKind, namespace: NamespacePath) -> str:
    """Return the name of the lease for a job in a namespace."""
    return f"{kind}:{build_namespace_key(namespace)}"
