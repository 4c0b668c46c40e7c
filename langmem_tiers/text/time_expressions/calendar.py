"""The calendar behind words of time: stretches of aware UTC time, half-open.

Everything here raises ValueError or OverflowError where the calendar ends.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

FIRST_YEAR: Final = 1900
LAST_YEAR: Final = 2100
"""Numbers outside are no years; open ranges end here."""

DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)
_LENGTHS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": DAY,
    "week": WEEK,
    "weekend": WEEK,
}
_MONTHS_IN = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
SLACK: Final = {"minute": timedelta(minutes=5), "hour": timedelta(hours=1), "week": timedelta(days=2)}
"""How much wider than the calendar's unit "two weeks ago" is, on either side."""
_YEARS_TO_LOOK = 9  # 29 February may be eight years away

Which: TypeAlias = str | int
""" "last", "this", "next", "" for the most recent one that has begun, or a year."""


class Span(NamedTuple):
    """From a moment up to another, which it does not hold."""

    start: datetime
    end: datetime


Repeated: TypeAlias = Callable[[int], Span]
"""What comes again, by how many periods away from now."""


def days_from(day: datetime, count: int = 1) -> Span:
    """So many days from the one of a moment on."""
    start = floor(day, "day")
    return Span(start, start + DAY * count)


def day_span(year: int, month: int, day: int) -> Span:
    """One day."""
    return days_from(datetime(year, month, day, tzinfo=UTC))


def months_span(year: int, month: int, count: int = 1) -> Span:
    """So many whole months."""
    start = datetime(year, month, 1, tzinfo=UTC)
    return Span(start, shifted(start, "month", count))


def night_span(day: datetime) -> Span:
    """The night that begins on a day, from noon to noon: nobody knows the speaker's time zone."""
    noon = floor(day, "day") + DAY / 2
    return Span(noon, noon + DAY)


def floor(moment: datetime, unit: str) -> datetime:
    """The beginning of the calendar's unit that a moment lies in."""
    if unit in {"minute", "hour"}:
        return moment.replace(minute=moment.minute if unit == "minute" else 0, second=0, microsecond=0)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit in {"week", "weekend"}:
        return day + DAY * ((5 if unit == "weekend" else 0) - day.weekday())
    if unit not in _MONTHS_IN:
        return day
    month = (day.year * 12 + day.month - 1) // _MONTHS_IN[unit] * _MONTHS_IN[unit]
    return day.replace(year=month // 12, month=month % 12 + 1, day=1)


def around(moment: datetime, unit: str) -> Span:
    """The calendar's unit that a moment lies in; weeks begin on Monday."""
    start = floor(moment, unit)
    return Span(start, start + DAY * 2 if unit == "weekend" else shifted(start, unit, 1))


def shifted(moment: datetime, unit: str, count: int) -> datetime:
    """A moment so many units later; a day that its month lacks becomes the last one."""
    if unit in _LENGTHS:
        return moment + _LENGTHS[unit] * count
    year, month = divmod(moment.year * 12 + moment.month - 1 + count * _MONTHS_IN[unit], 12)
    first = moment.replace(year=year, month=month + 1, day=1)
    return first.replace(day=min(moment.day, calendar.monthrange(year, month + 1)[1]))


def relative(now: datetime, unit: str, low: int, high: int) -> Span:
    """From ``low`` to ``high`` units after a moment: calendar units, and a little more."""
    slack = SLACK.get(unit, timedelta())
    first, last = around(shifted(now, unit, low), unit), around(shifted(now, unit, high), unit)
    return Span(first.start - slack, last.end + slack)


def nearest_weekday(moment: datetime, weekday: int, step: int) -> Span:
    """The last such day that is over at a moment, or the first that has not begun."""
    day = floor(moment, "day")
    if step < 0:
        return days_from(day - DAY * ((day.weekday() - weekday - 1) % 7 + 1))
    return days_from(day + DAY * ((weekday - day.weekday()) % 7))


def nearest_weekend(moment: datetime, step: int) -> Span:
    """The last weekend that is over at a moment, or the first that has not begun."""
    if step < 0:
        return days_from(nearest_weekday(moment, 6, -1).start - DAY, 2)
    return days_from(nearest_weekday(moment, 5, 1).start, 2)


def beside(anchor: Span, unit: str, step: int) -> Span:
    """So many units that end where the anchor begins, or begin where it ends."""
    if unit == "weekend":
        return nearest_weekend(anchor.start if step < 0 else anchor.end, step)
    if step < 0:
        return Span(shifted(anchor.start, unit, step), anchor.start)
    return Span(anchor.end, shifted(anchor.end, unit, step))


def thirds(span: Span, first: int, last: int, of: int = 3) -> Span:
    """A part of a span, in whole days."""
    days = (span.end - span.start).days
    return Span(span.start + DAY * round(days * first / of), span.start + DAY * round(days * last / of))


def pick(repeated: Repeated, which: Which, now: datetime) -> Span | None:
    """The one that is meant of what comes again.

    The last one is over at ``now``, the next one has not begun, this one is of the year or week of ``now``.
    """
    if isinstance(which, int):
        return repeated(which - now.year)
    periods = {"next": range(_YEARS_TO_LOOK), "this": range(-1, 1)}.get(which, range(0, -_YEARS_TO_LOOK, -1))
    for period in periods:
        try:
            span = repeated(period)
        except (ValueError, OverflowError):  # 29 February
            continue
        if _is_meant(span, which, now, period):
            return span
    return None


def _is_meant(span: Span, which: str, now: datetime, period: int) -> bool:
    if which == "this":  # a winter that began in the year before may still go on
        return period == 0 or span.end > now
    if which == "next":
        return span.start > now
    return span.end <= now if which == "last" else span.start <= now
