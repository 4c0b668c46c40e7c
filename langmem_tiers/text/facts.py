"""Facts: pieces of text that must survive compression verbatim, and the patterns that find them.

A reader of compressed text can still open the URL, run the command or quote the number. Key facts make an entry worth
promoting.
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
"""Regular expression for a word of a sentence."""
_WORD = re.compile(WORD_PATTERN)
_MAX_WORD_CHARACTERS = 60
_SPACE = " \t\r\n"
_TRAILING_CHARACTERS = " \t\r\n.,;:!?"  # punctuation of the sentence, not of the fact


class FactKind(StrEnum):
    """Kinds of facts that compression preserves."""

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
    """A piece of text that must survive verbatim."""

    kind: str
    text: str
    priority: int = 50


@dataclass(frozen=True, slots=True)
class FactPattern:
    """A pattern that finds one kind of fact.

    Args:
        kind: Kind of the facts; use your own name for your own patterns.
        pattern: Compiled regular expression. The fact is group 1 if there is one, otherwise the whole match.
        priority: Facts with a higher priority are kept longer when not all of them fit.
        needles: Lower-case texts, one of which is in every match. Without any of them, the search is skipped.
        words_before: Number of words before the match that belong to the fact, up to the next punctuation.
        keeps_end: True if trailing punctuation belongs to the fact, as in ``cd ..``.
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
                f"a fact pattern must be a compiled text pattern, got {type(pattern).__name__}: "
                "use re.compile(r'...')"
            )
        # Such a pattern would match at every position, and a fact of length 0 preserves nothing.
        if self.pattern.search("") is not None:
            raise InvalidInputError(
                f"the pattern {self.pattern.pattern!r} matches the empty text: require at least one character"
            )

    def spans(self, text: str, lowered: str | None = None) -> Iterator[tuple[int, int]]:
        """Yield start and end of each fact in the text, without trailing punctuation.

        Args:
            text: Text to search.
            lowered: The text in lower case, if available.
        """
        if self.needles:
            lowered = text.lower() if lowered is None else lowered
            if not any(needle in lowered for needle in self.needles):
                return
        group = 1 if self.pattern.groups else 0
        for match in self.pattern.finditer(text):
            start, end = match.span(group)
            trailing = _SPACE if self.keeps_end else _TRAILING_CHARACTERS
            while end > start and text[end - 1] in trailing:
                end -= 1
            if self.words_before:
                start = _find_words_before(text, start, self.words_before)
            if end > start >= 0:
                yield start, end


def _find_words_before(text: str, start: int, words: int) -> int:
    # Moves to the start of the word around ``start``, then over up to ``words`` words before it.
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


@dataclass(frozen=True, slots=True)
class KeyFact:
    """A kind of key fact: lower-case needles for a quick check, and the pattern that confirms it."""

    name: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]


KEY_FACTS: tuple[KeyFact, ...] = (
    KeyFact("url", ("http",), re.compile(r"https?://\S")),
    KeyFact("error", ("error", "failed", "exception"), re.compile(r"error|failed|exception")),
    KeyFact(
        "selector",
        ("selector", "xpath", "css", "#", "class", "id=", "//"),
        re.compile(
            r"selector|\bxpath\b|\bcss\b|(?<![\w&/#])#[a-z][\w-]+|class(?:name)?=[\"']|\bid=[\"']|(?<![:\w/])//\w+\["
        ),
    ),
    KeyFact(
        "api",
        ("api", "endpoint", "get /", "post /", "put /", "patch /", "delete /"),
        re.compile(r"\bapis?\b|\bendpoints?\b|\b(?:get|post|put|patch|delete) /"),
    ),
    KeyFact(
        "credential",
        ("password", "credential", "key", "secret", "token"),
        re.compile(
            r"passwords?\b|\bcredentials?\b|\bapi[ _-]?keys?\b|\bsecrets?\b|\b(?:access|auth|bearer)[ _-]?tokens?\b"
        ),
    ),
    KeyFact("step", ("step", "phase"), re.compile(r"\b(?:step|phase)\s#?\d")),
)


def find_key_facts(text: str) -> tuple[str, ...]:
    """Return the names of the key facts in the text. A text without any is not a candidate for promotion."""
    lowered = text.lower()
    return tuple(
        fact.name
        for fact in KEY_FACTS
        if any(needle in lowered for needle in fact.needles) and fact.pattern.search(lowered)
    )
