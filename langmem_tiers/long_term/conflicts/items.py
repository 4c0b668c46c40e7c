"""Sentence items: pieces without articles and fillers, with phrases and synonyms merged into one key."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from langmem_tiers.long_term.conflicts.dates import is_day, merge_values
from langmem_tiers.long_term.conflicts.inflection import is_past, stem
from langmem_tiers.long_term.conflicts.quantities import merge_rates
from langmem_tiers.long_term.conflicts.vocabulary import (
    ASSISTANTS,
    BE,
    CLASSES,
    CONJUNCTIONS,
    DO,
    GET,
    HAVE,
    MODALS,
    NEGATIONS,
    NOUNS_TOO,
    OWNERS,
    PERSONS,
    PHRASES,
    POINTERS,
    PREPOSITIONS,
    VERBS,
    get_canonical_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.long_term.conflicts.pieces import Piece


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
"""Verbs whose participle is the base form."""
_OF_USERS = frozenset(
    """
    accounts settings profiles interviews permissions names sessions roles tables ids stories groups inputs flows
    tokens guides manuals preferences credentials passwords emails records lists queries uploads events actions agents
    limits rights details fields types
    """.split()
)
"""Nouns that form a compound with "user": "user accounts" is not something that the user does."""


def is_letter(pieces: Sequence[Piece], place: int) -> bool:
    """Return True if "A" is a name and not an article: "service A", "A depends on B"."""
    if place > 0 and pieces[place - 1].kind == "word":
        return True
    behind = pieces[place + 1] if place + 1 < len(pieces) else None
    if behind is None or behind.word in BE:
        return True
    return (
        behind.word.endswith("s")
        and get_canonical_key(behind.word) in VERBS
        and get_canonical_key(behind.word) not in NOUNS_TOO
    )


def is_past_habit(pieces: Sequence[Piece], at: int) -> bool:
    """Return True at the start of "used to live", but not of "is used to store"."""
    if [piece.word for piece in pieces[at : at + 2]] != ["used", "to"] or at + 2 >= len(pieces):
        return False
    is_passive = at > 0 and pieces[at - 1].word in BE
    return not is_passive and (pieces[at + 2].word == "be" or get_canonical_key(pieces[at + 2].word) in VERBS)


def is_participle(behind: Piece | None) -> bool:
    """Return True if the word before it is an auxiliary verb because of it: "has lived"."""
    if behind is None or behind.kind != "word":
        return False
    word = behind.word
    if word in {"split", "run", "read", "put", "quit", "become", "come", "shut"}:
        return True
    return word in {"been", "not", "never", "always", "recently"} or (is_past(word) and stem(word) != word)


def is_speaker(piece: Piece, behind: Piece | None) -> bool:
    """Return True if the piece is a person: "the user likes", but not "the user table"."""
    if behind is None or behind.kind != "word" or (piece.determiner == "the" and behind.is_capital):
        return True
    if behind.word in BE or behind.word in NEGATIONS or behind.word in DO or behind.word == "'s":
        return True
    key = get_canonical_key(behind.word)
    if not key or key in VERBS or key in MODALS or key in PREPOSITIONS or key in CONJUNCTIONS:
        return True
    return behind.word not in _OF_USERS and (is_past(behind.word) or ends_like_verb(behind.word))


def ends_like_verb(word: str) -> bool:
    """Return True if the word may be a verb by its ending."""
    return word.endswith("s") and not word.endswith(("ss", "us", "is"))


def is_noun(piece: Piece, key: str, behind: Piece | None, *, is_start: bool) -> bool:
    """Return True if a word that can be a verb is a noun, judged by its context."""
    if piece.word.endswith(_NOUN_ENDINGS) or piece.determiner in {"the", "a"}:
        return True
    if key not in NOUNS_TOO and not piece.word.endswith("ing"):
        return False
    if is_start and (piece.word.endswith("s") or (key in _NUMBERED and behind and behind.kind == "number")):
        return True  # a command does not end in s: "tests run in parallel"; "step 2" is not one either
    word = behind.word if behind is not None else ""
    if word.endswith("s") and not piece.word.endswith("s") and get_canonical_key(word) in VERBS:
        return not is_start  # "the health check runs"
    return word in BE or word == "'s" or get_canonical_key(word) in MODALS or word in COPULAS or word == "of"


_VERBS_IN_ING = {
    "meeting": "meet",
    "building": "build",
    "billing": "bill",
    "pricing": "price",
    "wedding": "wed",
}
_SIGNS = {
    ">": "more than",
    "<": "less than",
    ">=": "at least",
    "≥": "at least",
    "<=": "at most",
    "≤": "at most",
}
_ARROWS = frozenset({"->", "=>", "→"})
_ABOUT_NUMBERS = {
    "about": "about", "around": "about", "over": "more than", "under": "less than", "above": "more than",
    "below": "less than", "past": "more than", "max": "at most", "min": "at least",
}  # fmt: skip
_PARTS = (("modal", MODALS), ("preposition", PREPOSITIONS), ("conjunction", CONJUNCTIONS), ("verb", VERBS))


class SentenceItem(NamedTuple):
    """A part of a sentence."""

    part: str
    """Part of speech: content, verb, be, modal, no, preposition, conjunction, person, owner or mark."""
    key: str
    text: str
    kind: str = "word"
    unit: str = ""
    determiner: str = ""
    is_capital: bool = False
    is_past: bool = False
    word: str = ""


def build_items(pieces: Sequence[Piece]) -> list[SentenceItem]:
    """Return the items of a text, in order."""
    return _tag_missing_verbs(_merge_phrases(_attach_determiners(merge_values(merge_rates(pieces)))))


def _tag_missing_verbs(items: list[SentenceItem]) -> list[SentenceItem]:
    # A clause needs a verb. If it has no known verb, the first word in -ed or -s after another word is its verb.
    start = 0
    for place in range(len(items) + 1):
        if place < len(items) and not (items[place].part == "mark" and items[place].key in ".;!?"):
            continue
        clause = range(start, place)
        if not any(items[at].part in {"verb", "be"} for at in clause) or _starts_with_person(
            items, start, place
        ):
            for at in clause[1:]:
                if items[at - 1].part in {"content", "person", "helper"} and _looks_like_verb(items[at]):
                    items[at] = items[at]._replace(part="verb")
                    break
        start = place + 1
    return items


def _starts_with_person(items: list[SentenceItem], start: int, stop: int) -> bool:
    # "The user abstains": a word after a person is a verb, even an unknown one.
    if start >= stop or items[start].part != "person":
        return False
    at = next((at for at in range(start + 1, stop) if items[at].part not in {"helper", "modal", "no"}), stop)
    return at < stop and _looks_like_verb(items[at])


def _looks_like_verb(item: SentenceItem) -> bool:
    is_form = item.is_past or ends_like_verb(item.word)
    return item.part == "content" and item.kind == "word" and not item.determiner and is_form


def _attach_determiners(pieces: Sequence[Piece]) -> list[Piece]:
    # Articles are removed; the next word keeps which article it had.
    found: list[Piece] = []
    determiner = ""
    for place, piece in enumerate(pieces):
        is_name = piece.text == "A" and is_letter(pieces, place)
        if piece.kind == "word" and piece.word in POINTERS and not is_name:
            determiner = {"a": "a", "an": "a", "this": "this", "that": "this"}.get(piece.word, "the")
            continue
        found.append(piece._replace(determiner=determiner) if determiner else piece)
        determiner = ""
    return found


def _merge_phrases(pieces: Sequence[Piece]) -> list[SentenceItem]:
    stems = [stem(piece.word) if piece.kind == "word" else piece.word for piece in pieces]
    found: list[SentenceItem] = []
    at = 0
    while at < len(pieces):
        canonical, stop = _find_phrase(pieces, stems, at)
        if stop > at + 1:
            if canonical:
                found.append(_phrase_item(canonical, pieces[at:stop]))
        elif (item := _item(pieces, at)) is not None:
            found.append(item)
        at = stop
    return found


def _is_platform(pieces: Sequence[Piece], at: int) -> bool:
    # "Runs on Linux" means "uses Linux", but "runs on Monday" does not.
    if at >= len(pieces) or is_day(pieces[at].word):
        return False
    return pieces[at].is_capital or get_canonical_key(pieces[at].word) in CLASSES


def _find_phrase(pieces: Sequence[Piece], stems: Sequence[str], at: int) -> tuple[str, int]:
    for rest, canonical in PHRASES.get(stems[at], ()):
        stop = at + 1 + len(rest)
        if not canonical and rest == ("cours",) and at + 1 < len(pieces) and pieces[at + 1].determiner:
            continue  # "the start of the course" is not "of course"
        if tuple(stems[at + 1 : stop]) == rest and (
            rest != ("on",) or canonical != "use" or _is_platform(pieces, stop)
        ):
            return canonical, stop
    return "", at + 1


def _phrase_item(canonical: str, pieces: Sequence[Piece]) -> SentenceItem:
    text = " ".join(piece.text for piece in pieces)
    if canonical == "no longer":
        return SentenceItem("no", "no longer", text)
    part = _part(canonical)
    past = any(is_past(piece.word) for piece in pieces) and canonical != "own"
    return SentenceItem(
        part, canonical, text, determiner=pieces[0].determiner, is_past=past, word=pieces[0].word
    )


def _part(key: str) -> str:
    for part, keys in _PARTS:
        if key in keys:
            return part
    return "content"


def _item(pieces: Sequence[Piece], at: int) -> SentenceItem | None:
    piece = pieces[at]
    behind = pieces[at + 1] if at + 1 < len(pieces) else None
    if piece.kind == "mark":
        return _mark_item(piece, behind)
    if piece.kind != "word" or is_day(piece.word):
        return _value_item(piece)
    if piece.word in ASSISTANTS and at > 0 and pieces[at - 1].word == "'s":
        return SentenceItem(
            "content", get_canonical_key(piece.word), piece.text, word=piece.word
        )  # "somebody's assistant"
    if behind is not None and behind.kind == "number" and (sign := _sign(piece.word)):
        return SentenceItem("content", sign, piece.text)
    if is_past_habit(pieces, at):
        return SentenceItem("no", "no longer", piece.text)
    is_after_be = at > 0 and pieces[at - 1].word in BE and not piece.determiner
    return _small_word(piece, behind) or _content(piece, behind, is_start=at == 0, is_after_be=is_after_be)


def _value_item(piece: Piece) -> SentenceItem:
    if piece.kind == "word":
        return SentenceItem("content", get_canonical_key(piece.word), piece.text, "day", "", piece.determiner)
    value = f"{piece.word} {piece.unit}".strip()
    if piece.kind == "version":
        value = value.removeprefix("v")
    # A year is a number as well, and so is a version that consists of one number.
    kind = "number" if piece.kind in {"date", "version"} and value.isdecimal() else piece.kind
    return SentenceItem("content", f"{kind}:{value}", piece.text, piece.kind, piece.unit, piece.determiner)


def _sign(word: str) -> str:
    return _ABOUT_NUMBERS.get(word) or ("about" if get_canonical_key(word) == "about" else "")


def _mark_item(piece: Piece, behind: Piece | None) -> SentenceItem | None:
    if piece.word in _SIGNS:
        return SentenceItem("content", _SIGNS[piece.word], piece.text)
    if piece.word in COPULAS:
        return SentenceItem("be", "be", piece.text, word=piece.word)
    if piece.word in _ARROWS:
        return SentenceItem("preposition", "to", piece.text)
    if piece.word == "&":
        return SentenceItem("conjunction", "and", piece.text)
    if piece.word == "~" and behind is not None and behind.kind == "number":
        return SentenceItem("content", "about", piece.text)
    return SentenceItem("mark", piece.word, piece.text) if piece.word in ",.;!?()-" else None


def _small_word(piece: Piece, behind: Piece | None) -> SentenceItem | None:
    word = piece.word
    for person, words in PERSONS.items():
        if word in words:
            return SentenceItem("owner" if word in OWNERS else "person", person, piece.text)
    if word in BE:
        return SentenceItem("be", "be", piece.text, is_past=word in {"was", "were"}, word=word)
    if word in NEGATIONS:
        return SentenceItem("no", word, piece.text, determiner=piece.determiner)
    return SentenceItem("possessive", "'s", piece.text) if word == "'s" else _helper(piece, behind)


def _helper(piece: Piece, behind: Piece | None) -> SentenceItem | None:
    word = piece.word
    if word in GET and behind is not None and is_past(behind.word):
        return SentenceItem("be", "be", piece.text, word="be")  # "got married"
    if word in DO and behind is not None and behind.determiner and word != "do":
        return SentenceItem("verb", "do", piece.text, is_past=word == "did", word=word)  # does the dishes
    if word in DO or (word in HAVE and is_participle(behind)):
        return SentenceItem("helper", word, piece.text, is_past=word == "did")
    return None


def _content(piece: Piece, behind: Piece | None, *, is_start: bool, is_after_be: bool) -> SentenceItem | None:
    word = piece.word
    if (word == "user" or word in ASSISTANTS) and is_speaker(piece, behind):
        return SentenceItem("person", "user" if word == "user" else "you", piece.text)
    key = (
        get_canonical_key(_VERBS_IN_ING[word])
        if word in _VERBS_IN_ING and is_after_be
        else get_canonical_key(word)
    )
    if not key or (word == "own" and piece.determiner):  # "her own flat"
        return None
    part = _part(key)
    if part == "verb" and piece.is_capital and not is_start and key in CLASSES:
        part = "content"  # React, Express
    if part == "verb" and is_noun(piece, key, behind, is_start=is_start):
        part = "content"
    was = is_past(word) or (is_after_be and word in SAME_PARTICIPLES)
    return SentenceItem(part, key, piece.text, "word", "", piece.determiner, piece.is_capital, was, word)
