"""Redundancy: which texts say again what a newer one says.

Two texts are duplicates when the Jaccard similarity of their word sets reaches the
threshold *and* nothing that turns a meaning around differs: numbers, dates, comparisons,
negations and opposites must be the same and in the same order.

All pairs would be quadratic. Two sets can only reach the threshold if they share one of
their few rarest words (the prefix filter), so an inverted index over those alone finds
every candidate. The result is exact.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.core.checks import check_fraction
from langmem_tiers.core.errors import InvalidConfigError
from langmem_tiers.scoring.turning_words import DATE_WORDS, NEGATIONS, NUMBER_WORDS, OPPOSITES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Turning: TypeAlias = tuple[str, ...]

DEFAULT_THRESHOLD = 0.9

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_DIGIT = re.compile(r"\d")
_COMPARING = " <", " >", " ≤", " ≥", " =", " !", " +", " −", " -"
_NUMBER = re.compile(r"(?<!\S)[^\s\d]{0,60}\d\S*")
_COMPARISON = re.compile(r"(?<!\S)[<>≤≥=!+−-]{1,3}(?!\S)")
_TURNING_WORDS = NUMBER_WORDS | DATE_WORDS | OPPOSITES | NEGATIONS
_NEGATING_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non", "mis", "de")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What decides whether two texts are duplicates."""

    words: frozenset[str]
    turning: Turning


def fingerprint(text: str) -> Fingerprint:
    """The word set of a text, and what in it could turn its meaning around."""
    lowered = text.lower()
    words = _WORD.findall(lowered)
    return Fingerprint(frozenset(words), (*_turning_words(lowered, words), *_turning_marks(lowered)))


def _turning_words(lowered: str, words: Sequence[str]) -> list[str]:
    if "n't" in lowered or "n’t" in lowered:
        words = ["not" if word.endswith(("n't", "n’t")) else word for word in words]
    turning = []
    for index, word in enumerate(words):
        if word in _TURNING_WORDS:
            turning.append(word)
            if word in NEGATIONS:
                # With the two words behind it: "not A but B" and "not B but A" are made of the same words.
                turning.extend(words[index + 1 : index + 3])
    return turning


def _turning_marks(lowered: str) -> Iterator[str]:
    if _DIGIT.search(lowered):
        for number in _NUMBER.findall(lowered):
            yield number.strip(".,;:!?()[]\"'")
    if any(mark in lowered for mark in _COMPARING):
        yield from _COMPARISON.findall(lowered)


def are_duplicates(one: Fingerprint, other: Fingerprint, threshold: float = DEFAULT_THRESHOLD) -> bool:
    """Whether the two say the same."""
    if not one.words or one.turning != other.turning:
        return False
    common = len(one.words & other.words)
    if common < threshold * (len(one.words) + len(other.words) - common) - 1e-9:
        return False
    return not _negate_each_other(one.words - other.words, other.words - one.words)


def find_redundant(texts: Sequence[str], threshold: float = DEFAULT_THRESHOLD) -> dict[int, int]:
    """The texts, oldest first, that a newer one makes redundant: each index with that of its duplicate.

    Args:
        texts: Oldest first.
        threshold: The similarity from which on two texts are duplicates.
    """
    if check_fraction(threshold, "the redundancy threshold") == 0:
        raise InvalidConfigError("a redundancy threshold of 0 makes everything a duplicate: use e.g. 0.9")
    prints = [fingerprint(text) for text in texts]
    index = _PrefixIndex(prints, threshold)
    found: dict[int, int] = {}
    for position in range(len(texts) - 1, -1, -1):
        if (newer := index.find_or_add(position)) is not None:
            found[position] = newer
    return found


class _PrefixIndex:
    """Holds newer texts by their rarest words; asked for each older one."""

    def __init__(self, prints: Sequence[Fingerprint], threshold: float) -> None:
        frequency = Counter(word for one in prints for word in one.words)
        self._rarity = {word: (count, word) for word, count in frequency.items()}
        self._prints = prints
        self._threshold = threshold
        self._same: dict[Fingerprint, int] = {}
        self._by_word: defaultdict[tuple[Turning, str], list[int]] = defaultdict(list)

    def find_or_add(self, position: int) -> int | None:
        """The newer duplicate of the text at that position; it is remembered for older ones."""
        one = self._prints[position]
        if not one.words:
            return None
        if one in self._same:  # the same set finds the same candidates: it need not be held twice
            return self._same[one]
        prefix = self._prefix(one)
        found = self._find(one, prefix)
        self._same[one] = position
        for word in prefix:
            self._by_word[one.turning, word].append(position)
        return found

    def _prefix(self, one: Fingerprint) -> list[str]:
        size = len(one.words)
        length = size - math.ceil(self._threshold * size - 1e-9) + 1
        return sorted(one.words, key=self._rarity.__getitem__)[:length]

    def _find(self, one: Fingerprint, prefix: Sequence[str]) -> int | None:
        size, seen = len(one.words), set()
        smallest, largest = self._threshold * size - 1e-9, size / self._threshold + 1e-9
        for word in prefix:
            for position in self._by_word.get((one.turning, word), ()):
                if position in seen:
                    continue
                seen.add(position)
                other = self._prints[position]
                if smallest <= len(other.words) <= largest and are_duplicates(one, other, self._threshold):
                    return position
        return None


def _negate_each_other(some: frozenset[str], others: frozenset[str]) -> bool:
    return any(
        prefix + word in more
        for words, more in ((some, others), (others, some))
        for word in words
        for prefix in _NEGATING_PREFIXES
    )
