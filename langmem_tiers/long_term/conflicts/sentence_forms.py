"""Normalization of word order: inverted, possessive, existential and relative sentences become plain ones.

"Carla is my wife" becomes "my wife is Carla", "there are two rooms in the flat" becomes "the flat has two rooms",
and "I have a son who sings" becomes "my son sings". Other sentences are unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.long_term.conflicts.inflection import stem
from langmem_tiers.long_term.conflicts.pieces import Piece, word_at
from langmem_tiers.long_term.conflicts.vocabulary import (
    BE,
    DO,
    HAVE,
    MODALS,
    NEGATIONS,
    PHRASES,
    PREPOSITIONS,
)
from langmem_tiers.text.word_lists import load_groups

if TYPE_CHECKING:
    from collections.abc import Sequence


_PLAIN: Final = {"my": "i", "our": "we", "your": "you"}
_NAMES_ONLY: Final = frozenset({"manager", "boss", "supervisor", "line manager", "employer", "workplace"})
_VALUES_ONLY: Final = frozenset(
    "salary income wage price cost weight duration length height width age rent capacity".split()
)
_OF_EVENTS: Final = frozenset("venue location topic price cost duration".split())
"""Properties that can directly follow their owner: "the wedding venue"."""
_BARE_VALUES: Final = frozenset({"size", "marital status", "nationality", "diet", "age", "color", "colour"})
_LONGEST: Final = 3


def _parse_property_table() -> dict[tuple[str, ...], tuple[str, ...]]:
    table = load_groups(__name__, "properties", "properties")
    return {tuple(noun.split()): tuple(verbs.split()) for noun, verbs in table}


_TABLE: Final = _parse_property_table()


def rewrite_property(pieces: Sequence[Piece]) -> list[Piece] | None:
    """Return the sentence with a verb for its property, or None if it does not describe a property."""
    at = next((place for place, piece in enumerate(pieces) if piece.word in BE or piece.word == ":"), 0)
    if not at or at + 1 >= len(pieces) or pieces[at].word not in {"is", "was", ":", "are"}:
        return None
    parted = _split_owner_and_property(pieces[:at])
    if parted is None:
        return None
    owner, noun = parted
    verbs, value = _TABLE[noun], list(pieces[at + 1 :])
    if not _fits(" ".join(noun), value):
        return None
    return _join_property(owner, list(verbs), value)


def _split_owner_and_property(pieces: Sequence[Piece]) -> tuple[list[Piece], tuple[str, ...]] | None:
    """Return the owner and the property: "the price of the car", "the car's price", "car price"."""
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


def _join_property(owner: list[Piece], verbs: list[str], value: list[Piece]) -> list[Piece]:
    if value[0].word in {"in", "at", "on", "about"} and verbs[-1] in {"in", "at", "on", "about", "as"}:
        verbs = verbs[:-1]
    if verbs == ["pays"]:
        return [*owner, _word("pays"), *value, _word("in"), _word("rent")]
    if verbs[-1] in {"long", "tall", "wide"}:  # these follow the number
        return [*owner, _word(verbs[0]), *value, _word(verbs[-1])]
    return [*owner, *map(_word, verbs), *value]


def _word(word: str) -> Piece:
    return Piece("word", word, word)


_TITLES: Final = frozenset("mr mrs ms dr doctor prof professor miss sir".split())
_OWNING: Final = frozenset("my our your his her their its".split())
_RELATIVE: Final = frozenset("who that which".split())
_NAMED: Final = frozenset("named called".split())
_LESSER: Final = {
    "younger": "older", "shorter": "longer", "smaller": "bigger", "slower": "faster", "worse": "better",
    "lower": "higher", "lighter": "heavier", "weaker": "stronger", "colder": "warmer", "poorer": "richer",
}  # fmt: skip
"""Comparatives with their opposites."""
_PARTICLES: Final = frozenset("back off up out away down over".split())
_GOING: Final = frozenset("go goes went gone going get gets travel travels".split())
_MEANS: Final = {
    ("on", "foot"): "walks", ("by", "foot"): "walks", ("by", "bike"): "cycles", ("by", "bicycle"): "cycles",
    ("by", "car"): "drives", ("by", "plane"): "flies",
}  # fmt: skip
_OWNERS: Final = {"i": "my", "we": "our", "you": "your"}
_FINITE: Final = BE | DO | HAVE | MODALS | frozenset("has had".split())
_REPORTS: Final = frozenset(
    "says said mentions mentioned states stated notes noted reports reported say mention".split()
)
_NO_NAMES: Final = frozenset(
    "i we you it he she they this that these those here there what who where when why how one".split()
)
_LONGEST_NAME, _LONGEST_NOUN, _LONGEST_OWNER = 4, 4, 5
_END: Final = frozenset(".;!?")


def normalize_word_order(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces in plain word order, sentence by sentence."""
    found: list[Piece] = []
    start = 0
    untitled = _drop_titles(pieces)
    for place, piece in enumerate(untitled):
        if piece.kind == "mark" and piece.word in _END:
            found += [*_normalize_sentence(untitled[start:place]), piece]
            start = place + 1
    return found + _normalize_sentence(untitled[start:])


def _normalize_sentence(pieces: list[Piece]) -> list[Piece]:
    if len(pieces) < 3:
        return pieces
    for rewrite in (
        _rewrite_comparative,
        _rewrite_means_of_travel,
        _rewrite_separated_particle,
        _rewrite_reported_speech,
        _rewrite_existential,
        _rewrite_relative_clause,
        _rewrite_inversion,
        rewrite_property,
    ):
        pieces = rewrite(pieces) or pieces
    return pieces


def _rewrite_comparative(pieces: list[Piece]) -> list[Piece] | None:
    """Rewrite "Ann is younger than Bob" as "Bob is older than Ann"."""
    at = next((place for place, piece in enumerate(pieces) if piece.word in _LESSER), 0)
    if at < 2 or at + 2 >= len(pieces) or pieces[at + 1].word != "than" or pieces[at - 1].word not in BE:
        return None
    greater = pieces[at]._replace(word=_LESSER[pieces[at].word])
    return [*pieces[at + 2 :], pieces[at - 1], greater, pieces[at + 1], *pieces[: at - 1]]


def _rewrite_means_of_travel(pieces: list[Piece]) -> list[Piece] | None:
    """Rewrite "goes to school on foot" as "walks to school"."""
    words = [piece.word for piece in pieces]
    at = next((place for place, word in enumerate(words) if word in _GOING), -1)
    for place in range(at + 1, len(words) - 1) if at >= 0 else ():
        if verb := _MEANS.get((words[place], words[place + 1])):
            going = pieces[at]._replace(word=verb, text=verb)
            return [*pieces[:at], going, *pieces[at + 1 : place], *pieces[place + 2 :]]
    return None


def _rewrite_separated_particle(pieces: list[Piece]) -> list[Piece] | None:
    """Rewrite "gave the vase back" as "gave back the vase"."""
    last = len(pieces) - 1
    if pieces[last].word not in _PARTICLES:
        return None
    for place in range(last - 2, 0, -1):
        if any(rest == (pieces[last].word,) for rest, _ in PHRASES.get(stem(pieces[place].word), ())):
            return [*pieces[: place + 1], pieces[last], *pieces[place + 1 : last]]
    return None


def _drop_titles(pieces: Sequence[Piece]) -> list[Piece]:
    """Remove titles of names: "Dr. Weber" becomes "Weber"."""
    return [
        piece
        for place, piece in enumerate(pieces)
        if not (
            piece.word in _TITLES
            and piece.is_capital
            and place + 1 < len(pieces)
            and pieces[place + 1].is_capital
            and pieces[place + 1].kind == "word"
        )
    ]


def _rewrite_reported_speech(pieces: list[Piece]) -> list[Piece] | None:
    """Return the content of reported speech, without the speaker."""
    words = [piece.word for piece in pieces[:3]]
    start = 2 if words[:2] == ["the", "user"] else 1 if words[0] in {"user", "i"} else 0
    if not start:
        return None
    rest = pieces[start + 1 :]
    if word_at(pieces, start) in {"finds", "find"} and len(rest) > 1:
        is_bare = not any(
            piece.word in _FINITE | PREPOSITIONS | {"and"} or piece.kind != "word" for piece in rest
        )
        return [*rest[:-1], Piece("word", "is", "is"), rest[-1]] if is_bare else None
    if word_at(pieces, start) not in _REPORTS or not any(piece.word in BE for piece in rest[1:]):
        return None
    return rest[1:] if rest[0].word == "that" else rest


def _rewrite_existential(pieces: list[Piece]) -> list[Piece] | None:
    """Rewrite "there are two rooms in the flat" as "the flat has two rooms"."""
    if pieces[0].word != "there" or word_at(pieces, 1) not in {"is", "are", "'s"}:
        return None
    for place in range(3, len(pieces) - 1):
        if pieces[place].word in {"in", "on", "at"}:
            thing, holder = pieces[2:place], pieces[place + 1 :]
            if any(piece.kind == "mark" or piece.word in PREPOSITIONS for piece in (*thing, *holder)):
                return None
            if holder[0].word not in _OWNING | {"the", "each", "every"} and not holder[0].is_capital:
                return None
            return [*holder, Piece("word", "has", "has"), *thing]
    return None


def _rewrite_relative_clause(pieces: list[Piece]) -> list[Piece] | None:
    """Rewrite "I have a son who sings" as "my son sings", and "a son named Tom" as "my son is named Tom"."""
    at = next(
        (place for place, piece in enumerate(pieces[:_LONGEST_OWNER]) if piece.word in {"has", "have"}), 0
    )
    if not at or word_at(pieces, at + 1) not in {"a", "an"}:
        return None
    start = at + 2
    for place in range(start + 1, min(start + _LONGEST_NOUN, len(pieces) - 1)):
        word = pieces[place].word
        if pieces[place].kind == "mark" or word in PREPOSITIONS:
            return None
        if word in _NAMED:
            return [
                *_to_possessive(pieces[:at]),
                *pieces[at + 1 : place],
                Piece("word", "is", "is"),
                *pieces[place:],
            ]
        if word in _RELATIVE and pieces[place + 1].kind == "word":
            return [*_to_possessive(pieces[:at]), *pieces[at + 1 : place], *pieces[place + 1 :]]
    return None


def _to_possessive(pieces: list[Piece]) -> list[Piece]:
    if len(pieces) == 1 and pieces[0].word in _OWNERS:
        return [pieces[0]._replace(word=_OWNERS[pieces[0].word])]
    return [*pieces, Piece("word", "'s", "'s")]


def _rewrite_inversion(pieces: list[Piece]) -> list[Piece] | None:
    """Rewrite "Carla is my wife" as "my wife is Carla". Only definite descriptions can be the subject."""
    at = next((place for place, piece in enumerate(pieces) if piece.word in BE), 0)
    if not 0 < at <= _LONGEST_NAME or at + 2 > len(pieces) or pieces[at].word not in {"is", "was", "are"}:
        return None
    value, place = pieces[:at], pieces[at + 1 :]
    if not all(_is_of_name(piece) for piece in value) or not _is_definite(place):
        return None
    names = "name" if [piece.word for piece in place[:3]] == ["the", "name", "of"] else ""
    tail = _tail(place)
    place, rest = place[:tail], place[tail:]
    if names:
        return [*place[3:], pieces[at], Piece("word", "named", "named"), *value, *rest]
    return [*place, pieces[at], *value, *rest]


def _is_of_name(piece: Piece) -> bool:
    if piece.kind == "mark":
        return False
    if piece.word in _NO_NAMES | _OWNING | {"the", "a", "an", "user", "'s"} or piece.word in _FINITE:
        return False
    return piece.word not in NEGATIONS and (piece.word not in PREPOSITIONS or piece.is_capital)


def _is_definite(place: list[Piece]) -> bool:
    words = [piece.word for piece in place]
    if any(piece.kind == "mark" for piece in place) or any(word in _FINITE | NEGATIONS for word in words):
        return False
    if "one" in words[:1] or words[0] in {"a", "an"}:
        return False
    if words[0] in _OWNING | {"the"} or word_at(place, 1) == "of":
        return True
    return "'s" in words[1:4] and words.index("'s") + 1 < len(words)


def _tail(place: list[Piece]) -> int:
    # "now" and "this week" stay at the end.
    return len(place) - (place[-1].word in {"now", "currently", "instead"})
