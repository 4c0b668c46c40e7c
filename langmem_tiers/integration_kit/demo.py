"""Agents that an adapter offers to ``langmem-tiers demo``: the result of its ``demo.make_assistants``."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from langmem_tiers.common.prompt_fences import FENCE_CLOSING, FENCE_OPENING, strip_fences
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of an agent, with the prompt behind it."""

    text: str
    prompt: str
    """Complete prompt that the model received."""
    prompt_tokens: int
    """Tokens of the prompt as reported by the model."""


class Assistant(Protocol):
    """An agent of a framework."""

    def ask(self, question: str, thread: str) -> Reply:
        """Ask the agent a question in a thread."""


@dataclass(frozen=True, slots=True)
class Assistants:
    """Two agents with the same model and the same threads, one of them with memory."""

    without_memory: Assistant
    with_memory: Assistant


UNKNOWN_ANSWER = "I don't know."
NO_QUESTION_ANSWER = "Noted."
"""Answer to a message that is not a question."""
_QUESTION_MARKS = "?", "\N{FULLWIDTH QUESTION MARK}"
_MIN_WORD_SHARE = 0.3
"""Minimum share of the question's words, weighted by rarity, that an answer must contain."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\s+[-|>]\s+")
_FENCE_LINES = frozenset((*FENCE_OPENING.split("\n"), FENCE_CLOSING))
_DAY_HEADING = re.compile(r"\d{4}-\d\d-\d\d:")
_LABEL = re.compile(r"^(?:\w+: |- )")


def quote_answer(messages: Sequence[str], question: str | None) -> str:
    """Return the sentence of the prompt that best answers the question, or ``UNKNOWN_ANSWER``.

    A text without a question mark gets ``NO_QUESTION_ANSWER``.

    Args:
        messages: Texts of the prompt.
        question: Newest text of the user in it; None if there is none.
    """
    if question is None:
        return UNKNOWN_ANSWER
    question = strip_fences(question)
    if not any(mark in question for mark in _QUESTION_MARKS):
        return NO_QUESTION_ANSWER
    candidates = dict.fromkeys(sentence for message in messages for sentence in _split_sentences(message))
    for sentence in _split_sentences(question):  # repeating the question is not an answer
        candidates.pop(sentence, None)
    return _find_best_sentence(list(candidates), set(extract_terms(question)))


def _find_best_sentence(sentences: Sequence[str], question_terms: set[str]) -> str:
    terms_by_sentence = [set(extract_terms(sentence)) for sentence in sentences]
    frequencies = Counter(term for terms in terms_by_sentence for term in terms)
    # Inverse document frequency: rare words count more than common ones.
    weights = {
        term: math.log(1 + len(sentences) / (1 + frequencies[term])) for term in sorted(question_terms)
    }
    scores = [math.fsum(weights[term] for term in terms & question_terms) for terms in terms_by_sentence]
    # Ties: prefer the shorter sentence, then the later one.
    best = max(range(len(sentences)), key=lambda n: (scores[n], -len(terms_by_sentence[n]), n), default=None)
    minimum = _MIN_WORD_SHARE * math.fsum(weights.values())
    return UNKNOWN_ANSWER if best is None or scores[best] == 0 or scores[best] < minimum else sentences[best]


def _split_sentences(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line in _FENCE_LINES or _DAY_HEADING.fullmatch(line):
            continue
        for part in _SENTENCE_END.split(_LABEL.sub("", line)):
            sentence = part.strip()
            # Skip answers of earlier turns, headings and questions.
            if (
                sentence
                and sentence not in (UNKNOWN_ANSWER, NO_QUESTION_ANSWER)
                and not sentence.endswith((":", *_QUESTION_MARKS))
            ):
                yield sentence
