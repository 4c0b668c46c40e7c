"""Tokenizer for time expressions: words, numbers, dates and marks with their positions.

Compounds such as URLs, versions, prices, clock times and ids become a single token of kind "other",
so that no date rule has to handle them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Self

from langmem_tiers.text.time_expressions import vocabulary
from langmem_tiers.text.time_expressions.calendar import (
    FIRST_YEAR,
    LAST_YEAR,
    TimeSpan,
    build_day_span,
    floor_to_unit,
)
from langmem_tiers.text.time_expressions.vocabulary import (
    ALL_MONTHS,
    NUMBERS,
    ORDINALS,
    SEASONS,
    SHORT_WEEKDAYS,
    SPAN_PARTS_WITHOUT_OF,
    WEEKDAYS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langmem_tiers.text.time_expressions.calendar import PeriodChoice


_WIDE_MARKS = "\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f"
_CHUNK = re.compile(rf"—|,(?![0-9])|(?:[^\s—,{_WIDE_MARKS}]|,(?=[0-9]))+")
_MAX_CHUNK_CHARACTERS = 64
_OPENING = "([{<\"'“\u2018«*_~"
_CLOSING = ")]}>\"'”’»*_~.;:!?…"
_SHORT_YEAR = re.compile(r"['’]([0-9]{2})")
_POSSESSIVE = re.compile(r"['’]s\Z")
_WORD = re.compile(r"[^\W\d_]+|[Qq][1-4]")
_NUMBER = re.compile(r"([0-9]{1,4})(st|nd|rd|th|s)?")
_ISO = re.compile(r"([0-9]{4})([-/])([0-9]{1,2})\2([0-9]{1,2})")
_ISO_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}(?:[:.+Z0-9-]*)", re.ASCII)
_DAY_LAST = re.compile(r"([0-9]{1,2})([-/.])([0-9]{1,2})\2((?:19|20)[0-9]{2}|[0-9]{2})")
_DASHES = "-\u2013"
_GLUE = re.compile(f"([{_DASHES}/,])")
_GLUED_WORDS = frozenset({*ALL_MONTHS, *WEEKDAYS, *SHORT_WEEKDAYS, *SPAN_PARTS_WITHOUT_OF, *SEASONS, "to"})
_HYPHENED_WORDS = frozenset(word for word in (*ORDINALS, *NUMBERS) if "-" in word)


class TimeToken(NamedTuple):
    """A piece of a text."""

    kind: str
    """One of word, number, ordinal, decade, year, date, mark or other."""
    text: str
    """The text in lower case."""
    start: int
    end: int
    is_capital: bool = False
    number: int = 0
    span: TimeSpan | None = None
    """Span of a date; None if the calendar has no such day."""


def tokenize_time_text(text: str) -> list[TimeToken]:
    """Return the tokens of a text in order."""
    found: list[TimeToken] = []
    for chunk in _CHUNK.finditer(text):
        found += _split_chunk(chunk.group(), chunk.start())
    return found


def _split_chunk(chunk: str, at: int) -> Iterator[TimeToken]:
    # Yields the opening punctuation, the core and the closing punctuation of a chunk without spaces.
    if chunk in {"—", ",", *_DASHES}:
        yield _build_mark(chunk, at)
        return
    if len(chunk) > _MAX_CHUNK_CHARACTERS:
        yield TimeToken("other", "", at, at + len(chunk))
        return
    closed = chunk.rstrip(_CLOSING)
    end = at + len(closed)
    core = closed if _SHORT_YEAR.fullmatch(closed) else closed.lstrip(_OPENING)
    if len(core) < len(closed):
        yield _build_mark(chunk[0], at)
    if core:
        yield from _read_core(core, end - len(core))
    if len(closed) < len(chunk):
        yield _build_mark(chunk[len(closed)], end)


def _build_mark(mark: str, at: int) -> TimeToken:
    return TimeToken("mark", "-" if mark in _DASHES else mark, at, at + 1)


def _read_core(core: str, at: int) -> Iterator[TimeToken]:
    bare = _POSSESSIVE.sub("", core)
    whole = _read_simple(bare, at) or _read_date(bare, at)
    # Compounds such as "May-June" or "3-7" are split at their separators, which the split keeps at odd indexes.
    if whole is None and len(parts := _GLUE.split(bare)) > 1 and _is_date_phrase(parts):
        for part in parts:
            yield _read_simple(part, at) or _build_mark(part, at)
            at += len(part)
        return
    yield whole or TimeToken("other", "", at, at + len(core))


def _read_simple(text: str, at: int) -> TimeToken | None:
    lowered, end = text.lower(), at + len(text)
    if _WORD.fullmatch(text) or lowered in _HYPHENED_WORDS:
        return TimeToken("word", lowered, at, end, text[:1].isupper())
    if short := _SHORT_YEAR.fullmatch(text):
        number = int(short[1])
        # '69 is 2069, '70 is 1970.
        return TimeToken("year", lowered, at, end, number=number + (2000 if number < 70 else 1900))
    if not (match := _NUMBER.fullmatch(lowered)):
        return None
    number = int(match[1])
    if match[2] == "s":
        is_decade = number % 10 == 0 and FIRST_YEAR <= number <= LAST_YEAR
        return TimeToken("decade" if is_decade else "other", lowered, at, end, number=number)
    is_year = match[2] is None and len(match[1]) == 4 and FIRST_YEAR <= number <= LAST_YEAR
    kind = "ordinal" if match[2] else "year" if is_year else "number"
    return TimeToken(kind, lowered, at, end, number=number)


def _read_date(text: str, at: int) -> TimeToken | None:
    end = at + len(text)
    if match := _ISO.fullmatch(text):
        parts = int(match[1]), int(match[3]), int(match[4])
    elif match := _DAY_LAST.fullmatch(text):
        parts = _order_date_parts(int(match[1]), int(match[3]), match[4], is_day_first=match[2] == ".")
    elif _ISO_TIME.fullmatch(text):
        return TimeToken("date", text, at, end, span=_read_minute(text))
    else:
        return None
    try:
        span = build_day_span(*parts) if FIRST_YEAR <= parts[0] <= LAST_YEAR else None
    except (ValueError, OverflowError):
        span = None
    return TimeToken("date", text, at, end, span=span)


def _order_date_parts(first: int, second: int, year: str, *, is_day_first: bool) -> tuple[int, int, int]:
    # Month first: 5/7/2023 is 7 May. 15/7/2023 can only be day first, and dates with dots always are.
    month, day = (second, first) if is_day_first or first > 12 else (first, second)
    return int(year) + (2000 if len(year) == 2 else 0), month, day


def _read_minute(text: str) -> TimeSpan | None:
    try:
        moment = datetime.fromisoformat(text.upper())
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        start = floor_to_unit(moment, "minute")
        return (
            TimeSpan(start, start + timedelta(minutes=1)) if FIRST_YEAR <= start.year <= LAST_YEAR else None
        )
    except (ValueError, OverflowError):
        return None


def _is_date_phrase(parts: list[str]) -> bool:
    """Return True if the parts at even indexes, joined by separators at odd ones, are words and numbers of a date."""
    for index, part in enumerate(parts[::2]):
        if part.lower() in _GLUED_WORDS:
            continue
        if not (match := _NUMBER.fullmatch(part.lower())):
            return False
        if index and (before := _NUMBER.fullmatch(parts[2 * index - 2].lower())):
            lengths = len(before[1]), len(match[1])
            if not _can_join(parts[2 * index - 1], *lengths):
                return False
    return True


def _can_join(separator: str, digits_before: int, digits_after: int) -> bool:
    # "7,2023" is a day and a year. Ranges join two years or two days; with a slash they may be a fraction.
    if separator == ",":
        return digits_before <= 2 and digits_after == 4
    return separator != "/" and (
        digits_before == digits_after == 4 or (digits_before <= 2 and digits_after <= 2)
    )


class TimeMatch(NamedTuple):
    """A parsed time expression."""

    span: TimeSpan | None
    """The time; None if it looks like a date but is not one, such as 31 June."""
    stop: int
    """Index of the token after the expression."""
    unit: str
    """Calendar unit of the time, such as "day"; "span" or "part" for others."""
    is_floating: bool = False
    """True if the year, or the week, is only assumed."""


class TokenReader:
    """Reads the tokens of a text by index. Indexes outside the text are allowed."""

    def __init__(self, tokens: Sequence[TimeToken], now: datetime) -> None:
        self.tokens = tokens
        self.now = now

    def with_now(self, now: datetime) -> Self:
        """Return a reader of the same text at another time."""
        return type(self)(self.tokens, now)

    def word(self, index: int) -> str:
        """Return the token in lower case; empty outside the text."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def kind(self, index: int) -> str:
        """Return the kind of the token; empty outside the text."""
        return self.tokens[index].kind if 0 <= index < len(self.tokens) else ""

    def skip_word(self, index: int, *skipped: str) -> int:
        """Return the index after the token if it is one of these words, otherwise the same index."""
        return index + 1 if self.word(index) in skipped else index

    def get_preceding_word(self, index: int) -> str:
        """Return the word before the token, skipping a hyphen or an article."""
        return self.word(index - 2 if self.word(index - 1) in {"-", "the"} else index - 1)

    def is_date_end(self, index: int) -> bool:
        """Return True if the token cannot continue the preceding words as a noun or verb phrase."""
        return self.kind(index) in {"", "mark", "year"} or self.word(index) in vocabulary.WORDS_AFTER_DATE

    def read_choice(self, index: int) -> tuple[PeriodChoice, int]:
        """Read "last", "this", "next" or nothing; return it and the index after it."""
        if self.word(index) == "this" and self.word(index + 1) == "past":
            return "last", index + 2
        # "My last week there" is not the last week of the calendar.
        if self.word(index) == "last" and self.word(index - 1) in vocabulary.POSSESSIVES:
            return "", index
        which = vocabulary.CHOICE_WORDS.get(self.word(index), "")
        return which, index + bool(which)

    def read_day_number(self, index: int) -> int:
        """Read a day of a month; return 0 if there is none."""
        if self.kind(index) in {"number", "ordinal"}:
            return self.tokens[index].number if self.tokens[index].number <= 31 else 0
        return vocabulary.ORDINALS.get(self.word(index), 0)

    def read_count(self, index: int) -> tuple[int, int, int] | None:
        """Read a count such as "two", "a", "a few" or "a couple of"; return minimum, maximum and the index after it."""
        at = self.skip_word(index, "a", "an")
        if self.word(at) in vocabulary.VAGUE_NUMBERS:
            low, high = vocabulary.VAGUE_NUMBERS[self.word(at)]
            return low, high, self.skip_word(at + 1, "of")
        if at > index:
            return 1, 1, at
        number = (
            self.tokens[at].number if self.kind(at) == "number" else vocabulary.NUMBERS.get(self.word(at), 0)
        )
        return (number, number, at + 1) if number else None

    def read_following_year(self, index: int) -> tuple[int | None, int]:
        """Read the year after a date ("2023", "of 2023", "last year"); return it and the index after it."""
        at = self.skip_word(index, ",", "of", "-")
        if self.kind(at) == "year":
            return self.tokens[at].number, at + 1
        at = self.skip_word(index, "of")
        step = vocabulary.STEP_BY_CHOICE.get(self.word(at))
        if step is not None and self.word(at + 1) == "year":
            return self.now.year + step, at + 2
        return None, index


def find_longest(index: int, *rules: Callable[[int], TimeMatch | None]) -> TimeMatch | None:
    """Return the longest match of the rules at a token; a rule that leaves the calendar finds nothing."""
    best: TimeMatch | None = None
    for rule in rules:
        try:
            found = rule(index)
        except (ValueError, OverflowError):
            continue
        if found and (best is None or found.stop > best.stop):
            best = found
    return best
