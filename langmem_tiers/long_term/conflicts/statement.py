"""Parsing of statements: subjects, roles and negations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from langmem_tiers.long_term.conflicts.items import build_items
from langmem_tiers.long_term.conflicts.pieces import normalize_statement_text, split_pieces
from langmem_tiers.long_term.conflicts.roles import assign_roles
from langmem_tiers.long_term.conflicts.sentence_forms import normalize_word_order
from langmem_tiers.long_term.conflicts.vocabulary import is_adding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.long_term.conflicts.items import SentenceItem
    from langmem_tiers.long_term.conflicts.models import Atom, Sentence


_STARTS: Final = frozenset({"verb", "be", "modal", "helper", "no"})
_FINITE: Final = frozenset({"be", "modal", "helper"})
_JOINTS: Final = frozenset({"and", "but"})
_MOST_PARTS: Final = 4


def split_clauses(items: Sequence[SentenceItem]) -> list[list[SentenceItem]]:
    """Return the items of each clause. A clause without a subject gets the subject of the first clause."""
    cuts = [place for place in range(1, len(items) - 1) if _is_cut(items, place)]
    if not cuts or len(cuts) >= _MOST_PARTS:
        return []
    found: list[list[SentenceItem]] = []
    subject: list[SentenceItem] = []
    for start, stop in zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(items)], strict=True):
        part = list(items[start:stop])
        while part and part[0].part == "mark":
            part = part[1:]
        if not part:
            continue
        if part[0].part in _STARTS and found:
            part = [*subject, *part]
        else:
            subject = _find_subject(part)
        found.append(part)
    return found if len(found) > 1 else []


def _find_subject(part: Sequence[SentenceItem]) -> list[SentenceItem]:
    at = next((place for place, item in enumerate(part) if item.part in _STARTS), 0)
    return list(part[:at])


def _is_cut(items: Sequence[SentenceItem], place: int) -> bool:
    """Return True if an independent clause begins after the item."""
    item, behind = items[place], items[place + 1]
    if item.part == "mark":
        return item.key in ".;!"
    if item.part != "conjunction" or item.key not in _JOINTS:
        return False
    if not any(item.part in {"verb", "be"} for item in items[:place]):
        return False
    if behind.part in _FINITE:
        return True
    if behind.part == "person":
        return place + 2 < len(items) and items[place + 2].part in _STARTS
    return behind.part == "verb" and not behind.determiner and _is_finite(behind)


def _is_finite(verb: SentenceItem) -> bool:
    return verb.is_past or (verb.word.endswith("s") and not verb.word.endswith("ss"))


MAX_WORDS = 400
"""Maximum number of words of a statement. Longer texts are the same only if they are identical."""
_MAX_CHARACTERS = 6000
_NOW = frozenset("now nowadays instead anymore henceforth".split())
_HELPERS = frozenset("is are was were do does did can could should would will has have".split())
_ASKING = frozenset("what who whose which where when why how".split())


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement, to be compared often."""

    text: str = field(repr=False)
    plain: str
    """Text without differences of case and spaces."""
    atoms: tuple[Atom, ...] = ()
    """Meaningful parts in order, without function words."""
    keys: frozenset[str] = frozenset()
    roles: dict[str, frozenset[str]] = field(default_factory=dict, hash=False, compare=False)
    """Roles of each key."""
    persons: frozenset[str] = frozenset()
    """Speaker and persons: "user", "we" or "you"."""
    person_roles: frozenset[tuple[str, str]] = frozenset()
    modals: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    """Properties of the whole statement: question, also, now, past, imperative, passive, event, told, needless."""
    denials: tuple[str, ...] = ()
    """Word after each negation."""
    clauses: tuple[frozenset[str], ...] = ()
    """Keys of each sentence of the text."""
    predicates: tuple[str, ...] = ()
    """Verbs of the clauses. A clause without another verb has "be"."""
    parts: tuple[Statement, ...] = ()
    """Clauses as separate statements, if there are several."""


def read_statement(text: str) -> Statement:
    """Parse a text into a statement.

    Args:
        text: One or a few sentences. A text of more than 400 words is compared only as a whole.
    """
    simple = normalize_statement_text(text)
    if len(simple) > _MAX_CHARACTERS or simple.count(" ") >= MAX_WORDS:
        return Statement(text, simple)
    pieces = normalize_word_order(split_pieces(text))
    items = build_items(pieces)
    sentence = assign_roles(items)
    if is_adding([piece.word for piece in pieces]):
        sentence.flags.add("also")
    if simple.endswith("?") or _is_question([piece.word for piece in pieces[:2]]):
        sentence.flags.add("question")
    if any(piece.word in _NOW for piece in pieces):
        sentence.flags.add("now")
    whole = _build_statement(text, simple, sentence)
    parts = split_clauses(items)
    if len(parts) < 2:
        return whole
    return replace(whole, parts=tuple(_build_statement(text, "", assign_roles(part)) for part in parts))


def _is_question(first: list[str]) -> bool:
    # "what is it" and "is it" are questions, "what I need is" is not.
    if len(first) < 2:
        return False
    return (first[0] in _ASKING and first[1] in _HELPERS) or first[0] in _HELPERS - {"do", "have"}


def _build_statement(text: str, simple: str, sentence: Sentence) -> Statement:
    roles: dict[str, set[str]] = {}
    for atom in sentence.atoms:
        roles.setdefault(atom.key, set()).add(atom.role)
    return Statement(
        text=text,
        plain=simple,
        atoms=tuple(sentence.atoms),
        keys=frozenset(roles),
        roles={key: frozenset(some) for key, some in roles.items()},
        persons=frozenset(sentence.persons),
        person_roles=frozenset(sentence.person_roles),
        modals=frozenset(sentence.modals),
        flags=frozenset(sentence.flags),
        denials=tuple(sentence.denials),
        clauses=tuple(sentence.clauses),
        predicates=tuple(sentence.predicates),
    )
