"""Contexts: the messages for a model, assembled within a token budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.context.entry_lookup import FoundEntry
    from langmem_tiers.context.models import MemoryContext
    from langmem_tiers.context.preview import Preview
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".entry_lookup": "FoundEntry",
            ".models": "MemoryContext",
            ".preview": "Preview",
        },
    )

__all__ = [
    "FoundEntry",
    "MemoryContext",
    "Preview",
]
