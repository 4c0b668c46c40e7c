"""Words that occur in only one of two statements, without irrelevant ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.long_term.conflicts.dates import is_day
from langmem_tiers.long_term.conflicts.models import COMPLEMENT, OBJECT, VERB
from langmem_tiers.long_term.conflicts.vocabulary import CLASSES, get_canonical_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.long_term.conflicts.models import Atom
    from langmem_tiers.long_term.conflicts.statement import Statement

_LIGHT = frozenset("happen set make always all value locate what".split())
"""Words with little meaning beside a value or a verb: "set to 5" means 5."""
_SPEAKERS = frozenset("project team repository".split())
"""Words for "we"."""
_LIGHT_BESIDE = {"use": "choose", "come": "from"}
"""Verbs that add no meaning if the other word is present."""
_LONG = 6  # minimum length of words in which a doubled letter is a matter of spelling
_DOUBLE = re.compile(r"(.)\1+")
_LIGHT_WITH_AS = frozenset("use work serve act function".split())
_OBLIGING = {"need": frozenset({"must"}), "allow": frozenset({"may", "can"})}
"""Verbs with the meaning of modals."""
_STATES_OF = get_canonical_keys("have suffer get experience do make take")
"""Verbs of having or doing that add no meaning to their object."""
_MEASURES = dict.fromkeys(
    get_canonical_keys("last take cost weigh measure amount total name"), frozenset({"be"})
) | {"hold": frozenset({"happen"})}
"""Verbs that add no meaning to a value or an event: "costs 5" means 5, and an event that is held happens."""
_IMPLIED = {
    verb: get_canonical_keys(nouns)
    for verb, nouns in (
        ("pay", "rent fee bill mortgage"), ("wear", "size"), ("take", "dose dosage"), ("earn", "salary"),
        ("write", "thesis dissertation essay novel"), ("work", "job shift"), ("hold", "title record"),
    )
}  # fmt: skip
"""Verbs that are implied by their objects."""
_ABOUT_TIMES = frozenset("date time day year month".split())
_ABOUT_SPANS = get_canonical_keys("long last take duration period length")
_ABOUT_NUMBERS = get_canonical_keys("old age number dose dosage amount total count threshold")


@dataclass(frozen=True, slots=True)
class StatementDifference:
    """Difference between the parts of two statements."""

    old: tuple[Atom, ...]
    """Parts of the old statement only."""
    new: tuple[Atom, ...]
    """Parts of the new statement only."""
    common: frozenset[str]
    similarity: float


def compute_difference(old: Statement, new: Statement) -> StatementDifference:
    """Return the parts that occur in only one of two statements."""
    common = old.keys & new.keys
    similarity = len(common) / len(old.keys | new.keys)
    only_old = [atom for atom in _find_unshared_atoms(old, new) if not _is_light(atom, old, new)]
    only_new = [atom for atom in _find_unshared_atoms(new, old) if not _is_light(atom, new, old)]
    if only_old and only_new and _are_spelled_alike(only_old, only_new):
        return StatementDifference((), (), common, 1.0)
    return StatementDifference(tuple(only_old), tuple(only_new), common, similarity)


def _are_spelled_alike(ones: Iterable[Atom], others: Iterable[Atom]) -> bool:
    """Return True if both are the same words, written in one or two words, or with a doubled letter."""
    if any(atom.kind != "word" or atom.role == VERB for atom in (*ones, *others)):
        return False
    one, other = ("".join(atom.text.lower() for atom in atoms) for atoms in (ones, others))
    if _is_short_for(ones, others) or _is_short_for(others, ones):
        return True
    return one == other or (min(len(one), len(other)) >= _LONG and _squeeze(one) == _squeeze(other))


def _is_short_for(ones: Iterable[Atom], others: Iterable[Atom]) -> bool:
    """Return True if one consists of the first letters of the others: "CI", "continuous integration"."""
    short = "".join(atom.text for atom in ones)
    initials = "".join(word[0] for atom in others for word in atom.text.split())
    return short.isupper() and len(short) > 1 and short.lower() == initials.lower()


def _squeeze(word: str) -> str:
    return _DOUBLE.sub(r"\1", word)


def _find_unshared_atoms(one: Statement, other: Statement) -> list[Atom]:
    return list({atom.key: atom for atom in one.atoms if atom.key not in other.keys}.values())


def _is_light(atom: Atom, one: Statement, other: Statement) -> bool:
    common = one.keys & other.keys
    if atom.key in _LIGHT or (atom.key in _LIGHT_BESIDE and _LIGHT_BESIDE[atom.key] in one.keys):
        return True
    if atom.key in _SPEAKERS:
        return other.persons <= {"we"}
    is_said_by_modal = atom.key in _OBLIGING and bool(_OBLIGING[atom.key] & other.modals)
    if atom.key == "do" or is_said_by_modal or (atom.role == VERB and _is_implied(atom, one, other)):
        return True
    if atom.key == "from" and atom.role == "preposition":
        return any(
            roles == {"from"} and {OBJECT, COMPLEMENT} & other.roles.get(key, frozenset())
            for key, roles in one.roles.items()
        )
    return _repeats_value(atom, common | _values_of(one, other)) or _is_known_of(atom, one, common)


def _is_implied(verb: Atom, one: Statement, other: Statement) -> bool:
    """Return True if a verb adds nothing to the other statement: "has an allergy", "is allergic"."""
    is_asked = verb.key in {"want", "prefer"} and ("imperative" in other.flags or "should" in other.modals)
    if is_asked or (
        verb.key == "use" and "imperative" in one.flags and {"want", "prefer"} & {*other.predicates}
    ):
        return True  # a request expresses a wish
    if verb.key in _LIGHT_WITH_AS:
        return any("as" in roles for roles in one.roles.values())
    if verb.key in _MEASURES:
        return bool(_MEASURES[verb.key] & {*other.predicates})
    if verb.key in _STATES_OF and not _is_one_of(one, other):
        return bool({"be", *_STATES_OF} & {*other.predicates}) or any(
            key in one.keys for key in other.predicates
        )
    return "be" in other.predicates and not _IMPLIED.get(verb.key, frozenset()).isdisjoint(
        one.keys & other.keys
    )


def _is_one_of(one: Statement, other: Statement) -> bool:
    # "Has a manager" does not mean "is a manager".
    return any(
        atom.determiner == "a" and atom.role == COMPLEMENT and OBJECT in one.roles.get(atom.key, ())
        for atom in other.atoms
    )


def _repeats_value(atom: Atom, common: frozenset[str]) -> bool:
    """Return True if a word only repeats what a value says: "date" beside a date, a weekday beside a date."""
    if atom.kind == "day":
        return any(key.startswith("date:") and key.count("-") == 2 for key in common)
    if atom.key == "day" and any(is_day(key) for key in common):
        return True
    if atom.key in _ABOUT_TIMES:
        return any(key.startswith(("date:", "time:")) for key in common)
    if atom.key in _ABOUT_SPANS:
        return any(key.startswith("number:") and key.endswith((" s", " month")) for key in common)
    if atom.key == "old" and atom.is_first:
        return False  # "the old bike"
    return atom.key in _ABOUT_NUMBERS and any(key.startswith("number:") for key in common)


def _values_of(one: Statement, other: Statement) -> frozenset[str]:
    """Return the values of one statement for which the other has different values of the same kind."""
    kinds = {(atom.kind, atom.unit) for atom in other.atoms if atom.kind != "word"}
    return frozenset(atom.key for atom in one.atoms if (atom.kind, atom.unit) in kinds)


def _is_known_of(atom: Atom, one: Statement, common: frozenset[str]) -> bool:
    """Return True if a word only names a known category: "PostgreSQL as the database", "the database PostgreSQL"."""
    members = (key for key in common if atom.key in CLASSES.get(key, ()))
    return any(atom.role == "as" or atom.role in one.roles[key] for key in members)
