"""Families of words: what is derived from the same word, and what often stands for another in the same sentence.

Neither makes two words one key: they only align what is left over on both sides once all else is matched.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from langmem_tiers.scoring.statements.inflection import stem
from langmem_tiers.scoring.statements.kindred import GROUPS, IRREGULAR
from langmem_tiers.scoring.statements.vocabulary import are_opposite, key_of

_SUFFIXES: Final = tuple(
    sorted(
        """
        ations ation itions ition ions ion ings ing ments ment ness ances ance ences ence ancy ency als al ers er
        ors or ists ist ants ant ents ent ives ive ables able ibles ible ful less ships ship ity ies ous ics ic ly
        age ages ag ed es s th ism y e ee at ate ities ure ur
        """.split(),
        key=lambda suffix: -len(suffix),
    )
)
_IRREGULAR: Final = {stem(word): stem(base) for word, base in IRREGULAR.items()}
_SHORTEST: Final = 4
"""Letters of a root: shorter ones are shared by words that have nothing in common."""
_CUT: Final = 5
"""Letters from which on the beginning of a word stands for it."""
_ENDING: Final = re.compile(r"(?:[aeiy]|(?P<twice>[bdgklmnprt])(?P=twice))\Z")


@lru_cache(maxsize=20_000)
def roots_of(word: str) -> frozenset[str]:
    """What may be left of a word without the endings that make another kind of word of it."""
    word = _IRREGULAR.get(word, word)
    found = {_bare(word)}
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST:
            found.add(_bare(word[: -len(suffix)]))
            break
    return frozenset(found)


def _bare(word: str) -> str:
    match = _ENDING.search(word)
    return word[:-1] if match and len(word) > _SHORTEST else word


@lru_cache(maxsize=20_000)
def _groups_of(key: str) -> frozenset[int]:
    return GROUPS_BY_KEY.get(key, frozenset())


def _by_key() -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for number, group in enumerate(GROUPS):
        for word in group:
            key = key_of(word) if " " not in word else word
            found.setdefault(key or word, set()).add(number)
    return {key: frozenset(numbers) for key, numbers in found.items()}


GROUPS_BY_KEY: Final = _by_key()
"""The groups of words alike that a key is in."""


@lru_cache(maxsize=50_000)
def are_akin(one: str, other: str) -> bool:
    """Whether two keys are of one family, or often stand for each other."""
    if are_opposite(one, other):
        return False
    return bool(_groups_of(one) & _groups_of(other)) or are_derived(one, other) or _is_cut(one, other)


def _is_cut(one: str, other: str) -> bool:
    # "retro" for "retrospective"
    short, long = sorted((one, other), key=len)
    return len(short) >= _CUT and long.startswith(short) and short.isalpha()


@lru_cache(maxsize=50_000)
def are_derived(one: str, other: str) -> bool:
    """Whether two keys are of one family: allergy and allergic, approve and approval."""
    return bool(roots_of(one) & roots_of(other)) and one.isalpha() and other.isalpha()
