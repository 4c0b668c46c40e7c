"""Pools: knowledge shared by several namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.pools.models import Contributor, PoolErasure, PoolHit, PoolMember, SyncReport
    from langmem_tiers.pools.service import Pool, Pools
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": "Contributor PoolErasure PoolHit PoolMember SyncReport",
            ".service": "Pool Pools",
        },
    )

__all__ = [
    "Contributor",
    "Pool",
    "PoolErasure",
    "PoolHit",
    "PoolMember",
    "Pools",
    "SyncReport",
]
