"""Parameters of the optimizer, and the records of its runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from langmem_tiers.display.displayable import Displayable


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningParameters(Displayable):
    """The parameters that the optimizer adapts, and the target usage."""

    compression_trigger: float = 0.7
    """Usage from which older messages are compressed; 0.35 to 0.85."""
    full_message_window: int = 30
    """Number of newest messages that are always shown in full; 10 to 50."""
    min_relevance: float = 0.3
    """Relevance below which entries are compressed and then dropped; 0.15 to 0.70."""
    target_usage: float = 0.65
    """Target share of the budget; fixed."""

    def clamped(self) -> TuningParameters:
        """Return the nearest parameters within their ranges."""
        return replace(
            self,
            compression_trigger=_clamp(self.compression_trigger, *TRIGGER_RANGE),
            full_message_window=max(WINDOW_RANGE[0], min(WINDOW_RANGE[1], int(self.full_message_window))),
            min_relevance=_clamp(self.min_relevance, *RELEVANCE_RANGE),
        )

    def as_dict(self) -> dict[str, float]:
        """Return the parameters with the keys of the status report."""
        return {
            "compressionTrigger": self.compression_trigger,
            "fullMessageWindow": self.full_message_window,
            "minRelevance": self.min_relevance,
            "targetUsageRatio": self.target_usage,
        }


TRIGGER_RANGE = (0.35, 0.85)
WINDOW_RANGE = (10, 50)
RELEVANCE_RANGE = (0.15, 0.70)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSnapshot(Displayable):
    """Record of one optimizer run."""

    created_at: datetime
    tokens_before: int
    tokens_after: int
    entries_compressed: int
    entries_dropped: int
    entries_promoted: int
    usage_before: float
    """Tokens of the fullest session before the run, as a share of the available tokens."""
    usage_after: float
    parameters: TuningParameters
    """Parameters after the run."""
    reason: str = ""
    """Reason why the parameters were changed, kept or reverted."""
    is_reverted: bool = False
    """True if the change of the previous run had made things worse and was reverted."""

    @property
    def tokens_saved(self) -> int:
        """Number of tokens saved by the run."""
        return self.tokens_before - self.tokens_after

    def as_dict(self) -> dict[str, Any]:
        """Return the record as JSON values, with camel-case keys."""
        moment = self.created_at.astimezone(UTC)
        return {
            "tokensBefore": self.tokens_before,
            "tokensAfter": self.tokens_after,
            "entriesCompressed": self.entries_compressed,
            "entriesDropped": self.entries_dropped,
            "entriesPromoted": self.entries_promoted,
            "compressionTriggerRatio": self.parameters.compression_trigger,
            "fullMessageWindow": self.parameters.full_message_window,
            "minRelevanceScore": self.parameters.min_relevance,
            "timestamp": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
            "usageBefore": self.usage_before,
            "usageAfter": self.usage_after,
            "reason": self.reason,
            "isReverted": self.is_reverted,
        }

    def _to_row(self) -> dict[str, object]:
        return {
            "time": self.created_at,
            "tokens before": self.tokens_before,
            "tokens after": self.tokens_after,
            "compressed": self.entries_compressed,
            "dropped": self.entries_dropped,
            "promoted": self.entries_promoted,
            "usage after": self.usage_after,
            "trigger": self.parameters.compression_trigger,
            "window": self.parameters.full_message_window,
            "relevance": self.parameters.min_relevance,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """Record of a run, with its key in the store."""

    key: int
    snapshot: TuningSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSnapshotPage(Displayable):
    """Page of the runs of a namespace, newest first."""

    snapshots: tuple[TuningSnapshot, ...]
    next_before: int | None
    """Value to pass as ``before`` to get the next page; None on the last page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyReport(Displayable):
    """Results of all runs of the optimizer so far, including runs whose snapshots were pruned."""

    total_optimizations: int
    total_tokens_saved: int
    parameters: TuningParameters

    @property
    def average_savings(self) -> int:
        """Mean number of tokens saved per run."""
        return round(self.total_tokens_saved / self.total_optimizations) if self.total_optimizations else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, with the keys of the status report."""
        return {
            "totalOptimizations": self.total_optimizations,
            "totalTokensSaved": self.total_tokens_saved,
            "avgSavingsPerRun": self.average_savings,
            "currentParameters": self.parameters.as_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningState:
    """State of the optimizer between runs."""

    parameters: TuningParameters
    previous_parameters: TuningParameters | None = None
    """Parameters before the last change, as long as that change is on trial."""
    last_full_run_at: datetime | None = None
    """Start of the last run over all sessions."""
    runs: int = 0
    tokens_saved: int = 0


def _clamp(value: float, lower: float, upper: float) -> float:
    return round(max(lower, min(upper, value)), 6)
