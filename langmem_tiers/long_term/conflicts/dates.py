"""Dates and times as values: "2024-03-05" and "March 5, 2024", "9:30" and "half past nine"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from langmem_tiers.long_term.conflicts.pieces import Piece, join_pieces, word_at
from langmem_tiers.long_term.conflicts.quantities import (
    CURRENCIES,
    ORDINALS,
    number_at,
    ordinal_at,
    quantity_at,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
            "september sep sept", "october oct", "november nov", "december dec",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_TIME = re.compile(r"(\d{1,2})(?:[:.](\d{2}))?(?::(\d{2}))?\s?([ap])?\.?m?\.?\Z")
_YEAR = re.compile(r"(?:19|20)\d\d\Z")
_BEHIND_TIMES = frozenset("on in every each and or for with tomorrow today daily from to until by".split())
_BEFORE_YEARS = frozenset(
    "in since until till by year during before after summer winter spring autumn fall".split()
)
_DAYS: Final = frozenset(
    """monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat today tomorrow
    yesterday tonight weekend weekday mondays tuesdays wednesdays thursdays fridays saturdays sundays""".split()
)


_HALVES: Final = {"morning": "am", "afternoon": "pm", "evening": "pm"}


def is_day(word: str) -> bool:
    """Return True if the word names a day."""
    return word in _DAYS


def merge_values(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with each number, date and time merged into one piece with its value."""
    folded: list[Piece] = []
    at = 0
    while at < len(pieces):
        piece = pieces[at]
        if piece.word in CURRENCIES and at + 1 < len(pieces) and pieces[at + 1].kind == "number":
            at += 1  # the next piece is the unit of the number
            continue
        found = None if piece.kind in {"mark", "address"} else _value(pieces, at)
        value, at = found or (piece, at + 1)
        folded.append(value)
    return folded


def _value(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    return (
        _date(pieces, at)
        or _clock(pieces, at)
        or ordinal_at(pieces, at)
        or _plain_number(pieces, at)
        or quantity_at(pieces, at)
    )


def _plain_number(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    """Parse a number whose context makes it a year or an hour: "in 2024", "at 9"."""
    found = number_at(pieces, at)
    if found is None or found[2]:
        return None
    number, stop, _ = found
    if _YEAR.match(pieces[at].word) and stop == at + 1 and word_at(pieces, at - 1) in _BEFORE_YEARS:
        return pieces[at]._replace(kind="date"), stop
    if (
        word_at(pieces, at - 1) == "at"
        and 0 <= number <= 24
        and number == int(number)
        and _is_at_end(pieces, stop)
    ):
        return Piece("time", join_pieces(pieces, at, stop), f"{int(number):02}:00"), stop
    return None


def _is_at_end(pieces: Sequence[Piece], at: int) -> bool:
    word = word_at(pieces, at)
    return at >= len(pieces) or pieces[at].kind == "mark" or word in _BEHIND_TIMES or word in _DAYS


def _date(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    piece = pieces[at]
    if piece.kind == "date":
        return piece._replace(word=_to_iso(piece.word)), at + 1
    if piece.word in _MONTHS and piece.kind == "word":
        return _month_first(pieces, at)
    if (day := _day(pieces, at)) is None:
        return None
    behind = day[1] + (word_at(pieces, day[1]) == "of")
    month = _MONTHS.get(word_at(pieces, behind))
    if month is None or (word_at(pieces, behind) == "may" and not pieces[behind].is_capital):
        return None
    year, stop = _year(pieces, behind + 1)
    return _day_piece(pieces, (at, stop), year, month, day[0]), stop


def _month_first(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    month = _MONTHS[pieces[at].word]
    start = at + 1 + (word_at(pieces, at + 1) in {".", "the"})
    if (day := _day(pieces, start)) is not None:
        year, stop = _year(pieces, day[1])
        return _day_piece(pieces, (at, stop), year, month, day[0]), stop
    year, stop = _year(pieces, at + 1)
    is_word = pieces[at].word in {"may", "march", "mar"} and not pieces[at].is_capital
    if not year and (is_word or at == 0):
        return None
    return Piece("date", join_pieces(pieces, at, stop), f"{year}-{month:02}"), stop


def _day(pieces: Sequence[Piece], at: int) -> tuple[int, int] | None:
    word = word_at(pieces, at)
    if word.isdecimal() and len(word) <= 2 and 1 <= int(word) <= 31:
        return int(word), at + 1 + (word_at(pieces, at + 1) in {"st", "nd", "rd", "th"})
    return (ORDINALS[word], at + 1) if word in ORDINALS else None


def _year(pieces: Sequence[Piece], at: int) -> tuple[str, int]:
    start = at + (word_at(pieces, at) in {",", "of", "."})
    return (word_at(pieces, start), start + 1) if _YEAR.match(word_at(pieces, start)) else ("", at)


def _day_piece(pieces: Sequence[Piece], place: tuple[int, int], year: str, month: int, day: int) -> Piece:
    return Piece("date", join_pieces(pieces, *place), f"{year}-{month:02}-{day:02}")


def _to_iso(text: str) -> str:
    parts = [int(part) for part in re.split("[-/.]", text)]
    if len(parts) == 2:
        return f"{parts[0]}-{parts[1]:02}"
    first, second, third = parts
    if first > 31:
        return f"{first}-{second:02}-{third:02}"
    # The day comes first with dots, or if the first number cannot be a month, as in 15/7/2023. Otherwise the month.
    month, day = (second, first) if first > 12 or "." in text else (first, second)
    return f"{third + 2000 if third < 100 else third}-{month:02}-{day:02}"


def _clock(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    piece = pieces[at]
    if piece.kind == "time" and (match := _TIME.match(piece.word)):
        return _parse_written_time(pieces, at, match)
    if piece.word in {"noon", "midday", "midnight"}:
        return piece._replace(kind="time", word="00:00" if piece.word == "midnight" else "12:00"), at + 1
    if (
        piece.word in {"half", "quarter"}
        and word_at(pieces, at + 1) in {"past", "to"}
        and at + 2 < len(pieces)
    ):
        return _parse_spoken_time(pieces, at)
    if word_at(pieces, at + 1) in {"o'clock", "oclock"} and (hour := number_at(pieces, at)) is not None:
        return Piece("time", join_pieces(pieces, at, at + 2), f"{int(hour[0]):02}:00"), at + 2
    return _part_of_day(pieces, at)


def _parse_written_time(pieces: Sequence[Piece], at: int, match: re.Match[str]) -> tuple[Piece, int]:
    hour, minute, stop = int(match[1]), match[2] or "00", at + 1
    half = match[4]
    if half is None and word_at(pieces, stop) in {"am", "pm"}:
        half, stop = word_at(pieces, stop)[0], stop + 1
    if half is None and hour <= 12 and word_at(pieces, stop) == "in" and word_at(pieces, stop + 2) in _HALVES:
        half, stop = _HALVES[word_at(pieces, stop + 2)][0], stop + 3
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    seconds = f":{match[3]}" if match[3] and match[3] != "00" else ""
    return Piece("time", join_pieces(pieces, at, stop), f"{hour:02}:{minute}{seconds}"), stop


def _part_of_day(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    # "8 in the evening"
    words = [word_at(pieces, at + place) for place in (1, 2, 3)]
    if words[:2] != ["in", "the"] or words[2] not in {"morning", "afternoon", "evening"}:
        return None
    found = number_at(pieces, at)
    if found is None or not 0 < found[0] <= 12 or found[0] != int(found[0]):
        return None
    hour = int(found[0]) % 12 + (0 if words[2] == "morning" else 12)
    return Piece("time", join_pieces(pieces, at, at + 4), f"{hour:02}:00"), at + 4


def _parse_spoken_time(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    found = number_at(pieces, at + 2)
    if found is None or not 0 < found[0] <= 24:
        return None
    shift = (15 if pieces[at].word == "quarter" else 30) * (1 if word_at(pieces, at + 1) == "past" else -1)
    minutes = int(found[0]) * 60 + shift
    half, stop = word_at(pieces, found[1]), found[1]
    if half == "in" and word_at(pieces, stop + 2) in _HALVES:
        half, stop = _HALVES[word_at(pieces, stop + 2)], stop + 2
    if half in {"am", "pm"}:
        minutes, stop = minutes % 720 + (720 if half == "pm" else 0), stop + 1
    return Piece("time", join_pieces(pieces, at, stop), f"{minutes // 60:02}:{minutes % 60:02}"), stop
