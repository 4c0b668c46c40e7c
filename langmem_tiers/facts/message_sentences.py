"""Split messages into the sentences that their author wrote, verbatim."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.common.prompt_fences import FENCE_OPENING, strip_fences
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_MESSAGE_CHARACTERS = 8_000
"""Maximum number of characters read from a message."""
MAX_SENTENCE_CHARACTERS = 400
"""Maximum length of a sentence; longer ones are split between words."""

_CODE_BLOCK = re.compile(r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1|\Z)|```.*?(?:```|\Z)", re.DOTALL | re.MULTILINE)
_PRE_BLOCK = re.compile(r"<(pre|code)\b[^>]{0,200}>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
# A line of at least this length probably ends because of line wrapping, not because the sentence ended.
_WRAPPED_LINE_CHARACTERS = 60
_PARAGRAPH_BREAK = "\n\n"
_LIST_ITEM = re.compile(r"\s*(?:[-*•+\u2013\u2014]|\d{1,3}[.)]|[a-z][.)]|#{1,6}|\[[ xX]\])\s+")
_CLOSING_MARKS = r"[\"'”’)\]*_]*"
_LINE_END = re.compile(rf"[.!?:;…\u3002\uff01\uff1f]{_CLOSING_MARKS}$")
_SENTENCE_END = re.compile(rf"[.!?…]+{_CLOSING_MARKS}(?=\s)|[\u3002\uff01\uff1f]+[\u300d\u300f\uff09”’]*")
_LAST_WORD = re.compile(r"[^\s(\[\"'“\u2018]*\Z")
_ABBREVIATIONS = frozenset(load_words(__name__, "abbreviations", "never final"))
# Abbreviations that may also end a sentence; they do if a capital letter follows.
_FINAL_ABBREVIATIONS = frozenset(load_words(__name__, "abbreviations", "sometimes final"))


def extract_spoken_text(content: str) -> str:
    """Return the text without code blocks, quoted lines, tables and injected memory."""
    # An opening fence that is left after `strip_fences` was never closed: everything after it may be memory.
    text = strip_fences(content).partition(FENCE_OPENING)[0][:MAX_MESSAGE_CHARACTERS]
    # Code is replaced by a paragraph break, not by nothing: the text around it must not become one sentence.
    text = _PRE_BLOCK.sub(_PARAGRAPH_BREAK, _CODE_BLOCK.sub(_PARAGRAPH_BREAK, text))
    return "\n".join("" if line.lstrip().startswith((">", "|")) else line for line in text.split("\n"))


def iter_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text with single spaces, none longer than ``MAX_SENTENCE_CHARACTERS``.

    URLs, numbers, versions and abbreviations are not split. A line that starts with a lower-case letter continues the
    previous line.
    """
    for paragraph in _iter_paragraphs(text):
        start = 0
        for match in _SENTENCE_END.finditer(paragraph):
            if _is_sentence_end(paragraph, match):
                yield from _split_long_sentence(paragraph[start : match.end()].strip())
                start = match.end()
        yield from _split_long_sentence(paragraph[start:].strip())


def cut_at_word(text: str, characters: int = MAX_SENTENCE_CHARACTERS) -> str:
    """Return the text, cut after the last word that fits. Returns "" if the first word is too long."""
    if len(text) <= characters:
        return text
    # One more character, so that a word that ends exactly at the limit is kept.
    return text[: characters + 1].rpartition(" ")[0].rstrip()


def _iter_paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        item = _LIST_ITEM.match(line)
        words = " ".join(line[item.end() if item else 0 :].split())
        is_continuation = not item and lines and _is_continued(lines[-1], words)
        if not is_continuation and lines:
            yield " ".join(lines)
            lines = []
        if words:
            lines.append(words)
    if lines:
        yield " ".join(lines)


def _is_continued(line: str, following: str) -> bool:
    if _LINE_END.search(line) or not following:
        return False
    return following[0].islower() or (len(line) >= _WRAPPED_LINE_CHARACTERS and not following[0].isupper())


def _is_sentence_end(paragraph: str, match: re.Match[str]) -> bool:
    # Only a single period is ambiguous; "!", "?", "..." and full-width marks always end a sentence.
    if match[0][0] != "." or match[0].startswith(".."):
        return True
    # 20 characters suffice for any abbreviation and bound the search in a text without spaces.
    found = _LAST_WORD.search(paragraph, max(0, match.start() - 20), match.start())
    word = found[0].lower() if found else ""
    is_capital_next = paragraph[match.end() : match.end() + 2].strip()[:1].isupper()
    if word in _FINAL_ABBREVIATIONS and is_capital_next:
        return True
    # A single capital letter before a capitalized word is an initial ("J. Smith"), except for the pronoun "I".
    is_initial = (
        len(word) == 1 and word.isalpha() and word != "i" and found is not None and found[0].isupper()
    )
    return not (word in _ABBREVIATIONS or word in _FINAL_ABBREVIATIONS or (is_initial and is_capital_next))


def _split_long_sentence(sentence: str) -> Iterator[str]:
    while len(sentence) > MAX_SENTENCE_CHARACTERS:
        piece = cut_at_word(sentence)
        if piece:
            yield piece
            sentence = sentence[len(piece) :].lstrip()
        else:  # a word that exceeds the limit is data, not language
            sentence = sentence.partition(" ")[2].lstrip()
    if sentence:
        yield sentence
