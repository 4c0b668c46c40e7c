"""Embedding of all messages without vectors, by one process at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.common.leases import Lease
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.retriever import Retriever

EMBEDDING_LEASE_SECONDS = 60.0
"""Longer than a batch takes. The lease is renewed before each batch."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 1.0


def embed_namespace(
    retriever: Retriever,
    lease: Lease,
    namespace: NamespacePath,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Embed every message that has no vector yet, and return the number embedded by this process.

    If another process is embedding the namespace, wait for it and then embed the rest, which is usually nothing.

    Args:
        retriever: Embeds the messages.
        lease: Lease of this job, of ``EMBEDDING_LEASE_SECONDS``.
        namespace: The namespace.
        progress: Called after each batch with the number of embedded messages and the total.
    """
    if retriever.embedding is None:
        return 0
    pause = _FIRST_PAUSE_SECONDS
    # This loop ends: the lease of a process that was killed expires.
    while not lease.acquire():
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    try:
        # Acquiring the lease again renews it. Embedding stops if another process has taken it.
        return retriever.embed(namespace, lease.acquire, progress)
    finally:
        lease.release()
