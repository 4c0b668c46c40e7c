"""Sentence boundaries, and shortening of text at word boundaries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Callable


_SENTENCE_END = re.compile("[.!?…]++[\"'’”)\\]*_]*+(?=\\s|$)|[\u3002\uff01\uff1f]++[」』”]?+|\\n++")
_ABBREVIATIONS = "|".join(map(re.escape, load_words(__name__, "abbreviations", "words")))
_ABBREVIATION = re.compile(rf"(?:^|[\s(])(?:{_ABBREVIATIONS})$", re.IGNORECASE)
_MAX_ABBREVIATION_CHARACTERS = 8
_BLANK_SENTENCE = re.compile(r"[\s.…]*")
_ELLIPSIS = "..."


def find_sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence without surrounding whitespace; line breaks also end sentences."""
    spans = []
    start = 0
    for end in _SENTENCE_END.finditer(text):
        # Only the last few characters are searched, so that the check is fast for long sentences.
        if end[0] == "." and _ABBREVIATION.search(
            text[max(start, end.start() - _MAX_ABBREVIATION_CHARACTERS) : end.start()]
        ):
            continue
        spans.append((start, end.end()))
        start = end.end()
    spans.append((start, len(text)))
    return [_strip_span(text, *span) for span in spans if not _BLANK_SENTENCE.fullmatch(text, *span)]


def shorten_text(text: str, characters: int) -> str:
    """Return the text on one line; if it is too long, cut it between words and append three dots.

    Args:
        text: Any text.
        characters: Maximum length of the result. A single word that takes two thirds of it is cut within the word.
    """
    # Only a prefix is split, because the text may be long. The factor 16 leaves room for runs of whitespace.
    text = text.strip()
    line = " ".join(text[: 16 * characters].split())
    if len(line) <= characters and 16 * characters >= len(text):
        return line
    limit = max(0, characters - len(_ELLIPSIS))
    if len(line) <= limit:
        return line + _ELLIPSIS
    kept = line[: limit + 1].rpartition(" ")[0].rstrip(" ,;:-")
    if 3 * len(kept) < limit:  # a long word such as a path: part of it is better than dropping it
        kept = line[:limit]
    return kept + _ELLIPSIS if limit else line[:characters]


def _strip_span(text: str, start: int, end: int) -> tuple[int, int]:
    while text[start].isspace():
        start += 1
    while text[end - 1].isspace():
        end -= 1
    return start, end


def find_largest_fitting(max_number: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to ``max_number`` for which ``fits`` is true, or 0. Uses binary search.

    Token counters are not additive, so every candidate text must be counted as a whole. The search needs few counts.
    """
    # Usually everything fits: one count suffices.
    if max_number <= 0 or fits(max_number):
        return max(0, max_number)
    low, high = 0, max_number  # low fits or is 0, high does not fit
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def truncate_with_ellipsis(text: str, characters: int) -> str:
    """Return the text, cut to this length including a trailing "..." if it is longer."""
    if len(text) <= characters:
        return text
    return "" if characters <= 3 else text[: characters - 3].rstrip() + "..."
