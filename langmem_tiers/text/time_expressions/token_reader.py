"""Base of the parsing rules: access to tokens, and parsing of small parts of time expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from langmem_tiers.text.time_expressions import vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from langmem_tiers.text.time_expressions.calendar import PeriodChoice, TimeSpan
    from langmem_tiers.text.time_expressions.tokens import TimeToken


class TimeMatch(NamedTuple):
    """A parsed time expression."""

    span: TimeSpan | None
    """The time; None if it looks like a date but is not one, such as 31 June."""
    stop: int
    """Index of the token after the expression."""
    unit: str
    """Calendar unit of the time, such as "day"; "span" or "part" for others."""
    is_floating: bool = False
    """True if the year, or the week, is only assumed."""


class TokenReader:
    """Reads the tokens of a text by index. Indexes outside the text are allowed."""

    def __init__(self, tokens: Sequence[TimeToken], now: datetime) -> None:
        self.tokens = tokens
        self.now = now

    def with_now(self, now: datetime) -> Self:
        """Return a reader of the same text at another time."""
        return type(self)(self.tokens, now)

    def word(self, index: int) -> str:
        """Return the token in lower case; empty outside the text."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def kind(self, index: int) -> str:
        """Return the kind of the token; empty outside the text."""
        return self.tokens[index].kind if 0 <= index < len(self.tokens) else ""

    def skip_word(self, index: int, *skipped: str) -> int:
        """Return the index after the token if it is one of these words, otherwise the same index."""
        return index + 1 if self.word(index) in skipped else index

    def get_preceding_word(self, index: int) -> str:
        """Return the word before the token, skipping a hyphen or an article."""
        return self.word(index - 2 if self.word(index - 1) in {"-", "the"} else index - 1)

    def is_date_end(self, index: int) -> bool:
        """Return True if the token cannot continue the preceding words as a noun or verb phrase."""
        return self.kind(index) in {"", "mark", "year"} or self.word(index) in vocabulary.WORDS_AFTER_DATE

    def read_choice(self, index: int) -> tuple[PeriodChoice, int]:
        """Read "last", "this", "next" or nothing; return it and the index after it."""
        if self.word(index) == "this" and self.word(index + 1) == "past":
            return "last", index + 2
        # "My last week there" is not the last week of the calendar.
        if self.word(index) == "last" and self.word(index - 1) in vocabulary.POSSESSIVES:
            return "", index
        which = vocabulary.CHOICE_WORDS.get(self.word(index), "")
        return which, index + bool(which)

    def read_day_number(self, index: int) -> int:
        """Read a day of a month; return 0 if there is none."""
        if self.kind(index) in {"number", "ordinal"}:
            return self.tokens[index].number if self.tokens[index].number <= 31 else 0
        return vocabulary.ORDINALS.get(self.word(index), 0)

    def read_count(self, index: int) -> tuple[int, int, int] | None:
        """Read a count such as "two", "a", "a few" or "a couple of"; return minimum, maximum and the index after it."""
        at = self.skip_word(index, "a", "an")
        if self.word(at) in vocabulary.VAGUE_NUMBERS:
            low, high = vocabulary.VAGUE_NUMBERS[self.word(at)]
            return low, high, self.skip_word(at + 1, "of")
        if at > index:
            return 1, 1, at
        number = (
            self.tokens[at].number if self.kind(at) == "number" else vocabulary.NUMBERS.get(self.word(at), 0)
        )
        return (number, number, at + 1) if number else None

    def read_following_year(self, index: int) -> tuple[int | None, int]:
        """Read the year after a date ("2023", "of 2023", "last year"); return it and the index after it."""
        at = self.skip_word(index, ",", "of", "-")
        if self.kind(at) == "year":
            return self.tokens[at].number, at + 1
        at = self.skip_word(index, "of")
        step = vocabulary.STEP_BY_CHOICE.get(self.word(at))
        if step is not None and self.word(at + 1) == "year":
            return self.now.year + step, at + 2
        return None, index


def find_longest(index: int, *rules: Callable[[int], TimeMatch | None]) -> TimeMatch | None:
    """Return the longest match of the rules at a token; a rule that leaves the calendar finds nothing."""
    best: TimeMatch | None = None
    for rule in rules:
        try:
            found = rule(index)
        except (ValueError, OverflowError):
            continue
        if found and (best is None or found.stop > best.stop):
            best = found
    return best
