"""What part of a sentence a word is: verb or noun, helper or main verb, somebody or something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.scoring.statements.inflection import is_past, stem
from langmem_tiers.scoring.statements.small_words import BE, CONJUNCTIONS, DO, MODALS, NEGATIONS, PREPOSITIONS
from langmem_tiers.scoring.statements.vocabulary import NOUNS_TOO, VERBS, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.scoring.statements.pieces import Piece

COPULAS = frozenset({"=", "==", ":"})
_NOUN_ENDINGS = tuple(
    "tion tions sion sions ment ments ence ences ance ances arrival approval choice choices".split()
)

_NUMBERED = frozenset(
    "step track lap match race row number phase test note rule point stage issue round".split()
)
SAME_PARTICIPLES = frozenset(
    "run read set put cut hit cost let shut split come become hurt spread cast bet".split()
)
"""Verbs whose participle is their plain form."""
_OF_USERS = frozenset(
    """
    accounts settings profiles interviews permissions names sessions roles tables ids stories groups inputs flows
    tokens guides manuals preferences credentials passwords emails records lists queries uploads events actions agents
    limits rights details fields types
    """.split()
)
"""Nouns that follow "user": user accounts are nobody's doing."""


def is_letter(pieces: Sequence[Piece], place: int) -> bool:
    """Whether an A is no article: "service A", "A depends on B"."""
    if place > 0 and pieces[place - 1].kind == "word":
        return True
    behind = pieces[place + 1] if place + 1 < len(pieces) else None
    if behind is None or behind.word in BE:
        return True
    return behind.word.endswith("s") and key_of(behind.word) in VERBS and key_of(behind.word) not in NOUNS_TOO


def was_habit(pieces: Sequence[Piece], at: int) -> bool:
    """Whether it begins "used to live", but not "is used to store"."""
    if [piece.word for piece in pieces[at : at + 2]] != ["used", "to"] or at + 2 >= len(pieces):
        return False
    is_passive = at > 0 and pieces[at - 1].word in BE
    return not is_passive and (pieces[at + 2].word == "be" or key_of(pieces[at + 2].word) in VERBS)


def is_participle(behind: Piece | None) -> bool:
    """Whether it makes what stands before it a helper: has lived."""
    if behind is None or behind.kind != "word":
        return False
    word = behind.word
    if word in {"split", "run", "read", "put", "quit", "become", "come", "shut"}:
        return True
    return word in {"been", "not", "never", "always", "recently"} or (is_past(word) and stem(word) != word)


def is_speaker(piece: Piece, behind: Piece | None) -> bool:
    """Whether it is somebody: "the user likes", but not "the user table"."""
    if behind is None or behind.kind != "word" or (piece.determiner == "the" and behind.is_capital):
        return True
    if behind.word in BE or behind.word in NEGATIONS or behind.word in DO or behind.word == "'s":
        return True
    key = key_of(behind.word)
    if not key or key in VERBS or key in MODALS or key in PREPOSITIONS or key in CONJUNCTIONS:
        return True
    return behind.word not in _OF_USERS and (is_past(behind.word) or ends_like_verb(behind.word))


def ends_like_verb(word: str) -> bool:
    """Whether it may be what somebody does."""
    return word.endswith("s") and not word.endswith(("ss", "us", "is"))


def is_noun(piece: Piece, key: str, behind: Piece | None, *, is_start: bool) -> bool:
    """Whether what can be a verb is a noun, by what stands around it."""
    if piece.word.endswith(_NOUN_ENDINGS) or piece.determiner in {"the", "a"}:
        return True
    if key not in NOUNS_TOO and not piece.word.endswith("ing"):
        return False
    if is_start and (piece.word.endswith("s") or (key in _NUMBERED and behind and behind.kind == "number")):
        return True  # no command ends in s: "tests run in parallel"; and "step 2" is none
    word = behind.word if behind is not None else ""
    if word.endswith("s") and not piece.word.endswith("s") and key_of(word) in VERBS:
        return not is_start  # "the health check runs"
    return word in BE or word == "'s" or key_of(word) in MODALS or word in COPULAS or word == "of"
