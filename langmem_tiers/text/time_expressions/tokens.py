"""A text as words, numbers, dates and marks, each with its place.

Whatever is glued to something else - URLs, versions, prices, clock times, ids - is one token that
nobody reads: so no rule for dates has to know them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from langmem_tiers.text.time_expressions.calendar import FIRST_YEAR, LAST_YEAR, Span, day_span, floor
from langmem_tiers.text.time_expressions.vocabulary import (
    ALL_MONTHS,
    NUMBERS,
    ORDINALS,
    PARTS_WITHOUT_OF,
    SEASONS,
    SHORT_WEEKDAYS,
    WEEKDAYS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDE_MARKS = "\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f"
_CHUNK = re.compile(rf"—|,(?![0-9])|(?:[^\s—,{_WIDE_MARKS}]|,(?=[0-9]))+")
_LONGEST_CHUNK = 64
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
_GLUED_WORDS = frozenset({*ALL_MONTHS, *WEEKDAYS, *SHORT_WEEKDAYS, *PARTS_WITHOUT_OF, *SEASONS, "to"})
_HYPHENED_WORDS = frozenset(word for word in (*ORDINALS, *NUMBERS) if "-" in word)


class Token(NamedTuple):
    """One piece of a text."""

    kind: str
    """word, number, ordinal, decade, year, date, mark or other."""
    text: str
    """In lower case."""
    start: int
    end: int
    is_capital: bool = False
    number: int = 0
    span: Span | None = None
    """Of a date; None if the calendar has no such day."""


def tokens_of(text: str) -> list[Token]:
    """The pieces of a text in their order."""
    found: list[Token] = []
    for chunk in _CHUNK.finditer(text):
        found += _pieces(chunk.group(), chunk.start())
    return found


def _pieces(chunk: str, at: int) -> Iterator[Token]:
    if chunk in {"—", ",", *_DASHES}:
        yield _mark(chunk, at)
        return
    if len(chunk) > _LONGEST_CHUNK:
        yield Token("other", "", at, at + len(chunk))
        return
    closed = chunk.rstrip(_CLOSING)
    end = at + len(closed)
    core = closed if _SHORT_YEAR.fullmatch(closed) else closed.lstrip(_OPENING)
    if len(core) < len(closed):
        yield _mark(chunk[0], at)
    if core:
        yield from _core(core, end - len(core))
    if len(closed) < len(chunk):
        yield _mark(chunk[len(closed)], end)


def _mark(mark: str, at: int) -> Token:
    return Token("mark", "-" if mark in _DASHES else mark, at, at + 1)


def _core(core: str, at: int) -> Iterator[Token]:
    bare = _POSSESSIVE.sub("", core)
    whole = _simple(bare, at) or _date(bare, at)
    if whole is None and len(parts := _GLUE.split(bare)) > 1 and _are_of_time(parts):
        for part in parts:
            yield _simple(part, at) or _mark(part, at)
            at += len(part)
        return
    yield whole or Token("other", "", at, at + len(core))


def _simple(text: str, at: int) -> Token | None:
    lowered, end = text.lower(), at + len(text)
    if _WORD.fullmatch(text) or lowered in _HYPHENED_WORDS:
        return Token("word", lowered, at, end, text[:1].isupper())
    if short := _SHORT_YEAR.fullmatch(text):
        number = int(short[1])
        return Token("year", lowered, at, end, number=number + (2000 if number < 70 else 1900))
    if not (match := _NUMBER.fullmatch(lowered)):
        return None
    number = int(match[1])
    if match[2] == "s":
        is_decade = number % 10 == 0 and FIRST_YEAR <= number <= LAST_YEAR
        return Token("decade" if is_decade else "other", lowered, at, end, number=number)
    is_year = match[2] is None and len(match[1]) == 4 and FIRST_YEAR <= number <= LAST_YEAR
    kind = "ordinal" if match[2] else "year" if is_year else "number"
    return Token(kind, lowered, at, end, number=number)


def _date(text: str, at: int) -> Token | None:
    end = at + len(text)
    if match := _ISO.fullmatch(text):
        parts = int(match[1]), int(match[3]), int(match[4])
    elif match := _DAY_LAST.fullmatch(text):
        parts = _by_place(int(match[1]), int(match[3]), match[4], is_day_first=match[2] == ".")
    elif _ISO_TIME.fullmatch(text):
        return Token("date", text, at, end, span=_minute(text))
    else:
        return None
    try:
        span = day_span(*parts) if FIRST_YEAR <= parts[0] <= LAST_YEAR else None
    except (ValueError, OverflowError):
        span = None
    return Token("date", text, at, end, span=span)


def _by_place(first: int, second: int, year: str, *, is_day_first: bool) -> tuple[int, int, int]:
    # Month first, as 5/7/2023 is 7 May; 15/7/2023 can only be read the other way, and dots always are.
    month, day = (second, first) if is_day_first or first > 12 else (first, second)
    return int(year) + (2000 if len(year) == 2 else 0), month, day


def _minute(text: str) -> Span | None:
    try:
        moment = datetime.fromisoformat(text.upper())
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        start = floor(moment, "minute")
        return Span(start, start + timedelta(minutes=1)) if FIRST_YEAR <= start.year <= LAST_YEAR else None
    except (ValueError, OverflowError):
        return None


def _are_of_time(parts: list[str]) -> bool:
    """Whether the parts, with what glues them at the odd places, are words and numbers of a date."""
    for index, part in enumerate(parts[::2]):
        if part.lower() in _GLUED_WORDS:
            continue
        if not (match := _NUMBER.fullmatch(part.lower())):
            return False
        if index and (before := _NUMBER.fullmatch(parts[2 * index - 2].lower())):
            lengths = len(before[1]), len(match[1])
            if not _may_join(parts[2 * index - 1], *lengths):
                return False
    return True


def _may_join(glue: str, before: int, behind: int) -> bool:
    if glue == ",":
        return before <= 2 and behind == 4
    return glue != "/" and (before == behind == 4 or (before <= 2 and behind <= 2))
