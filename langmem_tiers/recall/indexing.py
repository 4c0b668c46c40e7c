"""What of a message is indexed: its words, its speaker, and what its form says of it."""

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

_LONG_AGO_HOURS = 10.0**6  # so that time adds nothing to what is stored
_QUESTION_MARKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}")
_QUESTION_ENDING = re.compile(  # as people type it: without a mark, or with a laugh behind it
    r"(?:[\N{FULLWIDTH QUESTION MARK}]|[吗嗎么麼谁誰]|哪[里裡儿兒]?|多少|几点|咋样|怎么样|怎麼樣"
    r"|ですか|ますか|でしょうか)"
    r"[\s。!~…\N{FULLWIDTH EXCLAMATION MARK}\N{FULLWIDTH TILDE}\u2600-\u27bf\U0001f300-\U0001faff\ufe0f\u200d]*\Z"
)
_ENDING_CHARACTERS = 20  # characters in which it shows


class Indexer:
    """Makes what recall keeps of a message.

    Args:
        importance: Scores by content; what time and use add is added when it is asked for.
    """

    def __init__(self, importance: Scorer) -> None:
        self._importance = importance

    def __call__(self, message: Message) -> IndexText:
        """What is kept of one message. What was injected from memory is not indexed again."""
        said = strip_fences(message.content)
        calls = "".join(f" {call.name} {strip_fences(call.arguments)}" for call in message.tool_calls)
        speaker = [] if message.name is None else extract_name_terms(message.name)
        subject = Subject(said, message.role, age_hours=_LONG_AGO_HOURS)
        text = said + calls
        terms = extract_terms(text)
        return IndexText(
            terms=terms,
            length=len(terms) if text.isascii() else count_words(terms),
            speaker=" ".join(dict.fromkeys(speaker)) or None,
            is_question=ends_with_question(said),
            importance=self._importance.score(subject).value,
        )


def ends_with_question(said: str) -> bool:
    """Whether a text ends as a question."""
    if said.rstrip().endswith(_QUESTION_MARKS):
        return True
    return not said.isascii() and _QUESTION_ENDING.search(said[-_ENDING_CHARACTERS:]) is not None
