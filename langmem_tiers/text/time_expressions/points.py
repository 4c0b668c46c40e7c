"""Single times in a text: dates, months, years, seasons, weekdays and words such as "yesterday"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.text.time_expressions import vocabulary
from langmem_tiers.text.time_expressions.calendar import (
    DAY,
    WEEK,
    PeriodChoice,
    TimeSpan,
    build_day_span,
    build_days_span,
    build_months_span,
    build_night_span,
    build_unit_span,
    floor_to_unit,
    pick_occurrence,
    shift_by_units,
)
from langmem_tiers.text.time_expressions.tokens import TimeMatch, TokenReader, find_longest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.text.time_expressions.tokens import TimeToken


class PointReader(TokenReader):
    """Reads single times; each rule takes the index of a token and returns the match that starts there."""

    def __init__(self, tokens: Sequence[TimeToken], now: datetime) -> None:
        super().__init__(tokens, now)
        self._points_cache: dict[tuple[int, bool], TimeMatch | None] = {}

    def read_point(self, index: int, *, is_sure: bool = False) -> TimeMatch | None:
        """Return the longest single time that starts at a token.

        Args:
            index: Index of the first token.
            is_sure: True if the surrounding text shows that it is a time.
        """
        if (index, is_sure) not in self._points_cache:  # several phrase rules read the same point
            self._points_cache[index, is_sure] = find_longest(
                index,
                self.read_date,
                lambda index: self.read_month(index, is_sure=is_sure),
                lambda index: self.read_year(index, is_sure=is_sure),
                self.read_season,
                self.read_quarter,
                self.read_day_word,
                self.read_unit,
                self.read_weekday,
                self.read_day_of_month,
            )
        return self._points_cache[index, is_sure]

    def read_date(self, index: int) -> TimeMatch | None:
        """Read a day: 2023-05-07, 7 May, last May 7th, Friday, 7 May 2023."""
        if self.kind(index) == "date":
            return TimeMatch(self.tokens[index].span, index + 1, "day")
        which, at = self.read_choice(index)
        if self.word(at) in vocabulary.WEEKDAYS or self.word(at) in vocabulary.SHORT_WEEKDAYS:
            at = self.skip_word(self.skip_word(at + 1, ".", ","), "the")
        parts = self._read_day_first(at) or self._read_month_first(at)
        if parts is None:
            return None
        day, month, stop = parts
        year, stop = self.read_following_year(stop)
        which = which if year is None else year
        try:
            span = pick_occurrence(
                lambda years: build_day_span(self.now.year + years, month, day), which, self.now
            )
        except (ValueError, OverflowError):
            span = None
        return TimeMatch(span, stop, "day", which == "")

    def _read_day_first(self, index: int) -> tuple[int, int, int] | None:
        index = self.skip_word(index, "the")
        day, at = self.read_day_number(index), self.skip_word(index + 1, "of", "-")
        month = vocabulary.ALL_MONTHS.get(self.word(at))
        if not day or month is None or (self.kind(index) == "word" and self.word(at - 1) != "of"):
            return None
        if self._is_verb_like(at) and not self.is_date_end(at + 1):  # "all 7 may come"
            return None
        return day, month, self.skip_word(at + 1, ".") if self._is_short_month(at) else at + 1

    def _read_month_first(self, index: int) -> tuple[int, int, int] | None:
        month = vocabulary.ALL_MONTHS.get(self.word(index))
        at = self.skip_word(index + 1, ".") if self._is_short_month(index) else index + 1
        at = self.skip_word(at, "the", "-")
        day = self.read_day_number(at)
        if not day or month is None or vocabulary.ALL_MONTHS.get(self.word(at + 1)):
            return None
        is_loose = self.kind(at) == "word" or (
            self.kind(at) == "number" and self.get_preceding_word(index) == "in"
        )
        is_verb_like = self._is_verb_like(index) and self.get_preceding_word(index) not in {
            "on",
            *vocabulary.MONTH_CUES,
        }
        # "in May 3 people came", "may 7 of us come"
        if (is_loose or is_verb_like) and not self.is_date_end(at + 1):
            return None
        return day, month, at + 1

    def _is_verb_like(self, index: int) -> bool:
        is_first = self.kind(index - 1) == "" or self.word(index - 1) in {".", "!", "?"}
        return self.word(index) in vocabulary.VERB_MONTHS and (is_first or not self.tokens[index].is_capital)

    def _is_short_month(self, index: int) -> bool:
        return self.word(index) in vocabulary.SHORT_MONTHS

    def read_month(self, index: int, *, is_sure: bool = False, year: int | None = None) -> TimeMatch | None:
        """Read a month: May 2023, in May, last May."""
        which, at = self.read_choice(index)
        month = vocabulary.ALL_MONTHS.get(self.word(at))
        if month is None or self.word(at - 1) in vocabulary.GENERIC_DAY_WORDS:
            return None
        stop = self.skip_word(at + 1, ".") if self._is_short_month(at) else at + 1
        named, behind = (year, stop) if year is not None else self.read_following_year(stop)
        if named is not None:
            which = named
        elif not is_sure and self.word(at) in vocabulary.AMBIGUOUS_MONTHS and not self._is_month(at):
            return None
        stop = behind if named is not None else at + 1
        span = pick_occurrence(lambda years: build_months_span(self.now.year + years, month), which, self.now)
        return span and TimeMatch(span, stop, "month", which == "")

    def _is_month(self, index: int) -> bool:
        token, first = self.tokens[index], self._find_first_of_list(index)
        if first < index and self.word(first) not in vocabulary.AMBIGUOUS_MONTHS:
            return token.is_capital
        sign = self.get_preceding_word(first)
        if token.text in vocabulary.VERB_MONTHS and not token.is_capital:
            if sign == "this":  # "this may well be"
                return self.kind(index + 1) in {"", "mark"}
            return sign in vocabulary.SURE_MONTH_CUES or (
                sign in vocabulary.MONTH_CUES and self.is_date_end(index + 1)
            )
        if self._is_short_month(index) and not token.is_capital:
            return sign in vocabulary.SURE_MONTH_CUES
        # "the May trip"
        if self.word(index - 1) in vocabulary.DETERMINERS and self.kind(index + 1) == "word":
            is_noun = not self.tokens[index + 1].is_capital and self.word(index + 1) not in {"on", "of", "is"}
            return token.is_capital and is_noun and not self.is_date_end(index + 1)
        return sign in vocabulary.MONTH_CUES

    def _find_first_of_list(self, index: int) -> int:
        """Return the index of the first month in a list such as "March, April and May"."""
        for _ in range(len(vocabulary.MONTHS)):
            before = index - 1
            # At most two joiners between months, as in ", and".
            while before > index - 3 and self.word(before) in {"and", "or", ","}:
                before -= 1
            if before == index - 1 or self.word(before) not in vocabulary.ALL_MONTHS:
                break
            index = before
        return index

    def read_year(self, index: int, *, is_sure: bool = False) -> TimeMatch | None:
        """Read a year, unless the words around it make it an amount, or a decade such as the 1990s."""
        if self.kind(index) == "decade":
            start = build_months_span(self.tokens[index].number, 1).start
            return TimeMatch(build_unit_span(start, "decade"), index + 1, "decade")
        if self.kind(index) != "year" or self._is_counted(index + 1):
            return None
        if self.word(index + 1) in vocabulary.RANGE_JOINERS[""] and self.kind(index + 2) == "number":
            return None
        # A year that is set off by punctuation on both sides, as in "(2023)".
        is_alone = self.word(index - 1) in {"", ",", "("} and self.kind(index + 1) in {"", "mark"}
        if not is_sure and not is_alone and self.get_preceding_word(index) not in vocabulary.YEAR_CUES:
            return None
        return TimeMatch(build_months_span(self.tokens[index].number, 1, 12), index + 1, "year")

    def _is_counted(self, index: int) -> bool:
        word = self.word(index)
        if self.kind(index) != "word" or self.tokens[index].is_capital or word in vocabulary.NOT_PLURALS:
            return False
        return word in vocabulary.COUNTED_NOUNS or (word.endswith("s") and len(word) > 3)

    def read_season(self, index: int) -> TimeMatch | None:
        """Read a season: summer 2022, last winter, during the summer."""
        which, at = self.read_choice(index)
        month = vocabulary.SEASONS.get(self.word(at))
        if month is None:
            return None
        year, stop = self.read_following_year(at + 1)
        sign = self.get_preceding_word(at)
        is_accident = self.word(at) == "fall" and sign == "during"  # "during the fall" may be an accident
        if year is not None and self.word(stop) == "-" and self.word(stop + 1) == str(year + 1):
            stop += 2  # "winter 2022-2023"
        if year is None and not which and (sign not in vocabulary.SEASON_CUES or is_accident):
            return None
        which = which if year is None else year
        span = pick_occurrence(
            lambda years: build_months_span(self.now.year + years, month, 3), which, self.now
        )
        return span and TimeMatch(span, stop, "season", which == "")

    def read_quarter(self, index: int) -> TimeMatch | None:
        """Read a quarter of a year: Q3 2023."""
        word = self.word(index)
        if len(word) != 2 or word[0] != "q" or not word[1].isdigit():
            return None
        year, stop = self.read_following_year(index + 1)
        if year is None and self.get_preceding_word(index) not in vocabulary.MONTH_CUES:
            return None
        first = int(word[1]) * 3 - 2
        which: PeriodChoice = "" if year is None else year
        span = pick_occurrence(
            lambda years: build_months_span(self.now.year + years, first, 3), which, self.now
        )
        return span and TimeMatch(span, stop, "quarter", which == "")

    def read_day_word(self, index: int) -> TimeMatch | None:
        """Read a day or night by its word: yesterday, last night, this morning."""
        word, next_word = self.word(index), self.word(index + 1)
        for words in ((word, next_word), (word,)):
            if words in vocabulary.NIGHT_OFFSETS:
                night = build_night_span(self.now + DAY * vocabulary.NIGHT_OFFSETS[words])
                return TimeMatch(night, index + len(words), "night")
        if (word, next_word) in vocabulary.TODAY_PHRASES:
            return TimeMatch(build_days_span(self.now), index + 2, "day")
        if word not in vocabulary.DAY_OFFSETS:
            return None
        stop = index + 2 if next_word in vocabulary.PARTS_OF_DAY else index + 1
        return TimeMatch(build_days_span(self.now + DAY * vocabulary.DAY_OFFSETS[word]), stop, "day")

    def read_unit(self, index: int) -> TimeMatch | None:
        """Read a calendar unit: last week, this month; last week on Friday, last year in May."""
        if self.word(index) == "weekend" and self.word(index - 1) == "the":
            return self._read_weekend(index)
        which, at = self.read_choice(index)
        unit = self.word(at)
        if not which or unit not in vocabulary.CALENDAR_UNITS or self.word(at + 1) == "of":
            return None
        moment = shift_by_units(self.now, unit, vocabulary.STEP_BY_CHOICE[str(which)])
        inner = self.skip_word(at + 1, "on")
        if unit == "week" and self.word(inner) in vocabulary.WEEKDAYS:
            day = floor_to_unit(moment, "week") + DAY * vocabulary.WEEKDAYS[self.word(inner)]
            return TimeMatch(build_days_span(day), inner + 1, "day")
        if unit == "year" and self.word(at + 1) == "in":
            inside = self.read_month(at + 2, year=moment.year)
            if inside:
                return inside
        return TimeMatch(build_unit_span(moment, unit), at + 1, unit)

    def _read_weekend(self, index: int) -> TimeMatch | None:
        if self.word(index - 2) not in {"over", "during", "on", "at"} or self.word(index + 1) == "of":
            return None
        weekend = build_unit_span(self.now, "weekend")
        span = pick_occurrence(
            lambda weeks: TimeSpan(weekend.start + WEEK * weeks, weekend.end + WEEK * weeks), "", self.now
        )
        return span and TimeMatch(span, index + 1, "weekend", is_floating=True)

    def read_weekday(self, index: int) -> TimeMatch | None:
        """Read a weekday: on Friday, last Friday, Friday of last week."""
        which, at = self.read_choice(index)
        weekday = vocabulary.WEEKDAYS.get(self.word(at))
        if weekday is None or self.word(at - 1) in vocabulary.GENERIC_DAY_WORDS:
            return None
        stop = at + 2 if self.word(at + 1) in vocabulary.PARTS_OF_DAY else at + 1
        monday = floor_to_unit(self.now, "week") + DAY * weekday
        week = self.skip_word(stop, "of")
        if (step := vocabulary.STEP_BY_CHOICE.get(self.word(week))) is not None and self.word(
            week + 1
        ) == "week":
            return TimeMatch(build_days_span(monday + WEEK * step), week + 2, "day")
        span = pick_occurrence(lambda weeks: build_days_span(monday + WEEK * weeks), which, self.now)
        return span and TimeMatch(span, stop, "day", which == "")

    def read_day_of_month(self, index: int) -> TimeMatch | None:
        """Read a day without its month: on the 7th, the 7th of last month."""
        at = self.skip_word(index, "the")
        if self.kind(at) != "ordinal" or not (day := self.read_day_number(at)):
            return None
        step = vocabulary.STEP_BY_CHOICE.get(self.word(at + 2))
        if self.word(at + 1) == "of" and step is not None and self.word(at + 3) == "month":
            month = shift_by_units(floor_to_unit(self.now, "month"), "month", step)
            return TimeMatch(build_days_span(month.replace(day=day)), at + 4, "day")
        if at == index or self.word(index - 1) != "on" or not self.is_date_end(at + 1):
            return None
        first = floor_to_unit(self.now, "month")
        span = pick_occurrence(
            lambda m: build_days_span(shift_by_units(first, "month", m).replace(day=day)), "", self.now
        )
        return span and TimeMatch(span, at + 1, "day", is_floating=True)
