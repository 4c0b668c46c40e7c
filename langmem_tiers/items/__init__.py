"""Items: JSON values under a namespace and a key, as LangGraph stores use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.items.models import Item, ItemChange, ItemHit, NamespaceMatch
    from langmem_tiers.items.service import Items
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": "Item ItemChange ItemHit NamespaceMatch",
            ".service": "Items",
        },
    )

__all__ = [
    "Item",
    "ItemChange",
    "ItemHit",
    "Items",
    "NamespaceMatch",
]
