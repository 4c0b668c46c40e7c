"""Extractive summaries: select the most important sentences of a conversation without a model."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import SUMMARY_PREFIX, Message, Role
from langmem_tiers.compression.message_text import SPEAKER_LABELS, message_to_text
from langmem_tiers.text.sentences import truncate_with_ellipsis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SENTENCE = re.compile(r"[^\n.!?]{1,400}(?:[.!?](?=\S)[^\n.!?]{0,200}){0,20}[.!?]?")
_WORD = re.compile(r"[^\W\d_]{4,}")
_DECISION = re.compile(
    r"\b(?:decided?|chose|agreed?|will|must|never|instead|prefers?|because|important|critical|remember|failed|fixed)\b",
    re.IGNORECASE,
)
_MAX_SENTENCE_CHARACTERS = 300
_MAX_SENTENCES_PER_MESSAGE = 40


@dataclass(frozen=True, slots=True)
class _Sentence:
    position: int
    text: str
    score: float


def build_extractive_story(messages: Sequence[Message]) -> Callable[[int], str]:
    """Return a function that joins a given percentage of the sentences, the best ones, in their original order."""
    # Newer sentences first among equals.
    ranked = sorted(_score_sentences(messages), key=lambda sentence: (-sentence.score, -sentence.position))

    def render_best(percent: int) -> str:
        chosen = sorted(ranked[: len(ranked) * percent // 100], key=lambda sentence: sentence.position)
        return "\n".join(sentence.text for sentence in chosen)

    return render_best


def _score_sentences(messages: Sequence[Message]) -> list[_Sentence]:
    spoken = [(message, sentence) for message in messages for sentence in _split_sentences(message)]
    word_sets = [set(_WORD.findall(sentence.lower())) for _, sentence in spoken]
    frequencies = Counter(word for words in word_sets for word in words)
    total = len(spoken) + 1
    scored = []
    for position, ((message, sentence), words) in enumerate(zip(spoken, word_sets, strict=True)):
        # Words that recur indicate the subject, words in almost every sentence indicate nothing. The divisor keeps
        # long sentences from winning by their number of words.
        weight = sum(math.log(total / frequencies[word]) * math.log(1 + frequencies[word]) for word in words)
        score = weight / math.sqrt(8 + len(words))
        score += 2.0 * (_DECISION.search(sentence) is not None)
        score += 1.0 * (message.role is Role.USER)
        text = f"{SPEAKER_LABELS[message.role]}: {truncate_with_ellipsis(sentence, _MAX_SENTENCE_CHARACTERS)}"
        scored.append(_Sentence(position, text, score))
    return scored


def _split_sentences(message: Message) -> list[str]:
    text = message_to_text(message).removeprefix(SUMMARY_PREFIX)
    found = (match.strip() for match in _SENTENCE.findall(text))
    return [sentence for sentence in found if len(sentence) > 2][:_MAX_SENTENCES_PER_MESSAGE]
