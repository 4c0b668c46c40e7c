"""Numbers with units as values: "5" and "five", "30s" and "half a minute", "$20" and "20 dollars".

Rates such as "twice a day" and "5 per day" are merged first, because "day" is not a quantity in them.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from langmem_tiers.long_term.conflicts.pieces import Piece, join_pieces, word_at
from langmem_tiers.text.word_lists import load_groups

if TYPE_CHECKING:
    from collections.abc import Sequence


_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SMALL: Final = {word: number for number, word in enumerate(_ONES)} | {
    word: 10 * number for number, word in enumerate(_TENS, 2)
}
_SCALES: Final = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "k": 1000, "bn": 10**9,
    "dozen": 12, "mio": 10**6,
}  # fmt: skip
_MONEY_SCALES: Final = {"k": 1000, "m": 10**6, "bn": 10**9, "b": 10**9}
ORDINALS: Final = {
    word: number
    for number, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split(), 1
    )
}
"""Ordinals that are written as words."""

_PART = re.compile(r"([$€£¥₹])?\s?(-?[\d,]*\.?\d+)(k|m|bn|b)?\Z")
CURRENCIES = frozenset("usd eur gbp jpy chf inr".split())
"""Units that can precede their number."""
_HEAT_UNITS = frozenset({"°c", "°f"})
_SCALES_OF_HEAT: Final = {"c": "°c", "celsius": "°c", "centigrade": "°c", "f": "°f", "fahrenheit": "°f"}
_YEARS = frozenset("year years yr yrs".split())
_SPANS = frozenset("minute hour day week month year".split())
_PARTS: Final = {"half": 50, "quarter": 25, "third": 33}
"""Fractions in percent."""
_WHOLES = frozenset("of the our my all".split())
_MOST_DIGITS = 20  # longer numbers are identifiers and are kept unchanged

_Number = tuple[Decimal, int, str]
"""A number, the index after it, and its currency sign."""


def _units() -> dict[str, tuple[Decimal, str]]:
    found: dict[str, tuple[Decimal, str]] = {}
    for head, names in load_groups(__name__, "units", "units"):
        factor, unit = head.split()
        found |= {name: (Decimal(factor), unit) for name in names.split()}
    return found


_UNITS: Final = _units()


def is_number_word(word: str) -> bool:
    """Return True if the word is a number."""
    return word in _SMALL


def ordinal_at(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    """Parse an ordinal: "third", "3rd"."""
    word = pieces[at].word
    if word in ORDINALS and (word != "second" or word_at(pieces, at - 1) in {"the", "a", "my"}):
        return pieces[at]._replace(kind="number", word=f"#{ORDINALS[word]}"), at + 1
    found = number_at(pieces, at)
    if found is not None and word_at(pieces, found[1]) in {"st", "nd", "rd", "th"}:
        return Piece("number", join_pieces(pieces, at, found[1] + 1), f"#{_format_number(found[0])}"), found[
            1
        ] + 1
    return None


def quantity_at(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    """Parse a number with its unit, converted to the smallest unit of its kind."""
    if share := _share_at(pieces, at):
        return share
    found = _part_at(pieces, at) or number_at(pieces, at)
    if found is None:
        return None
    number, stop, sign = found
    unit, stop = _unit(pieces, (at, stop), sign)
    if unit in _YEARS and word_at(pieces, stop + (word_at(pieces, stop) == "-")) == "old":
        return Piece("number", join_pieces(pieces, at, stop), _format_number(number)), stop
    factor, base = _UNITS.get(unit, (Decimal(1), unit if unit in _HEAT_UNITS else ""))
    if base == "byte" and number >= 1024 and number % 1024 == 0:
        number = number / 1024 * 1000  # 1024 MB are commonly called 1 GB
    while base in {"s", "month"} and (more := _parse_continued_amount(pieces, stop, base)):
        number, stop = number + more[0] / factor, more[1]
    return Piece("number", join_pieces(pieces, at, stop), _format_number(number * factor), unit=base), stop


def _part_at(pieces: Sequence[Piece], at: int) -> _Number | None:
    """Parse a fraction of a unit: "half an hour", "a quarter of an hour"."""
    start = at + (word_at(pieces, at) in {"a", "an"})
    part = _PARTS.get(word_at(pieces, start))
    behind = start + 1 + (word_at(pieces, start + 1) == "of")
    if (
        part is None
        or word_at(pieces, behind) not in {"a", "an"}
        or word_at(pieces, behind + 1) not in _UNITS
    ):
        return None
    return Decimal(part) / 100, behind + 1, ""


def _share_at(pieces: Sequence[Piece], at: int) -> tuple[Piece, int] | None:
    """Parse a share: "half of the tests" is 50 %."""
    start = at + (word_at(pieces, at) in {"a", "an"})
    part = _PARTS.get(word_at(pieces, start))
    if part is None or word_at(pieces, start + 1) not in _WHOLES or _part_at(pieces, at) is not None:
        return None
    if word_at(pieces, start) != "half" and word_at(pieces, start + 1) != "of":
        return None
    return Piece("number", join_pieces(pieces, at, start + 1), str(part), unit="%"), start + 1


def _unit(pieces: Sequence[Piece], place: tuple[int, int], sign: str) -> tuple[str, int]:
    start, stop = place
    if sign:
        return sign, stop
    if word_at(pieces, start - 1) in CURRENCIES:
        return word_at(pieces, start - 1), stop
    behind = stop + (word_at(pieces, stop) == "-")
    unit = word_at(pieces, behind)
    if unit not in _UNITS:
        return "", stop
    heat = _SCALES_OF_HEAT.get(word_at(pieces, behind + 1)) if _UNITS[unit][1] == "°" else None
    return (heat, behind + 2) if heat else (unit, behind + 1)


def _parse_continued_amount(pieces: Sequence[Piece], at: int, base: str) -> tuple[Decimal, int] | None:
    # The second part of "1 hour and 30 minutes".
    start = at + (word_at(pieces, at) in {"and", ","})
    found = number_at(pieces, start) if start < len(pieces) else None
    if found is None or found[2]:
        return None
    factor, unit = _UNITS.get(word_at(pieces, found[1]), (Decimal(1), ""))
    return (found[0] * factor, found[1] + 1) if unit == base else None


def number_at(pieces: Sequence[Piece], at: int) -> _Number | None:
    """Parse a number in digits or words."""
    piece = pieces[at]
    if piece.kind == "number":
        return _parse_digits(pieces, at)
    if piece.kind == "word" and piece.word in _SMALL:
        return _parse_number_words(pieces, at)
    return _parse_article_number(pieces, at) if piece.word in {"a", "an"} else None


def _parse_digits(pieces: Sequence[Piece], at: int) -> _Number | None:
    match = _PART.match(pieces[at].word)
    if match is None or len(match[2]) > _MOST_DIGITS:
        return None
    number = Decimal(match[2].replace(",", "")) * _MONEY_SCALES.get(match[3] or "", 1)
    return (*_apply_scale(pieces, number, at + 1), match[1] or "")


def _parse_number_words(pieces: Sequence[Piece], at: int) -> _Number:
    number, stop = Decimal(_SMALL[pieces[at].word]), at + 1
    behind = stop + (word_at(pieces, stop) == "-")
    if number >= 20 and 0 < _SMALL.get(word_at(pieces, behind), 0) < 10:
        number, stop = number + _SMALL[word_at(pieces, behind)], behind + 1
    return (*_apply_scale(pieces, number, stop), "")


def _parse_article_number(pieces: Sequence[Piece], at: int) -> _Number | None:
    counted = word_at(pieces, at + 1)
    if counted in {"hundred", "thousand", "million", "dozen"}:
        return (*_apply_scale(pieces, Decimal(1), at + 1), "")
    if counted in {"couple", "pair"} and word_at(pieces, at + 2) == "of":
        return Decimal(2), at + 3, ""
    return (Decimal(1), at + 1, "") if counted in _SPANS else None


def _apply_scale(pieces: Sequence[Piece], number: Decimal, at: int) -> tuple[Decimal, int]:
    if [word_at(pieces, at + place) for place in range(3)] == ["and", "a", "half"]:
        return number + Decimal("0.5"), at + 3
    if at < len(pieces) and pieces[at].text in {"M", "B"}:
        return number * _MONEY_SCALES[pieces[at].word], at + 1
    while (scale := _SCALES.get(word_at(pieces, at))) is not None and pieces[at].kind == "word":
        number, at = number * scale, at + 1
        joint = word_at(pieces, at) == "and"
        if scale >= 100 and (more := _SMALL.get(word_at(pieces, at + joint))):
            number, at = number + more, at + 1 + joint
    return number, at


def _format_number(number: Decimal) -> str:
    return f"{number.normalize():f}"


_RATES: Final = {
    "day": "daily", "week": "weekly", "month": "monthly", "year": "yearly", "hour": "hourly", "night": "nightly",
    "minute": "minutely", "second": "secondly",
}  # fmt: skip
_SHORT_RATES: Final = _RATES | {
    "h": "hourly", "hr": "hourly", "s": "secondly", "sec": "secondly", "min": "minutely", "mo": "monthly",
    "yr": "yearly", "wk": "weekly",
}  # fmt: skip
_NEAR = 6
"""Maximum number of pieces between a number and "a day"."""


def merge_rates(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with each rate merged into one word."""
    found: list[Piece] = []
    at = 0
    while at < len(pieces):
        if rate := _rate(pieces, at):
            if found and found[-1].word == "once":
                found.pop()
            found.append(Piece("word", f"{pieces[at].text} {pieces[at + 1].text}", rate))
            at += 2
        elif pieces[at].word == "twice":
            found += [Piece("number", pieces[at].text, "2"), Piece("word", "times", "times")]
            at += 1
        else:
            found.append(pieces[at])
            at += 1
    return found


def _rate(pieces: Sequence[Piece], at: int) -> str:
    word, behind = pieces[at].word, word_at(pieces, at + 1)
    if word == "/":
        return _SHORT_RATES.get(behind, "")
    if word == "per" and behind == "cent":
        return "percent"
    return _RATES.get(behind, "") if word in {"per", "each", "every"} or _is_rate_article(pieces, at) else ""


def _is_rate_article(pieces: Sequence[Piece], at: int) -> bool:
    if pieces[at].word not in {"a", "an"}:
        return False
    return any(
        piece.kind == "number" or is_number_word(piece.word) or piece.word in {"once", "twice", "times"}
        for piece in pieces[max(0, at - _NEAR) : at]
    )
