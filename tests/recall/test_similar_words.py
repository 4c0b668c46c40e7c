from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from langmem_tiers.recall.embedders.vectors import WordSimilarity
from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_VECTORS = {"tea": (3.0, 0.0), "chai": (2.0, 0.0), "car": (0.0, 1.0), "anti": (-1.0, 0.0), "": (0.0, 0.0)}


class _Counting:
    """An embedder of a few words that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        return np.array([_VECTORS[text] for text in texts], np.float32)


def test_the_nearness_of_two_words_is_the_cosine_of_their_vectors() -> None:
    kin = WordSimilarity(_Counting())
    assert kin("tea", "chai") == pytest.approx(1.0)
    assert kin("tea", "car") == pytest.approx(0.0)
    assert kin("tea", "anti") == pytest.approx(-1.0)


def test_a_word_without_a_vector_has_no_similar_words() -> None:
    assert WordSimilarity(_Counting())("tea", "") == 0.0


def test_a_word_is_embedded_once() -> None:
    embed = _Counting()
    kin = WordSimilarity(embed)
    for _ in range(3):
        kin("tea", "car")
    assert embed.asked == ["tea", "car"]


def test_the_least_recently_used_words_are_evicted() -> None:
    embed = _Counting()
    kin = WordSimilarity(embed, max_words=2)
    kin("tea", "car")
    kin("tea", "chai")
    assert embed.asked == ["tea", "car", "chai"]
    kin("tea", "car")
    assert embed.asked == ["tea", "car", "chai", "car"]
    assert repr(kin) == "WordSimilarity(2 of 2 words)"


def test_a_cache_of_one_word_is_refused() -> None:
    with pytest.raises(ValueError, match="max_words must be at least 2"):
        WordSimilarity(_Counting(), max_words=1)


def test_offline_word_vectors_distinguish_synonyms_from_siblings() -> None:
    kin = WordSimilarity(OfflineEmbedder().embed_documents)
    near = [kin(*pair.split()) for pair in ("lawyer attorney", "begin start", "scared afraid", "fix repair")]
    apart = [kin(*pair.split()) for pair in ("tea coffee", "dog cat", "guitar violin", "read write")]
    assert min(near) > 0.5
    assert max(apart) < 0.3
