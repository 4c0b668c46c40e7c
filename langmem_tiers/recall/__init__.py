"""Recall: rank stored memories by a query and explain each score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.common.recall_strategy import HybridWeights, Strategy, TfIdfWeights
    from langmem_tiers.common.scorer import Score, Scorer, Signal, Subject
    from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder
    from langmem_tiers.recall.models import Hit, Recall, RecallFilters
    from langmem_tiers.scoring_config import Scoring
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "..common.recall_strategy": "HybridWeights Strategy TfIdfWeights",
            "..common.scorer": "Score Scorer Signal Subject",
            ".embedders.wordllama_embedder": "OfflineEmbedder",
            ".models": "Hit Recall RecallFilters",
            "..scoring_config": "Scoring",
        },
    )

__all__ = [
    "Hit",
    "HybridWeights",
    "OfflineEmbedder",
    "Recall",
    "RecallFilters",
    "Score",
    "Scorer",
    "Scoring",
    "Signal",
    "Strategy",
    "Subject",
    "TfIdfWeights",
]
