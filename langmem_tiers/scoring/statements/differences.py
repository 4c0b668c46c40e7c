"""What stands in only one of two statements, after what does not matter is left out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.scoring.statements.atoms import VERB
from langmem_tiers.scoring.statements.vocabulary import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.scoring.statements.atoms import Atom
    from langmem_tiers.scoring.statements.reading import Statement

_LIGHT = frozenset("happen set make always all value locate what".split())
"""Words that say little beside a value or a verb: what is set to 5 is 5."""
_SPEAKERS = frozenset("project team".split())
"""Who speaks as "we"."""
_LIGHT_BESIDE = {"use": "choose", "come": "from"}
"""Verbs that say nothing more where the other word is."""
_LONG = 6  # letters from which on a doubled one is a matter of spelling
_DOUBLE = re.compile(r"(.)\1+")
_LIGHT_WITH_AS = frozenset("use work serve act function".split())
_ABOUT_TIMES = frozenset("date time day year month".split())
_ABOUT_NUMBERS = frozenset("old age number".split())


@dataclass(frozen=True, slots=True)
class Difference:
    """How two statements differ in what they are made of."""

    old: tuple[Atom, ...]
    """Only in the old one."""
    new: tuple[Atom, ...]
    """Only in the new one."""
    common: frozenset[str]
    similarity: float


def difference(old: Statement, new: Statement) -> Difference:
    """What stands in only one of the two."""
    common = old.keys & new.keys
    similarity = len(common) / len(old.keys | new.keys)
    only_old = [atom for atom in _only(old, new) if not _is_light(atom, old, new)]
    only_new = [atom for atom in _only(new, old) if not _is_light(atom, new, old)]
    if only_old and only_new and _are_spelled_alike(only_old, only_new):
        return Difference((), (), common, 1.0)
    return Difference(tuple(only_old), tuple(only_new), common, similarity)


def _are_spelled_alike(ones: Iterable[Atom], others: Iterable[Atom]) -> bool:
    """Whether they are the same words, written apart or together, or with a letter doubled."""
    if any(atom.kind != "word" or atom.role == VERB for atom in (*ones, *others)):
        return False
    one, other = ("".join(atom.text.lower() for atom in atoms) for atoms in (ones, others))
    return one == other or (min(len(one), len(other)) >= _LONG and _squeezed(one) == _squeezed(other))


def _squeezed(word: str) -> str:
    return _DOUBLE.sub(r"\1", word)


def _only(one: Statement, other: Statement) -> list[Atom]:
    return list({atom.key: atom for atom in one.atoms if atom.key not in other.keys}.values())


def _is_light(atom: Atom, one: Statement, other: Statement) -> bool:
    common = one.keys & other.keys
    if atom.key in _LIGHT or (atom.key in _LIGHT_BESIDE and _LIGHT_BESIDE[atom.key] in one.keys):
        return True
    if atom.key in _SPEAKERS:
        return other.persons <= {"we"}
    if atom.key in _LIGHT_WITH_AS and atom.role == VERB:
        return any("as" in roles for roles in one.roles.values())
    return _repeats(atom, common) or _is_known_of(atom, one, common)


def _repeats(atom: Atom, common: frozenset[str]) -> bool:
    """Whether it only says what a value says already: the date of a date, the day of a date."""
    if atom.kind == "day":
        return any(key.startswith("date:") and key.count("-") == 2 for key in common)
    if atom.key in _ABOUT_TIMES:
        return any(key.startswith(("date:", "time:")) for key in common)
    return atom.key in _ABOUT_NUMBERS and any(key.startswith("number:") for key in common)


def _is_known_of(atom: Atom, one: Statement, common: frozenset[str]) -> bool:
    """Whether it only says what something is known to be: PostgreSQL as the database, the database PostgreSQL."""
    members = (key for key in common if atom.key in CLASSES.get(key, ()))
    return any(atom.role == "as" or atom.role in one.roles[key] for key in members)
