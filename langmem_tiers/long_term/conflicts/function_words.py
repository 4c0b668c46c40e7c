"""Function words of English: conjunctions, negations, articles and pronouns."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

ARTICLES = frozenset("a an the".split())
POINTERS = ARTICLES | frozenset("his her their its this that".split())
"""Determiners that are left out."""
PERSONS: Final = {
    "user": frozenset("i me my mine".split()),
    "we": frozenset("we us our ours".split()),
    "you": frozenset("you your yours".split()),
}
"""Persons by pronoun."""
OWNERS = frozenset("my our your".split())
ASSISTANTS = frozenset("assistant agent ai chatbot bot".split())
BE = frozenset("be is are was were am been being".split())
DO = frozenset("do does did".split())
HAVE = frozenset("have has had".split())
GET = frozenset("get gets got getting".split())
NEGATIONS = frozenset("not never no none nobody nothing neither nor nowhere unable".split())
MODALS = frozenset("must should can may will would shall could might".split())
PREPOSITIONS = frozenset(
    """
    in at on to for from by with of as over than before after above below under until since during between via into
    onto against within without toward near behind because if when while unless except about across inside outside
    per among beside beyond versus vs upon
    """.split()
) | {"instead of"}
CONJUNCTIONS = frozenset("and but or".split())
_ADDING = frozenset("also additionally both another besides further moreover likewise".split())
_ADDING_PAIRS = frozenset({("as", "well"), ("in", "addition"), ("one", "more"), ("along", "with")})


def is_adding(words: list[str]) -> bool:
    """Return True if a text adds something to earlier statements: "also", "as well"."""
    # "too" means "also" after a word, but not in "too small".
    if any(word == "too" and after in ".,;!" for word, after in pairwise([*words, "."])):
        return True
    return not _ADDING.isdisjoint(words) or any(pair in _ADDING_PAIRS for pair in pairwise(words))
