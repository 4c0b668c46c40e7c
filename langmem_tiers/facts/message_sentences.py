"""The sentences that somebody says in a message, word for word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.common.prompt_fences import OPENING, without_fences

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_READ = 8_000
"""Characters of a message that are read."""
MAX_CHARACTERS = 400
"""Of a sentence; longer ones are cut between words."""

_CODE = re.compile(r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1|\Z)|```.*?(?:```|\Z)", re.DOTALL | re.MULTILINE)
_PRE = re.compile(r"<(pre|code)\b[^>]{0,200}>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_WRAPPED = 60  # characters of a line that was broken because it was full
_BREAK = "\n\n"
_ITEM = re.compile(r"\s*(?:[-*•+\u2013\u2014]|\d{1,3}[.)]|[a-z][.)]|#{1,6}|\[[ xX]\])\s+")
_CLOSED = r"[\"'”’)\]*_]*"
_LINE_END = re.compile(rf"[.!?:;…\u3002\uff01\uff1f]{_CLOSED}$")
_END = re.compile(rf"[.!?…]+{_CLOSED}(?=\s)|[\u3002\uff01\uff1f]+[\u300d\u300f\uff09”’]*")
_LAST_WORD = re.compile(r"[^\s(\[\"'“\u2018]*\Z")
_ABBREVIATIONS = frozenset(
    """
    dr mr mrs ms prof st sr jr vs sq e.g i.e eg ie cf ca approx no nr fig vol pp ed eds al dept est gen gov hon rev sgt
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun z.b d.h bzw usw inkl
    """.split()
)
# These end a sentence too, and then a capital follows.
_MAY_END = frozenset("etc inc ltd co corp a.m p.m am pm u.s u.k e.u ph.d no sat sun".split())


def said(content: str) -> str:
    """What somebody says there: without code, without quoted lines, without what memory had put into it."""
    text = without_fences(content).partition(OPENING)[0][:MAX_READ]
    text = _PRE.sub(_BREAK, _CODE.sub(_BREAK, text))
    return "\n".join("" if line.lstrip().startswith((">", "|")) else line for line in text.split("\n"))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, with single spaces, none longer than ``MAX_CHARACTERS``.

    Nothing is split inside an address, a number, a version or an abbreviation. A line that goes on in small letters
    belongs to the one before it.
    """
    for paragraph in _paragraphs(text):
        start = 0
        for match in _END.finditer(paragraph):
            if _ends(paragraph, match):
                yield from _pieces(paragraph[start : match.end()].strip())
                start = match.end()
        yield from _pieces(paragraph[start:].strip())


def cut(text: str, characters: int = MAX_CHARACTERS) -> str:
    """The text, or as many of its words as fit."""
    if len(text) <= characters:
        return text
    return text[: characters + 1].rpartition(" ")[0].rstrip()


def _paragraphs(text: str) -> Iterator[str]:
    held: list[str] = []
    for line in text.splitlines():
        item = _ITEM.match(line)
        words = " ".join(line[item.end() if item else 0 :].split())
        goes_on = not item and held and _goes_on(held[-1], words)
        if not goes_on and held:
            yield " ".join(held)
            held = []
        if words:
            held.append(words)
    if held:
        yield " ".join(held)


def _goes_on(line: str, following: str) -> bool:
    if _LINE_END.search(line) or not following:
        return False
    return following[0].islower() or (len(line) >= _WRAPPED and not following[0].isupper())


def _ends(paragraph: str, match: re.Match[str]) -> bool:
    if match[0][0] != "." or match[0].startswith(".."):
        return True
    found = _LAST_WORD.search(paragraph, max(0, match.start() - 20), match.start())
    word = found[0].lower() if found else ""
    is_capital_next = paragraph[match.end() : match.end() + 2].strip()[:1].isupper()
    if word in _MAY_END and is_capital_next:
        return True
    is_initial = (
        len(word) == 1 and word.isalpha() and word != "i" and found is not None and found[0].isupper()
    )
    return not (word in _ABBREVIATIONS or word in _MAY_END or (is_initial and is_capital_next))


def _pieces(sentence: str) -> Iterator[str]:
    while len(sentence) > MAX_CHARACTERS:
        piece = cut(sentence)
        if piece:
            yield piece
            sentence = sentence[len(piece) :].lstrip()
        else:  # a word longer than that is data
            sentence = sentence.partition(" ")[2].lstrip()
    if sentence:
        yield sentence
