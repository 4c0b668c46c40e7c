"""Sentences: where each one stands in a text, and how a text is cut without cutting a word."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile("[.!?…]++[\"'’”)\\]*_]*+(?=\\s|$)|[\u3002\uff01\uff1f]++[」』”]?+|\\n++")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|ca|approx|resp|incl|dr|mr|mrs|ms|prof|fig|eq|sec|vol)$", re.IGNORECASE
)
_MAX_ABBREVIATION_CHARACTERS = 8
_BLANK_SENTENCE = re.compile(r"[\s.…]*")
_ELLIPSIS = "..."


def find_sentence_spans(text: str) -> list[tuple[int, int]]:
    """Where each sentence begins and ends, without the space around it; a line's end ends one too."""
    spans = []
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if end[0] == "." and _ABBREVIATION.search(
            text[max(start, end.start() - _MAX_ABBREVIATION_CHARACTERS) : end.start()]
        ):
            continue
        spans.append((start, end.end()))
        start = end.end()
    spans.append((start, len(text)))
    return [_strip_span(text, *span) for span in spans if not _BLANK_SENTENCE.fullmatch(text, *span)]


def shorten_text(text: str, characters: int) -> str:
    """The text in one line, or as many of its words as fit with three dots behind them.

    Args:
        text: Any text.
        characters: What it may take. A word that would take two thirds of that is cut.
    """
    # Only so much is looked at: the text may be long, and of many spaces one is kept.
    text = text.strip()
    line = " ".join(text[: 16 * characters].split())
    if len(line) <= characters and 16 * characters >= len(text):
        return line
    room = max(0, characters - len(_ELLIPSIS))
    if len(line) <= room:
        return line + _ELLIPSIS
    kept = line[: room + 1].rpartition(" ")[0].rstrip(" ,;:-")
    if 3 * len(kept) < room:  # the next word is a path or a key: a part of it says more than nothing
        kept = line[:room]
    return kept + _ELLIPSIS if room else line[:characters]


def _strip_span(text: str, start: int, end: int) -> tuple[int, int]:
    while text[start].isspace():
        start += 1
    while text[end - 1].isspace():
        end -= 1
    return start, end
