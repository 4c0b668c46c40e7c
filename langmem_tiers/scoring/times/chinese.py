"""Times in Chinese text, which has no spaces between words: a few forms, found by pattern."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.scoring.times.spans import (
    FIRST_YEAR,
    LAST_YEAR,
    Span,
    around,
    day_span,
    months_span,
    pick,
    shifted,
)
from langmem_tiers.scoring.times.words import CHINESE_NOT_AFTER, CHINESE_NOT_BEFORE, CHINESE_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

_WORDS = "|".join(sorted(CHINESE_WORDS, key=len, reverse=True))
_YEARS = "|".join(word for word, (unit, _) in CHINESE_WORDS.items() if unit == "year")
_DAY = r"(?:([0-9]{1,2})月(?:([0-9]{1,2})[日号])?(?!龄))"
_DATE = re.compile(rf"(?<![0-9.])(?:([0-9]{{4}})年|({_YEARS})的?)?{_DAY}|(?<![0-9.])([0-9]{{4}})年")
_WORD = re.compile(rf"(?<![{CHINESE_NOT_AFTER}])(?:{_WORDS})(?![{CHINESE_NOT_BEFORE}])")


def chinese_times(text: str, now: datetime) -> Iterator[tuple[int, int, Span]]:
    """Each time with its place in the text; a date wins over the words in it."""
    end = 0
    matches = [*_DATE.finditer(text), *_WORD.finditer(text)]
    for match in sorted(matches, key=lambda match: (match.start(), -match.end())):
        if match.start() < end:
            continue
        end = match.end()
        try:
            span = _word(match, now) if match.re is _WORD else _date(match, now)
        except (ValueError, OverflowError):
            continue
        if span:
            yield *match.span(), span


def _word(match: re.Match[str], now: datetime) -> Span:
    unit, step = CHINESE_WORDS[match.group()]
    return around(shifted(now, unit, step), unit)


def _date(match: re.Match[str], now: datetime) -> Span | None:
    number, word, month, day, only_year = match.groups()
    year = int(number or only_year or 0) or (now.year + CHINESE_WORDS[word][1] if word else None)
    if (number or only_year) and year is not None and not FIRST_YEAR <= year <= LAST_YEAR:
        return None
    if only_year:
        return months_span(int(only_year), 1, 12)
    if day:
        return pick(lambda away: day_span(now.year + away, int(month), int(day)), year or "", now)
    return pick(lambda away: months_span(now.year + away, int(month)), year or "", now)
