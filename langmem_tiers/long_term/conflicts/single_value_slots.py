"""Places in a statement that have only one value: there, another value is a contradiction, not an addition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from langmem_tiers.long_term.conflicts.models import CHANGES, COMPLEMENT, OBJECT, OWNER, SUBJECT, VERB
from langmem_tiers.long_term.conflicts.vocabulary import (
    CLASSES,
    REGIONS,
    SCOPES,
    find_shared_class,
    get_canonical_keys,
)
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.long_term.conflicts.models import Atom
    from langmem_tiers.long_term.conflicts.statement import Statement


MULTI: Final = get_canonical_keys(" ".join(load_words(__name__, "single_values", "several things")))
"""Verbs that can apply to several things at once."""
SHARED: Final = get_canonical_keys(" ".join(load_words(__name__, "single_values", "several in the passive")))
"""Verbs that can apply to several things in the passive, too."""
PLANS: Final = get_canonical_keys(" ".join(load_words(__name__, "single_values", "plans")))
"""Verbs of unreal or future states."""
TIMED: Final = get_canonical_keys(" ".join(load_words(__name__, "single_values", "timed")))
"""Verbs whose time is a property of an event."""
CHOICES: Final = get_canonical_keys("choose use switch migrate standardize adopt pick") | {"be"}
SINGLE_NOUNS: Final = get_canonical_keys(" ".join(load_words(__name__, "single_values", "single nouns")))
"""Nouns of things that exist once at a time."""
DEVICES: Final = get_canonical_keys(
    "phone laptop computer tablet watch camera car printer console editor browser"
)
"""Things of which most people use only one."""
SINGLE_WORDS: Final = get_canonical_keys(
    "favorite default main current official preferred only best chosen final standard target top latest actual"
)
RELATIONS: Final = {
    "live": "in at", "locate": "in at on", "work": "at for as in", "report": "to", "marry": "to object",
    "birthday": "in on at", "name": "object complement", "belong": "to", "study": "at", "join": "object",
    "graduat": "from", "engag": "to", "move": "to", "stay": "at in", "lead": "first",
    "head": "first", "sit": "in at", "come": "from", "grow": "in", "grow up": "in on at", "bank": "with",
    "assign": "to",
}  # fmt: skip
"""Verbs that apply to one thing at a time, with the roles of that thing."""
CLASSED: Final = get_canonical_keys(
    """host run write build store deploy license implement code serve track manage monitor hold keep record draw edit
    take"""
)
"""Verbs that apply to one member of a class at a time."""
SCOPE_ROLES = frozenset("in on for at during".split())
PASSIVE_ROLES = frozenset({SUBJECT, "with", "on", "via", "to", "under", "at", "in"})


@dataclass(frozen=True, slots=True)
class _ValuePair:
    """Words in the same place of two statements."""

    ones: Sequence[Atom]
    others: Sequence[Atom]

    @property
    def shared(self) -> str:
        """Name of a class that both words belong to, or an empty string."""
        names = (find_shared_class(word.key, other.key) for word in self.ones for other in self.others)
        return next(filter(None, names), "")

    @property
    def are_names(self) -> bool:
        """True if the words are names and not ordinary words."""
        return all(atom.is_capital or atom.key in CLASSES for atom in (*self.ones, *self.others))


def is_exclusive(old: Statement, new: Statement, ones: Sequence[Atom], others: Sequence[Atom]) -> bool:
    """Return True if only one of two values is possible in their place."""
    ones, others = _drop_model_numbers(ones), _drop_model_numbers(others)
    both = (*ones, *others)
    if ones[0].kind != "word" and all(atom.kind == ones[0].kind for atom in both):
        return _takes_one_value(old, new, ones[-1], others[-1])
    if any(atom.kind != "word" for atom in both) or is_contained(ones, others):
        return False
    if any(atom.is_first for atom in both):
        return _is_reversed(old, ones) and _is_reversed(new, others)
    if ones[0].role in SCOPE_ROLES and (ones[0].key in SCOPES or others[0].key in SCOPES):
        return False
    values = _ValuePair(ones, others)
    if {old.predicates[0], new.predicates[0]} == {"own", "be"}:
        return _takes_one_color(values)
    return _takes_one_word(old, new, values)


def _drop_model_numbers(values: Sequence[Atom]) -> Sequence[Atom]:
    # "iPhone 13" is a kind of "iPhone".
    if values[0].kind == "word" and values[0].is_capital and values[-1].kind in {"number", "version"}:
        return [atom for atom in values if atom.kind == "word"]
    return values


def is_contained(ones: Sequence[Atom], others: Sequence[Atom]) -> bool:
    """Return True if one value is part of the other: a city of a country, a day of a month, a more exact version."""
    one, other = ones[0], others[0]
    if (one.key in REGIONS) != (other.key in REGIONS):
        return True
    if one.kind == other.kind == "date":
        return _are_compatible(one.key.partition(":")[2], other.key.partition(":")[2])
    if one.kind == other.kind == "version":
        short, long = sorted((one.key.partition(":")[2], other.key.partition(":")[2]), key=len)
        return long.startswith(short) or long.endswith(short)
    return False


def _are_compatible(one: str, other: str) -> bool:
    """Return True if two dates can be the same: a year and a day without a year, a month and a day in it."""
    parts = ([*date.split("-"), "", ""] for date in (one, other))
    return all(not first or not second or first == second for first, second in zip(*parts, strict=False))


def _takes_one_value(old: Statement, new: Statement, one: Atom, other: Atom) -> bool:
    predicate = old.predicates[0]
    if (
        one.unit != other.unit
        or is_contained((one,), (other,))
        or "event" in old.flags
        or "event" in new.flags
    ):
        return False
    if one.is_first or other.is_first:
        if one.is_first and other.is_first and _counts_subject(old, one) and _counts_subject(new, other):
            return predicate not in MULTI
        return _is_reversed(old, (one,)) and _is_reversed(new, (other,))
    if one.kind in {"date", "time", "day"}:
        return _takes_one_time(old, one, predicate)
    if one.kind == "number" and _is_version(one, other):
        return False
    return predicate not in MULTI or predicate == "need" or (_counts(old, one) and _counts(new, other))


def _counts_subject(statement: Statement, number: Atom) -> bool:
    # "Five people are coming", "half of them are late".
    if statement.atoms[0] != number or number.kind != "number" or number.key.startswith("number:#"):
        return False
    return number.unit == "%" or (not number.unit and _counts(statement, number))


def _counts(statement: Statement, number: Atom) -> bool:
    # "three languages", but not "Python 3".
    if number.unit:
        return True
    place = statement.atoms.index(number)
    behind = statement.atoms[place + 1 : place + 2]
    return (
        bool(behind)
        and behind[0].kind == "word"
        and not behind[0].is_capital
        and behind[0].role == number.role
    )


def _is_version(one: Atom, other: Atom) -> bool:
    # Versions after a name: "3" and "3.12".
    short, long = sorted((one.key.partition(":")[2], other.key.partition(":")[2]), key=len)
    return not one.unit and long.startswith(f"{short}.")


def _takes_one_time(old: Statement, one: Atom, predicate: str) -> bool:
    if one.role in {"since", "until", "by"}:
        return True
    if predicate not in TIMED and predicate not in CHANGES:
        return False
    said = [atom for atom in old.atoms if not atom.is_first and atom.role != VERB and atom.kind == "word"]
    said = [atom for atom in said if atom.key not in TIMED]
    if predicate == "be" and any(atom.role in {COMPLEMENT, "on", "in", "at"} for atom in said):
        return False
    has_other_value = any(atom.kind in {"time", "number"} for atom in old.atoms if atom.key != one.key)
    return predicate in {"be", "happen"} or not has_other_value


def _is_reversed(one: Statement, values: Sequence[Atom]) -> bool:
    """Return True if the value precedes its place: "Bob is the owner", "March 5 is the deadline"."""
    predicate = one.predicates[0]
    behind = [atom for atom in one.atoms if not atom.is_first and atom.role != VERB]
    if sum(atom.is_first for atom in one.atoms) != len(values) or not behind:
        return False
    if predicate == "lead":
        return "passive" not in one.flags and all(atom.is_capital for atom in values)
    if predicate == "use":
        return bool(_purpose(one)) and all(atom.key in CLASSES for atom in values)
    if behind[0].determiner == "a" or behind[0].key == "number:1":
        return False  # there may be several of them
    is_definite = any(atom.determiner == "the" or atom.role == OWNER for atom in behind) or bool(one.persons)
    is_value = all(atom.is_capital or atom.kind != "word" or atom.key in CLASSES for atom in values)
    is_place = all(atom.role in {COMPLEMENT, OWNER, "for", "in"} for atom in behind)
    return predicate == "be" and is_definite and is_value and is_place


def _purpose(one: Statement) -> frozenset[str]:
    return frozenset(atom.key for atom in one.atoms if atom.role in {"as", "for"})


def _takes_one_word(old: Statement, new: Statement, values: _ValuePair) -> bool:
    predicate = old.predicates[0]
    if values.shared == "frequency":
        return predicate not in MULTI and "event" not in old.flags
    if "event" in old.flags or "event" in new.flags or _is_one_of_several(old) or _is_one_of_several(new):
        return False
    if predicate in {"be", "set", "happen"}:
        return _takes_one_complement(old, new, values)
    if predicate in CHOICES:
        return _takes_one_choice(old, new, values)
    if predicate == "prefer":
        return bool(values.shared) or (values.are_names and len(old.keys & new.keys) > 1)
    return _takes_one_relation(old, new, values)


def _takes_one_color(values: _ValuePair) -> bool:
    # "has brown eyes" and "the eyes are green", but not "has a brown dog".
    return values.shared == "color" and "a" not in {values.ones[0].determiner, values.others[0].determiner}


def _is_one_of_several(one: Statement) -> bool:
    # "A son of mine is called Leo".
    return any(
        atom.is_first and atom.determiner == "a" and atom.role in {SUBJECT, OBJECT} for atom in one.atoms
    )


def _takes_one_relation(old: Statement, new: Statement, values: _ValuePair) -> bool:
    predicate = old.predicates[0]
    one, other = values.ones[-1], values.others[-1]
    if predicate in RELATIONS:
        roles = RELATIONS[predicate].split()
        is_place = one.role in roles or (other.role in roles and one.role in {*roles, "to", OBJECT})
        is_named = predicate == "name" and "passive" in old.flags & new.flags
        return is_place and (values.are_names or bool(values.shared) or one.role == "as" or is_named)
    if predicate in CLASSED and (bool(values.shared) or _is_kept_in(old, new, values)):
        return True
    return _takes_one_agent(old, new, values)


def _is_kept_in(old: Statement, new: Statement, values: _ValuePair) -> bool:
    """Return True if the statements name the tool with which something is kept: "my notes in Obsidian"."""
    one, other = values.ones[-1], values.others[-1]
    is_tool = one.role == other.role and one.role in {"in", "with", "on", "to"} and values.are_names
    kept = {atom.key for atom in old.atoms if atom.role == OBJECT or atom.is_first} & new.keys
    return is_tool and bool(kept - {old.predicates[0]})


def _takes_one_agent(old: Statement, new: Statement, values: _ValuePair) -> bool:
    """Return True if the statements name the agent, tool or place of an action: "is handled by Stripe"."""
    role = values.ones[-1].role
    if not values.are_names or "passive" not in old.flags & new.flags or role != values.others[-1].role:
        return False
    is_shared = old.predicates[0] in SHARED and role != SUBJECT
    return role in PASSIVE_ROLES and not is_shared and old.predicates[0] != "use"


def _takes_one_complement(old: Statement, new: Statement, values: _ValuePair) -> bool:
    place = [atom for atom in old.atoms if atom.is_first and atom.key in new.keys]
    one, other = values.ones[0], values.others[0]
    if any(atom.key in SINGLE_WORDS for atom in place):
        return True
    if one.role in {"in", "at", "on", "from", "with"}:
        has_more = any(atom.role == COMPLEMENT and atom.key not in TIMED for atom in old.atoms)
        are_places = values.are_names or (one.role == "at" and one.determiner == other.determiner == "the")
        is_moved = new.predicates[0] in CHANGES and other.role == "to"
        is_placed = (
            are_places and (one.role == other.role or is_moved) and not has_more
        )  # not "is available in German"
        return is_placed and bool(place or old.persons)
    if one.role not in {COMPLEMENT, OBJECT, "to"}:
        return False
    are_models = all(atom.is_capital for atom in (*values.ones, *values.others))
    if are_models and any(atom.key in DEVICES for atom in place):
        return True
    return bool(values.shared) or (
        "a" not in {one.determiner, other.determiner} and _is_one_thing(old, place, values)
    )


def _is_one_thing(old: Statement, place: Sequence[Atom], values: _ValuePair) -> bool:
    """Return True if the subject is one thing that has only one name or value."""
    heads = [atom for atom in place if atom.role == SUBJECT]
    if heads and heads[-1].key in SINGLE_NOUNS:
        return True
    is_owned = any(atom.determiner == "the" or atom.role == OWNER for atom in place)
    return values.are_names and (is_owned or bool(old.persons and place)) and not _is_plural(heads)


def _is_plural(heads: Sequence[Atom]) -> bool:
    return bool(heads) and heads[-1].text.lower().endswith("s") and not heads[-1].text.lower().endswith("ss")


def _takes_one_choice(old: Statement, new: Statement, values: _ValuePair) -> bool:
    if _purpose(old) & _purpose(new):
        return bool(values.shared) or values.are_names
    if not values.shared:
        return False
    is_decided = "now" in new.flags or any(
        "choose" in statement.keys
        or "will" in statement.modals
        or "imperative" in statement.flags
        or statement.predicates[0] in CHANGES
        for statement in (old, new)
    )
    has_subject = any(atom.is_first and atom.role != VERB and atom.key in new.keys for atom in old.atoms)
    return is_decided or has_subject
