"""Vectors for all that has none, by one process at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from langmem_tiers.common.leases import Lease, LeaseKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.services import EngineServices

_LEASE_SECONDS = 60.0
"""Longer than any batch takes: the lease is kept from batch to batch."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 1.0


def embed_namespace(
    parts: EngineServices, namespace: NamespacePath, progress: Callable[[int, int], None] | None = None
) -> int:
    """Embed every message that has no vector yet; how many this process did.

    Of several processes one is at it. The others wait for it and do what it leaves, which is most often nothing.

    Args:
        parts: The stores and workers.
        namespace: Whose.
        progress: Told how many are done, and of how many, after each batch.
    """
    if parts.retriever.embedding is None:
        return 0
    lease = Lease.of(parts, LeaseKind.EMBED, namespace, _LEASE_SECONDS)
    pause = _FIRST_PAUSE_SECONDS
    while not lease.acquire():  # whoever dies with it loses it, so this comes to its end
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    try:
        return parts.retriever.embed(namespace, lease.acquire, progress)
    finally:
        lease.release()
