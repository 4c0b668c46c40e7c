"""Relevance: how much an entry matters to the work at hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.core.messages import Role
from langmem_tiers.scoring.signals import Scorer, Signal, SignalTable, says

if TYPE_CHECKING:
    from langmem_tiers.scoring.signals import Subject

_SHORT_CHARACTERS = 20
_SMALL_TALK = re.compile(r"(?:ok|yes|no|sure|thanks|hi|hello)\b")


def _recency(subject: Subject) -> float:
    if subject.age_hours <= 1:
        return 0.2
    return 0.1 if subject.age_hours <= 24 else -0.1


def _is_short(subject: Subject) -> float:
    return -0.2 if len(subject.lowered) < _SHORT_CHARACTERS else 0.0


def _is_small_talk(subject: Subject) -> float:
    return -0.3 if _SMALL_TALK.match(subject.lowered) else 0.0


def _role(subject: Subject) -> float:
    if subject.role is Role.TOOL:
        return 0.15
    return 0.1 if subject.role is Role.SYSTEM else 0.0


RELEVANCE_SIGNALS: SignalTable = (
    Signal("recency", _recency),
    says("error", 0.15, "error", "failed"),
    says("url", 0.1, "http://", "https://"),
    says("selector", 0.1, "selector", "xpath"),
    says("credential", 0.2, "password", "credential"),
    says("stressed", 0.15, "important", "critical"),
    Signal("short", _is_short),
    Signal("small talk", _is_small_talk),
    Signal("role", _role),
)

RELEVANCE = Scorer(RELEVANCE_SIGNALS)
