"""Chinese conversations are recalled as well as English ones, with the default configuration."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import pytest

from benchmarks import locomo
from benchmarks.haystacks import Memory, load
from benchmarks.retrieval import share_found
from langmem_tiers import MemoryEngine
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.locomo import Conversation

FILES = sorted((Path(__file__).parents[1] / "data").glob("chinese_*.json"))
K1, B = 1.2, 0.75


class Found(NamedTuple):
    """The part of the evidence among the first ten, question by question."""

    ours: list[float]
    by_words: list[float]


class WordRanking:
    """Plain BM25 over the same terms, with the speaker's name in front of what was said."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._counts = {key: Counter(extract_terms(text)) for key, text in texts.items()}
        self._mean = fmean(count.total() for count in self._counts.values())
        self._holding = Counter(term for count in self._counts.values() for term in count)

    def best(self, question: str) -> list[str]:
        scores: dict[str, float] = defaultdict(float)
        for term in set(extract_terms(question)):
            holding = self._holding[term]
            rarity = math.log1p((len(self._counts) - holding + 0.5) / (holding + 0.5))
            for key, count in self._counts.items():
                norm = K1 * (1 - B + B * count.total() / self._mean)
                scores[key] += rarity * count[term] * (K1 + 1) / (count[term] + norm)
        return sorted(scores, key=lambda key: -scores[key])[:10]


def conversations() -> list[Conversation]:
    return [conversation for file in FILES for conversation in load(file, locomo.EXPECTED, locomo.parse)]


@pytest.fixture(scope="module")
def found() -> Found:
    found = Found([], [])
    with MemoryEngine() as engine:
        memory = Memory(engine)
        for conversation in conversations():
            haystack = memory.ingest(conversation.id, conversation.turns)
            words = WordRanking({turn.id: turn.words for turn in conversation.turns})
            for question in conversation.questions:
                answer = haystack.ask(question.text, 10, conversation.asked_at)
                found.ours.append(share_found(question.evidence, answer.turns))
                found.by_words.append(share_found(question.evidence, words.best(question.text)))
    return found


def test_the_chinese_conversations_have_enough_questions() -> None:
    assert sum(len(conversation.questions) for conversation in conversations()) > 140


def test_most_evidence_is_in_the_top_ten(found: Found) -> None:
    assert fmean(found.ours) > 0.87


def test_recall_is_clearly_better_than_words_only(found: Found) -> None:
    assert fmean(found.ours) > fmean(found.by_words) + 0.08
