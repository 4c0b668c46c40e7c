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

MeaningMarkers: TypeAlias = tuple[str, ...]

DEFAULT_REDUNDANCY_THRESHOLD = 0.9

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_DIGIT = re.compile(r"\d")
_SIGNS = ("<", ">", "≤", "≥", "==", "!=", "= ", "+ ", "− ", "- ")
_SIGN_PATTERN = re.compile(r"(?<!\S)\S*?(?:[<>≤≥]|[=!]=)\S*|(?<!\S)[=+−-]{1,3}(?!\S)")
_MEANING_WORDS = NUMBER_WORDS | DATE_WORDS | OPPOSITES | NEGATIONS
_NEGATING_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non", "mis", "de")
_PREFIX_STARTS = frozenset(prefix[:2] for prefix in _NEGATING_PREFIXES)
_NEGATION_CONTEXT_WORDS = 4  # words before and behind it that say what it denies
_NUMBER_CONTEXT_WORDS = 2  # words before it that say what it counts; its unit stands behind it
_EDGE_PUNCTUATION = ".,;:!?()[]\"'"
_SMALL_VOCABULARY_WORDS = 1000
"""A vocabulary so small that its words, and pairs of them, are in too many texts."""
_SIGNATURE_BITS = 512
"""Of a text's signature."""
_COMBINATION_DEPTHS = ((40, 3), (60, 2))
"""Texts of up to so many words are found by combinations of so many rare words, longer ones by single words."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What decides whether two texts are duplicates."""

    words: frozenset[str]
    meaning_markers: MeaningMarkers


def compute_fingerprint(text: str) -> Fingerprint:
    """The word set of a text, and what in it could turn its meaning around."""
    lowered = text.lower()
    words = _WORD.findall(lowered)
    there = frozenset(words)
    return Fingerprint(there, (*_find_meaning_words(lowered, words, there), *_find_meaning_signs(lowered)))


def _find_meaning_words(lowered: str, words: Sequence[str], there: frozenset[str]) -> list[str]:
    is_denying = "n't" in lowered or "n’t" in lowered
    if is_denying:
        words = ["not" if word.endswith(("n't", "n’t")) else word for word in words]
    denied = _find_denied_words(there)
    if not is_denying and not denied and _MEANING_WORDS.isdisjoint(there):
        return []
    turning: list[str] = []
    for index, word in enumerate(words):
        if word in NEGATIONS:
            # "not A but B" and "not B but A" are made of the same words.
            turning += words[max(0, index - _NEGATION_CONTEXT_WORDS) : index + _NEGATION_CONTEXT_WORDS + 1]
        elif word in NUMBER_WORDS:
            turning += words[max(0, index - _NUMBER_CONTEXT_WORDS) : index + 2]
        elif word in _MEANING_WORDS or word in denied:
            turning.append(word)
    return turning


def _find_denied_words(there: frozenset[str]) -> set[str]:
    # "valid here, invalid there": where a word stands with its opposite, their order counts.
    prefixed = [word for word in there if word[:2] in _PREFIX_STARTS]
    return {
        one
        for word in prefixed
        for prefix in _NEGATING_PREFIXES
        if word.startswith(prefix) and (base := word[len(prefix) :]) in there
        for one in (word, base)
    }


def _find_meaning_signs(lowered: str) -> Iterator[str]:
    if _DIGIT.search(lowered):
        tokens = [token.lstrip("([\"'").rstrip(_EDGE_PUNCTUATION) for token in lowered.split()]
        for index, token in enumerate(tokens):
            if _DIGIT.search(token):
                yield " ".join(tokens[max(0, index - _NUMBER_CONTEXT_WORDS) : index + 2])
    if any(sign in lowered for sign in _SIGNS):
        yield from _SIGN_PATTERN.findall(lowered)


def are_duplicates(
    one: Fingerprint, other: Fingerprint, threshold: float = DEFAULT_REDUNDANCY_THRESHOLD
) -> bool:
    """Whether the two say the same."""
    if not one.words or one.meaning_markers != other.meaning_markers:
        return False
    common = len(one.words & other.words)
    if common < threshold * (len(one.words) + len(other.words) - common) - 1e-9:
        return False
    return not _negate_each_other(one.words - other.words, other.words - one.words)


def find_redundant(texts: Sequence[str], threshold: float = DEFAULT_REDUNDANCY_THRESHOLD) -> dict[int, int]:
    """The texts, oldest first, that a newer one makes redundant: each index with that of its duplicate.

    Args:
        texts: Oldest first.
        threshold: The similarity from which on two texts are duplicates.
    """
    if check_fraction(threshold, "the redundancy threshold") == 0:
        raise InvalidConfigError("a redundancy threshold of 0 makes everything a duplicate: use e.g. 0.9")
    prints = [compute_fingerprint(text) for text in texts]
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
        self._combination_depths = (
            _COMBINATION_DEPTHS if len(by_rarity) < _SMALL_VOCABULARY_WORDS else _COMBINATION_DEPTHS[1:]
        )
        self._marker_ids: dict[MeaningMarkers, int] = {}
        self._fingerprints = prints
        self._threshold = threshold
        self._position_by_fingerprint: dict[Fingerprint, int] = {}
        self._postings: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        self._depths_by_size: dict[int, frozenset[int]] = {}
        self._signatures: dict[int, int] = {}

    def find_or_add(self, position: int) -> int | None:
        """The newer duplicate of the text at that position; it is remembered for older ones."""
        one = self._fingerprints[position]
        if not one.words:
            return None
        if (
            one in self._position_by_fingerprint
        ):  # the same set finds the same candidates: it need not be held twice
            return self._position_by_fingerprint[one]
        meaning = self._marker_ids.setdefault(one.meaning_markers, len(self._marker_ids))
        ranks = sorted(map(self._rank.__getitem__, one.words))
        found = self._find_duplicate(
            position, self._build_keys(meaning, ranks, self._choose_depth(len(ranks)))
        )
        self._position_by_fingerprint[one] = position
        for depth in self._find_depths_of_similar(len(ranks)):
            for key in self._build_keys(meaning, ranks, depth):
                self._postings[key].append(position)
        return found

    def _compute_min_overlap(self, size: int) -> int:
        return math.ceil(self._threshold * size - 1e-9)

    def _choose_depth(self, size: int) -> int:
        overlap = self._compute_min_overlap(
            self._compute_min_overlap(size)
        )  # with the smallest that can be similar
        return next(
            (depth for most, depth in self._combination_depths if size <= most and overlap >= depth), 1
        )

    def _find_depths_of_similar(self, size: int) -> frozenset[int]:
        # All the ways in which a text of a similar size may look for this one.
        if size not in self._depths_by_size:
            sizes = range(self._compute_min_overlap(size), int(size / self._threshold + 1e-9) + 1)
            self._depths_by_size[size] = frozenset(map(self._choose_depth, sizes))
        return self._depths_by_size[size]

    def _build_keys(self, meaning: int, ranks: Sequence[int], depth: int) -> Iterator[tuple[int, ...]]:
        rarest = ranks[: len(ranks) - self._compute_min_overlap(len(ranks)) + depth]
        return ((meaning, *combination) for combination in combinations(rarest, depth))

    def _find_duplicate(self, position_of_one: int, keys: Iterator[tuple[int, ...]]) -> int | None:
        prints, one = self._fingerprints, self._fingerprints[position_of_one]
        size = len(one.words)
        differing = (1 - self._threshold) / (1 + self._threshold)  # words, as a share of both sizes
        seen: set[int] = set()
        for key in keys:
            for position in self._postings.get(key, ()):
                if position in seen:
                    continue
                seen.add(position)
                other = prints[position]
                # Each bit in which the two differ is a word at least: most candidates end here.
                most = differing * (size + len(other.words)) + 1e-9
                differences = self._get_signature(position_of_one) ^ self._get_signature(position)
                if differences.bit_count() <= most and are_duplicates(one, other, self._threshold):
                    return position
        return None

    def _get_signature(self, position: int) -> int:
        # Made when it is first needed: most texts have no candidate at all.
        if (bits := self._signatures.get(position)) is None:
            bits = 0
            for word in self._fingerprints[position].words:
                bits |= 1 << (self._rank[word] % _SIGNATURE_BITS)
            self._signatures[position] = bits
        return bits


def _negate_each_other(some: frozenset[str], others: frozenset[str]) -> bool:
    return any(
        prefix + word in more or ("_" in word and word.replace("_", f"_{prefix}") in more)
        for words, more in ((some, others), (others, some))
        for word in words
        for prefix in _NEGATING_PREFIXES
    )
