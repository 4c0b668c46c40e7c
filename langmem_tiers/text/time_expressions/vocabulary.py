"""Vocabulary of time expressions as plain tables; another language needs other tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.text.word_lists import load_groups

if TYPE_CHECKING:
    from collections.abc import Iterator

MONTHS: Final = {
    "january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7, "august": 8,
    "september": 9, "october": 10, "november": 11, "december": 12,
}  # fmt: skip
SHORT_MONTHS: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "sept": 9, "oct": 10,
    "nov": 11, "dec": 12,
}  # fmt: skip
ALL_MONTHS: Final = MONTHS | SHORT_MONTHS
AMBIGUOUS_MONTHS: Final = frozenset({"march", "april", "may", "june", "august", *SHORT_MONTHS})
"""Also names, verbs or adjectives: read as months only with a cue next to them."""
VERB_MONTHS: Final = frozenset({"march", "may"})

WEEKDAYS: Final = {
    "monday": 0, "tuesday": 1, "wednesday": 2, "thursday": 3, "friday": 4, "saturday": 5, "sunday": 6,
}  # fmt: skip
SHORT_WEEKDAYS: Final = {
    "mon": 0, "tue": 1, "tues": 1, "wed": 2, "weds": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5,
    "sun": 6,
}  # fmt: skip
"""Read only before a date, because most are ordinary words."""
GENERIC_DAY_WORDS: Final = frozenset("every each any per most black good ash palm cyber easter".split())
"""Words before a weekday or month that make it generic ("every Monday") or a feast ("Easter Monday")."""

SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""First of three months, in the northern hemisphere."""

NUMBERS: Final = {
    word: number
    for number, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split(),
        start=1,
    )
} | {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90}
VAGUE_NUMBERS: Final = {"couple": (2, 3), "few": (2, 5), "several": (3, 8)}
"""Minimum and maximum."""
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth".split()
ORDINALS: Final = {
    word: number
    for number, word in enumerate(
        [
            *_ORDINALS,
            *"tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth".split(),
            *"eighteenth nineteenth twentieth".split(),
            *(f"twenty-{word}" for word in _ORDINALS),
            "thirtieth",
            "thirty-first",
        ],
        start=1,
    )
}

UNITS: Final = {
    f"{word}{end}": unit
    for word, unit in {
        "minute": "minute", "hour": "hour", "day": "day", "night": "day", "morning": "day", "evening": "day",
        "afternoon": "day", "week": "week", "weekend": "weekend", "month": "month", "quarter": "quarter",
        "year": "year", "decade": "decade",
    }.items()
    for end in ("", "s")
}  # fmt: skip
CALENDAR_UNITS: Final = frozenset("week weekend month quarter year decade".split())
"""Units allowed in "last week", "this month", "next year"."""
TRAILING_UNITS: Final = frozenset("hour day week month year decade".split())
"""Units allowed in "the past week", which ends now."""
PARTS_OF_DAY: Final = frozenset("morning afternoon evening night".split())

CHOICE_WORDS: Final = {"last": "last", "previous": "last", "this": "this", "next": "next"}
STEP_BY_CHOICE: Final = {"last": -1, "this": 0, "next": 1}
DAY_OFFSETS: Final = {"today": 0, "yesterday": -1, "tomorrow": 1}
"""Days relative to today."""
NIGHT_OFFSETS: Final = {
    ("last", "night"): -1,
    ("this", "night"): 0,
    ("tomorrow", "night"): 1,
    ("tonight",): 0,
}
"""Nights relative to the one that begins today."""
TODAY_PHRASES: Final = frozenset((("this", "morning"), ("this", "afternoon"), ("this", "evening")))

SPAN_PARTS: Final = {
    "early": (0, 1), "mid": (1, 2), "late": (2, 3), "beginning": (0, 1), "start": (0, 1), "middle": (1, 2),
    "end": (2, 3),
}  # fmt: skip
"""First and last third."""
SPAN_PARTS_WITHOUT_OF: Final = frozenset(("early", "mid", "late"))

ADJACENT_STEPS: Final = {"before": -1, "preceding": -1, "after": 1, "following": 1}
NEARNESS_WORDS: Final = frozenset("just right shortly soon directly immediately".split())
"""Before "before" and "after": within a week."""
UNTIL_WORDS: Final = frozenset(("until", "till", "by"))
RANGE_JOINERS: Final = {
    "between": frozenset(("and",)),
    "from": frozenset(("to", "until", "till", "through", "-")),
    "": frozenset(("to", "until", "till", "through", "-", "/")),
}
"""Words between the two ends of a range, by the word before it."""

MONTH_CUES: Final = frozenset(
    "in since during early mid late until till throughout last next this before after".split()
)
SURE_MONTH_CUES: Final = frozenset("in since during early mid late until till throughout".split())
"""Before "may" and "march", even if the next word could belong to a verb."""
YEAR_CUES: Final = frozenset(
    "in since during early mid late until till throughout before after year from between".split()
)
SEASON_CUES: Final = frozenset(
    "in since during over early mid late until till before after throughout".split()
)
DETERMINERS: Final = frozenset("the our my your his her their".split())
POSSESSIVES: Final = frozenset("my your his its our their".split())
""""My last week there" is not last week. "Her" is not included because of "I told her last week"."""

WORDS_AFTER_DATE: Final = frozenset(
    "and or at but for with when where did was were to the in by until from about".split()
)
"""Words that may follow a date, but hardly "may" as a verb."""
COUNTED_NOUNS: Final = frozenset(
    "people men women children feet meter metre km kg usd eur percent am pm rpm mile model edition word".split()
)
"""Nouns that turn 2000 into an amount; plurals do the same."""
NOT_PLURALS: Final = frozenset(
    "this does always perhaps besides towards afterwards was is as has his its us".split()
)


def _load_day_words() -> Iterator[tuple[str, tuple[str, int]]]:
    for language in ("chinese", "japanese", "korean"):
        for key, words in load_groups(__name__, "day_words", language):
            unit, step = key.split()
            for word in words.split(", "):
                yield word, (unit, int(step))


CHINESE_WORDS: Final = dict(_load_day_words()) | {
    f"{which}{week}": ("week", step)
    for which, step in {"这": 0, "本": 0, "上": -1, "上上": -2, "下": 1}.items()
    for week in ("周", "星期", "礼拜", "个星期", "个礼拜")
}
"""In simplified characters, with similar words of Japanese and Korean."""
CHINESE_NOT_AFTER: Final = "大目以之从如过晚早身世马年月日周"
"""Characters that form another word with the following ones, as in 目前天气."""
CHINESE_NOT_BEFORE: Final = "围边密转轻纪"
