"""What of a message is indexed: its words, its speaker, and what its form says of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.common.prompt_fences import without_fences
from langmem_tiers.common.scorer import Subject
from langmem_tiers.recall.records import IndexText
from langmem_tiers.text.tokenize import length_of, name_terms, terms_of

if TYPE_CHECKING:
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.scorer import Scorer

_LONG_AGO_HOURS = 10.0**6  # so that time adds nothing to what is stored
_QUESTION_MARKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}")
_ASKING = re.compile(  # as people type it: without a mark, or with a laugh behind it
    r"(?:[\N{FULLWIDTH QUESTION MARK}]|[吗嗎么麼谁誰]|哪[里裡儿兒]?|多少|几点|咋样|怎么样|怎麼樣"
    r"|ですか|ますか|でしょうか)"
    r"[\s。!~…\N{FULLWIDTH EXCLAMATION MARK}\N{FULLWIDTH TILDE}\u2600-\u27bf\U0001f300-\U0001faff\ufe0f\u200d]*\Z"
)
_ENDING = 20  # characters in which it shows


class Indexer:
    """Makes what recall keeps of a message.

    Args:
        importance: Scores by content; what time and use add is added when it is asked for.
    """

    def __init__(self, importance: Scorer) -> None:
        self._importance = importance

    def __call__(self, message: Message) -> IndexText:
        """What is kept of one message. What was injected from memory is not indexed again."""
        said = without_fences(message.content)
        calls = "".join(f" {call.name} {without_fences(call.arguments)}" for call in message.tool_calls)
        speaker = [] if message.name is None else name_terms(message.name)
        subject = Subject(said, message.role, age_hours=_LONG_AGO_HOURS)
        text = said + calls
        terms = terms_of(text)
        return IndexText(
            terms=terms,
            length=len(terms) if text.isascii() else length_of(terms),
            speaker=" ".join(dict.fromkeys(speaker)) or None,
            asks=asks(said),
            importance=self._importance.score(subject).value,
        )


def asks(said: str) -> bool:
    """Whether a text ends as a question."""
    if said.rstrip().endswith(_QUESTION_MARKS):
        return True
    return not said.isascii() and _ASKING.search(said[-_ENDING:]) is not None
