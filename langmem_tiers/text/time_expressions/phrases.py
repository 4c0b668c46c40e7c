"""Times that are said by others: parts of a month, days ago, the week before a date, from one to another."""

from __future__ import annotations

from typing import Final

from langmem_tiers.text.time_expressions import vocabulary
from langmem_tiers.text.time_expressions.calendar import (
    DAY,
    FIRST_YEAR,
    LAST_YEAR,
    WEEK,
    Span,
    around,
    beside,
    day_span,
    days_from,
    floor,
    months_span,
    nearest_weekday,
    nearest_weekend,
    relative,
    shifted,
    thirds,
)
from langmem_tiers.text.time_expressions.points import PointReader
from langmem_tiers.text.time_expressions.token_reader import Found, longest

_WIDE = frozenset("week month quarter season year decade".split())
"""What has parts."""
_WORDS_BETWEEN = 6
"""At most, from "the week before" to "on 3 June"."""
_STARTS: Final = frozenset(
    {
        *vocabulary.ALL_MONTHS, *vocabulary.WEEKDAYS, *vocabulary.SHORT_WEEKDAYS, *vocabulary.SEASONS,
        *vocabulary.NUMBERS, *vocabulary.ORDINALS, *vocabulary.VAGUE_NUMBERS, *vocabulary.UNITS,
        *vocabulary.WHICH, *vocabulary.DAYS, *vocabulary.PARTS, *vocabulary.BESIDE, *vocabulary.NEARLY,
        *vocabulary.UNTIL,
        "between", "from", "the", "a", "an", "since", "prior", "tonight", "past", "coming", "final",
        "q1", "q2", "q3", "q4",
    }
)  # fmt: skip


class PhraseReader(PointReader):
    """Reads whole phrases of time."""

    def phrase(self, index: int) -> Found | None:
        """The longest time that begins at a token."""
        if self.kind(index) in {"word", "mark", "other"} and self.word(index) not in _STARTS:
            return None
        rules = (self._pair, self._open, self._beside, self._said_on, self.whole)
        return longest(index, *rules, self.point)

    def whole(self, index: int, *, is_sure: bool = False) -> Found | None:
        """The longest time that is not seen from another one."""
        rules = (self._part, self._nth, self._unit_of, self._ago, self._trailing)
        found = longest(index, lambda index: self.point(index, is_sure=is_sure), *rules)
        return found if found and found.span else None

    def _part(self, index: int) -> Found | None:
        """Early May, the end of last year, the first half of 2023."""
        at = self.skip(index, "the")
        word, of = self.word(at), self.skip(at + 1, "of", "in", "-")
        if word in vocabulary.PARTS and (of > at + 1 or word in vocabulary.PARTS_WITHOUT_OF):
            first, last, count = *vocabulary.PARTS[word], 3
        elif word in {"first", "second"} and self.word(at + 1) == "half" and self.word(at + 2) == "of":
            first, last, count, of = vocabulary.ORDINALS[word] - 1, vocabulary.ORDINALS[word], 2, at + 3
        else:
            return None
        whole = self.point(of, is_sure=True)
        if whole is None or whole.span is None or whole.unit not in _WIDE:
            return None
        return whole._replace(span=thirds(whole.span, first, last, count), unit="part")

    def _nth(self, index: int) -> Found | None:
        """The first weekend of August, the last Friday in May, the first two weeks of May."""
        at = self.skip(index, "the")
        nth = -1 if self.word(at) in {"last", "final"} else self._ordinal(at)
        counted = self.count(at + 1)
        count, at = (counted[1], counted[2]) if counted else (0, at + 1)
        unit, weekday = vocabulary.UNITS.get(self.word(at)), vocabulary.WEEKDAYS.get(self.word(at))
        if not nth or (unit is None and weekday is None) or self.word(at + 1) not in {"of", "in"}:
            return None
        whole = self.point(at + 2, is_sure=self.word(at + 1) == "of")
        if whole is None or whole.span is None or whole.unit not in _WIDE - {"week"}:
            return None
        span = _run(whole.span, unit or "", nth, count) if count else _nth_of(whole.span, unit, weekday, nth)
        if span is None or span.start < whole.span.start or span.start >= whole.span.end:
            return None
        return Found(span, whole.stop, unit or "day", whole.is_floating)

    def _ordinal(self, index: int) -> int:
        return self.day_number(index) if self.kind(index) != "number" else 0

    def _unit_of(self, index: int) -> Found | None:
        """The week of 3 June, the month of May, the weekend of 3 June."""
        at = self.skip(index, "the")
        unit = self.word(at)
        if unit not in vocabulary.CALENDAR_UNITS or self.word(at + 1) != "of":
            return None
        inner = self.point(at + 2, is_sure=True)
        if inner is None or inner.span is None or inner.unit not in {"day", unit}:
            return None
        return Found(around(inner.span.start, unit), inner.stop, unit, inner.is_floating)

    def _ago(self, index: int) -> Found | None:
        """Two weeks ago, a few years back, three days from now."""
        counted = self.count(index)
        if counted is None or self.word(index - 1) == "half":
            return None
        low, high, at = counted
        unit, behind = vocabulary.UNITS.get(self.word(at)), self.word(at + 1)
        if unit is None:
            return None
        if behind == "ago" or (behind == "back" and self.word(at + 2) != "to"):
            return Found(relative(self.now, unit, -high, -low), at + 2, unit)
        if behind == "from" and self.word(at + 2) in {"now", "today"}:
            return Found(relative(self.now, unit, low, high), at + 3, unit)
        return None

    def _trailing(self, index: int) -> Found | None:
        """The last 10 days, the past week, the next two months."""
        at = self.skip(index, "the")
        said = self.word(at)
        step = {"last": -1, "past": -1, "previous": -1, "next": 1, "coming": 1}.get(said)
        counted = self.count(at + 1)
        if counted is None and said != "previous" and (at > index or said == "past"):
            counted = 1, 1, at + 1  # the last week; last week is another
        if step is None or counted is None or self.word(at - 1) in vocabulary.POSSESSIVES:
            return None
        _, count, at = counted
        unit = vocabulary.UNITS.get(self.word(at), "")
        is_one_day = self.word(at) == "day" and said != "past"  # the next day
        if unit not in vocabulary.TRAILING_UNITS or self.word(at + 1) == "of" or is_one_day:
            return None
        far = shifted(self.now, unit, step * count)
        if unit == "hour":
            return Found(Span(min(far, self.now), max(far, self.now)), at + 1, unit)
        today = days_from(self.now)
        span = Span(floor(far, "day"), today.end) if step < 0 else Span(today.start, days_from(far).end)
        return Found(span, at + 1, "span")

    def _beside(self, index: int) -> Found | None:
        """The week before 3 June, two days after 3 June, the Friday before my party on 3 June."""
        at = self.skip(index, "the")
        has_article = at > index
        at = self.skip(at, "last")  # the last week before 3 June
        counted = self.count(at)
        low, high, at = counted or (1, 1, at)
        word = self.word(at)
        unit = "week" if word in vocabulary.NEARLY else vocabulary.UNITS.get(word)
        step = vocabulary.BESIDE.get(self.word(at + 1), 0)
        if not step or (unit is None and word not in vocabulary.WEEKDAYS):
            return None
        anchor = self._anchor(at + 2)
        if anchor is None or anchor.span is None:
            return self._before_last(at) if self.word(at + 2) == "last" else None
        edge = anchor.span.start if step < 0 else anchor.span.end
        if unit is None:
            span = nearest_weekday(edge, vocabulary.WEEKDAYS[word], step)
        elif counted and not has_article:
            low, high = sorted((low * step, high * step))
            span = relative(anchor.span.start, unit, low, high)
        else:
            span = beside(anchor.span, unit, step * high)
        return Found(span, anchor.stop, unit or "day", anchor.is_floating)

    def _anchor(self, index: int) -> Found | None:
        if found := self.whole(index):
            return found
        for at in range(index, index + _WORDS_BETWEEN + 1):
            if self.kind(at) in {"", "mark"}:
                return None
            if self.word(at) == "on" and (found := self.date(at + 1)):
                return found if found.span else None
        return None

    def _before_last(self, index: int) -> Found | None:
        """The week before last, the Friday before last."""
        unit = vocabulary.UNITS.get(self.word(index), "")
        if self.word(index + 1) != "before" or (unit not in vocabulary.CALENDAR_UNITS and unit):
            return None
        if unit:
            return Found(around(shifted(self.now, unit, -2), unit), index + 3, unit)
        day = nearest_weekday(self.now, vocabulary.WEEKDAYS[self.word(index)], -1).start
        return Found(days_from(day - WEEK), index + 3, "day")

    def _said_on(self, index: int) -> Found | None:
        """Last Friday on 23 January: seen from that day; the day is part of it."""
        rule = PointReader.weekday if self.word(index + 1) in vocabulary.WEEKDAYS else PointReader.unit
        found = rule(self, index) if self.word(index) == "last" else None
        if found is None or self.word(found.stop) != "on":
            return None
        day = self.date(found.stop + 1)
        if day is None or day.span is None:
            return None
        then = rule(self.at(day.span.start), index)
        return day._replace(span=Span(then.span.start, day.span.end)) if then and then.span else None

    def _open(self, index: int) -> Found | None:
        """Since May, before 3 June, after 3 June 2023, until Friday."""
        word, at = self.word(index), index + 1
        if word == "prior" and self.word(at) == "to":
            word, at = "before", at + 1
        found = self.whole(at) if word in {"since", "before", "after", *vocabulary.UNTIL} else None
        if found is None or found.span is None:
            return None
        first, tomorrow = months_span(FIRST_YEAR, 1).start, days_from(self.now).end
        start, end = found.span
        if word == "since" and start < tomorrow:
            return Found(Span(start, tomorrow), found.stop, "span")
        if word == "after":
            last = tomorrow if end < tomorrow else months_span(LAST_YEAR, 12).end
            return Found(Span(end, last), found.stop, "span")
        if word == "before" or (word in vocabulary.UNTIL and not (word == "by" and found.is_floating)):
            return Found(Span(first, start if word == "before" else end), found.stop, "span")
        return None

    def _pair(self, index: int) -> Found | None:
        """Between May and July 2023, from 3 to 7 June, May 3-7."""
        opener = self.word(index) if self.word(index) in {"between", "from"} else ""
        at = self.skip(index, "between", "from")
        days = self._days_of_one_month(at, vocabulary.JOINTS[opener])
        if days:
            return days
        first = self._first_of_pair(at, opener)
        if first is None or first.span is None or self.word(first.stop) not in vocabulary.JOINTS[opener]:
            return None
        last = self._last_of_pair(first.stop + 1, first)
        if last is None or last.span is None or (first.is_floating and last.is_floating and not opener):
            return None
        if first.is_floating:  # the one before the end
            first = self.at(last.span.start)._first_of_pair(at, opener)  # noqa: SLF001 - ourselves
        if first is None or first.span is None or first.span.start >= last.span.start:
            return None
        return Found(Span(first.span.start, last.span.end), last.stop, "span", last.is_floating)

    def _first_of_pair(self, index: int, opener: str) -> Found | None:
        return self.whole(index, is_sure=bool(opener)) or self.month(index, is_sure=True)

    def _last_of_pair(self, index: int, first: Found) -> Found | None:
        if self.word(index) == "now":
            return Found(days_from(self.now), index + 1, "day")
        last = self.whole(index, is_sure=True)
        if last is None or first.span is None or first.is_floating or not last.is_floating:
            return last
        return self.at(shifted(first.span.start, "year", 1) - DAY).whole(index, is_sure=True)

    def _days_of_one_month(self, index: int, joints: frozenset[str]) -> Found | None:
        at = self.skip(index, "the")
        if (day := self.day_number(at)) and self.kind(at) != "word" and self.word(at + 1) in joints:
            last = self.date(at + 2)
            if last is None or last.span is None or self.kind(at + 2) == "date":
                return None
            first = last.span.start.replace(day=day)
            return last._replace(span=Span(first, last.span.end)) if first < last.span.start else None
        first_day = self.date(index)
        if first_day is None or first_day.span is None or self.word(first_day.stop) not in joints:
            return None
        at = self.skip(first_day.stop + 1, "the")
        day, start = self.day_number(at), first_day.span.start
        if self.kind(index) == "date" or day <= start.day or not self.ends(at + 1):
            return None
        year, stop = self.year_behind(at + 1)
        start = start if year is None else start.replace(year=year)
        end = day_span(start.year, start.month, day).end
        return Found(Span(start, end), stop, "span", first_day.is_floating and year is None)


def _run(whole: Span, unit: str, nth: int, count: int) -> Span | None:
    if nth not in {1, -1} or not unit:
        return None
    if nth == 1:
        return Span(whole.start, shifted(whole.start, unit, count))
    return Span(shifted(whole.end, unit, -count), whole.end)


def _nth_of(whole: Span, unit: str | None, weekday: int | None, nth: int) -> Span | None:
    if unit == "weekend" or weekday is not None:
        edge, step = (whole.start, 1) if nth > 0 else (whole.end, -1)
        first = nearest_weekend(edge, step) if weekday is None else nearest_weekday(edge, weekday, step)
        away = WEEK * (nth - 1 if nth > 0 else 0)
        return Span(first.start + away, first.end + away)
    if unit is None:
        return None
    if nth < 0:
        return Span(shifted(whole.end, unit, -1), whole.end)
    return Span(shifted(whole.start, unit, nth - 1), shifted(whole.start, unit, nth))
