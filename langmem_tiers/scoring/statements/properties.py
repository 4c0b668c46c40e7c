"""Properties that are said by a noun or by a verb: my birthplace is Porto, I was born in Porto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.scoring.statements.pieces import Piece, word_at
from langmem_tiers.scoring.statements.small_words import BE

if TYPE_CHECKING:
    from collections.abc import Sequence

_RELATIONS_OF_NOUNS = """
birthplace: was born in; place of birth: was born in; employer: works at; workplace: works at;
profession: works as; occupation: works as; job: works as; job title: works as; manager: reports to; boss:
reports to; supervisor: reports to; line manager: reports to; salary: earns; income: earns; wage: earns;
venue: is at; location: is at; topic: is about; subject: is about; theme: is about; color: is; colour: is;
price: costs; cost: costs; weight: weighs; duration: lasts; length: is long; height: is tall; width: is
wide; age: is; home: lives; residence: lives in; home town: comes from; hometown: comes from; major:
studies; field of study: studies; rent: pays; start date: starts on; end date: ends on; due date:
is due on; release date: is released on; expiry date: expires on; expiration date: expires on; wedding date:
is married on; size: is; marital status: is; nationality: is; shoe size: wears shoes in size; capacity:
holds; diet: is
"""
_PLAIN: Final = {"my": "i", "our": "we", "your": "you"}
_NAMES_ONLY: Final = frozenset({"manager", "boss", "supervisor", "line manager", "employer", "workplace"})
_VALUES_ONLY: Final = frozenset(
    "salary income wage price cost weight duration length height width age rent capacity".split()
)
_OF_EVENTS: Final = frozenset("venue location topic price cost duration".split())
"""Properties that can stand right behind what they belong to: the wedding venue."""
_BARE_VALUES: Final = frozenset({"size", "marital status", "nationality", "diet", "age", "color", "colour"})
_LONGEST: Final = 3


def _table() -> dict[tuple[str, ...], tuple[str, ...]]:
    found = {}
    for line in " ".join(_RELATIONS_OF_NOUNS.split()).split(";"):
        noun, _, verbs = line.strip().partition(":")
        if verbs.strip():
            found[tuple(noun.split())] = tuple(verbs.split())
    return found


_TABLE: Final = _table()


def as_relation(pieces: Sequence[Piece]) -> list[Piece] | None:
    """The sentence with a verb for its property; nothing if it tells of none."""
    at = next((place for place, piece in enumerate(pieces) if piece.word in BE or piece.word == ":"), 0)
    if not at or at + 1 >= len(pieces) or pieces[at].word not in {"is", "was", ":", "are"}:
        return None
    parted = _owned(pieces[:at])
    if parted is None:
        return None
    owner, noun = parted
    verbs, value = _TABLE[noun], list(pieces[at + 1 :])
    if not _fits(" ".join(noun), value):
        return None
    return _joined(owner, list(verbs), value)


def _owned(pieces: Sequence[Piece]) -> tuple[list[Piece], tuple[str, ...]] | None:
    """Whose property it is, and which: the price of the car, the car's price, car price."""
    words = [piece.word for piece in pieces]
    if "of" in words and words[0] == "the":
        for size in range(_LONGEST, 0, -1):
            if tuple(words[1 : 1 + size]) in _TABLE and word_at(pieces, 1 + size) == "of":
                return list(pieces[2 + size :]), tuple(words[1 : 1 + size])
    for size in range(_LONGEST, 0, -1):
        noun, owner = tuple(words[-size:]), list(pieces[:-size])
        if noun not in _TABLE or not owner:
            continue
        if owner[-1].word == "'s":
            return owner[:-1], noun
        if len(owner) == 1 and owner[0].word in _PLAIN:
            return [owner[0]._replace(word=_PLAIN[owner[0].word])], noun
        if len(owner) == 1 and owner[0].word == "user":
            return owner, noun
        if len(owner) == 2 and owner[0].word == "the" and " ".join(noun) in _OF_EVENTS:
            return owner, noun
    return None


def _fits(noun: str, value: list[Piece]) -> bool:
    has_number = any(piece.kind in {"number", "time", "date"} for piece in value[:3])
    if noun in _VALUES_ONLY:
        return has_number
    if noun in _NAMES_ONLY:
        return all(piece.is_capital for piece in value) and len(value) <= 3
    if noun in _BARE_VALUES:
        return len(value) <= 2
    if noun == "home":
        return value[0].word in {"in", "at", "on"}
    return value[0].word not in BE


def _joined(owner: list[Piece], verbs: list[str], value: list[Piece]) -> list[Piece]:
    if value[0].word in {"in", "at", "on", "about"} and verbs[-1] in {"in", "at", "on", "about", "as"}:
        verbs = verbs[:-1]
    if verbs == ["pays"]:
        return [*owner, _word("pays"), *value, _word("in"), _word("rent")]
    if verbs[-1] in {"long", "tall", "wide"}:  # behind the number
        return [*owner, _word(verbs[0]), *value, _word(verbs[-1])]
    return [*owner, *map(_word, verbs), *value]


def _word(word: str) -> Piece:
    return Piece("word", word, word)
