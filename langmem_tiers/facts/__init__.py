"""Facts learned from messages: patterns, extraction, validation and storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.facts.learner import LearnReport
    from langmem_tiers.facts.models import ExtractedFact, FactState
    from langmem_tiers.facts.patterns import EXTRA_PATTERNS, EXTRACTION_PATTERNS, ExtractionPattern
    from langmem_tiers.facts.service import Facts
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".learner": "LearnReport",
            ".models": "ExtractedFact FactState",
            ".patterns": "EXTRACTION_PATTERNS EXTRA_PATTERNS ExtractionPattern",
            ".service": "Facts",
        },
    )

__all__ = [
    "EXTRACTION_PATTERNS",
    "EXTRA_PATTERNS",
    "ExtractedFact",
    "ExtractionPattern",
    "FactState",
    "Facts",
    "LearnReport",
]
