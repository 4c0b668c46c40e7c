"""Key topics of a run of messages."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.text.negation import DATE_WORDS, NUMBER_WORDS
from langmem_tiers.text.stop_words import (
    CHINESE_FILLERS,
    CHINESE_STOP_WORDS,
    JAPANESE_STOP_WORDS,
    STOP_WORDS,
)
from langmem_tiers.text.tokenize import extract_terms, find_unspaced_runs
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_TOPIC_TEXT_CHARACTERS = 4000
"""Maximum number of characters read per text."""

_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ADDRESS = re.compile(r"\b(?:https?://|www\.)\S{1,500}")
# A word with its inner punctuation: src/app.py, retry_count, user-id, C++; without punctuation at its end.
_WORD_OR_MARK = re.compile(
    r"/?[^\W_][\w'’]{0,60}(?:[./_:-]{1,2}[^\W_][\w'’]{0,60}){0,6}(?:\+\+|#|\(\))?|[^\w\s]"
)
_IDENTIFIER = re.compile(r"\w[./_:]{1,2}\w|[a-z][A-Z]|\(\)$|\+\+$|#$|^[A-Za-z]{1,12}\d|\d[A-Za-z]{1,12}\d")
_HASH = re.compile(r"(?=.{0,60}\d)[0-9a-f-]{6,}", re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")
_HANGUL = re.compile(r"[\uac00-\ud7af]+")
_HAN_OR_KATAKANA = re.compile(
    r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f]{2,}|[\u30a1-\u30fa\u30fc]{2,}"
)
_OTHER_RUN = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]{3,16}")
_PARTICLE = re.compile(rf"(?<=..)(?:{'|'.join(load_words(__name__, 'topic_fillers', 'korean particles'))})$")
_SEPARATORS = re.compile(
    "|".join(sorted(CHINESE_STOP_WORDS | JAPANESE_STOP_WORDS, key=len, reverse=True))
    + f"|[{''.join(sorted(CHINESE_FILLERS))}得着过把被让给跟从到还再才又]"
)
_SENTENCE_END = re.compile(r"(?:니다|어요|아요|세요|네요|까요)$")
_MAX_HAN_CHARACTERS = 4  # longest word that can be a topic
_FILLER_WORDS = (
    STOP_WORDS
    | DATE_WORDS
    | NUMBER_WORDS
    | frozenset(load_words(__name__, "topic_fillers", "code"))
    | frozenset(load_words(__name__, "topic_fillers", "talk"))
)
"""Words that say nothing about the topic of a conversation."""


@dataclass(slots=True)
class _Topic:
    weight: float
    first: int
    forms: Counter[str] = field(default_factory=Counter)
    texts: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        return self.forms.total()


@dataclass(frozen=True, slots=True)
class _Mention:
    key: str
    form: str
    weight: float


def find_key_topics(texts: Sequence[str], limit: int = 5) -> tuple[str, ...]:
    """Return the topics of the texts as they are written: words, two-word phrases and identifiers.

    Topics that occur often and in many of the texts come first. The result is deterministic.

    Args:
        texts: Texts in order.
        limit: Maximum number of topics.
    """
    # Code blocks are ignored, unless the texts contain nothing else.
    prose = [_CODE_BLOCK.sub("\n", text[:MAX_TOPIC_TEXT_CHARACTERS]) for text in texts]
    topics = _count_topics(prose) or _count_topics([text[:MAX_TOPIC_TEXT_CHARACTERS] for text in texts])
    ranked = sorted(
        topics.items(), key=lambda item: (-_score_topic(item[1], len(texts)), item[1].first, item[0])
    )
    chosen: list[str] = []
    for _, topic in ranked:
        if len(chosen) >= max(0, limit):
            break
        # The most frequent spelling; lower case, then the alphabet, break ties.
        form = max(topic.forms, key=lambda form: (topic.forms[form], form.islower(), form))
        if not any(_covers(other, form) for other in chosen):
            chosen.append(form)
    return tuple(chosen)


def merge_topics(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Return both lists without duplicates, ignoring case."""
    merged: dict[str, str] = {}
    for topic in (*first, *second):
        merged.setdefault(topic.casefold(), topic)
    return tuple(merged.values())


def _count_topics(texts: Sequence[str]) -> dict[str, _Topic]:
    topics: dict[str, _Topic] = {}
    for number, text in enumerate(texts):
        # A URL becomes a period, so that the words before and after it do not form a phrase.
        for mention in _iter_mentions(_ADDRESS.sub(" . ", text)):
            topic = topics.setdefault(mention.key, _Topic(mention.weight, len(topics)))
            topic.forms[mention.form] += 1
            topic.texts.add(number)
    # Phrases and pieces of unspaced text are topics only if they are repeated.
    return {
        key: topic
        for key, topic in topics.items()
        if topic.count > 1 or not (key.startswith(("phrase:", "piece:")))
    }


def _score_topic(topic: _Topic, texts: int) -> float:
    # The logarithm dampens repetition. Topics found in many of the texts count up to twice as much.
    return topic.weight * math.log1p(topic.count) * (1 + len(topic.texts) / max(1, texts))


def _covers(chosen: str, form: str) -> bool:
    # "connection pool" also covers "pool", and vice versa.
    chosen_words, form_words = set(chosen.casefold().split()), set(form.casefold().split())
    is_part = not form.isascii() and (form in chosen or chosen in form)
    return chosen_words <= form_words or form_words <= chosen_words or is_part


def _iter_mentions(text: str) -> Iterator[_Mention]:
    before: _Mention | None = None
    for piece in _WORD_OR_MARK.findall(text):
        # Punctuation and filler words give None and so end a phrase.
        word = _to_mention(piece)
        if word is not None and before is not None and word.key != before.key:
            yield _Mention(f"phrase:{before.key} {word.key}", f"{before.form} {word.form}", 1.6)
        if word is not None:
            yield word
        before = word
    yield from _iter_unspaced_mentions(text)


def _to_mention(piece: str) -> _Mention | None:
    # Without contractions and possessives: "Anna's" is "Anna".
    form = re.sub(r"['’](?:s|t|d|m|ll|re|ve)$", "", piece)
    lowered = form.casefold().replace("’", "'")
    # Two letters only if they are capitals: "UI", "DB".
    is_short = len(form) < 3 and not (len(form) == 2 and form.isupper())
    if is_short or not _LETTER.search(form) or lowered.replace("'", "") in _FILLER_WORDS:
        return None
    if _HASH.fullmatch(form) or next(find_unspaced_runs(form), None) is not None:
        return None
    # Weights: phrases 1.6, identifiers 1.3, capitalized words 1.15, other words 1.0.
    if _IDENTIFIER.search(form):
        return _Mention(lowered, form, 1.3)
    terms = extract_terms(form)
    if not terms:
        return None
    return _Mention(" ".join(terms), form, 1.15 if form[0].isupper() else 1.0)


def _iter_unspaced_mentions(text: str) -> Iterator[_Mention]:
    for run in find_unspaced_runs(text):
        if _HANGUL.match(run[0]):
            for word in _HANGUL.findall(run[0]):
                if len(root := _PARTICLE.sub("", word)) > 1 and not _SENTENCE_END.search(root):
                    yield _Mention(root, root, 1.0)
        for other in _OTHER_RUN.findall(run[0]):
            yield _Mention(other, other, 1.0)
        for part in _SEPARATORS.split(run[0]):
            for word in _HAN_OR_KATAKANA.findall(part):
                yield from _iter_han_mentions(word)


def _iter_han_mentions(word: str) -> Iterator[_Mention]:
    # Katakana words are not cut, as they are mostly loanwords written in one piece.
    is_katakana = word[0] < "\u3400"
    if is_katakana or len(word) <= _MAX_HAN_CHARACTERS:
        yield _Mention(word, word, 1.0)
    if is_katakana:
        return
    # Word boundaries are unknown, so every piece is a candidate. Longer ones weigh more, so that they beat their parts.
    for length in range(2, min(_MAX_HAN_CHARACTERS, len(word) - 1) + 1):
        for start in range(len(word) - length + 1):
            piece = word[start : start + length]
            yield _Mention(f"piece:{piece}", piece, 0.9 + 0.05 * length)
