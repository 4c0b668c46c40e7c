"""Calendar arithmetic for time expressions, on half-open spans of aware UTC time.

All functions raise ValueError or OverflowError outside the range of datetime.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

FIRST_YEAR: Final = 1900
"""First number that is read as a year; open-ended ranges start here."""
LAST_YEAR: Final = 2100
"""Last number that is read as a year; open-ended ranges end here."""

DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)
_UNIT_LENGTHS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": DAY,
    "week": WEEK,
    "weekend": WEEK,
}
_MONTHS_PER_UNIT = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
UNIT_SLACK: Final = {"minute": timedelta(minutes=5), "hour": timedelta(hours=1), "week": timedelta(days=2)}
"""Extension of "two weeks ago" beyond the calendar unit, on either side."""
_MAX_YEARS_SEARCHED = 9  # 29 February may be eight years away

PeriodChoice: TypeAlias = str | int
""""last", "this", "next", "" for the most recent one that has begun, or a year."""


class TimeSpan(NamedTuple):
    """A half-open span of time."""

    start: datetime
    end: datetime


SpanFactory: TypeAlias = Callable[[int], TimeSpan]
"""Returns the span of a recurring time, given the number of periods from now."""


def build_days_span(day: datetime, count: int = 1) -> TimeSpan:
    """Return ``count`` whole days, starting with the day of a moment."""
    start = floor_to_unit(day, "day")
    return TimeSpan(start, start + DAY * count)


def build_day_span(year: int, month: int, day: int) -> TimeSpan:
    """Return one day."""
    return build_days_span(datetime(year, month, day, tzinfo=UTC))


def build_months_span(year: int, month: int, count: int = 1) -> TimeSpan:
    """Return ``count`` whole months."""
    start = datetime(year, month, 1, tzinfo=UTC)
    return TimeSpan(start, shift_by_units(start, "month", count))


def build_night_span(day: datetime) -> TimeSpan:
    """Return the night that begins on a day, from noon to noon, as the speaker's time zone is unknown."""
    noon = floor_to_unit(day, "day") + DAY / 2
    return TimeSpan(noon, noon + DAY)


def floor_to_unit(moment: datetime, unit: str) -> datetime:
    """Return the start of the calendar unit that contains a moment."""
    if unit in {"minute", "hour"}:
        return moment.replace(minute=moment.minute if unit == "minute" else 0, second=0, microsecond=0)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit in {"week", "weekend"}:
        return day + DAY * ((5 if unit == "weekend" else 0) - day.weekday())
    if unit not in _MONTHS_PER_UNIT:
        return day
    month = (day.year * 12 + day.month - 1) // _MONTHS_PER_UNIT[unit] * _MONTHS_PER_UNIT[unit]
    return day.replace(year=month // 12, month=month % 12 + 1, day=1)


def build_unit_span(moment: datetime, unit: str) -> TimeSpan:
    """Return the calendar unit that contains a moment; weeks begin on Monday."""
    start = floor_to_unit(moment, unit)
    return TimeSpan(start, start + DAY * 2 if unit == "weekend" else shift_by_units(start, unit, 1))


def shift_by_units(moment: datetime, unit: str, count: int) -> datetime:
    """Return the moment shifted by ``count`` units; a day missing in the new month becomes its last day."""
    if unit in _UNIT_LENGTHS:
        return moment + _UNIT_LENGTHS[unit] * count
    # Months are counted from year 0, so that adding a negative number also borrows from the year.
    year, month = divmod(moment.year * 12 + moment.month - 1 + count * _MONTHS_PER_UNIT[unit], 12)
    first = moment.replace(year=year, month=month + 1, day=1)
    return first.replace(day=min(moment.day, calendar.monthrange(year, month + 1)[1]))


def build_relative_span(now: datetime, unit: str, low: int, high: int) -> TimeSpan:
    """Return the calendar units from ``low`` to ``high`` units after a moment, with some slack."""
    slack = UNIT_SLACK.get(unit, timedelta())
    first, last = (
        build_unit_span(shift_by_units(now, unit, low), unit),
        build_unit_span(shift_by_units(now, unit, high), unit),
    )
    return TimeSpan(first.start - slack, last.end + slack)


def find_nearest_weekday(moment: datetime, weekday: int, step: int) -> TimeSpan:
    """Return the last such weekday that is over at a moment, or the first that has not begun."""
    day = floor_to_unit(moment, "day")
    if step < 0:
        # 1 to 7 days back: the weekday of the day itself counts as not over.
        return build_days_span(day - DAY * ((day.weekday() - weekday - 1) % 7 + 1))
    return build_days_span(day + DAY * ((weekday - day.weekday()) % 7))


def find_nearest_weekend(moment: datetime, step: int) -> TimeSpan:
    """Return the last weekend that is over at a moment, or the first that has not begun."""
    if step < 0:
        return build_days_span(find_nearest_weekday(moment, 6, -1).start - DAY, 2)
    return build_days_span(find_nearest_weekday(moment, 5, 1).start, 2)


def build_adjacent_span(anchor: TimeSpan, unit: str, step: int) -> TimeSpan:
    """Return the units that end where the anchor begins, or begin where it ends."""
    if unit == "weekend":
        return find_nearest_weekend(anchor.start if step < 0 else anchor.end, step)
    if step < 0:
        return TimeSpan(shift_by_units(anchor.start, unit, step), anchor.start)
    return TimeSpan(anchor.end, shift_by_units(anchor.end, unit, step))


def slice_span(span: TimeSpan, first: int, last: int, parts: int = 3) -> TimeSpan:
    """Return a part of a span in whole days."""
    days = (span.end - span.start).days
    return TimeSpan(
        span.start + DAY * round(days * first / parts), span.start + DAY * round(days * last / parts)
    )


def pick_occurrence(repeated: SpanFactory, which: PeriodChoice, now: datetime) -> TimeSpan | None:
    """Select one occurrence of a recurring time.

    "last" is over at ``now``, "next" has not begun, and "this" is in the year or week of ``now``.
    """
    if isinstance(which, int):
        return repeated(which - now.year)
    periods = {"next": range(_MAX_YEARS_SEARCHED), "this": range(-1, 1)}.get(
        which, range(0, -_MAX_YEARS_SEARCHED, -1)
    )
    for period in periods:
        try:
            span = repeated(period)
        except (ValueError, OverflowError):  # this period has no such day: 29 February
            continue
        if _is_chosen(span, which, now, period):
            return span
    return None


def _is_chosen(span: TimeSpan, which: str, now: datetime, period: int) -> bool:
    if which == "this":  # a winter that began in the previous year may not be over yet
        return period == 0 or span.end > now
    if which == "next":
        return span.start > now
    return span.end <= now if which == "last" else span.start <= now
