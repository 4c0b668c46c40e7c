"""What of a message is indexed: its words, its speaker, and what its form says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.core.indexes import IndexText
from langmem_tiers.retrieval.fences import without_fences
from langmem_tiers.scoring.signals import Subject
from langmem_tiers.scoring.terms import length_of, name_terms, terms_of

if TYPE_CHECKING:
    from langmem_tiers.core.messages import Message
    from langmem_tiers.scoring.signals import Scorer

_LONG_AGO_HOURS = 10.0**6  # so that time adds nothing to what is stored
QUESTION_MARKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}")


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
        calls = "".join(f" {call.name} {call.arguments}" for call in message.tool_calls)
        speaker = [] if message.name is None else name_terms(message.name)
        subject = Subject(said, message.role, age_hours=_LONG_AGO_HOURS)
        text = said + calls
        terms = terms_of(text)
        return IndexText(
            terms=terms,
            length=len(terms) if text.isascii() else length_of(terms),
            speaker=" ".join(dict.fromkeys(speaker)) or None,
            asks=said.rstrip().endswith(QUESTION_MARKS),
            importance=self._importance.score(subject).value,
        )
