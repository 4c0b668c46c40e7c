"""Words that reverse the meaning of a sentence when they change."""

from __future__ import annotations

from langmem_tiers.text.word_lists import load_words

NUMBER_WORDS = frozenset(load_words(__name__, "negation", "numbers"))
"""Number words."""

_DATE_STEMS = frozenset(load_words(__name__, "negation", "dates"))
DATE_WORDS = _DATE_STEMS | {f"{word}{end}" for word in _DATE_STEMS for end in ("s", "'s", "’s")}
"""Days, months and times, including plurals and possessives."""

OPPOSITES = frozenset(load_words(__name__, "negation", "opposites"))
"""Words that have an opposite."""

NEGATIONS = frozenset(load_words(__name__, "negation", "negations"))
"""Negations in common languages."""
