"""Chunks: runs of older messages of a session, each with a summary and topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.common.entries import Chunk
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "..common.entries": "Chunk",
        },
    )

__all__ = [
    "Chunk",
]
