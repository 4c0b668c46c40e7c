"""Single times in a text: dates, months, years, seasons, weekdays and words like "yesterday"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.text.time_expressions import vocabulary
from langmem_tiers.text.time_expressions.calendar import (
    DAY,
    WEEK,
    Span,
    Which,
    around,
    day_span,
    days_from,
    floor,
    months_span,
    night_span,
    pick,
    shifted,
)
from langmem_tiers.text.time_expressions.token_reader import Found, TokenReader, longest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.text.time_expressions.tokens import Token


class PointReader(TokenReader):
    """Reads single times; each rule takes the index of a token and returns what begins there."""

    def __init__(self, tokens: Sequence[Token], now: datetime) -> None:
        super().__init__(tokens, now)
        self._points: dict[tuple[int, bool], Found | None] = {}

    def point(self, index: int, *, is_sure: bool = False) -> Found | None:
        """The longest single time that begins there.

        Args:
            index: Of the first token.
            is_sure: Whether the text around it says that it is a time.
        """
        if (index, is_sure) not in self._points:  # phrases ask again
            self._points[index, is_sure] = longest(
                index,
                self.date,
                lambda index: self.month(index, is_sure=is_sure),
                lambda index: self.year(index, is_sure=is_sure),
                self.season,
                self.quarter,
                self.day_word,
                self.unit,
                self.weekday,
                self.day_of_month,
            )
        return self._points[index, is_sure]

    def date(self, index: int) -> Found | None:
        """A day: 2023-05-07, 7 May, last May 7th, Friday, 7 May 2023."""
        if self.kind(index) == "date":
            return Found(self.tokens[index].span, index + 1, "day")
        which, at = self.which(index)
        if self.word(at) in vocabulary.WEEKDAYS or self.word(at) in vocabulary.SHORT_WEEKDAYS:
            at = self.skip(self.skip(at + 1, ".", ","), "the")
        parts = self._day_first(at) or self._month_first(at)
        if parts is None:
            return None
        day, month, stop = parts
        year, stop = self.year_behind(stop)
        which = which if year is None else year
        try:
            span = pick(lambda years: day_span(self.now.year + years, month, day), which, self.now)
        except (ValueError, OverflowError):
            span = None
        return Found(span, stop, "day", which == "")

    def _day_first(self, index: int) -> tuple[int, int, int] | None:
        index = self.skip(index, "the")
        day, at = self.day_number(index), self.skip(index + 1, "of", "-")
        month = vocabulary.ALL_MONTHS.get(self.word(at))
        if not day or month is None or (self.kind(index) == "word" and self.word(at - 1) != "of"):
            return None
        if self._is_verb_like(at) and not self.ends(at + 1):  # all 7 may come
            return None
        return day, month, self.skip(at + 1, ".") if self._is_short(at) else at + 1

    def _month_first(self, index: int) -> tuple[int, int, int] | None:
        month = vocabulary.ALL_MONTHS.get(self.word(index))
        at = self.skip(index + 1, ".") if self._is_short(index) else index + 1
        at = self.skip(at, "the", "-")
        day = self.day_number(at)
        if not day or month is None or vocabulary.ALL_MONTHS.get(self.word(at + 1)):
            return None
        is_loose = self.kind(at) == "word" or (self.kind(at) == "number" and self.sign(index) == "in")
        is_verb_like = self._is_verb_like(index) and self.sign(index) not in {"on", *vocabulary.MONTH_SIGNS}
        if (is_loose or is_verb_like) and not self.ends(at + 1):  # in May 3 people came; may 7 of us come
            return None
        return day, month, at + 1

    def _is_verb_like(self, index: int) -> bool:
        is_first = self.kind(index - 1) == "" or self.word(index - 1) in {".", "!", "?"}
        return self.word(index) in vocabulary.VERB_MONTHS and (is_first or not self.tokens[index].is_capital)

    def _is_short(self, index: int) -> bool:
        return self.word(index) in vocabulary.SHORT_MONTHS

    def month(self, index: int, *, is_sure: bool = False, year: int | None = None) -> Found | None:
        """A month: May 2023, in May, last May."""
        which, at = self.which(index)
        month = vocabulary.ALL_MONTHS.get(self.word(at))
        if month is None or self.word(at - 1) in vocabulary.NO_SINGLE_DAY:
            return None
        stop = self.skip(at + 1, ".") if self._is_short(at) else at + 1
        named, behind = (year, stop) if year is not None else self.year_behind(stop)
        if named is not None:
            which = named
        elif not is_sure and self.word(at) in vocabulary.DOUBTFUL_MONTHS and not self._is_month(at):
            return None
        stop = behind if named is not None else at + 1
        span = pick(lambda years: months_span(self.now.year + years, month), which, self.now)
        return span and Found(span, stop, "month", which == "")

    def _is_month(self, index: int) -> bool:
        token, first = self.tokens[index], self._first_of_list(index)
        if first < index and self.word(first) not in vocabulary.DOUBTFUL_MONTHS:
            return token.is_capital
        sign = self.sign(first)
        if token.text in vocabulary.VERB_MONTHS and not token.is_capital:
            if sign == "this":  # this may well be
                return self.kind(index + 1) in {"", "mark"}
            return sign in vocabulary.SURE_MONTH_SIGNS or (
                sign in vocabulary.MONTH_SIGNS and self.ends(index + 1)
            )
        if self._is_short(index) and not token.is_capital:
            return sign in vocabulary.SURE_MONTH_SIGNS
        if self.word(index - 1) in vocabulary.OWNERS and self.kind(index + 1) == "word":  # the May trip
            is_noun = not self.tokens[index + 1].is_capital and self.word(index + 1) not in {"on", "of", "is"}
            return token.is_capital and is_noun and not self.ends(index + 1)
        return sign in vocabulary.MONTH_SIGNS

    def _first_of_list(self, index: int) -> int:
        """The first month of "March, April and May"."""
        for _ in range(len(vocabulary.MONTHS)):
            before = index - 1
            while before > index - 3 and self.word(before) in {"and", "or", ","}:
                before -= 1
            if before == index - 1 or self.word(before) not in vocabulary.ALL_MONTHS:
                break
            index = before
        return index

    def year(self, index: int, *, is_sure: bool = False) -> Found | None:
        """A year, if the words around it do not make it an amount; a decade: the 1990s."""
        if self.kind(index) == "decade":
            start = months_span(self.tokens[index].number, 1).start
            return Found(around(start, "decade"), index + 1, "decade")
        if self.kind(index) != "year" or self._is_counted(index + 1):
            return None
        if self.word(index + 1) in vocabulary.JOINTS[""] and self.kind(index + 2) == "number":
            return None
        is_alone = self.word(index - 1) in {"", ",", "("} and self.kind(index + 1) in {"", "mark"}
        if not is_sure and not is_alone and self.sign(index) not in vocabulary.YEAR_SIGNS:
            return None
        return Found(months_span(self.tokens[index].number, 1, 12), index + 1, "year")

    def _is_counted(self, index: int) -> bool:
        word = self.word(index)
        if self.kind(index) != "word" or self.tokens[index].is_capital or word in vocabulary.NO_PLURALS:
            return False
        return word in vocabulary.COUNTED or (word.endswith("s") and len(word) > 3)

    def season(self, index: int) -> Found | None:
        """A season: summer 2022, last winter, during the summer."""
        which, at = self.which(index)
        month = vocabulary.SEASONS.get(self.word(at))
        if month is None:
            return None
        year, stop = self.year_behind(at + 1)
        sign = self.sign(at)
        is_accident = self.word(at) == "fall" and sign == "during"
        if year is not None and self.word(stop) == "-" and self.word(stop + 1) == str(year + 1):
            stop += 2  # winter 2022-2023
        if year is None and not which and (sign not in vocabulary.SEASON_SIGNS or is_accident):
            return None
        which = which if year is None else year
        span = pick(lambda years: months_span(self.now.year + years, month, 3), which, self.now)
        return span and Found(span, stop, "season", which == "")

    def quarter(self, index: int) -> Found | None:
        """A quarter of a year: Q3 2023."""
        word = self.word(index)
        if len(word) != 2 or word[0] != "q" or not word[1].isdigit():
            return None
        year, stop = self.year_behind(index + 1)
        if year is None and self.sign(index) not in vocabulary.MONTH_SIGNS:
            return None
        first = int(word[1]) * 3 - 2
        which: Which = "" if year is None else year
        span = pick(lambda years: months_span(self.now.year + years, first, 3), which, self.now)
        return span and Found(span, stop, "quarter", which == "")

    def day_word(self, index: int) -> Found | None:
        """A day or night by its word: yesterday, last night, this morning."""
        one, two = self.word(index), self.word(index + 1)
        for said in ((one, two), (one,)):
            if said in vocabulary.NIGHTS:
                night = night_span(self.now + DAY * vocabulary.NIGHTS[said])
                return Found(night, index + len(said), "night")
        if (one, two) in vocabulary.TODAY:
            return Found(days_from(self.now), index + 2, "day")
        if one not in vocabulary.DAYS:
            return None
        stop = index + 2 if two in vocabulary.PARTS_OF_DAY else index + 1
        return Found(days_from(self.now + DAY * vocabulary.DAYS[one]), stop, "day")

    def unit(self, index: int) -> Found | None:
        """A unit of the calendar: last week, this month; last week on Friday, last year in May."""
        if self.word(index) == "weekend" and self.word(index - 1) == "the":
            return self._weekend(index)
        which, at = self.which(index)
        unit = self.word(at)
        if not which or unit not in vocabulary.CALENDAR_UNITS or self.word(at + 1) == "of":
            return None
        moment = shifted(self.now, unit, vocabulary.STEPS[str(which)])
        inner = self.skip(at + 1, "on")
        if unit == "week" and self.word(inner) in vocabulary.WEEKDAYS:
            day = floor(moment, "week") + DAY * vocabulary.WEEKDAYS[self.word(inner)]
            return Found(days_from(day), inner + 1, "day")
        if unit == "year" and self.word(at + 1) == "in":
            inside = self.month(at + 2, year=moment.year)
            if inside:
                return inside
        return Found(around(moment, unit), at + 1, unit)

    def _weekend(self, index: int) -> Found | None:
        if self.word(index - 2) not in {"over", "during", "on", "at"} or self.word(index + 1) == "of":
            return None
        weekend = around(self.now, "weekend")
        span = pick(
            lambda weeks: Span(weekend.start + WEEK * weeks, weekend.end + WEEK * weeks), "", self.now
        )
        return span and Found(span, index + 1, "weekend", is_floating=True)

    def weekday(self, index: int) -> Found | None:
        """A day of the week: on Friday, last Friday, Friday of last week."""
        which, at = self.which(index)
        weekday = vocabulary.WEEKDAYS.get(self.word(at))
        if weekday is None or self.word(at - 1) in vocabulary.NO_SINGLE_DAY:
            return None
        stop = at + 2 if self.word(at + 1) in vocabulary.PARTS_OF_DAY else at + 1
        monday = floor(self.now, "week") + DAY * weekday
        week = self.skip(stop, "of")
        if (step := vocabulary.STEPS.get(self.word(week))) is not None and self.word(week + 1) == "week":
            return Found(days_from(monday + WEEK * step), week + 2, "day")
        span = pick(lambda weeks: days_from(monday + WEEK * weeks), which, self.now)
        return span and Found(span, stop, "day", which == "")

    def day_of_month(self, index: int) -> Found | None:
        """A day without its month: on the 7th, the 7th of last month."""
        at = self.skip(index, "the")
        if self.kind(at) != "ordinal" or not (day := self.day_number(at)):
            return None
        step = vocabulary.STEPS.get(self.word(at + 2))
        if self.word(at + 1) == "of" and step is not None and self.word(at + 3) == "month":
            month = shifted(floor(self.now, "month"), "month", step)
            return Found(days_from(month.replace(day=day)), at + 4, "day")
        if at == index or self.word(index - 1) != "on" or not self.ends(at + 1):
            return None
        first = floor(self.now, "month")
        span = pick(lambda m: days_from(shifted(first, "month", m).replace(day=day)), "", self.now)
        return span and Found(span, at + 1, "day", is_floating=True)
