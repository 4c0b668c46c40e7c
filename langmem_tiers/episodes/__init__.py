"""Episodes: decisions, problems, solutions and other moments of conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.episodes.models import Episode, EpisodeDraft, EpisodeKind, NarrativeArc
    from langmem_tiers.episodes.patterns import MOMENT_PATTERNS, MomentPattern
    from langmem_tiers.episodes.service import Episodes
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": "Episode EpisodeDraft EpisodeKind NarrativeArc",
            ".patterns": "MOMENT_PATTERNS MomentPattern",
            ".service": "Episodes",
        },
    )

__all__ = [
    "MOMENT_PATTERNS",
    "Episode",
    "EpisodeDraft",
    "EpisodeKind",
    "Episodes",
    "MomentPattern",
    "NarrativeArc",
]
