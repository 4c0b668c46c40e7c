"""What every rule for times needs: to look at tokens, and to read the small words of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from langmem_tiers.text.time_expressions import vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from langmem_tiers.text.time_expressions.calendar import PeriodChoice, TimeSpan
    from langmem_tiers.text.time_expressions.tokens import TimeToken


class TimeMatch(NamedTuple):
    """What was read from some token up to another."""

    span: TimeSpan | None
    """None for what looks like a date and is none, as 31 June."""
    stop: int
    unit: str
    is_floating: bool = False
    """Whether the year, or the week, is only guessed."""


class TokenReader:
    """Looks at the tokens of a text, by their index."""

    def __init__(self, tokens: Sequence[TimeToken], now: datetime) -> None:
        self.tokens = tokens
        self.now = now

    def with_now(self, now: datetime) -> Self:
        """The same text, read at another time."""
        return type(self)(self.tokens, now)

    def word(self, index: int) -> str:
        """The token in lower case; nothing outside the text."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def kind(self, index: int) -> str:
        """The kind of the token; nothing outside the text."""
        return self.tokens[index].kind if 0 <= index < len(self.tokens) else ""

    def skip_word(self, index: int, *skipped: str) -> int:
        """Behind the token, if it is one of these words."""
        return index + 1 if self.word(index) in skipped else index

    def get_preceding_word(self, index: int) -> str:
        """The word in front, over a hyphen or article."""
        return self.word(index - 2 if self.word(index - 1) in {"-", "the"} else index - 1)

    def is_date_end(self, index: int) -> bool:
        """Whether what stands there does not go on with the noun or verb before it."""
        return self.kind(index) in {"", "mark", "year"} or self.word(index) in vocabulary.WORDS_AFTER_DATE

    def read_choice(self, index: int) -> tuple[PeriodChoice, int]:
        """Last, this, next or nothing, and where it ends."""
        if self.word(index) == "this" and self.word(index + 1) == "past":
            return "last", index + 2
        if self.word(index) == "last" and self.word(index - 1) in vocabulary.POSSESSIVES:
            return "", index
        which = vocabulary.CHOICE_WORDS.get(self.word(index), "")
        return which, index + bool(which)

    def read_day_number(self, index: int) -> int:
        """A day of a month, 0 if there is none."""
        if self.kind(index) in {"number", "ordinal"}:
            return self.tokens[index].number if self.tokens[index].number <= 31 else 0
        return vocabulary.ORDINALS.get(self.word(index), 0)

    def read_count(self, index: int) -> tuple[int, int, int] | None:
        """How many, from and to, and where it ends: two, a, a few, a couple of."""
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
        """The year of the date that ends there, and where it ends then: 2023, of 2023, last year."""
        at = self.skip_word(index, ",", "of", "-")
        if self.kind(at) == "year":
            return self.tokens[at].number, at + 1
        at = self.skip_word(index, "of")
        step = vocabulary.STEP_BY_CHOICE.get(self.word(at))
        if step is not None and self.word(at + 1) == "year":
            return self.now.year + step, at + 2
        return None, index


def find_longest(index: int, *rules: Callable[[int], TimeMatch | None]) -> TimeMatch | None:
    """What the rule that reads most makes of the text there; where the calendar ends, a rule finds nothing."""
    best: TimeMatch | None = None
    for rule in rules:
        try:
            found = rule(index)
        except (ValueError, OverflowError):
            continue
        if found and (best is None or found.stop > best.stop):
            best = found
    return best
