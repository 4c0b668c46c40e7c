"""How much a moment matters, and how it felt, by its kind and by its words."""

from __future__ import annotations

import re

from langmem_tiers.core.episodes import EpisodeKind

SIGNIFICANCE = {
    EpisodeKind.PIVOT: 0.75,
    EpisodeKind.BREAKTHROUGH: 0.75,
    EpisodeKind.DECISION_MADE: 0.7,
    EpisodeKind.PROBLEM_SOLVED: 0.6,
    EpisodeKind.TASK_COMPLETED: 0.6,
    EpisodeKind.ISSUE_IDENTIFIED: 0.5,
}
"""Where each kind starts."""
VALENCE = {
    EpisodeKind.PIVOT: -0.1,
    EpisodeKind.BREAKTHROUGH: 0.7,
    EpisodeKind.DECISION_MADE: 0.2,
    EpisodeKind.PROBLEM_SOLVED: 0.5,
    EpisodeKind.TASK_COMPLETED: 0.5,
    EpisodeKind.ISSUE_IDENTIFIED: -0.4,
}
"""As above, from -1 to 1."""

_GOOD = re.compile(
    r"\b(?:great|finally|excellent|amazing|awesome|fantastic|wonderful|brilliant|perfect(?:ly)?|love|happy|proud"
    r"|excited|relieved|huge|hooray|yay|congratulations)\b|🎉|🚀",
    re.IGNORECASE,
)
_BAD = re.compile(
    r"\b(?:terribl[ey]|critical(?:ly)?|block(?:ed|er|ing)|severe(?:ly)?|urgent(?:ly)?|awful|horrible|disaster"
    r"|catastroph\w{1,6}|serious(?:ly)?|nightmare|frustrat\w{1,5}|angry|worst|broken|emergency|data loss|sadly"
    r"|unfortunately)\b",
    re.IGNORECASE,
)
_REASON = re.compile(r"\b(?:because|since|due to|so that|the reason|in order to)\b", re.IGNORECASE)
_NUMBER_OR_NAME = re.compile(r"\d|(?<=[a-z,;] )[A-Z][A-Za-z]{2,}|[a-z][A-Z]|[A-Z]{2,}|\w_\w")
_HEDGE = re.compile(
    r"\b(?:maybe|perhaps|probably|possibly|i think|i guess|i believe|i suppose|it seems|seems|apparently|sort of"
    r"|kind of|for now|not sure)\b",
    re.IGNORECASE,
)
_SUGGESTION = re.compile(
    r"\b(?:i(?:'d| would)? (?:recommend|suggest|advise)|you (?:could|should|can|might|may)"
    r"|my (?:recommendation|suggestion)|it(?:'s| is) (?:best|better|a good idea) to|consider|one option"
    r"|i propose|how about|would you like)\b",
    re.IGNORECASE,
)
_STEP = 0.1


def significance_of(kind: EpisodeKind, text: str, *, is_assistant: bool = False) -> float:
    """How much it matters, from 0 to 1.

    Args:
        kind: Where it starts.
        text: The sentences that tell of it.
        is_assistant: Whether an assistant says so: what it suggests is not settled.
    """
    score = SIGNIFICANCE[kind]
    score += _STEP * min(2, _intensity(text))
    score += 0.05 * (_REASON.search(text) is not None)
    score += 0.05 * (_NUMBER_OR_NAME.search(text) is not None)
    score -= 0.15 * (_HEDGE.search(text) is not None)
    score -= 0.2 * (is_assistant and is_suggestion(text))
    return round(min(1.0, max(0.0, score)), 2)


def valence_of(kind: EpisodeKind, text: str) -> float:
    """How it felt, from -1 to 1. Strong words make good news better and bad news worse."""
    value = VALENCE[kind]
    if abs(value) > 0.2:
        value += (1 if value > 0 else -1) * 2 * _STEP * min(2, _intensity(text))
    else:  # neither good nor bad by itself: the words decide
        value += 2 * _STEP * (min(2, len(_found(_GOOD, text))) - min(2, len(_found(_BAD, text))))
    return round(min(1.0, max(-1.0, value)), 2)


def is_suggestion(text: str) -> bool:
    """Whether it proposes something rather than saying that it is so."""
    return _SUGGESTION.search(text) is not None


def _intensity(text: str) -> int:
    return len(_found(_GOOD, text) | _found(_BAD, text))


def _found(pattern: re.Pattern[str], text: str) -> set[str]:
    return {word.lower() for word in pattern.findall(text)}
