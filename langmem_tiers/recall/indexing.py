"""Index data of a message: terms, speaker, question flag and importance."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.common.scorer import Subject
from langmem_tiers.recall.records import IndexText
from langmem_tiers.text.tokenize import count_words, extract_name_terms, extract_terms

if TYPE_CHECKING:
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.scorer import Scorer

# An age at which the scorer adds nothing for recency: the stored importance must not depend on the time.
_LONG_AGO_HOURS = 10.0**6
_QUESTION_MARKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}")
# Chinese and Japanese questions as people type them: often without a question mark, or with emoji at the end.
_QUESTION_ENDING = re.compile(
    r"(?:[\N{FULLWIDTH QUESTION MARK}]|[吗嗎么麼谁誰]|哪[里裡儿兒]?|多少|几点|咋样|怎么样|怎麼樣"
    r"|ですか|ますか|でしょうか)"
    r"[\s。!~…\N{FULLWIDTH EXCLAMATION MARK}\N{FULLWIDTH TILDE}\u2600-\u27bf\U0001f300-\U0001faff\ufe0f\u200d]*\Z"
)
# Only the end of a message is searched. Emoji and punctuation may follow the question.
_ENDING_CHARACTERS = 20


class Indexer:
    """Builds the index data of messages.

    Args:
        importance: Scorer of importance by content. Age and use are added when a message is recalled.
    """

    def __init__(self, importance: Scorer) -> None:
        self._importance = importance

    def __call__(self, message: Message) -> IndexText:
        """Build the index data of one message. Text that was injected from memory is not indexed again."""
        content = strip_fences(message.content)
        calls = "".join(f" {call.name} {strip_fences(call.arguments)}" for call in message.tool_calls)
        speaker = [] if message.name is None else extract_name_terms(message.name)
        subject = Subject(content, message.role, age_hours=_LONG_AGO_HOURS)
        text = content + calls
        terms = extract_terms(text)
        # ASCII text has one term per word. Otherwise a word may make several terms, so words are counted separately.
        return IndexText(
            terms=terms,
            length=len(terms) if text.isascii() else count_words(terms),
            speaker=" ".join(dict.fromkeys(speaker)) or None,
            is_question=ends_with_question(content),
            importance=self._importance.score(subject).value,
        )


def ends_with_question(text: str) -> bool:
    """Return True if a text ends with a question."""
    if text.rstrip().endswith(_QUESTION_MARKS):
        return True
    return not text.isascii() and _QUESTION_ENDING.search(text[-_ENDING_CHARACTERS:]) is not None
