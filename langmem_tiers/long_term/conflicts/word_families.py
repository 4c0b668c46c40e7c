"""Word families: words derived from the same word, and words that often replace each other in a sentence.

They do not give two words one key. They only match the words that are left over after all others are matched.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from langmem_tiers.long_term.conflicts.inflection import stem
from langmem_tiers.long_term.conflicts.vocabulary import are_opposite, get_canonical_key
from langmem_tiers.text.word_lists import load_lines, load_words

GROUPS: Final = tuple(tuple(line.split()) for line in load_lines(__name__, "word_families", "similar"))
IRREGULAR: Final = dict(line.split() for line in load_lines(__name__, "word_families", "irregular"))
"""Irregular words of a family."""


_SUFFIXES: Final = load_words(__name__, "word_families", "suffixes")
_IRREGULAR: Final = {stem(word): stem(base) for word, base in IRREGULAR.items()}
_SHORTEST: Final = 4
"""Minimum length of a root in letters. Shorter roots are shared by unrelated words."""
_CUT: Final = 5
"""Minimum length in letters of an abbreviation by truncation."""
_ENDING: Final = re.compile(r"(?:[aeiy]|(?P<twice>[bdgklmnprt])(?P=twice))\Z")


@lru_cache(maxsize=20_000)
def find_roots(word: str) -> frozenset[str]:
    """Return the possible roots of a word, without derivational endings."""
    word = _IRREGULAR.get(word, word)
    found = {_strip_ending(word)}
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST:
            found.add(_strip_ending(word[: -len(suffix)]))
            break
    return frozenset(found)


def _strip_ending(word: str) -> str:
    match = _ENDING.search(word)
    return word[:-1] if match and len(word) > _SHORTEST else word


@lru_cache(maxsize=20_000)
def _groups_of(key: str) -> frozenset[int]:
    return GROUPS_BY_KEY.get(key, frozenset())


def _index_groups_by_key() -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for number, group in enumerate(GROUPS):
        for word in group:
            key = get_canonical_key(word) if " " not in word else word
            found.setdefault(key or word, set()).add(number)
    return {key: frozenset(numbers) for key, numbers in found.items()}


GROUPS_BY_KEY: Final = _index_groups_by_key()
"""Groups of similar words by key."""


@lru_cache(maxsize=50_000)
def are_related_words(one: str, other: str) -> bool:
    """Return True if two keys belong to one family, or often replace each other."""
    if are_opposite(one, other):
        return False
    return bool(_groups_of(one) & _groups_of(other)) or are_derived(one, other) or _is_truncation(one, other)


def _is_truncation(one: str, other: str) -> bool:
    # "retro" for "retrospective"
    short, long = sorted((one, other), key=len)
    return len(short) >= _CUT and long.startswith(short) and short.isalpha()


@lru_cache(maxsize=50_000)
def are_derived(one: str, other: str) -> bool:
    """Return True if two keys belong to one family: "allergy" and "allergic", "approve" and "approval"."""
    return bool(find_roots(one) & find_roots(other)) and one.isalpha() and other.isalpha()
