"""Extraction of facts from messages by patterns. A fact is a sentence of the message, verbatim.

Proper names in it are found by capitalization: inside a sentence, in a row, or within a word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import FENCE_OPENING, strip_fences
from langmem_tiers.compression.fact_finder import FactFinder, FactSpan, select_outermost
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.facts.models import FactDraft
from langmem_tiers.facts.patterns import (
    EXTRA_PATTERNS,
    EXTRACTION_PATTERNS,
    REFERRING_WORDS,
    ExtractionPattern,
)
from langmem_tiers.facts.validation import is_question
from langmem_tiers.text.facts import Fact, FactKind
from langmem_tiers.text.stop_words import STOP_WORDS
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


MAX_MESSAGE_CHARACTERS = 8_000
"""Maximum number of characters read from a message."""
MAX_SENTENCE_CHARACTERS = 400
"""Maximum length of a sentence; longer ones are split between words."""

_CODE_BLOCK = re.compile(r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1|\Z)|```.*?(?:```|\Z)", re.DOTALL | re.MULTILINE)
_PRE_BLOCK = re.compile(r"<(pre|code)\b[^>]{0,200}>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
# A line of at least this length probably ends because of line wrapping, not because the sentence ended.
_WRAPPED_LINE_CHARACTERS = 60
_PARAGRAPH_BREAK = "\n\n"
_LIST_ITEM = re.compile(r"\s*(?:[-*•+\u2013\u2014]|\d{1,3}[.)]|[a-z][.)]|#{1,6}|\[[ xX]\])\s+")
_CLOSING_MARKS = r"[\"'”’)\]*_]*"
_LINE_END = re.compile(rf"[.!?:;…\u3002\uff01\uff1f]{_CLOSING_MARKS}$")
_SENTENCE_END = re.compile(rf"[.!?…]+{_CLOSING_MARKS}(?=\s)|[\u3002\uff01\uff1f]+[\u300d\u300f\uff09”’]*")
_LAST_WORD = re.compile(r"[^\s(\[\"'“\u2018]*\Z")
_ABBREVIATIONS = frozenset(load_words(__name__, "abbreviations", "never final"))
# Abbreviations that may also end a sentence; they do if a capital letter follows.
_FINAL_ABBREVIATIONS = frozenset(load_words(__name__, "abbreviations", "sometimes final"))


def extract_spoken_text(content: str) -> str:
    """Return the text without code blocks, quoted lines, tables and injected memory."""
    # An opening fence that is left after `strip_fences` was never closed: everything after it may be memory.
    text = strip_fences(content).partition(FENCE_OPENING)[0][:MAX_MESSAGE_CHARACTERS]
    # Code is replaced by a paragraph break, not by nothing: the text around it must not become one sentence.
    text = _PRE_BLOCK.sub(_PARAGRAPH_BREAK, _CODE_BLOCK.sub(_PARAGRAPH_BREAK, text))
    return "\n".join("" if line.lstrip().startswith((">", "|")) else line for line in text.split("\n"))


def iter_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text with single spaces, none longer than ``MAX_SENTENCE_CHARACTERS``.

    URLs, numbers, versions and abbreviations are not split. A line that starts with a lower-case letter continues the
    previous line.
    """
    for paragraph in _iter_paragraphs(text):
        start = 0
        for match in _SENTENCE_END.finditer(paragraph):
            if _is_sentence_end(paragraph, match):
                yield from _split_long_sentence(paragraph[start : match.end()].strip())
                start = match.end()
        yield from _split_long_sentence(paragraph[start:].strip())


def cut_at_word(text: str, characters: int = MAX_SENTENCE_CHARACTERS) -> str:
    """Return the text, cut after the last word that fits. Returns "" if the first word is too long."""
    if len(text) <= characters:
        return text
    # One more character, so that a word that ends exactly at the limit is kept.
    return text[: characters + 1].rpartition(" ")[0].rstrip()


def _iter_paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        item = _LIST_ITEM.match(line)
        words = " ".join(line[item.end() if item else 0 :].split())
        is_continuation = not item and lines and _is_continued(lines[-1], words)
        if not is_continuation and lines:
            yield " ".join(lines)
            lines = []
        if words:
            lines.append(words)
    if lines:
        yield " ".join(lines)


def _is_continued(line: str, following: str) -> bool:
    if _LINE_END.search(line) or not following:
        return False
    return following[0].islower() or (len(line) >= _WRAPPED_LINE_CHARACTERS and not following[0].isupper())


def _is_sentence_end(paragraph: str, match: re.Match[str]) -> bool:
    # Only a single period is ambiguous; "!", "?", "..." and full-width marks always end a sentence.
    if match[0][0] != "." or match[0].startswith(".."):
        return True
    # 20 characters suffice for any abbreviation and bound the search in a text without spaces.
    found = _LAST_WORD.search(paragraph, max(0, match.start() - 20), match.start())
    word = found[0].lower() if found else ""
    is_capital_next = paragraph[match.end() : match.end() + 2].strip()[:1].isupper()
    if word in _FINAL_ABBREVIATIONS and is_capital_next:
        return True
    # A single capital letter before a capitalized word is an initial ("J. Smith"), except for the pronoun "I".
    is_initial = (
        len(word) == 1 and word.isalpha() and word != "i" and found is not None and found[0].isupper()
    )
    return not (word in _ABBREVIATIONS or word in _FINAL_ABBREVIATIONS or (is_initial and is_capital_next))


def _split_long_sentence(sentence: str) -> Iterator[str]:
    while len(sentence) > MAX_SENTENCE_CHARACTERS:
        piece = cut_at_word(sentence)
        if piece:
            yield piece
            sentence = sentence[len(piece) :].lstrip()
        else:  # a word that exceeds the limit is data, not language
            sentence = sentence.partition(" ")[2].lstrip()
    if sentence:
        yield sentence


_FENCE_SENTENCE = FENCE_OPENING.partition("\n")[0]
MAX_FACTS_PER_MESSAGE = 20
"""Maximum number of facts extracted from one message."""
MAX_TOPIC_TAGS = 3
_SPEAKERS = frozenset({Role.USER, Role.ASSISTANT})
_WORD = re.compile(r"[^\W_](?:[\w'’.-]*\w)?")
_TOPIC = re.compile(r"[^\W\d_][\w+#-]{2,29}")
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,:]\d+)*(?:\s?%)?")
# Kinds that match whole phrases; a mention is a name, a number or another detail inside a phrase.
_PHRASE_KINDS = frozenset({FactKind.NEGATION, FactKind.DECISION, FactKind.PERSONAL, FactKind.ERROR})
_NOT_TOPICS = frozenset(load_words(__name__, "not_topics", "words"))


class FactExtractor:
    """Pattern-based extractor of facts from messages.

    Args:
        patterns: The pattern table. The first row that matches a sentence determines the kind. Example with more rows:
            ``FactExtractor((*EXTRACTION_PATTERNS, *EXTRA_PATTERNS, *GERMAN_PATTERNS))``.
        facts: Finder for the names, dates and other details that a statement mentions.
    """

    def __init__(
        self,
        patterns: Sequence[ExtractionPattern] = (*EXTRACTION_PATTERNS, *EXTRA_PATTERNS),
        facts: FactFinder | None = None,
    ) -> None:
        if not all(isinstance(row, ExtractionPattern) for row in patterns):
            raise InvalidInputError("patterns must be a list of ExtractionPattern objects")
        self._patterns = tuple(patterns)
        self._finder = FactFinder() if facts is None else facts

    def extract(self, message: Message) -> tuple[FactDraft, ...]:
        """Return the facts of one message in order, each a complete sentence, verbatim.

        Reads the first 8,000 characters of user and assistant messages. Skips code, quoted lines, recalled memory,
        questions, and sentences that only refer to something said before.
        """
        if message.role not in _SPEAKERS:
            return ()
        # Removing a fence joins the text before and after it. A sentence that exists only because of that was
        # never said, so it must also occur in the original text.
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
                # The first match decides, even if the sentence has no content: later rows are not tried.
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
    """Return the names, dates, numbers and other details of a text, verbatim, without nested ones or duplicates."""
    kept, _ = select_outermost(text, find_mention_places(text, finder))
    return tuple(dict.fromkeys(span.fact.text for span in kept))


def find_mention_places(text: str, finder: FactFinder) -> list[FactSpan]:
    """Return every occurrence of a mentioned detail in order of its start, longer ones first."""
    ranges = [("name", bounds) for bounds in find_proper_names(text)]
    ranges += [(FactKind.NUMBER, match.span()) for match in _NUMBER.finditer(text)]
    spans = [FactSpan(start, end, Fact(kind, text[start:end])) for kind, (start, end) in ranges]
    spans += [span for span in finder.find_spans(text) if span.fact.kind not in _PHRASE_KINDS]
    return sorted(spans, key=lambda span: (span.start, -span.end))


def extract_topics(text: str) -> tuple[str, ...]:
    """Return up to three topic words of a text in lower case: names first, then other words in order."""
    names = [word for start, end in find_proper_names(text) for word in _TOPIC.findall(text[start:end])]
    words = (word.lower() for word in (*names, *_TOPIC.findall(text)))
    stops = REFERRING_WORDS["en"] | _NOT_TOPICS
    return tuple(word for word in dict.fromkeys(words) if word not in stops)[:MAX_TOPIC_TAGS]


def _has_content(sentence: str, row: ExtractionPattern) -> bool:
    # Remove the matched wording; at least one remaining word must do more than refer to earlier statements.
    stops = REFERRING_WORDS.get(row.language, frozenset())
    rest = _WORD.findall(row.pattern.sub(" ", sentence).lower().replace("’", "'"))
    return any(word not in stops for word in rest)


_CAPITALIZABLE_WORD = re.compile(r"[^\W_][\w&+-]*(?:['’](?!s\b)\w+)*")
# Allowed between two parts of a name: a space (after a title also a period) and particles such as "van der".
_NAME_JOINT = re.compile(r"\.? (?:(?:de|van|von|der|da|di|la|of) ){0,2}")
_SENTENCE_START = re.compile(r"(?:\A|[\w)\"]{2}[.!?:]|\n)[\s\"'`“\u2018(\[*_#>-]*\Z")
_VERBS = (*load_words(__name__, "names", "verbs after a name"), "[a-z]+ed")
_VERB_BEHIND = re.compile(rf"(?:['’]s)? (?:{'|'.join(_VERBS)}|and [A-Z])\b".replace("'t", "['’]t"))
_TITLES = frozenset("dr mr mrs ms prof st".split())
# Capitalized at the start of sentences and headings, but not names unless part of a longer name.
_NEVER_ALONE = frozenset(load_words(__name__, "names", "never alone"))
_NEVER_NAMES = STOP_WORDS | frozenset(load_words(__name__, "names", "contractions"))
_UNLIKELY_NAME_END = re.compile(r"(?:s|ing|ed|ion|ment|ity|ness|ly)\Z")


def find_proper_names(text: str) -> list[tuple[int, int]]:
    """Return start and end of the names in a text, in order; empty for a text without lower-case letters.

    A single capitalized word at the start of a sentence is a name only if a verb follows: "Anna prefers tea".
    """
    if not any(map(str.islower, text)):
        return []
    found: list[tuple[int, int]] = []
    for start, end in _iter_capitalized_words(text):
        # A period joins only after a title: "Dr. Smith" is one name, "with Anna. Bob" are two.
        joint = text[found[-1][1] : start] if found else ""  # the text since the previous name
        is_title = joint == ". " and text[slice(*found[-1])].lower().split()[-1] in _TITLES
        is_joined = bool(joint) and (is_title or ("." not in joint and _NAME_JOINT.fullmatch(joint)))
        if is_joined:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return [(start, end) for start, end in found if not _is_ordinary_word(text, start, end)]


def _iter_capitalized_words(text: str) -> Iterator[tuple[int, int]]:
    for match in _CAPITALIZABLE_WORD.finditer(text):
        word = match[0]
        if (
            any(map(str.isupper, word))
            and len(word) > 1
            and word.lower().replace("’", "'") not in _NEVER_NAMES
        ):
            yield match.span()


def _is_ordinary_word(text: str, start: int, end: int) -> bool:
    word = text[start:end]
    if word.lower() in _NEVER_ALONE:
        return True
    if not word[0].isupper() or any(map(str.isupper, word[1:])) or not word.isalpha():
        return False  # inner capitals, digits or several words are deliberate, so it is a name
    if not _SENTENCE_START.search(text, max(0, start - 20), start):
        return False
    return _VERB_BEHIND.match(text, end) is None or _UNLIKELY_NAME_END.search(word) is not None
