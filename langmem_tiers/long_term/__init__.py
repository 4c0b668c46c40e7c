"""Long-term entries: storage, conflicts between facts, relations, decay, consolidation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.long_term.models import (
        ConsolidationReport,
        EntryDraft,
        EntryFilters,
        EntryKind,
        Outcome,
        Receipt,
        Related,
        Relation,
        RelationKind,
    )
    from langmem_tiers.long_term.service import LongTerm
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": (
                "ConsolidationReport EntryDraft EntryFilters EntryKind Outcome Receipt Related "
                "Relation RelationKind"
            ),
            ".service": "LongTerm",
        },
    )

__all__ = [
    "ConsolidationReport",
    "EntryDraft",
    "EntryFilters",
    "EntryKind",
    "LongTerm",
    "Outcome",
    "Receipt",
    "Related",
    "Relation",
    "RelationKind",
]
