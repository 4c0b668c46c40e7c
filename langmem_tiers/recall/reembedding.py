"""Embedding of all messages without vectors, by one process at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from langmem_tiers.common.leases import Lease, LeaseKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.services import EngineServices

_LEASE_SECONDS = 60.0
"""Longer than a batch takes. The lease is renewed before each batch."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 1.0


def embed_namespace(
    parts: EngineServices, namespace: NamespacePath, progress: Callable[[int, int], None] | None = None
) -> int:
    """Embed every message that has no vector yet, and return the number embedded by this process.

    If another process is embedding the namespace, wait for it and then embed the rest, which is usually nothing.

    Args:
        parts: Services of the engine.
        namespace: The namespace.
        progress: Called after each batch with the number of embedded messages and the total.
    """
    if parts.retriever.embedding is None:
        return 0
    lease = Lease.of(parts, LeaseKind.EMBED, namespace, _LEASE_SECONDS)
    pause = _FIRST_PAUSE_SECONDS
    # This loop ends: the lease of a process that was killed expires.
    while not lease.acquire():
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    try:
        # Acquiring the lease again renews it. Embedding stops if another process has taken it.
        return parts.retriever.embed(namespace, lease.acquire, progress)
    finally:
        lease.release()
