"""Times in scripts without spaces between words: Chinese, and dates in Japanese and Korean, by pattern.

"上周五" is the Friday of the last calendar week, "周五" the most recent one. A season is read only with a
year or "这个" before it; on its own it is generic.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.text.chinese_variants import simplify_chinese
from langmem_tiers.text.time_expressions.calendar import (
    DAY,
    FIRST_YEAR,
    LAST_YEAR,
    TimeSpan,
    build_day_span,
    build_days_span,
    build_months_span,
    build_night_span,
    build_relative_span,
    build_unit_span,
    floor_to_unit,
    pick_occurrence,
    shift_by_units,
    slice_span,
)
from langmem_tiers.text.time_expressions.vocabulary import (
    CHINESE_NOT_AFTER,
    CHINESE_NOT_BEFORE,
    CHINESE_WORDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

_WORDS = "|".join(sorted(CHINESE_WORDS, key=len, reverse=True))
_YEAR_WORDS = "|".join(word for word, (unit, _) in CHINESE_WORDS.items() if unit == "year")
_NUMBER = "[0-9]{1,2}|[一二三四五六七八九十]{1,3}"
_DIGITS = {digit: number for number, digit in enumerate("零一二三四五六七八九")} | {"\u3007": 0, "两": 2}
_NOT_AFTER_NUMBER = "(?<![0-9.第零〇一二两三四五六七八九十百千])"
_NAMED_YEAR = rf"(?<![{CHINESE_NOT_AFTER}])(?P<said>{_YEAR_WORDS})(?![{CHINESE_NOT_BEFORE}])"
_YEAR = rf"(?:(?P<year>[0-9]{{4}}|[零〇一二三四五六七八九]{{4}})[年년]|{_NAMED_YEAR})\s?[的の]?"
_MONTH = rf"(?P<month>{_NUMBER})[月월](?!龄)份?"
_DAY = rf"\s?(?:(?P<day>{_NUMBER})[日号일]|(?P<part>初|上旬|中旬|下旬|底|末))"
_PARTS = {"初": 0, "上旬": 0, "中": 1, "中旬": 1, "下旬": 2, "底": 2, "末": 2}
_SEASONS = {"春": 3, "夏": 6, "秋": 9, "冬": 12}
_UNITS = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}
_WEEKDAYS = {day: number for number, day in enumerate("一二三四五六日")} | {"末": 5, "天": 6}
_STEPS = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1}

_DATE = re.compile(rf"{_NOT_AFTER_NUMBER}(?:{_YEAR})?{_MONTH}(?:{_DAY})?")
_YEAR_ALONE = re.compile(
    rf"{_NOT_AFTER_NUMBER}{_YEAR}(?:(?P<season>[春夏秋冬])(?![节卷游])[天季]?|(?P<half>[上下])半年|年?(?P<part>[初中底末])(?!国))?"
)
_SEASON = re.compile(r"(?P<which>[这上])个?(?P<season>[春夏秋冬])[天季]")
_WEEKDAY = re.compile(
    r"(?:(?P<step>上上|[上这本下])个?|(?<![一二两三四五六七八九十几0-9个每逢]))"
    r"(?:周|星期|礼拜)(?P<day>[一二三四五六日天末])(?![年岁])"
)
_AGO = re.compile(
    rf"{_NOT_AFTER_NUMBER}(?P<count>{_NUMBER}|[两几半])(?:个?(?P<unit>天|日|周|星期|礼拜|年)|个(?P<months>月))[之以]?前"
)
_WORD = re.compile(rf"(?<![{CHINESE_NOT_AFTER}])(?:{_WORDS})(?![{CHINESE_NOT_BEFORE}])")


def iter_chinese_times(text: str, now: datetime) -> Iterator[tuple[int, int, TimeSpan]]:
    """Yield each time with its start and end in the text; a date takes precedence over the words in it."""
    end, text = 0, simplify_chinese(text)
    # All patterns are searched; of matches with the same start, the longest comes first.
    matches = [match for pattern in _RULES for match in pattern.finditer(text)]
    for match in sorted(matches, key=lambda match: (match.start(), -match.end())):
        if match.start() < end:
            continue
        end = match.end()
        try:
            span = _RULES[match.re](match, now)
        except (ValueError, OverflowError):
            continue
        if span:
            yield *match.span(), span


def parse_chinese_number(text: str) -> int:
    """Parse a number up to 99 in digits or in Chinese, or a year digit by digit."""
    if text.isdecimal():
        return int(text)
    # 十 is 10, 十五 is 15, 二十 is 20, 二十五 is 25.
    tens, ten, ones = text.rpartition("十")
    if ten:
        return 10 * (_DIGITS[tens] if tens else 1) + (_DIGITS[ones] if ones else 0)
    return int("".join(str(_DIGITS[digit]) for digit in text))


def _parse_year(match: re.Match[str], now: datetime) -> int | None:
    if match["said"]:
        return now.year + CHINESE_WORDS[match["said"]][1]
    if not match["year"]:
        return None
    year = parse_chinese_number(match["year"])
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise ValueError(year)
    return year


def _parse_date(match: re.Match[str], now: datetime) -> TimeSpan | None:
    try:
        month, day = parse_chinese_number(match["month"]), parse_chinese_number(match["day"] or "0")
    except KeyError:  # not a number, such as 十十
        return None
    year = _parse_year(match, now)
    if match["day"]:
        return pick_occurrence(lambda away: build_day_span(now.year + away, month, day), year or "", now)
    span = pick_occurrence(lambda away: build_months_span(now.year + away, month), year or "", now)
    return span and _take_part(span, match["part"])


def _parse_year_alone(match: re.Match[str], now: datetime) -> TimeSpan:
    year = _parse_year(match, now)
    assert year is not None  # noqa: S101 - the pattern has one
    if match["season"]:
        return build_months_span(year, _SEASONS[match["season"]], 3)
    if match["half"]:
        return build_months_span(year, 1 if match["half"] == "上" else 7, 6)
    return _take_part(build_months_span(year, 1, 12), match["part"])


def _take_part(span: TimeSpan, part: str | None) -> TimeSpan:
    return slice_span(span, _PARTS[part], _PARTS[part] + 1) if part else span


def _parse_season(match: re.Match[str], now: datetime) -> TimeSpan | None:
    first = _SEASONS[match["season"]]
    which = "last" if match["which"] == "上" else ""
    return pick_occurrence(lambda away: build_months_span(now.year + away, first, 3), which, now)


def _parse_weekday(match: re.Match[str], now: datetime) -> TimeSpan | None:
    monday, is_weekend = floor_to_unit(now, "week"), match["day"] == "末"
    day, count = _WEEKDAYS[match["day"]], 2 if is_weekend else 1
    if match["step"]:
        return build_days_span(monday + DAY * (7 * _STEPS[match["step"]] + day), count)
    return pick_occurrence(lambda away: build_days_span(monday + DAY * (7 * away + day), count), "", now)


def _parse_ago(match: re.Match[str], now: datetime) -> TimeSpan | None:
    unit = "month" if match["months"] else _UNITS[match["unit"]]
    if match["count"] == "几":
        return build_relative_span(now, unit, -5, -2)
    if match["count"] == "半":
        half = {"month": ("week", -2), "year": ("month", -6)}.get(unit)
        return build_relative_span(now, half[0], half[1], half[1]) if half else None
    try:
        count = parse_chinese_number(match["count"])
    except KeyError:
        return None
    return build_relative_span(now, unit, -count, -count)


def _parse_word(match: re.Match[str], now: datetime) -> TimeSpan:
    unit, step = CHINESE_WORDS[match.group()]
    if unit == "night":
        return build_night_span(now + DAY * step)
    return build_unit_span(shift_by_units(now, unit, step), unit)


_RULES: dict[re.Pattern[str], Callable[[re.Match[str], datetime], TimeSpan | None]] = {
    _DATE: _parse_date,
    _YEAR_ALONE: _parse_year_alone,
    _SEASON: _parse_season,
    _WEEKDAY: _parse_weekday,
    _AGO: _parse_ago,
    _WORD: _parse_word,
}
