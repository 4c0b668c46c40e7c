"""The terms of a text: what full text looks for and what it is looked for by.

Words are lowered, freed of accents, and stemmed by the rules of English where they are written in Latin
letters; words that are in every text are left out. Scripts that do not put spaces between words
(Chinese, Japanese, Korean, Thai and their neighbours) are cut into overlapping pairs of characters,
Chinese into single characters too; words of every text end a run. Marks separate: ``src/app.py``
is three terms.
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_TERMS = 10_000
"""Of one message; of a longer one the beginning is indexed."""
_MAX_CHARACTERS = 200_000
_MAX_TERM_CHARACTERS = 64  # characters of a term: longer ones are data, found by their beginning

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_UNSPACED = _HAN + "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7af"
_INDIC = "\u0900-\u0963\u0966-\u0dff"  # Indic vowels are marks, which Python takes for no letters
_TERM = re.compile(rf"[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}]|[{_INDIC}])+(?:['’](?:[^\W_{_UNSPACED}])+)*")
_ASCII_TERM = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
_ACCENTS = re.compile("[\u0300-\u036f]")
_UNSPACED_RUN = re.compile(rf"[{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_IS_HAN = re.compile(rf"[{_HAN}]")

_ENDINGS = frozenset("s t d m ll re ve".split())  # behind an apostrophe: it's, don't, we'll
_FILLERS = frozenset(
    "s t ve ll re m d don didn doesn isn wasn aren won im yeah yes oh ok okay hey hi hello bye wow thank thanks".split()
)  # what is left of short forms, and what people say without saying anything
_PAIRS_OF_FILLERS = frozenset(map("".join, product(CHINESE_FILLERS, repeat=2)))
_PARTICLES = frozenset(map(chr, range(0x3041, 0x3097)))  # a single Hiragana is what is left between words
_IGNORED_TERMS = STOP_WORDS | _FILLERS | CHINESE_FILLERS | _PAIRS_OF_FILLERS | _PARTICLES | KOREAN_STOP_PIECES
_STOP_WORD = re.compile("|".join(sorted(CHINESE_STOP_WORDS | JAPANESE_STOP_WORDS, key=len, reverse=True)))


def extract_terms(text: str) -> list[str]:
    """The terms of a text in their order, each as often as it is there."""
    if text.isascii():
        found: Iterable[str] = _ASCII_TERM.findall(text[:_MAX_CHARACTERS].lower())
    else:
        found = _split_unspaced(_TERM.findall(_normalize(text[:_MAX_CHARACTERS])))
    return [term for word in found if (term := _to_term(word))][:MAX_TERMS]


def extract_name_terms(name: str) -> list[str]:
    """The terms of a name, in which no word is left out and none is cut: 王芳 is one."""
    words = _TERM.findall(simplify_chinese(_normalize(name[:_MAX_CHARACTERS])))
    return [
        word[:_MAX_TERM_CHARACTERS] if is_unspaced(word) else _to_term(word) or _strip_ending(word)
        for word in words
    ]


def count_words(terms: Sequence[str]) -> int:
    """How many words the terms of a text stand for: two characters are about one, however they are cut."""
    singles = pairs = 0
    for term in terms:
        if len(term) < 3 and not term.isascii() and is_unspaced(term):
            singles += len(term) == 1
            pairs += len(term) == 2
    return len(terms) - singles - pairs + (max(singles, pairs) + 1) // 2


def is_unspaced(text: str) -> bool:
    """Whether it begins in a script that puts no spaces between words."""
    return _IS_UNSPACED.match(text) is not None


def is_mostly_unspaced(text: str) -> bool:
    """Whether most of its letters are of such scripts."""
    of_them = sum(run.end() - run.start() for run in find_unspaced_runs(text))
    return 2 * of_them > sum(map(str.isalpha, text))


def find_unspaced_runs(text: str) -> Iterator[re.Match[str]]:
    """The stretches of a text in scripts without spaces, with their places."""
    return _UNSPACED_RUN.finditer(text)


@lru_cache(maxsize=100_000)
def _to_term(word: str) -> str:
    # Nothing for what is in every text.
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
    # Taken apart, freed of accents and put together again: é is e, and a Korean syllable stays one.
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart))


def _strip_ending(word: str) -> str:
    parts = word.replace("’", "'").split("'")
    if len(parts) == 1:
        return word
    return "".join(parts[:-1] if parts[-1] in _ENDINGS else parts)


def _iter_pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
        return
    for first, second in pairwise(run):
        if _IS_HAN.match(first):
            yield first
        yield first + second
    if _IS_HAN.match(run[-1:]):
        yield run[-1]


_thread_local = threading.local()


def _get_stemmer() -> Any:  # noqa: ANN401 - the library has no types
    # One for each thread: it keeps the word that it is at, so two at once get wrong stems or an error.
    found = getattr(_thread_local, "stemmer", None)
    if found is None:
        import snowballstemmer  # noqa: PLC0415 - not before the first word is stemmed

        found = _thread_local.stemmer = snowballstemmer.stemmer("english")
    return found
