"""Words that reverse the meaning of a sentence when they change."""

from __future__ import annotations

from langmem_tiers.text.time_expressions.vocabulary import (
    ALL_MONTHS,
    NUMBER_NAMES,
    ORDINAL_NAMES,
    SHORT_WEEKDAYS,
    WEEKDAYS,
)
from langmem_tiers.text.word_lists import load_words

NUMBER_WORDS = frozenset((*NUMBER_NAMES, *ORDINAL_NAMES, *load_words(__name__, "negation", "numbers")))
"""Number words."""

_DATE_STEMS = frozenset((*ALL_MONTHS, *WEEKDAYS, *SHORT_WEEKDAYS, *load_words(__name__, "negation", "times")))
DATE_WORDS = _DATE_STEMS | {f"{word}{end}" for word in _DATE_STEMS for end in ("s", "'s", "’s")}
"""Days, months and times, including plurals and possessives."""

OPPOSITES = frozenset(load_words(__name__, "negation", "opposites"))
"""Words that have an opposite."""

NEGATIONS = frozenset(load_words(__name__, "negation", "negations"))
"""Negations in common languages."""
