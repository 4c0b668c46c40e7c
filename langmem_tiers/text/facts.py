"""Facts: pieces of text that must survive word for word, and how they are found.

Whoever reads a compressed text can still open the address, run the command or quote the number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

WORD_PATTERN = r"[$€£]?\w[\w'’/%-]{0,40}(?:\.\w[\w/%-]{0,20}){0,3}"
"""A word of a sentence, as a pattern."""
_WORD = re.compile(WORD_PATTERN)
_MAX_WORD_CHARACTERS = 60
_SPACE = " \t\r\n"
_TRAILING_CHARACTERS = " \t\r\n.,;:!?"  # ends a sentence around a fact rather than the fact


class FactKind(StrEnum):
    """The classes of facts that compression promises to keep."""

    URL = "url"
    EMAIL = "email"
    ERROR = "error"
    SELECTOR = "selector"
    CLASS_NAME = "class_name"
    ELEMENT_ID = "element_id"
    IP_ADDRESS = "ip_address"
    NUMBER = "number"
    IDENTIFIER = "identifier"
    PATH = "path"
    DATE = "date"
    TIME = "time"
    COMMAND = "command"
    CODE = "code"
    VERSION = "version"
    MONEY = "money"
    NEGATION = "negation"
    DECISION = "decision"
    PERSONAL = "personal"


@dataclass(frozen=True, slots=True)
class Fact:
    """A piece of text that must survive word for word."""

    kind: str
    text: str
    priority: int = 50


@dataclass(frozen=True, slots=True)
class FactPattern:
    """One row of the table.

    Args:
        kind: The class; a name of your own for patterns of your own.
        pattern: What to look for. Group 1 is the fact, if there is one, otherwise the whole match.
        priority: Facts of a higher priority stay longer when not all of them fit.
        needles: Lower-case texts of which a match always holds one; spares the search where there is none.
        words_before: So many words before the match belong to the fact, as far as no punctuation parts them.
        keeps_end: Whether punctuation at its end belongs to it, as in ``cd ..``.
    """

    kind: str
    pattern: re.Pattern[str]
    priority: int = 50
    needles: tuple[str, ...] = ()
    words_before: int = 0
    keeps_end: bool = False

    def __post_init__(self) -> None:
        pattern: object = self.pattern
        if not isinstance(pattern, re.Pattern) or not isinstance(pattern.pattern, str):
            raise InvalidInputError(
                f"a fact pattern must be a compiled text pattern, got a {type(pattern).__name__}: "
                "use re.compile(r'...')"
            )
        if self.pattern.search("") is not None:
            raise InvalidInputError(
                f"the pattern {self.pattern.pattern!r} matches the empty text: ask for one character at least"
            )

    def spans(self, text: str, lowered: str | None = None) -> Iterator[tuple[int, int]]:
        """Where each fact stands in the text, without the punctuation behind it.

        Args:
            text: Where to look.
            lowered: The text in lower case, if you have it.
        """
        if self.needles:
            lowered = text.lower() if lowered is None else lowered
            if not any(needle in lowered for needle in self.needles):
                return
        group = 1 if self.pattern.groups else 0
        for match in self.pattern.finditer(text):
            start, end = match.span(group)
            behind = _SPACE if self.keeps_end else _TRAILING_CHARACTERS
            while end > start and text[end - 1] in behind:
                end -= 1
            if self.words_before:
                start = _find_words_before(text, start, self.words_before)
            if end > start >= 0:
                yield start, end


def _find_words_before(text: str, start: int, words: int) -> int:
    # The start of the word that this place is in, and of as many words before it.
    while start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_'’"):
        start -= 1
    for _ in range(words):
        begin = start - 1
        while begin > 0 and start - begin < _MAX_WORD_CHARACTERS and not text[begin - 1].isspace():
            begin -= 1
        if begin < 0 or text[start - 1] != " " or not _WORD.fullmatch(text, begin, start - 1):
            break
        start = begin
    return start
