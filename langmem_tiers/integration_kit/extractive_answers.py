"""Answers that only quote: they show what a prompt held."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from langmem_tiers.common.prompt_fences import FENCE_CLOSING, FENCE_OPENING, strip_fences
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

UNKNOWN_ANSWER = "I don't know."
NO_QUESTION_ANSWER = "Noted."
"""What is said to a message that asks nothing."""
_QUESTION_MARKS = "?", "\N{FULLWIDTH QUESTION MARK}"
_MIN_WORD_SHARE = 0.3
"""Of the question's words, by how rare they are, that an answer must hold."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\s+[-|>]\s+")
_FENCE_LINES = frozenset((*FENCE_OPENING.split("\n"), FENCE_CLOSING))
_DAY_HEADING = re.compile(r"\d{4}-\d\d-\d\d:")
_LABEL = re.compile(r"^(?:\w+: |- )")


def quote_answer(messages: Sequence[str], question: str | None) -> str:
    """The sentence of a prompt that answers its newest question, or that it is not known.

    Args:
        messages: The texts of the prompt.
        question: The newest thing that a person says in it.
    """
    if question is None:
        return UNKNOWN_ANSWER
    question = strip_fences(question)
    if not any(mark in question for mark in _QUESTION_MARKS):
        return NO_QUESTION_ANSWER
    told = dict.fromkeys(one for message in messages for one in _split_sentences(message))
    for own in _split_sentences(question):  # to say a question again is no answer
        told.pop(own, None)
    return _find_best_sentence(list(told), set(extract_terms(question)))


def _find_best_sentence(sentences: Sequence[str], asked: set[str]) -> str:
    held = [set(extract_terms(sentence)) for sentence in sentences]
    in_how_many = Counter(term for terms in held for term in terms)
    weights = {term: math.log(1 + len(held) / (1 + in_how_many[term])) for term in sorted(asked)}
    shares = [math.fsum(weights[term] for term in terms & asked) for terms in held]
    best = max(range(len(held)), key=lambda n: (shares[n], -len(held[n]), n), default=None)
    enough = _MIN_WORD_SHARE * math.fsum(weights.values())
    return UNKNOWN_ANSWER if best is None or shares[best] == 0 or shares[best] < enough else sentences[best]


def _split_sentences(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line in _FENCE_LINES or _DAY_HEADING.fullmatch(line):
            continue
        for part in _SENTENCE_END.split(_LABEL.sub("", line)):
            sentence = part.strip()
            if (
                sentence
                and sentence not in (UNKNOWN_ANSWER, NO_QUESTION_ANSWER)
                and not sentence.endswith((":", *_QUESTION_MARKS))
            ):
                yield sentence
