"""Splitting of a text into words, numbers, addresses and marks, with contractions written out."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from langmem_tiers.text.word_lists import load_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

_PIECE = re.compile(
    r"""
      (?P<address>(?:https?|ftp|wss?|s3|gs|ssh|git)://[^\s<>"'`]+|www\.[^\s<>"'`]+|[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+
        |(?<![\w.])(?:~|\.{1,2})?/[\w.@%+-]+(?:/[\w.@%+-]*)*|[A-Za-z]:\\[\w.\\-]+|(?:[\w-]{1,64}/){1,20}[\w-]{1,64}\.\w{1,5}\b)
    | (?P<date>\d{4}-\d{1,2}-\d{1,2}\b|\b(?:19|20)\d\d-(?:0[1-9]|1[0-2])\b|\d{4}/\d{1,2}/\d{1,2}\b
        |\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|\d{1,2}-\d{1,2}-\d{4}\b)
    | (?P<address2>\d{1,3}(?:\.\d{1,3}){3}(?::\d+|/\d+)?\b)
    | (?P<time>\d{1,2}\.\d{2}\s?[ap]\.?m\b|\d{1,2}:\d{2}(?::\d{2})?(?:\s?[ap]\.?m\b\.?)?|\d{1,2}\s?[ap]\.?m\b\.?)
    | (?P<version>\bv\d+(?:\.\d+)*\b|\d+\.\d+(?:\.\d+)+)
    | (?P<number>[$€£¥₹]\s?\d[\d,]*(?:\.\d+)?(?:k|m|bn|b)?\b
        |(?:(?<=\s)-|\A-)?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?))
    | (?P<word>[^\W\d_][\w]*(?:['’][^\W\d_]+)?(?:\.(?:js|net|py|io)\b)?(?:-\d[\w.]*)?(?:\+\+|\#)?|\w+)
    | (?P<mark>->|=>|→|>=|<=|≥|≤|!=|==|[^\w\s])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NOT_LINKED = str.maketrans(
    {
        "\u2019": "'",
        "\u2018": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": " - ",
        "`": " ",
        "*": " ",
    }
)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)")
_DASHED = re.compile(r"\b(\d{1,2})-([A-Za-z]{3,9})-(\d{4})\b")
_PRONOUNS = re.compile(
    r"\b(?:she|he|they|xe|ze)(?:/(?:her|hers|him|his|them|theirs|they|she|he))+\b", re.IGNORECASE
)
_SQUARES = re.compile(r"\bsquare (m|f)(?:et(?:er|re)s?|eet|oot)\b", re.IGNORECASE)
_JOINT = re.compile(r"\b(co|re|pre|non)-(?=[a-z])", re.IGNORECASE)
_TITLE = re.compile(
    r"\b(?:[A-Z]|Dr|Mr|Mrs|Ms|Prof|St|No|Inc|Ltd|Jr|Sr|vs|etc|approx|Co|Corp|e\.g|i\.e|dept|appt)\Z"
)
_PARTICIPLE = re.compile(r"[a-z]+(?:ed|ing)\b")
_LATIN_ACCENTS = re.compile("([A-Za-z])[\u0300-\u036f]+")
_OTHER_LETTERS = str.maketrans({"ß": "ss", "ø": "o", "æ": "ae", "œ": "oe", "ł": "l", "đ": "d"})

_SHORT_FORMS = {short: whole.split() for short, whole in load_groups(__name__, "short_forms", "short forms")}
_SHORT_ENDINGS = {"n't": "not", "'re": "are", "'ve": "have", "'ll": "will", "'d": "would", "'s": "'s"}


class Piece(NamedTuple):
    """A token of a text."""

    kind: str
    """Kind: word, number, date, time, version, address or mark."""
    text: str
    """Original text."""
    word: str
    """Text in lower case. For other kinds than words, the value."""
    is_capital: bool = False
    unit: str = ""
    """Unit of a number."""
    determiner: str = ""
    """Determiner before it: "the", "a" or "whose"; or empty."""


def normalize_statement_text(text: str) -> str:
    """Return the text without differences of width, quotation marks, spaces and case."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_NOT_LINKED).casefold().split())


def _strip_accents(text: str) -> str:
    # Removes accents of Latin letters. Other scripts stay unchanged.
    text = unicodedata.normalize("NFKC", text).translate(_NOT_LINKED)
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", _LATIN_ACCENTS.sub(r"\1", apart)).translate(_OTHER_LETTERS)


def split_pieces(text: str) -> list[Piece]:
    """Return the pieces of a text, in order."""
    text = _MOMENT.sub(r"\1 \2", _strip_accents(text)).replace("US$", "$")
    text = _SQUARES.sub(r"sq\1", text)
    text = _PRONOUNS.sub(lambda match: match.group().replace("/", ""), text)
    text = _JOINT.sub(r"\1", _DASHED.sub(r"\1 \2 \3", text))
    found: list[Piece] = []
    for match in _PIECE.finditer(text):
        kind, written = str(match.lastgroup).rstrip("2"), match.group()
        if kind == "word":
            found += _words(written)
        elif kind == "address":
            found.append(Piece(kind, written, written.rstrip(".,;:!?)/").lower()))
        elif kind != "mark" or not _is_silent_mark(text, match):
            found.append(Piece(kind, written, "," if _is_dash(text, match) else written.lower()))
    return found


def _is_silent_mark(text: str, match: re.Match[str]) -> bool:
    """Return True if a mark only joins or quotes. Hyphens of participles and numbers are kept."""
    mark, start, end = match.group(), match.start(), match.end()
    if mark == ".":
        return _TITLE.search(text, max(0, start - 7), start) is not None or text[end : end + 1].isalnum()
    if mark == "-" and text[start - 1 : start].isalpha() and text[end : end + 1].isalpha():
        return _PARTICIPLE.match(text, end) is None
    return mark in "\"'«»_^|\\"


def _is_dash(text: str, match: re.Match[str]) -> bool:
    """Return True if a hyphen separates like a comma. A joining hyphen touches the words on both sides."""
    start, end = match.span()
    is_joint = text[start - 1 : start].isalnum() and text[end : end + 1].isalnum()
    return match.group() == "-" and not is_joint


def _words(written: str) -> list[Piece]:
    lowered = written.lower()
    is_capital = written[0].isupper() or (not written.islower() and written.isalpha())
    if lowered in _SHORT_FORMS:
        return [Piece("word", written, word) for word in _SHORT_FORMS[lowered]]
    if "'" in lowered:
        for ending, word in _SHORT_ENDINGS.items():
            if lowered.endswith(ending) and len(lowered) > len(ending):
                front = written[: -len(ending)]
                return [Piece("word", front, front.lower(), is_capital), Piece("word", ending, word)]
        if lowered.endswith("'"):
            return [Piece("word", written[:-1], lowered[:-1], is_capital), Piece("word", "'s", "'s")]
    if written == "US":
        lowered = "usa"
    return [Piece("word", written, lowered, is_capital)]


def word_at(pieces: Sequence[Piece], index: int) -> str:
    """Return the word of a piece, or an empty string if the index is outside of the text."""
    return pieces[index].word if 0 <= index < len(pieces) else ""


def join_pieces(pieces: Sequence[Piece], start: int, stop: int) -> str:
    """Return the original text of a range of pieces."""
    return " ".join(piece.text for piece in pieces[start:stop])
