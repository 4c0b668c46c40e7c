"""Scoring of the text that a returning user's agent is shown: phrases, text of the background, means."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

RUN = 4
"""Number of consecutive words by which text of the background is recognized."""
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)
_SHORT_PHRASE = re.compile(r"[0-9a-z\u00df-\u024f]{1,5}")

Phrases = tuple[str, ...]
"""Alternatives, of which one is enough."""


def normalize(text: str) -> str:
    """Fold case and white space."""
    return " ".join(text.casefold().split())


def has_phrase(text: str, phrase: str) -> bool:
    """Return True if a normalized text contains a phrase, a short one only at the start of a word."""
    phrase = normalize(phrase)
    if _SHORT_PHRASE.fullmatch(phrase):
        return re.search(rf"(?<!\w){phrase}", text) is not None
    return phrase in text


@dataclass(frozen=True, slots=True)
class Question:
    """First message of a new conversation, and the phrases that memory must contribute."""

    opening: str
    kind: str
    expected: tuple[Phrases, ...]
    outdated: tuple[Phrases, ...] = ()


class Texts:
    """Texts of one origin, to recognize their words in a prompt.

    Args:
        texts: Contents of the messages.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [normalize(text) for text in texts]
        words = [tuple(_WORD.findall(text)) for text in self._texts]
        self.messages = frozenset(some for some in words if some)
        """Words of each message."""
        self.runs = frozenset(run for some in words for _, run in _iterate_runs(some))
        """All runs of up to ``RUN`` words."""

    def has_phrase(self, phrase: str) -> bool:
        """Return True if a message contains the phrase."""
        return any(has_phrase(text, phrase) for text in self._texts)


class Judge:
    """Scores what was shown for the questions of one scenario.

    Text of the background does not count: runs of words that only the background contains, messages of the background
    that are shorter than such a run, and phrases that the background contains but the scenario does not.

    Args:
        own: Texts of the scenario.
        background: Texts of the background.
    """

    def __init__(self, own: Texts, background: Texts) -> None:
        self._own = own
        self._background = background
        self._foreign = (
            frozenset(run for run in background.runs if len(run) == RUN)
            | frozenset(message for message in background.messages if len(message) < RUN)
        ) - own.runs

    def judge(self, question: Question, shown: str) -> Result:
        """Score the text that memory added to the prompt of a question."""
        text = "\n".join(self._split_own(normalize(shown)))
        hit = all(self._has_any(text, phrases) for phrases in question.expected)
        is_stale = any(self._has_any(text, phrases) for phrases in question.outdated)
        return Result(
            question.kind,
            tokens=len(shown) / 4,
            hit=hit if question.expected else None,
            outdated=is_stale and not hit if question.outdated else None,
        )

    def _has_any(self, text: str, phrases: Phrases) -> bool:
        return any(has_phrase(text, phrase) and self._counts(phrase) for phrase in phrases)

    def _counts(self, phrase: str) -> bool:
        # A fact that was extracted from the background is shorter than a run of words.
        return not self._background.has_phrase(phrase) or self._own.has_phrase(phrase)

    def _split_own(self, text: str) -> Iterator[str]:
        """Cut the background out of a text and return the parts between."""
        words = list(_WORD.finditer(text)) if self._foreign else []
        hidden = sorted(
            {
                start + n
                for start, run in _iterate_runs([word[0] for word in words])
                if run in self._foreign
                for n in range(len(run))
            }
        )
        cuts = [(0, 0), *(words[n].span() for n in hidden), (len(text), len(text))]
        for (_, end), (start, _) in pairwise(cuts):
            yield text[end:start]


def _iterate_runs(words: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for size in range(1, RUN + 1):
        for start in range(len(words) - size + 1):
            yield start, tuple(words[start : start + size])


@dataclass(frozen=True, slots=True)
class Result:
    """Score of one question."""

    kind: str
    tokens: float
    """Tokens that memory added, a quarter of the characters."""
    hit: bool | None
    """None if the question expects nothing."""
    outdated: bool | None
    """True if an outdated phrase was shown without the current one. None if there is no outdated phrase."""


@dataclass(slots=True)
class Tally:
    """Results of one method."""

    results: list[Result] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the figures of each kind, of all questions that expect something, and the outdated share."""
        kinds = dict.fromkeys(result.kind for result in self.results)
        return {
            **{
                kind: _build_figures([result for result in self.results if result.kind == kind])
                for kind in sorted(kinds)
            },
            "all": _build_figures([result for result in self.results if result.hit is not None]),
            "outdated": _mean([result.outdated for result in self.results]),
        }


def _build_figures(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "n": len(results),
        "hit": _mean([result.hit for result in results]),
        "tokens": _mean([result.tokens for result in results]),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 4) if known else None
