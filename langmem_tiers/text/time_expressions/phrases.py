"""Compound time expressions: parts of a month, days ago, the week before a date, ranges."""

from __future__ import annotations

from typing import Final

from langmem_tiers.text.time_expressions import vocabulary
from langmem_tiers.text.time_expressions.calendar import (
    DAY,
    FIRST_YEAR,
    LAST_YEAR,
    WEEK,
    TimeSpan,
    build_adjacent_span,
    build_day_span,
    build_days_span,
    build_months_span,
    build_relative_span,
    build_unit_span,
    find_nearest_weekday,
    find_nearest_weekend,
    floor_to_unit,
    shift_by_units,
    slice_span,
)
from langmem_tiers.text.time_expressions.points import PointReader
from langmem_tiers.text.time_expressions.tokens import TimeMatch, find_longest
from langmem_tiers.text.word_lists import load_words

_DIVISIBLE_UNITS = frozenset("week month quarter season year decade".split())
"""Units that have parts."""
_MAX_WORDS_BETWEEN = 6
"""Maximum number of words between "the week before" and "on 3 June"."""
_PHRASE_STARTS: Final = frozenset(
    {
        *vocabulary.ALL_MONTHS, *vocabulary.WEEKDAYS, *vocabulary.SHORT_WEEKDAYS, *vocabulary.SEASONS,
        *vocabulary.NUMBERS, *vocabulary.ORDINALS, *vocabulary.VAGUE_NUMBERS, *vocabulary.UNITS,
        *vocabulary.CHOICE_WORDS, *vocabulary.DAY_OFFSETS, *vocabulary.SPAN_PARTS,
        *vocabulary.ADJACENT_STEPS, *vocabulary.NEARNESS_WORDS,
        *vocabulary.UNTIL_WORDS,
        *load_words(__name__, "vocabulary", "phrase starts"),
    }
)  # fmt: skip


class PhraseReader(PointReader):
    """Reads whole time expressions."""

    def read_phrase(self, index: int) -> TimeMatch | None:
        """Return the longest time expression at a token."""
        if self.kind(index) in {"word", "mark", "other"} and self.word(index) not in _PHRASE_STARTS:
            return None
        rules = (
            self._read_range,
            self._read_open_range,
            self._read_adjacent,
            self._read_last_as_of_date,
            self.read_simple_phrase,
        )
        return find_longest(index, *rules, self.read_point)

    def read_simple_phrase(self, index: int, *, is_sure: bool = False) -> TimeMatch | None:
        """Return the longest time expression that does not depend on another one."""
        rules = (self._read_part, self._read_nth, self._read_unit_of, self._read_ago, self._read_trailing)
        found = find_longest(index, lambda index: self.read_point(index, is_sure=is_sure), *rules)
        return found if found and found.span else None

    def _read_part(self, index: int) -> TimeMatch | None:
        """Read early May, the end of last year, the first half of 2023."""
        at = self.skip_word(index, "the")
        word, end = self.word(at), self.skip_word(at + 1, "of", "in", "-")
        if word in vocabulary.SPAN_PARTS and (end > at + 1 or word in vocabulary.SPAN_PARTS_WITHOUT_OF):
            first, last, count = *vocabulary.SPAN_PARTS[word], 3
        elif word in {"first", "second"} and self.word(at + 1) == "half" and self.word(at + 2) == "of":
            first, last, count, end = vocabulary.ORDINALS[word] - 1, vocabulary.ORDINALS[word], 2, at + 3
        else:
            return None
        whole = self.read_point(end, is_sure=True)
        if whole is None or whole.span is None or whole.unit not in _DIVISIBLE_UNITS:
            return None
        return whole._replace(span=slice_span(whole.span, first, last, count), unit="part")

    def _read_nth(self, index: int) -> TimeMatch | None:
        """Read the first weekend of August, the last Friday in May, the first two weeks of May."""
        at = self.skip_word(index, "the")
        nth = -1 if self.word(at) in {"last", "final"} else self._read_ordinal(at)
        counted = self.read_count(at + 1)
        count, at = (counted[1], counted[2]) if counted else (0, at + 1)
        unit, weekday = vocabulary.UNITS.get(self.word(at)), vocabulary.WEEKDAYS.get(self.word(at))
        if not nth or (unit is None and weekday is None) or self.word(at + 1) not in {"of", "in"}:
            return None
        whole = self.read_point(at + 2, is_sure=self.word(at + 1) == "of")
        if whole is None or whole.span is None or whole.unit not in _DIVISIBLE_UNITS - {"week"}:
            return None
        span = (
            _build_run(whole.span, unit or "", nth, count)
            if count
            else _find_nth(whole.span, unit, weekday, nth)
        )
        if span is None or span.start < whole.span.start or span.start >= whole.span.end:
            return None
        return TimeMatch(span, whole.stop, unit or "day", whole.is_floating)

    def _read_ordinal(self, index: int) -> int:
        return self.read_day_number(index) if self.kind(index) != "number" else 0

    def _read_unit_of(self, index: int) -> TimeMatch | None:
        """Read the week of 3 June, the month of May, the weekend of 3 June."""
        at = self.skip_word(index, "the")
        unit = self.word(at)
        if unit not in vocabulary.CALENDAR_UNITS or self.word(at + 1) != "of":
            return None
        inner = self.read_point(at + 2, is_sure=True)
        if inner is None or inner.span is None or inner.unit not in {"day", unit}:
            return None
        return TimeMatch(build_unit_span(inner.span.start, unit), inner.stop, unit, inner.is_floating)

    def _read_ago(self, index: int) -> TimeMatch | None:
        """Read two weeks ago, a few years back, three days from now."""
        counted = self.read_count(index)
        if counted is None or self.word(index - 1) == "half":
            return None
        low, high, at = counted
        unit, behind = vocabulary.UNITS.get(self.word(at)), self.word(at + 1)
        if unit is None:
            return None
        if behind == "ago" or (behind == "back" and self.word(at + 2) != "to"):
            return TimeMatch(build_relative_span(self.now, unit, -high, -low), at + 2, unit)
        if behind == "from" and self.word(at + 2) in {"now", "today"}:
            return TimeMatch(build_relative_span(self.now, unit, low, high), at + 3, unit)
        return None

    def _read_trailing(self, index: int) -> TimeMatch | None:
        """Read the last 10 days, the past week, the next two months."""
        at = self.skip_word(index, "the")
        direction = self.word(at)
        step = {"last": -1, "past": -1, "previous": -1, "next": 1, "coming": 1}.get(direction)
        counted = self.read_count(at + 1)
        if counted is None and direction != "previous" and (at > index or direction == "past"):
            counted = 1, 1, at + 1  # "the last week"; "last week" is a calendar week
        if step is None or counted is None or self.word(at - 1) in vocabulary.POSSESSIVES:
            return None
        _, count, at = counted
        unit = vocabulary.UNITS.get(self.word(at), "")
        is_one_day = self.word(at) == "day" and direction != "past"  # "the next day"
        if unit not in vocabulary.TRAILING_UNITS or self.word(at + 1) == "of" or is_one_day:
            return None
        far = shift_by_units(self.now, unit, step * count)
        if unit == "hour":
            return TimeMatch(TimeSpan(min(far, self.now), max(far, self.now)), at + 1, unit)
        today = build_days_span(self.now)
        span = (
            TimeSpan(floor_to_unit(far, "day"), today.end)
            if step < 0
            else TimeSpan(today.start, build_days_span(far).end)
        )
        return TimeMatch(span, at + 1, "span")

    def _read_adjacent(self, index: int) -> TimeMatch | None:
        """Read the week before 3 June, two days after 3 June, the Friday before my party on 3 June."""
        at = self.skip_word(index, "the")
        has_article = at > index
        at = self.skip_word(at, "last")  # "the last week before 3 June"
        counted = self.read_count(at)
        low, high, at = counted or (1, 1, at)
        word = self.word(at)
        unit = "week" if word in vocabulary.NEARNESS_WORDS else vocabulary.UNITS.get(word)
        step = vocabulary.ADJACENT_STEPS.get(self.word(at + 1), 0)
        if not step or (unit is None and word not in vocabulary.WEEKDAYS):
            return None
        anchor = self._read_anchor(at + 2)
        if anchor is None or anchor.span is None:
            return self._read_before_last(at) if self.word(at + 2) == "last" else None
        edge = anchor.span.start if step < 0 else anchor.span.end
        if unit is None:
            span = find_nearest_weekday(edge, vocabulary.WEEKDAYS[word], step)
        elif counted and not has_article:
            low, high = sorted((low * step, high * step))
            span = build_relative_span(anchor.span.start, unit, low, high)
        else:
            span = build_adjacent_span(anchor.span, unit, step * high)
        return TimeMatch(span, anchor.stop, unit or "day", anchor.is_floating)

    def _read_anchor(self, index: int) -> TimeMatch | None:
        if found := self.read_simple_phrase(index):
            return found
        for at in range(index, index + _MAX_WORDS_BETWEEN + 1):
            if self.kind(at) in {"", "mark"}:
                return None
            if self.word(at) == "on" and (found := self.read_date(at + 1)):
                return found if found.span else None
        return None

    def _read_before_last(self, index: int) -> TimeMatch | None:
        """Read the week before last, the Friday before last."""
        unit = vocabulary.UNITS.get(self.word(index), "")
        if self.word(index + 1) != "before" or (unit not in vocabulary.CALENDAR_UNITS and unit):
            return None
        if unit:
            return TimeMatch(build_unit_span(shift_by_units(self.now, unit, -2), unit), index + 3, unit)
        day = find_nearest_weekday(self.now, vocabulary.WEEKDAYS[self.word(index)], -1).start
        return TimeMatch(build_days_span(day - WEEK), index + 3, "day")

    def _read_last_as_of_date(self, index: int) -> TimeMatch | None:
        """Read "last Friday on 23 January": seen from that day, and including it."""
        rule = (
            PointReader.read_weekday if self.word(index + 1) in vocabulary.WEEKDAYS else PointReader.read_unit
        )
        found = rule(self, index) if self.word(index) == "last" else None
        if found is None or self.word(found.stop) != "on":
            return None
        day = self.read_date(found.stop + 1)
        if day is None or day.span is None:
            return None
        then = rule(self.with_now(day.span.start), index)
        return day._replace(span=TimeSpan(then.span.start, day.span.end)) if then and then.span else None

    def _read_open_range(self, index: int) -> TimeMatch | None:
        """Read since May, before 3 June, after 3 June 2023, until Friday."""
        word, at = self.word(index), index + 1
        if word == "prior" and self.word(at) == "to":
            word, at = "before", at + 1
        found = (
            self.read_simple_phrase(at)
            if word in {"since", "before", "after", *vocabulary.UNTIL_WORDS}
            else None
        )
        if found is None or found.span is None:
            return None
        first, tomorrow = build_months_span(FIRST_YEAR, 1).start, build_days_span(self.now).end
        start, end = found.span
        if word == "since" and start < tomorrow:
            return TimeMatch(TimeSpan(start, tomorrow), found.stop, "span")
        if word == "after":
            last = tomorrow if end < tomorrow else build_months_span(LAST_YEAR, 12).end
            return TimeMatch(TimeSpan(end, last), found.stop, "span")
        if word == "before" or (word in vocabulary.UNTIL_WORDS and not (word == "by" and found.is_floating)):
            return TimeMatch(TimeSpan(first, start if word == "before" else end), found.stop, "span")
        return None

    def _read_range(self, index: int) -> TimeMatch | None:
        """Read between May and July 2023, from 3 to 7 June, May 3-7."""
        opener = self.word(index) if self.word(index) in {"between", "from"} else ""
        at = self.skip_word(index, "between", "from")
        days = self._read_days_of_month(at, vocabulary.RANGE_JOINERS[opener])
        if days:
            return days
        first = self._read_range_start(at, opener)
        if (
            first is None
            or first.span is None
            or self.word(first.stop) not in vocabulary.RANGE_JOINERS[opener]
        ):
            return None
        last = self._read_range_end(first.stop + 1, first)
        if last is None or last.span is None or (first.is_floating and last.is_floating and not opener):
            return None
        if first.is_floating:
            # A start without a year is the most recent one before the end, so it is read again as of the end.
            first = self.with_now(last.span.start)._read_range_start(at, opener)  # noqa: SLF001 - of this class
        if first is None or first.span is None or first.span.start >= last.span.start:
            return None
        return TimeMatch(TimeSpan(first.span.start, last.span.end), last.stop, "span", last.is_floating)

    def _read_range_start(self, index: int, opener: str) -> TimeMatch | None:
        return self.read_simple_phrase(index, is_sure=bool(opener)) or self.read_month(index, is_sure=True)

    def _read_range_end(self, index: int, first: TimeMatch) -> TimeMatch | None:
        if self.word(index) == "now":
            return TimeMatch(build_days_span(self.now), index + 1, "day")
        last = self.read_simple_phrase(index, is_sure=True)
        if last is None or first.span is None or first.is_floating or not last.is_floating:
            return last
        # An end without a year is within a year after the start.
        return self.with_now(shift_by_units(first.span.start, "year", 1) - DAY).read_simple_phrase(
            index, is_sure=True
        )

    def _read_days_of_month(self, index: int, joiners: frozenset[str]) -> TimeMatch | None:
        # Days before the month: "3 to 7 June".
        at = self.skip_word(index, "the")
        if (day := self.read_day_number(at)) and self.kind(at) != "word" and self.word(at + 1) in joiners:
            last = self.read_date(at + 2)
            if last is None or last.span is None or self.kind(at + 2) == "date":
                return None
            first = last.span.start.replace(day=day)
            return last._replace(span=TimeSpan(first, last.span.end)) if first < last.span.start else None
        # Days after the month: "May 3-7".
        first_day = self.read_date(index)
        if first_day is None or first_day.span is None or self.word(first_day.stop) not in joiners:
            return None
        at = self.skip_word(first_day.stop + 1, "the")
        day, start = self.read_day_number(at), first_day.span.start
        if self.kind(index) == "date" or day <= start.day or not self.is_date_end(at + 1):
            return None
        year, stop = self.read_following_year(at + 1)
        start = start if year is None else start.replace(year=year)
        end = build_day_span(start.year, start.month, day).end
        return TimeMatch(TimeSpan(start, end), stop, "span", first_day.is_floating and year is None)


def _build_run(whole: TimeSpan, unit: str, nth: int, count: int) -> TimeSpan | None:
    if nth not in {1, -1} or not unit:
        return None
    if nth == 1:
        return TimeSpan(whole.start, shift_by_units(whole.start, unit, count))
    return TimeSpan(shift_by_units(whole.end, unit, -count), whole.end)


def _find_nth(whole: TimeSpan, unit: str | None, weekday: int | None, nth: int) -> TimeSpan | None:
    if unit == "weekend" or weekday is not None:
        edge, step = (whole.start, 1) if nth > 0 else (whole.end, -1)
        first = (
            find_nearest_weekend(edge, step) if weekday is None else find_nearest_weekday(edge, weekday, step)
        )
        away = WEEK * (nth - 1 if nth > 0 else 0)
        return TimeSpan(first.start + away, first.end + away)
    if unit is None:
        return None
    if nth < 0:
        return TimeSpan(shift_by_units(whole.end, unit, -1), whole.end)
    return TimeSpan(shift_by_units(whole.start, unit, nth - 1), shift_by_units(whole.start, unit, nth))
