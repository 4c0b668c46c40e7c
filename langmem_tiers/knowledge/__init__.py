"""Cross-session knowledge: values under keys, with confidence and history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.knowledge.models import (
        DecayReport,
        Knowledge,
        KnowledgeCategory,
        KnowledgeHit,
        KnowledgeReport,
        PastKnowledge,
    )
    from langmem_tiers.knowledge.service import KnowledgeBase
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": "DecayReport Knowledge KnowledgeCategory KnowledgeHit KnowledgeReport PastKnowledge",
            ".service": "KnowledgeBase",
        },
    )

__all__ = [
    "DecayReport",
    "Knowledge",
    "KnowledgeBase",
    "KnowledgeCategory",
    "KnowledgeHit",
    "KnowledgeReport",
    "PastKnowledge",
]
