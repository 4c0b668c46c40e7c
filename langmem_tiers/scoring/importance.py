"""Importance: how much an entry matters beyond the work at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.core.messages import Role
from langmem_tiers.scoring.signals import Scorer, Signal, SignalTable, says

if TYPE_CHECKING:
    from langmem_tiers.scoring.signals import Subject


def _tool_result(subject: Subject) -> float:
    return 0.1 if subject.role is Role.TOOL else 0.0


def _recency(subject: Subject) -> float:
    return max(0.0, 0.2 - max(0.0, subject.age_hours) / 24 * 0.1)


def _access(subject: Subject) -> float:
    return min(0.1, subject.access_count * 0.02)


IMPORTANCE_SIGNALS: SignalTable = (
    says("about the user", 0.3, "my name is", "i prefer", "remember that"),
    says("decision", 0.2, "i will", "let's do", "let’s do", "decided"),
    Signal("tool result", _tool_result),
    Signal("recency", _recency),
    Signal("access", _access),
)

IMPORTANCE = Scorer(IMPORTANCE_SIGNALS)
