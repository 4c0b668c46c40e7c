"""What comparing two statements answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a new statement is to an old one."""

    SAME = "same"
    CONTRADICTS = "contradicts"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict, and why."""

    verdict: Verdict
    reason: str
    """In plain English, with the words that decided."""
    similarity: float
    """In [0, 1]: the share of what is said in both; 1 for the same."""
