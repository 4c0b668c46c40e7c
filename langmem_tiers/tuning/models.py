"""What the optimizer tunes, and what it writes down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from langmem_tiers.display.displayable import Displayable


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningParameters(Displayable):
    """The parameters that tune themselves, and the target that they follow."""

    compression_trigger: float = 0.7
    """The usage from which on older messages are compressed; 0.35 to 0.85."""
    full_message_window: int = 30
    """The newest messages that are always shown in full; 10 to 50."""
    min_relevance: float = 0.3
    """Below it, entries are compressed and then dropped; 0.15 to 0.70."""
    target_usage: float = 0.65
    """The share of the budget that should be in use; fixed."""

    def clamped(self) -> TuningParameters:
        """The nearest parameters within their ranges."""
        return replace(
            self,
            compression_trigger=_clamp(self.compression_trigger, *TRIGGER_RANGE),
            full_message_window=max(WINDOW_RANGE[0], min(WINDOW_RANGE[1], int(self.full_message_window))),
            min_relevance=_clamp(self.min_relevance, *RELEVANCE_RANGE),
        )

    def as_dict(self) -> dict[str, float]:
        """With the names of the status report."""
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
    """One run of the optimizer."""

    created_at: datetime
    tokens_before: int
    tokens_after: int
    entries_compressed: int
    entries_dropped: int
    entries_promoted: int
    usage_before: float
    """Of the fullest session, as a share of the available tokens."""
    usage_after: float
    parameters: TuningParameters
    """As the run left them."""
    reason: str = ""
    """Why the parameters were changed, kept or taken back."""
    is_reverted: bool = False
    """The change of the run before had made things worse and was taken back."""

    @property
    def tokens_saved(self) -> int:
        """What the run saved."""
        return self.tokens_before - self.tokens_after

    def as_dict(self) -> dict[str, Any]:
        """As JSON, with the names of the design document."""
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
    """A run, and the store's own handle of it."""

    key: int
    snapshot: TuningSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSnapshotPage(Displayable):
    """A page of a namespace's runs, newest first."""

    snapshots: tuple[TuningSnapshot, ...]
    next_before: int | None
    """Pass it as ``before`` to get the next page; None on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyReport(Displayable):
    """What the optimizer achieved so far, pruned snapshots included."""

    total_optimizations: int
    total_tokens_saved: int
    parameters: TuningParameters

    @property
    def average_savings(self) -> int:
        """Tokens saved per run."""
        return round(self.total_tokens_saved / self.total_optimizations) if self.total_optimizations else 0

    def as_dict(self) -> dict[str, Any]:
        """As JSON, with the names of the status report."""
        return {
            "totalOptimizations": self.total_optimizations,
            "totalTokensSaved": self.total_tokens_saved,
            "avgSavingsPerRun": self.average_savings,
            "currentParameters": self.parameters.as_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningState:
    """What is remembered between runs."""

    parameters: TuningParameters
    previous_parameters: TuningParameters | None = None
    """Those before the last change, as long as it is on trial."""
    last_full_run_at: datetime | None = None
    """When the last run over all sessions began."""
    runs: int = 0
    tokens_saved: int = 0


def _clamp(value: float, least: float, most: float) -> float:
    return round(max(least, min(most, value)), 6)
