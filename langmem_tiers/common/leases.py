"""The right to do something alone, among all processes on one database."""

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
    """The right to run, for a time; whoever dies with it does not keep it.

    Args:
        parts: The clock, and where leases are kept.
        name: What it is the right to.
        seconds: For how long, each time that it is taken or kept; as long as the optimizer's, if left out.
    """

    def __init__(self, parts: EngineServices, name: str, seconds: float | None = None) -> None:
        self._services = parts
        self._duration_seconds = parts.config.optimizer.lease_seconds if seconds is None else seconds
        self.name = name
        self.holder = secrets.token_hex(8)

    @classmethod
    def of(
        cls, parts: EngineServices, kind: LeaseKind, namespace: NamespacePath, seconds: float | None = None
    ) -> Lease:
        """The right to do something in a namespace."""
        return cls(parts, build_lease_name(kind, namespace), seconds)

    def acquire(self) -> bool:
        """Take it, or keep it for longer."""
        now = self._services.now()
        return self._services.tuning.acquire_lease(
            self.name, self.holder, now, now + timedelta(seconds=self._duration_seconds)
        )

    def release(self) -> None:
        """Let others have it."""
        self._services.tuning.release_lease(self.name, self.holder)


class LeaseKind(StrEnum):
    """What one process at a time does in a namespace; the right to it goes with the namespace."""

    OPTIMIZER = "optimizer"
    CONSOLIDATE = "consolidate"
    EMBED = "embed"


def build_lease_name(kind: LeaseKind, namespace: NamespacePath) -> str:
    """What the right to do it there is called."""
    return f"{kind}:{build_namespace_key(namespace)}"
