"""Tokenizer for full-text indexes and queries.

Words are lowercased, stripped of accents and, in Latin letters, stemmed with the rules of English; stop
words are removed. Scripts without spaces between words (Chinese, Japanese, Korean, Thai and similar) are
cut into overlapping pairs of characters, Chinese also into single characters; stop words end a run.
Punctuation separates: ``src/app.py`` is three terms.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from langmem_tiers.text.chinese_variants import simplify_chinese
from langmem_tiers.text.stop_words import (
    CHINESE_FILLERS,
    CHINESE_STOP_WORDS,
    JAPANESE_STOP_WORDS,
    KOREAN_STOP_PIECES,
    STOP_WORDS,
)
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_TERMS = 10_000
"""Maximum number of terms per message; only the beginning of longer messages is indexed."""
_MAX_CHARACTERS = 200_000
_MAX_TERM_CHARACTERS = 64  # longer terms are data and are found by their prefix

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_UNSPACED = _HAN + "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7af"
_INDIC = "\u0900-\u0963\u0966-\u0dff"  # Indic vowel signs are marks, which \w does not match
_TERM = re.compile(rf"[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}]|[{_INDIC}])+(?:['’](?:[^\W_{_UNSPACED}])+)*")
_ASCII_TERM = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
_ACCENTS = re.compile("[\u0300-\u036f]")
_UNSPACED_RUN = re.compile(rf"[{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_IS_HAN = re.compile(rf"[{_HAN}]")

_ENDINGS = frozenset("s t d m ll re ve".split())  # after an apostrophe: it's, don't, we'll
_FILLERS = frozenset(load_words(__name__, "stop_words", "fillers"))
_PAIRS_OF_FILLERS = frozenset(map("".join, product(CHINESE_FILLERS, repeat=2)))
_PARTICLES = frozenset(map(chr, range(0x3041, 0x3097)))  # a single Hiragana is a remainder between words
_IGNORED_TERMS = STOP_WORDS | _FILLERS | CHINESE_FILLERS | _PAIRS_OF_FILLERS | _PARTICLES | KOREAN_STOP_PIECES
# Longest first, because the first alternative that matches wins.
_STOP_WORD = re.compile("|".join(sorted(CHINESE_STOP_WORDS | JAPANESE_STOP_WORDS, key=len, reverse=True)))


def extract_terms(text: str) -> list[str]:
    """Return the terms of a text in order, with repetitions."""
    if text.isascii():
        found: Iterable[str] = _ASCII_TERM.findall(text[:_MAX_CHARACTERS].lower())
    else:
        found = _split_unspaced(_TERM.findall(_normalize(text[:_MAX_CHARACTERS])))
    return [term for word in found if (term := _to_term(word))][:MAX_TERMS]


def extract_name_terms(name: str) -> list[str]:
    """Return the terms of a name; no word is removed or cut: 王芳 is one term."""
    words = _TERM.findall(simplify_chinese(_normalize(name[:_MAX_CHARACTERS])))
    return [
        word[:_MAX_TERM_CHARACTERS] if is_unspaced(word) else _to_term(word) or _strip_ending(word)
        for word in words
    ]


def count_words(terms: Sequence[str]) -> int:
    """Estimate the number of words from the terms of a text; in unspaced scripts, two characters count as one word."""
    singles = pairs = 0
    for term in terms:
        if len(term) < 3 and not term.isascii() and is_unspaced(term):
            # Chinese yields single characters and pairs of the same text, so only the larger count is used below.
            singles += len(term) == 1
            pairs += len(term) == 2
    return len(terms) - singles - pairs + (max(singles, pairs) + 1) // 2


def is_unspaced(text: str) -> bool:
    """Return True if the text starts in a script without spaces between words."""
    return _IS_UNSPACED.match(text) is not None


def is_mostly_unspaced(text: str) -> bool:
    """Return True if most letters of the text belong to such scripts."""
    unspaced = sum(run.end() - run.start() for run in find_unspaced_runs(text))
    return 2 * unspaced > sum(map(str.isalpha, text))


def find_unspaced_runs(text: str) -> Iterator[re.Match[str]]:
    """Return matches for the runs of a text in scripts without spaces."""
    return _UNSPACED_RUN.finditer(text)


@lru_cache(maxsize=100_000)
def _to_term(word: str) -> str:
    # Empty for stop words.
    if "'" in word or "’" in word:
        word = _strip_ending(word)
    if word in _IGNORED_TERMS:
        return ""
    return (
        _get_stemmer().stemWord(word)[:_MAX_TERM_CHARACTERS]
        if word.isascii() and word.isalpha()
        else word[:_MAX_TERM_CHARACTERS]
    )


def _split_unspaced(found: list[str]) -> Iterator[str]:
    for word in found:
        if is_unspaced(word):
            for part in _STOP_WORD.split(simplify_chinese(word)):
                yield from _iter_pairs(part)
        else:
            yield word


def _normalize(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Decomposed, stripped of accents and recomposed: é becomes e, and a Korean syllable stays one character.
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart))


def _strip_ending(word: str) -> str:
    parts = word.replace("’", "'").split("'")
    # Only the last part is an ending: "rock'n'roll" keeps all its parts, "we'll" loses "ll".
    if len(parts) == 1:
        return word
    return "".join(parts[:-1] if parts[-1] in _ENDINGS else parts)


def _iter_pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
        return
    # Overlapping pairs work as words of unknown boundaries: a query for 手机 finds it at any position.
    for first, second in pairwise(run):
        if _IS_HAN.match(first):
            yield first
        yield first + second
    if _IS_HAN.match(run[-1:]):
        yield run[-1]


_thread_local = threading.local()


def _get_stemmer() -> Any:  # noqa: ANN401 - the library has no types
    # One per thread, because a stemmer stores its current word and is not thread-safe.
    found = getattr(_thread_local, "stemmer", None)
    if found is None:
        import snowballstemmer  # noqa: PLC0415 - imported for the first word that is stemmed

        found = _thread_local.stemmer = snowballstemmer.stemmer("english")
    return found
