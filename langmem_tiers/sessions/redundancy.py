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
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.common.checks import check_fraction
from langmem_tiers.errors import InvalidConfigError
from langmem_tiers.text.negation import DATE_WORDS, NEGATIONS, NUMBER_WORDS, OPPOSITES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Turning: TypeAlias = tuple[str, ...]

DEFAULT_THRESHOLD = 0.9

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_DIGIT = re.compile(r"\d")
_SIGNS = ("<", ">", "≤", "≥", "==", "!=", "= ", "+ ", "− ", "- ")
_SIGN = re.compile(r"(?<!\S)\S*?(?:[<>≤≥]|[=!]=)\S*|(?<!\S)[=+−-]{1,3}(?!\S)")
_TURNING_WORDS = NUMBER_WORDS | DATE_WORDS | OPPOSITES | NEGATIONS
_NEGATING_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non", "mis", "de")
_PREFIX_STARTS = frozenset(prefix[:2] for prefix in _NEGATING_PREFIXES)
_AROUND_NEGATION = 4  # words before and behind it that say what it denies
_AROUND_NUMBER = 2  # words before it that say what it counts; its unit stands behind it
_EDGES = ".,;:!?()[]\"'"
_FEW_WORDS = 1000
"""A vocabulary so small that its words, and pairs of them, are in too many texts."""
_BITS = 512
"""Of a text's signature."""
_COMBINED = ((40, 3), (60, 2))
"""Texts of up to so many words are found by combinations of so many rare words, longer ones by single words."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What decides whether two texts are duplicates."""

    words: frozenset[str]
    turning: Turning


def fingerprint(text: str) -> Fingerprint:
    """The word set of a text, and what in it could turn its meaning around."""
    lowered = text.lower()
    words = _WORD.findall(lowered)
    there = frozenset(words)
    return Fingerprint(there, (*_turning_words(lowered, words, there), *_turning_marks(lowered)))


def _turning_words(lowered: str, words: Sequence[str], there: frozenset[str]) -> list[str]:
    is_denying = "n't" in lowered or "n’t" in lowered
    if is_denying:
        words = ["not" if word.endswith(("n't", "n’t")) else word for word in words]
    denied = _denied_words(there)
    if not is_denying and not denied and _TURNING_WORDS.isdisjoint(there):
        return []
    turning: list[str] = []
    for index, word in enumerate(words):
        if word in NEGATIONS:
            # "not A but B" and "not B but A" are made of the same words.
            turning += words[max(0, index - _AROUND_NEGATION) : index + _AROUND_NEGATION + 1]
        elif word in NUMBER_WORDS:
            turning += words[max(0, index - _AROUND_NUMBER) : index + 2]
        elif word in _TURNING_WORDS or word in denied:
            turning.append(word)
    return turning


def _denied_words(there: frozenset[str]) -> set[str]:
    # "valid here, invalid there": where a word stands with its opposite, their order counts.
    prefixed = [word for word in there if word[:2] in _PREFIX_STARTS]
    return {
        one
        for word in prefixed
        for prefix in _NEGATING_PREFIXES
        if word.startswith(prefix) and (base := word[len(prefix) :]) in there
        for one in (word, base)
    }


def _turning_marks(lowered: str) -> Iterator[str]:
    if _DIGIT.search(lowered):
        tokens = [token.lstrip("([\"'").rstrip(_EDGES) for token in lowered.split()]
        for index, token in enumerate(tokens):
            if _DIGIT.search(token):
                yield " ".join(tokens[max(0, index - _AROUND_NUMBER) : index + 2])
    if any(sign in lowered for sign in _SIGNS):
        yield from _SIGN.findall(lowered)


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
    """Holds newer texts by their rarest words; asked for each older one.

    Two sets of the needed similarity share ``depth`` words among their rarest
    ``size - overlap + depth``. Combinations of words are far rarer than words, so short texts are
    looked up by combinations; a long text has too many of them and enough rare words.
    """

    def __init__(self, prints: Sequence[Fingerprint], threshold: float) -> None:
        frequency: Counter[str] = Counter()
        for one in prints:
            frequency.update(one.words)
        by_rarity = sorted(frequency, key=lambda word: (frequency[word], word))
        self._rank = {word: rank for rank, word in enumerate(by_rarity)}
        self._combined = _COMBINED if len(by_rarity) < _FEW_WORDS else _COMBINED[1:]
        self._meanings: dict[Turning, int] = {}
        self._prints = prints
        self._threshold = threshold
        self._same: dict[Fingerprint, int] = {}
        self._held: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        self._depths: dict[int, frozenset[int]] = {}
        self._bits: dict[int, int] = {}

    def find_or_add(self, position: int) -> int | None:
        """The newer duplicate of the text at that position; it is remembered for older ones."""
        one = self._prints[position]
        if not one.words:
            return None
        if one in self._same:  # the same set finds the same candidates: it need not be held twice
            return self._same[one]
        meaning = self._meanings.setdefault(one.turning, len(self._meanings))
        ranks = sorted(map(self._rank.__getitem__, one.words))
        found = self._find(position, self._keys(meaning, ranks, self._depth(len(ranks))))
        self._same[one] = position
        for depth in self._depths_of_similar(len(ranks)):
            for key in self._keys(meaning, ranks, depth):
                self._held[key].append(position)
        return found

    def _least_overlap(self, size: int) -> int:
        return math.ceil(self._threshold * size - 1e-9)

    def _depth(self, size: int) -> int:
        overlap = self._least_overlap(self._least_overlap(size))  # with the smallest that can be similar
        return next((depth for most, depth in self._combined if size <= most and overlap >= depth), 1)

    def _depths_of_similar(self, size: int) -> frozenset[int]:
        # All the ways in which a text of a similar size may look for this one.
        if size not in self._depths:
            sizes = range(self._least_overlap(size), int(size / self._threshold + 1e-9) + 1)
            self._depths[size] = frozenset(map(self._depth, sizes))
        return self._depths[size]

    def _keys(self, meaning: int, ranks: Sequence[int], depth: int) -> Iterator[tuple[int, ...]]:
        rarest = ranks[: len(ranks) - self._least_overlap(len(ranks)) + depth]
        return ((meaning, *combination) for combination in combinations(rarest, depth))

    def _find(self, position_of_one: int, keys: Iterator[tuple[int, ...]]) -> int | None:
        prints, one = self._prints, self._prints[position_of_one]
        size = len(one.words)
        differing = (1 - self._threshold) / (1 + self._threshold)  # words, as a share of both sizes
        seen: set[int] = set()
        for key in keys:
            for position in self._held.get(key, ()):
                if position in seen:
                    continue
                seen.add(position)
                other = prints[position]
                # Each bit in which the two differ is a word at least: most candidates end here.
                most = differing * (size + len(other.words)) + 1e-9
                differences = self._signature(position_of_one) ^ self._signature(position)
                if differences.bit_count() <= most and are_duplicates(one, other, self._threshold):
                    return position
        return None

    def _signature(self, position: int) -> int:
        # Made when it is first needed: most texts have no candidate at all.
        if (bits := self._bits.get(position)) is None:
            bits = 0
            for word in self._prints[position].words:
                bits |= 1 << (self._rank[word] % _BITS)
            self._bits[position] = bits
        return bits


def _negate_each_other(some: frozenset[str], others: frozenset[str]) -> bool:
    return any(
        prefix + word in more or ("_" in word and word.replace("_", f"_{prefix}") in more)
        for words, more in ((some, others), (others, some))
        for word in words
        for prefix in _NEGATING_PREFIXES
    )
