"""Extraction of time ranges from a text, without a model and without a clock.

Questions are about the past, so a date without a year is the most recent one that has begun. All times are in
UTC. Ambiguous expressions are resolved as follows:

=========================== ==========================================================================
expression                  meaning
=========================== ==========================================================================
7 May, in May, on Friday    the most recent one that has begun at ``now``
last May, last Friday       the most recent one that is over at ``now``
this May, next May          the one of this year (weekdays: this week); the first that has not begun
last week, month, year      the calendar unit before that of ``now``; weeks begin on Monday
the last week, past 10 days that many whole days back, to the end of today
last weekend                Saturday and Sunday of last week; over the weekend: the last that has begun
two days ago                that day
two weeks ago               the week of that day and two days on either side
three months, years ago     that month, that year
a couple of, a few, several 2 to 3, 2 to 5, 3 to 8
last night, tonight         from noon to noon
spring, summer, autumn      March to May, June to August, September to November: northern seasons
winter 2022                 December 2022 to February 2023
early, mid, late; end of    thirds; also the beginning, the middle and the end of something
5/7/2023, 15/7/2023         7 May (month first), 15 July (the only reading); 5.7.2023 is 5 July
2023-05-07T10:30            that minute
in 2022                     only after a word that indicates a year; 1900 to 2100
since May, after May        from its start, from its end, until the end of today
before May, until May       from 1900 up to its start, up to its end
between May and July        both included
the week before 3 June      the seven days before; also the month after it
a week before 3 June        as "a week ago", seen from 3 June
the weekend before 3 June   the last one that is over when 3 June begins
the week of 3 June          its calendar week
first week of May           days 1 to 7; the last week is its last seven days
recently, the other day     nothing: too vague
=========================== ==========================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from langmem_tiers.text.time_expressions.chinese import iter_chinese_times
from langmem_tiers.text.time_expressions.phrases import PhraseReader
from langmem_tiers.text.time_expressions.tokens import tokenize_time_text
from langmem_tiers.text.time_expressions.vocabulary import ALL_MONTHS, DAY_OFFSETS, SEASONS, UNITS, WEEKDAYS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from langmem_tiers.text.time_expressions.calendar import TimeSpan

MAX_TIME_TEXT_CHARACTERS: Final = 10_000
"""Maximum number of characters read; longer questions usually name their time earlier."""


_TIME_HINT = re.compile(
    r"\d|[年月日周週天期拜昨今明前春夏秋冬가-힣]"
    rf"|\b(?:{'|'.join([*ALL_MONTHS, *WEEKDAYS, *SEASONS, *UNITS, *DAY_OFFSETS, 'tonight'])})\b",
    re.IGNORECASE,
)
"""Quick check: a text without a match contains no time expression."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A half-open time range mentioned in a text."""

    start: datetime
    """Start, an aware datetime in UTC."""
    end: datetime
    """End, which is excluded."""
    text: str
    """The expression as written in the text."""


def find_time_ranges(text: str, now: datetime) -> tuple[TimeRange, ...]:
    """Return the time ranges mentioned in a text, in order; of overlapping ones, the longest.

    Args:
        text: A question or other text; only the first ``MAX_TIME_TEXT_CHARACTERS`` are read.
        now: Time of the question, in UTC.
    """
    text = text[:MAX_TIME_TEXT_CHARACTERS]
    if _TIME_HINT.search(text) is None:
        return ()
    found = [
        match
        for match in (*_iter_phrases(text, now), *iter_chinese_times(text, now))
        if match[2].start < match[2].end
    ]
    return tuple(TimeRange(*span, text[first:last]) for first, last, span in _remove_overlaps(found))


def _iter_phrases(text: str, now: datetime) -> Iterator[tuple[int, int, TimeSpan]]:
    tokens = tokenize_time_text(text)
    reader = PhraseReader(tokens, now)
    index = 0
    while index < len(tokens):
        found = reader.read_phrase(index)
        if found and found.span:
            yield tokens[index].start, tokens[found.stop - 1].end, found.span
        index = found.stop if found else index + 1


def _remove_overlaps(found: list[tuple[int, int, TimeSpan]]) -> list[tuple[int, int, TimeSpan]]:
    kept: list[tuple[int, int, TimeSpan]] = []
    for match in sorted(found, key=lambda match: (match[0], -match[1])):
        first, last, _ = match
        if kept and first < kept[-1][1]:
            if last - first > kept[-1][1] - kept[-1][0]:
                kept[-1] = match
            continue
        kept.append(match)
    return kept
