"""Rates such as "twice a day" and "5 per day", in which "day" is not a quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.long_term.conflicts.pieces import Piece, word_at
from langmem_tiers.long_term.conflicts.quantities import is_number_word

if TYPE_CHECKING:
    from collections.abc import Sequence

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
