"""Vectors for all that has none, by one process at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import StorageBusyError
from langmem_tiers.core.names import namespace_key
from langmem_tiers.flows.leases import Lease

if TYPE_CHECKING:
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.flows.parts import MemoryParts

_LEASE_SECONDS = 60.0
"""Longer than any batch takes: the lease is kept from batch to batch."""
_PAUSE_SECONDS = 0.05


def embed(parts: MemoryParts, namespace: NamespacePath) -> int:
    """Embed everything that has no vector yet; how many messages this process did.

    Of several processes one is at it. The others wait for it and do what it leaves, which is most often nothing.

    Raises:
        StorageBusyError: Another was still at it after ``busy_timeout_seconds``.
    """
    if parts.retriever.embedding is None:
        return 0
    lease = Lease(parts, f"embed:{namespace_key(namespace)}", _LEASE_SECONDS)
    patience = parts.config.busy_timeout_seconds
    for attempt in range(int(patience / _PAUSE_SECONDS) + 1):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        if lease.hold():
            break
    else:
        raise StorageBusyError(
            f"another process embeds {'/'.join(namespace)!r} for more than {patience} s: it goes on by itself, "
            "try again later"
        )
    try:
        return parts.retriever.embed(namespace, lease.hold)
    finally:
        lease.give_back()
