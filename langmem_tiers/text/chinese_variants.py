"""Conversion of traditional to simplified Chinese characters, so that either form finds the other."""

from __future__ import annotations

from langmem_tiers.text.word_lists import load_words

_VARIANT_PAIRS = "".join(load_words(__name__, "chinese_variants", "pairs"))
_SIMPLIFY_TABLE = str.maketrans(_VARIANT_PAIRS[::2], _VARIANT_PAIRS[1::2])


def simplify_chinese(text: str) -> str:
    """Replace common traditional characters with simplified ones, character by character."""
    return text.translate(_SIMPLIFY_TABLE)
