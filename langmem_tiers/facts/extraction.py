"""Facts out of messages by a table of patterns: statements, word for word, on their way into long-term memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import FENCE_OPENING
from langmem_tiers.compression.fact_finder import FactFinder, FactSpan, select_outermost
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.facts.message_sentences import extract_spoken_text, iter_sentences
from langmem_tiers.facts.models import FactDraft
from langmem_tiers.facts.patterns import (
    EXTRA_PATTERNS,
    EXTRACTION_PATTERNS,
    REFERRING_WORDS,
    ExtractionPattern,
)
from langmem_tiers.facts.validation import is_question
from langmem_tiers.text.facts import Fact, FactKind
from langmem_tiers.text.proper_names import find_proper_names

if TYPE_CHECKING:
    from collections.abc import Sequence

_FENCE_SENTENCE = FENCE_OPENING.partition("\n")[0]
MAX_FACTS_PER_MESSAGE = 20
"""From one message."""
MAX_TOPIC_TAGS = 3
_SPEAKERS = frozenset({Role.USER, Role.ASSISTANT})
_WORD = re.compile(r"[^\W_](?:[\w'’.-]*\w)?")
_TOPIC = re.compile(r"[^\W\d_][\w+#-]{2,29}")
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,:]\d+)*(?:\s?%)?")
# Whole phrases rather than what they name.
_PHRASE_KINDS = frozenset({FactKind.NEGATION, FactKind.DECISION, FactKind.PERSONAL, FactKind.ERROR})
_NOT_TOPICS = frozenset(
    """
    use uses used using make makes making work works working want wants need needs prefer prefers like likes must should
    cannot can't goal goals aim target decided chose selected went keep takes take give gives going user users really
    always never name called live lives every each our own new run runs
    """.split()
)


class FactExtractor:
    """Finds the statements of a message that are worth keeping.

    Args:
        patterns: The table; the first row that fits a sentence gives the kind. Add rows of your own:
            ``FactExtractor((*EXTRACTION_PATTERNS, *EXTRA_PATTERNS, *GERMAN_PATTERNS))``.
        facts: Finds what a statement mentions.
    """

    def __init__(
        self,
        patterns: Sequence[ExtractionPattern] = (*EXTRACTION_PATTERNS, *EXTRA_PATTERNS),
        facts: FactFinder | None = None,
    ) -> None:
        if not all(isinstance(row, ExtractionPattern) for row in patterns):
            raise InvalidInputError("patterns must be a list of ExtractionPattern: wrap each as one")
        self._patterns = tuple(patterns)
        self._finder = FactFinder() if facts is None else facts

    def extract(self, message: Message) -> tuple[FactDraft, ...]:
        """The facts of one message, in its order, each a whole sentence as it was said.

        Only what user and assistant say is read, and of that the first 8,000 characters. Code, quoted lines, recalled
        memory, questions and sentences that only point at something said before give no fact.
        """
        if message.role not in _SPEAKERS:
            return ()
        whole = " ".join(message.content.split()) if _FENCE_SENTENCE in message.content else None
        found: dict[str, FactDraft] = {}
        for sentence in iter_sentences(extract_spoken_text(message.content)):
            key = sentence.casefold().rstrip(".! ")
            if key in found or (whole is not None and sentence not in whole):
                continue
            if (row := self._find_pattern(sentence)) is not None:
                found[key] = self._build_draft(sentence, row)
                if len(found) == MAX_FACTS_PER_MESSAGE:
                    break
        return tuple(found.values())

    def _find_pattern(self, sentence: str) -> ExtractionPattern | None:
        if is_question(sentence):
            return None
        for row in self._patterns:
            if row.pattern.search(sentence):
                return row if _has_content(sentence, row) else None
        return None

    def _build_draft(self, sentence: str, row: ExtractionPattern) -> FactDraft:
        return FactDraft(
            content=sentence,
            kind=row.kind,
            confidence=row.confidence,
            tags=extract_topics(sentence),
            mentions=find_mentions(sentence, self._finder),
        )


def find_mentions(text: str, finder: FactFinder) -> tuple[str, ...]:
    """The names, dates, numbers and other facts of a text, word for word, each once and none inside another."""
    kept, _ = select_outermost(text, find_mention_places(text, finder))
    return tuple(dict.fromkeys(place.fact.text for place in kept))


def find_mention_places(text: str, finder: FactFinder) -> list[FactSpan]:
    """What a text mentions, at every place, in order; of two at the same place the longer one first."""
    spans = [("name", span) for span in find_proper_names(text)]
    spans += [(FactKind.NUMBER, match.span()) for match in _NUMBER.finditer(text)]
    places = [FactSpan(start, end, Fact(kind, text[start:end])) for kind, (start, end) in spans]
    places += [place for place in finder.find_spans(text) if place.fact.kind not in _PHRASE_KINDS]
    return sorted(places, key=lambda one: (one.start, -one.end))


def extract_topics(text: str) -> tuple[str, ...]:
    """Up to three words that say what a text is about, in lower case: names first, then in the order of the text."""
    names = [word for start, end in find_proper_names(text) for word in _TOPIC.findall(text[start:end])]
    words = (word.lower() for word in (*names, *_TOPIC.findall(text)))
    stops = REFERRING_WORDS["en"] | _NOT_TOPICS
    return tuple(word for word in dict.fromkeys(words) if word not in stops)[:MAX_TOPIC_TAGS]


def _has_content(sentence: str, row: ExtractionPattern) -> bool:
    # Whether more is left than words that point at what was said before.
    stops = REFERRING_WORDS.get(row.language, frozenset())
    rest = _WORD.findall(row.pattern.sub(" ", sentence).lower().replace("’", "'"))
    return any(word not in stops for word in rest)
