"""Erasure: what ``forget()`` deletes, in which order, and how bytes are scrubbed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.erasure.models import (
        ErasedCounts,
        ErasedIds,
        ErasureReceipt,
        ErasureRequest,
        ScrubResult,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": "ErasedCounts ErasedIds ErasureReceipt ErasureRequest ScrubResult",
        },
    )

__all__ = [
    "ErasedCounts",
    "ErasedIds",
    "ErasureReceipt",
    "ErasureRequest",
    "ScrubResult",
]
