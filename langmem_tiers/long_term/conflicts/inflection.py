"""Stemming that removes only inflection and differences of spelling, so that different words keep different stems.

``choose``, ``chose`` and ``choosing`` have one stem, and so do ``colour`` and ``color``. ``university`` and
``universe`` keep different stems; stemmers of search engines would merge them.
"""

from __future__ import annotations

import re
from functools import lru_cache

from langmem_tiers.text.word_lists import load_lines, load_words

_IRREGULAR_VERBS = load_lines(__name__, "inflection", "irregular verbs")
_IRREGULAR_NOUNS = load_lines(__name__, "inflection", "irregular nouns")
_KEPT = frozenset(load_words(__name__, "inflection", "unchanged"))
_OUR = re.compile(
    r"\b(col|fav|hon|lab|neighb|flav|hum|rum|harb|vap|vig|endeav|sav|savi|behavi|arm|od|tum|parl|cand|splend|demean"
    r"|clam|glam)our"
)
_LOGUE = re.compile(r"logu(?:e\Z|(?=es|ed|ing))()")
_GREEK = re.compile(
    r"\b(h|p|an|gyn|leuk|orthop|encyclop|arch|medi|c|f|diarrh|hom)(?:ae|oe)(?=[a-z]{3})|\b()oe(?=str|soph)"
)
_NOT_IZE = frozenset(load_words(__name__, "inflection", "not -ize"))
_ISE = re.compile(r"(?<=[a-z]{3})(i|y)s(e|ed|es|ing|er|ers|able|ation|ations)\Z")
_SINGLE_L = frozenset(load_words(__name__, "inflection", "single l"))

_SPELLINGS: dict[str, str] = dict(line.split() for line in load_lines(__name__, "inflection", "spellings"))
_VOWEL = re.compile("[aeiouy]")
_SHORT = 5
_LOST_E = re.compile(
    r"(?:(?:\A|[^aeiou])[aeiouy][^aeiouwxy]|[rnl][sv]|[rn]c|[rd]g|[^s]s|[cvzu]|[^aeiouyl]l)\Z"
)
"""Endings of a short word before -ed and -ing whose base form ends in e."""
_DOUBLED = re.compile(r"([bdgkmnprtv])\1\Z")


IRREGULAR_BASES = frozenset(line.split()[0] for line in _IRREGULAR_VERBS)
"""Base forms of irregular verbs."""


def _parse_irregular_forms() -> dict[str, str]:
    forms: dict[str, str] = {}
    for line in (*_IRREGULAR_NOUNS, *_IRREGULAR_VERBS):
        base, *others = line.split()
        forms.update(dict.fromkeys((base, *others), base))
    return forms


_IRREGULAR = _parse_irregular_forms()
_IRREGULAR_PASTS = frozenset(
    form
    for line in _IRREGULAR_VERBS
    for form in line.split()[1:]
    if not form.endswith(("s", "ing")) and form not in {"am", "are"}
) | {"was"}


SAME_PASTS = frozenset("quit split shut cut put let".split())
"""Verbs whose past form is the base form."""


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of a word in lower case."""
    if (irregular := _IRREGULAR.get(word)) is not None:
        return irregular
    word = _americanize(word)
    if word in _KEPT or len(word) <= 3 or not word.isalpha() or not word.isascii():
        return word
    singular = _strip_plural(word)
    if singular.endswith("ie") and len(singular) > 4:
        return f"{singular[:-2]}y"  # "movies" was already cut to "movie"
    if (irregular := _IRREGULAR.get(singular)) is not None:
        return irregular
    return _strip_final_e(_strip_verb_ending(singular))


@lru_cache(maxsize=50_000)
def is_past(word: str) -> bool:
    """Return True if the word is a past form, judged by its letters."""
    return word in _IRREGULAR_PASTS or (word.endswith("ed") and stem(word) != _strip_final_e(word))


def _americanize(word: str) -> str:
    if word in _SPELLINGS:
        return _SPELLINGS[word]
    base = word.removesuffix("s")
    if base in _SPELLINGS:
        return _SPELLINGS[base] + word[len(base) :]
    if "logu" in word:
        word = _LOGUE.sub(r"log\1", word)
    if "ae" in word or "oe" in word:
        word = _GREEK.sub(lambda match: f"{match[1] or ''}e", word)
    if "our" in word:
        word = _OUR.sub(r"\1or", word)
    if word not in _NOT_IZE:
        word = _ISE.sub(r"\1z\2", word)
    return word


def _strip_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    if word.endswith("oes"):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _strip_verb_ending(word: str) -> str:
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("ed") and not word.endswith("eed"):
        base = word[:-2]
    elif word.endswith("ing") and word not in _KEPT:
        base = word[:-3]
    else:
        return word
    if len(base) < 2 or not _VOWEL.search(base):
        return word
    if base.endswith("ll") and base[:-1] in _SINGLE_L:
        return base[:-1]
    if len(base) > 3 and _DOUBLED.search(base):
        return base[:-1]
    return base + "e" if len(base) < _SHORT and _LOST_E.search(base) else base


def _strip_final_e(word: str) -> str:
    # Short words keep a final e: "plane" is not "plan". Long words lose it, because their -ed and -ing forms have, too.
    return word[:-1] if len(word) > _SHORT and word.endswith("e") and not word.endswith("ee") else word
