"""Vocabulary of time expressions as plain tables; another language needs other tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.text.word_lists import load_groups, load_words

if TYPE_CHECKING:
    from collections.abc import Iterator

_MONTH_GROUPS = load_groups(__name__, "vocabulary", "months")
MONTHS: Final = {name: number for number, (name, _) in enumerate(_MONTH_GROUPS, start=1)}
SHORT_MONTHS: Final = {
    word: number for number, (_, short) in enumerate(_MONTH_GROUPS, start=1) for word in short.split()
}
ALL_MONTHS: Final = MONTHS | SHORT_MONTHS
AMBIGUOUS_MONTHS: Final = frozenset({"march", "april", "may", "june", "august", *SHORT_MONTHS})
"""Also names, verbs or adjectives: read as months only with a cue next to them."""
VERB_MONTHS: Final = frozenset({"march", "may"})

_WEEKDAY_GROUPS = load_groups(__name__, "vocabulary", "weekdays")
WEEKDAYS: Final = {name: number for number, (name, _) in enumerate(_WEEKDAY_GROUPS)}
SHORT_WEEKDAYS: Final = {
    word: number for number, (_, short) in enumerate(_WEEKDAY_GROUPS) for word in short.split()
}
"""Read only before a date, because most are ordinary words."""
GENERIC_DAY_WORDS: Final = frozenset(load_words(__name__, "vocabulary", "generic days"))
"""Words before a weekday or month that make it generic ("every Monday") or a feast ("Easter Monday")."""

SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""First of three months, in the northern hemisphere."""

NUMBER_NAMES: Final = load_words(__name__, "vocabulary", "numbers")
"""From zero to twenty."""
NUMBERS: Final = {word: number for number, word in enumerate(NUMBER_NAMES) if number} | {
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90,
}  # fmt: skip
VAGUE_NUMBERS: Final = {"couple": (2, 3), "few": (2, 5), "several": (3, 8)}
"""Minimum and maximum."""
ORDINAL_NAMES: Final = load_words(__name__, "vocabulary", "ordinals")
"""From first to twentieth."""
ORDINALS: Final = {
    word: number
    for number, word in enumerate(
        [*ORDINAL_NAMES, *(f"twenty-{word}" for word in ORDINAL_NAMES[:9]), "thirtieth", "thirty-first"],
        start=1,
    )
}

UNITS: Final = {
    f"{word}{end}": unit
    for unit, words in load_groups(__name__, "vocabulary", "units")
    for word in words.split()
    for end in ("", "s")
}
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

MONTH_CUES: Final = frozenset(load_words(__name__, "vocabulary", "month cues"))
SURE_MONTH_CUES: Final = frozenset("in since during early mid late until till throughout".split())
"""Before "may" and "march", even if the next word could belong to a verb."""
YEAR_CUES: Final = frozenset(load_words(__name__, "vocabulary", "year cues"))
SEASON_CUES: Final = frozenset(load_words(__name__, "vocabulary", "season cues"))
DETERMINERS: Final = frozenset("the our my your his her their".split())
POSSESSIVES: Final = frozenset("my your his its our their".split())
""""My last week there" is not last week. "Her" is not included because of "I told her last week"."""

WORDS_AFTER_DATE: Final = frozenset(load_words(__name__, "vocabulary", "after dates"))
"""Words that may follow a date, but hardly "may" as a verb."""
COUNTED_NOUNS: Final = frozenset(load_words(__name__, "vocabulary", "counted nouns"))
"""Nouns that turn 2000 into an amount; plurals do the same."""
NOT_PLURALS: Final = frozenset(load_words(__name__, "vocabulary", "not plurals"))


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
