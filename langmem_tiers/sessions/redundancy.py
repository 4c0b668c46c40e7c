"""Redundancy: find texts that repeat a newer text.

Two texts are duplicates if the Jaccard similarity of their word sets reaches the threshold *and* they agree in
everything that may reverse the meaning: numbers, dates, comparisons, negations and opposites must be the same and
in the same order.

Comparing all pairs would be quadratic. Two sets can reach the threshold only if they share one of their few rarest
words (prefix filter), so an inverted index of those words finds every candidate. The result is exact.
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
# Words before and after a negation that show what it negates.
_NEGATION_CONTEXT_WORDS = 4
# Words before a number that show what it counts. One word after it, its unit, is used as well.
_NUMBER_CONTEXT_WORDS = 2
_EDGE_PUNCTUATION = ".,;:!?()[]\"'"
# In a vocabulary smaller than this, single words and pairs of words occur in too many texts.
_SMALL_VOCABULARY_WORDS = 1000
# Bits of the signature of a text.
_SIGNATURE_BITS = 512
# Pairs of a maximum number of words and a depth: texts up to that length are found by combinations of that many rare
# words, longer ones by single words.
_COMBINATION_DEPTHS = ((40, 3), (60, 2))


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Features of a text that decide whether it is a duplicate of another one."""

    words: frozenset[str]
    meaning_markers: MeaningMarkers


def compute_fingerprint(text: str) -> Fingerprint:
    """Compute the word set of a text, and the words and signs that may reverse its meaning."""
    lowered = text.lower()
    words = _WORD.findall(lowered)
    word_set = frozenset(words)
    return Fingerprint(
        word_set, (*_find_meaning_words(lowered, words, word_set), *_find_meaning_signs(lowered))
    )


def _find_meaning_words(lowered: str, words: Sequence[str], word_set: frozenset[str]) -> list[str]:
    has_contraction = "n't" in lowered or "n’t" in lowered
    if has_contraction:
        words = ["not" if word.endswith(("n't", "n’t")) else word for word in words]
    denied = _find_denied_words(word_set)
    if not has_contraction and not denied and _MEANING_WORDS.isdisjoint(word_set):
        return []
    markers: list[str] = []
    for index, word in enumerate(words):
        if word in NEGATIONS:
            # "not A but B" and "not B but A" consist of the same words, so the context in order counts.
            markers += words[max(0, index - _NEGATION_CONTEXT_WORDS) : index + _NEGATION_CONTEXT_WORDS + 1]
        elif word in NUMBER_WORDS:
            markers += words[max(0, index - _NUMBER_CONTEXT_WORDS) : index + 2]
        elif word in _MEANING_WORDS or word in denied:
            markers.append(word)
    return markers


def _find_denied_words(word_set: frozenset[str]) -> set[str]:
    # "valid here, invalid there": if a text contains a word and its negation, their order counts.
    prefixed = [word for word in word_set if word[:2] in _PREFIX_STARTS]
    return {
        member
        for word in prefixed
        for prefix in _NEGATING_PREFIXES
        if word.startswith(prefix) and (base := word[len(prefix) :]) in word_set
        for member in (word, base)
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
    first: Fingerprint, second: Fingerprint, threshold: float = DEFAULT_REDUNDANCY_THRESHOLD
) -> bool:
    """Return True if two texts are duplicates."""
    if not first.words or first.meaning_markers != second.meaning_markers:
        return False
    common = len(first.words & second.words)
    # Jaccard similarity below the threshold, without division; the small term absorbs rounding errors.
    if common < threshold * (len(first.words) + len(second.words) - common) - 1e-9:
        return False
    return not _negate_each_other(first.words - second.words, second.words - first.words)


def find_redundant(texts: Sequence[str], threshold: float = DEFAULT_REDUNDANCY_THRESHOLD) -> dict[int, int]:
    """Find texts that a newer text makes redundant; map the index of each to the index of the newer one.

    Args:
        texts: The texts, oldest first.
        threshold: Minimum similarity of duplicates, above 0 and at most 1.

    Raises:
        InvalidConfigError: The threshold is 0.
    """
    if check_fraction(threshold, "the redundancy threshold") == 0:
        raise InvalidConfigError(
            "the redundancy threshold must be above 0, got 0: every text would be a duplicate; use 0.9, for example"
        )
    fingerprints = [compute_fingerprint(text) for text in texts]
    index = _PrefixIndex(fingerprints, threshold)
    found: dict[int, int] = {}
    for position in range(len(texts) - 1, -1, -1):
        if (newer := index.find_or_add(position)) is not None:
            found[position] = newer
    return found


class _PrefixIndex:
    """Inverted index of the newer texts by their rarest words, queried for each older text.

    Two sets of sufficient similarity share ``depth`` words among their rarest ``size - overlap + depth`` words.
    Combinations of words are much rarer than single words, so short texts are looked up by combinations. A long
    text has too many combinations, and its rare words suffice.
    """

    def __init__(self, fingerprints: Sequence[Fingerprint], threshold: float) -> None:
        frequency: Counter[str] = Counter()
        for fingerprint in fingerprints:
            frequency.update(fingerprint.words)
        by_rarity = sorted(frequency, key=lambda word: (frequency[word], word))
        self._rank = {word: rank for rank, word in enumerate(by_rarity)}
        self._combination_depths = (
            _COMBINATION_DEPTHS if len(by_rarity) < _SMALL_VOCABULARY_WORDS else _COMBINATION_DEPTHS[1:]
        )
        self._marker_ids: dict[MeaningMarkers, int] = {}
        self._fingerprints = fingerprints
        self._threshold = threshold
        self._position_by_fingerprint: dict[Fingerprint, int] = {}
        self._postings: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        self._depths_by_size: dict[int, frozenset[int]] = {}
        self._signatures: dict[int, int] = {}

    def find_or_add(self, position: int) -> int | None:
        """Return the position of a newer duplicate, or None; then index the text for older ones."""
        fingerprint = self._fingerprints[position]
        if not fingerprint.words:
            return None
        # A text with the same fingerprint would find the same candidates and need not be indexed again.
        if fingerprint in self._position_by_fingerprint:
            return self._position_by_fingerprint[fingerprint]
        # The markers are part of each key: texts with other markers are never duplicates.
        meaning = self._marker_ids.setdefault(fingerprint.meaning_markers, len(self._marker_ids))
        ranks = sorted(map(self._rank.__getitem__, fingerprint.words))
        found = self._find_duplicate(
            position, self._build_keys(meaning, ranks, self._choose_depth(len(ranks)))
        )
        self._position_by_fingerprint[fingerprint] = position
        # Index with every depth with which an older text of a similar size may search.
        for depth in self._find_depths_of_similar(len(ranks)):
            for key in self._build_keys(meaning, ranks, depth):
                self._postings[key].append(position)
        return found

    def _compute_min_overlap(self, size: int) -> int:
        return math.ceil(self._threshold * size - 1e-9)

    def _choose_depth(self, size: int) -> int:
        # The overlap with the smallest set that can be similar: a combination must fit into it.
        overlap = self._compute_min_overlap(self._compute_min_overlap(size))
        return next(
            (depth for most, depth in self._combination_depths if size <= most and overlap >= depth), 1
        )

    def _find_depths_of_similar(self, size: int) -> frozenset[int]:
        # The depths with which texts of all similar sizes search.
        if size not in self._depths_by_size:
            sizes = range(self._compute_min_overlap(size), int(size / self._threshold + 1e-9) + 1)
            self._depths_by_size[size] = frozenset(map(self._choose_depth, sizes))
        return self._depths_by_size[size]

    def _build_keys(self, meaning: int, ranks: Sequence[int], depth: int) -> Iterator[tuple[int, ...]]:
        rarest = ranks[: len(ranks) - self._compute_min_overlap(len(ranks)) + depth]
        return ((meaning, *combination) for combination in combinations(rarest, depth))

    def _find_duplicate(self, position: int, keys: Iterator[tuple[int, ...]]) -> int | None:
        fingerprints, fingerprint = self._fingerprints, self._fingerprints[position]
        size = len(fingerprint.words)
        # Jaccard similarity t means that at most (1 - t) / (1 + t) of the words of both sets together differ.
        max_difference_share = (1 - self._threshold) / (1 + self._threshold)
        seen: set[int] = set()
        for key in keys:
            for candidate in self._postings.get(key, ()):
                if candidate in seen:
                    continue
                seen.add(candidate)
                other = fingerprints[candidate]
                # Each bit that differs between the signatures comes from at least one word that differs. This
                # cheap test rejects most candidates.
                max_differences = max_difference_share * (size + len(other.words)) + 1e-9
                differences = self._get_signature(position) ^ self._get_signature(candidate)
                if differences.bit_count() <= max_differences and are_duplicates(
                    fingerprint, other, self._threshold
                ):
                    return candidate
        return None

    def _get_signature(self, position: int) -> int:
        # Computed on first use: most texts have no candidate at all.
        if (bits := self._signatures.get(position)) is None:
            bits = 0
            for word in self._fingerprints[position].words:
                bits |= 1 << (self._rank[word] % _SIGNATURE_BITS)
            self._signatures[position] = bits
        return bits


def _negate_each_other(first: frozenset[str], second: frozenset[str]) -> bool:
    # True if a word of one set is the negation of a word of the other, such as "valid" and "invalid". In identifiers
    # the prefix may be inside: "is_valid" and "is_invalid".
    return any(
        prefix + word in other_words or ("_" in word and word.replace("_", f"_{prefix}") in other_words)
        for words, other_words in ((first, second), (second, first))
        for word in words
        for prefix in _NEGATING_PREFIXES
    )
