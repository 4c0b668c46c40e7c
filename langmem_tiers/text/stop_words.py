"""Stop words by language."""

from __future__ import annotations

from langmem_tiers.text.word_lists import load_words

STOP_WORDS = frozenset(load_words(__name__, "stop_words", "english"))
"""English stop words."""
CHINESE_STOP_WORDS = frozenset(load_words(__name__, "stop_words", "chinese"))
"""Chinese stop words in simplified characters."""
JAPANESE_STOP_WORDS = frozenset(load_words(__name__, "stop_words", "japanese"))
"""Japanese stop words."""
KOREAN_STOP_PIECES = frozenset(load_words(__name__, "stop_words", "korean pieces"))
"""Korean endings and function words, as pairs of syllables."""
CHINESE_FILLERS = frozenset("".join(load_words(__name__, "stop_words", "chinese fillers")))
"""Chinese characters with little meaning of their own."""
