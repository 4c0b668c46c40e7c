"""Text analysis: tokens, sentences, facts, times, names and URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.text.facts import Fact, FactKind, FactPattern
    from langmem_tiers.text.patterns import FACT_PATTERNS
    from langmem_tiers.text.token_counting import (
        CharCounter,
        ContentAwareCounter,
        ContentType,
        TiktokenCounter,
        TokenEstimate,
        TokenEstimator,
        count_messages,
        tiktoken_or_estimate,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".facts": "Fact FactKind FactPattern",
            ".patterns": "FACT_PATTERNS",
            ".token_counting": (
                "CharCounter ContentAwareCounter ContentType TiktokenCounter TokenEstimate "
                "TokenEstimator count_messages tiktoken_or_estimate"
            ),
        },
    )

__all__ = [
    "FACT_PATTERNS",
    "CharCounter",
    "ContentAwareCounter",
    "ContentType",
    "Fact",
    "FactKind",
    "FactPattern",
    "TiktokenCounter",
    "TokenEstimate",
    "TokenEstimator",
    "count_messages",
    "tiktoken_or_estimate",
]
