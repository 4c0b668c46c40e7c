"""Baselines for recall: words alone, vectors alone, and the newest turns."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.haystacks import Turn
    from langmem_tiers import Embedder

STOP_WORDS = frozenset(
    "a about after all am an and any are as at be been before but by can could did do does for from had has "
    "have he her him his how i if in into is it its just me my no not of on or our she should so some than "
    "that the their them then there these they this to too up us was we were what when where which who whom "
    "whose why will with would you your".split()
)
STEMS = importlib.util.find_spec("snowballstemmer") is not None
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_RUN = re.compile(rf"[{_UNSPACED}]")


@functools.cache
def _stemmer() -> Callable[[str], str]:
    if not STEMS:
        return str
    stem: Callable[[str], str] = importlib.import_module("snowballstemmer").stemmer("english").stemWord
    return functools.cache(stem)


def terms(text: str) -> list[str]:
    """The words that count, stemmed if snowballstemmer is installed; of scripts without spaces pairs of characters."""
    stem, found = _stemmer(), list[str]()
    for word in _WORD.findall(text.lower()):
        if _RUN.match(word):
            found += [word[n : n + 2] for n in range(max(1, len(word) - 1))]
        elif word not in STOP_WORDS:
            found.append(stem(word))
    return found


class Bm25:
    """Plain BM25 over texts.

    Args:
        texts: By id.
    """

    def __init__(self, texts: Mapping[str, str], *, k1: float = 1.2, b: float = 0.75) -> None:
        counts = {key: Counter(terms(text)) for key, text in texts.items()}
        lengths = {key: count.total() for key, count in counts.items()}
        mean = max(1.0, sum(lengths.values()) / max(1, len(lengths)))
        self._weights: dict[str, dict[str, float]] = defaultdict(dict)
        for key, count in counts.items():
            norm = k1 * (1 - b + b * lengths[key] / mean)
            for term, times in count.items():
                self._weights[term][key] = times * (k1 + 1) / (times + norm)
        self._size = len(texts)

    def scores(self, question: str) -> dict[str, float]:
        """Of the texts that share a word with the question."""
        scores: dict[str, float] = defaultdict(float)
        for term in terms(question):
            weights = self._weights.get(term, {})
            rarity = math.log(1 + (self._size - len(weights) + 0.5) / (len(weights) + 0.5))
            for key, weight in weights.items():
                scores[key] += rarity * weight
        return scores

    def rank(self, question: str) -> list[str]:
        """Ids of the texts that share a word with the question, best first."""
        scores = self.scores(question)
        return sorted(scores, key=lambda key: -scores[key])


class Dense:
    """Cosine of the embedder's vectors and nothing else.

    Args:
        texts: By id.
        embedder: The one that the engine uses.
    """

    def __init__(self, texts: Mapping[str, str], embedder: Embedder) -> None:
        self._keys = list(texts)
        self._embedder = embedder
        vectors = embedder.embed_documents(list(texts.values()))
        self._vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    def rank(self, question: str) -> list[str]:
        """All ids, nearest first."""
        scores = self._vectors @ self._embedder.embed_query(question)
        return [self._keys[row] for row in np.argsort(-scores, kind="stable")]


def newest_first(turns: Sequence[Turn]) -> list[str]:
    """Ids of the turns, whatever was asked."""
    return [turn.id for turn in sorted(turns, key=lambda turn: turn.said_at, reverse=True)]


def build_rankers(turns: Sequence[Turn], embedder: Embedder | None) -> dict[str, Callable[[str], list[str]]]:
    """The baselines over the turns, by name; dense only where there is an embedder."""
    texts = {turn.id: turn.words for turn in turns}
    newest = newest_first(turns)
    dense = {} if embedder is None else {"dense": Dense(texts, embedder).rank}
    return {"bm25": Bm25(texts).rank, **dense, "recency": lambda _: newest}


def take_until_full(ranked: Sequence[str], tokens: Mapping[str, int], limit: int) -> list[str]:
    """Return the first ids that fit the tokens together, without gaps."""
    used = 0
    for number, key in enumerate(ranked):
        used += tokens[key]
        if used > limit:
            return list(ranked[:number])
    return list(ranked)
