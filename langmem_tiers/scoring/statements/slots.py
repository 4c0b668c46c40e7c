"""Which places of a statement take one value only: where another value is another claim, not one more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from langmem_tiers.scoring.statements.atoms import CHANGES, COMPLEMENT, OBJECT, OWNER, SUBJECT, VERB
from langmem_tiers.scoring.statements.vocabulary import CLASSES, REGIONS, SCOPES, keys_of, share_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.scoring.statements.atoms import Atom
    from langmem_tiers.scoring.statements.reading import Statement

MULTI: Final = keys_of(
    """
    like know speak visit buy include support contain meet see read watch play own attend interested want
    need love eat drink consume cook learn study try collect offer sell recommend follow accept add invite
    help teach talk call send receive order test review mention
    """
)
"""Verbs that hold of several things at once."""
SHARED: Final = keys_of(
    """
    know like support include visit speak attend see read contain accept interested sell offer allow need
    """
)
"""Those of them whose passive holds of several, too."""
PLANS: Final = keys_of(
    """
    want plan hope intend consider think try expect ask believe recommend suggest wish propose discuss
    """
)
"""Verbs of what is not so, or not yet."""
_TIMED: Final = keys_of(
    """
    be happen start end leave depart arrive open close expire launch release land fly set schedule wake
    sleep birthday deadline establish die marry graduate renew return deliver ship retire join run last
    continue valid expiration
    """
)
"""Verbs whose time is a property of what they tell."""
_CHOICES: Final = keys_of("choose use switch migrate standardize adopt pick") | {"be"}
_SINGLE_NOUNS: Final = keys_of(
    """
    name color status owner manager lead ceo cto cfo boss president director host address location venue
    capital title role language format database framework editor license deadline priority size theme
    timezone currency employer wife husband spouse partner hometown birthplace nationality phone email
    branch region provider dentist doctor landlord maintainer assignee reviewer author winner diet job
    tool stack platform registry domain url port path model destination goal password username nickname
    codename breed brand gate seat terminal airline hotel code style strategy approach policy method
    encoding engine backend frontend cache queue vendor supplier bank insurance school theme font layout
    mode method protocol algorithm convention unit package version captain coach chair secretary
    """
)
"""Nouns of which there is one at a time."""
_SINGLE_WORDS: Final = keys_of(
    "favorite default main current official preferred only best chosen final standard target top latest actual"
)
_RELATIONS: Final = {
    "live": "in at", "locate": "in at on", "work": "at for as in", "report": "to", "marry": "to object",
    "birthday": "in on at", "name": "object complement", "belong": "to", "study": "at", "join": "object",
    "graduat": "from", "engag": "to", "move": "to", "stay": "at in", "lead": "first",
    "head": "first", "sit": "in at", "come": "from", "grow": "in", "bank": "with", "assign": "to",
}  # fmt: skip
"""Verbs that hold of one thing at a time, with the roles that it has."""
_CLASSED: Final = keys_of(
    "host run write build store deploy license implement code serve track manage monitor hold"
)
"""Verbs that hold of one member of a class at a time."""
_SCOPE_roles = frozenset("in on for at during".split())
_PASSIVE_roles = frozenset({SUBJECT, "with", "on", "via", "to", "under", "at", "in"})


@dataclass(frozen=True, slots=True)
class _Values:
    """The words that stand in the same place of the two."""

    ones: Sequence[Atom]
    others: Sequence[Atom]

    @property
    def shared(self) -> str:
        """A class that both are of; nothing if there is none."""
        names = (share_class(one.key, other.key) for one in self.ones for other in self.others)
        return next(filter(None, names), "")

    @property
    def are_names(self) -> bool:
        """Whether they are names of something, not words of the language."""
        return all(atom.is_capital or atom.key in CLASSES for atom in (*self.ones, *self.others))


def is_exclusive(old: Statement, new: Statement, ones: Sequence[Atom], others: Sequence[Atom]) -> bool:
    """Whether only one of the two values can stand where they stand."""
    both = (*ones, *others)
    if ones[0].kind != "word" and all(atom.kind == ones[0].kind for atom in both):
        return _takes_one_value(old, new, ones[-1], others[-1])
    if any(atom.kind != "word" for atom in both) or is_contained(ones, others):
        return False
    if any(atom.is_first for atom in both):
        return _is_reversed(old, ones) and _is_reversed(new, others)
    if ones[0].role in _SCOPE_roles and (ones[0].key in SCOPES or others[0].key in SCOPES):
        return False
    return _takes_one_word(old, new, _Values(ones, others))


def is_contained(ones: Sequence[Atom], others: Sequence[Atom]) -> bool:
    """Whether one value is a part of the other: a city of a country, a day of a month, a version of a version."""
    one, other = ones[0], others[0]
    if (one.key in REGIONS) != (other.key in REGIONS):
        return True
    if one.kind == other.kind and one.kind in {"date", "version"}:
        short, long = sorted((one.key.partition(":")[2], other.key.partition(":")[2]), key=len)
        return long.startswith(short) or long.endswith(short) or _month_of(short, long)
    return False


def _month_of(short: str, long: str) -> bool:
    return bool(short) and short.startswith("-") and short in long


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
        return _is_reversed(old, (one,)) and _is_reversed(new, (other,))
    if one.kind in {"date", "time", "day"}:
        return _takes_one_time(old, one, predicate)
    if one.kind == "number" and _is_version(one, other):
        return False
    return predicate not in MULTI or predicate == "need" or (_counts(old, one) and _counts(new, other))


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
    # 3 and 3.12 behind a name
    short, long = sorted((one.key.partition(":")[2], other.key.partition(":")[2]), key=len)
    return not one.unit and long.startswith(f"{short}.")


def _takes_one_time(old: Statement, one: Atom, predicate: str) -> bool:
    if one.role in {"since", "until", "by"}:
        return True
    if predicate not in _TIMED and predicate not in CHANGES:
        return False
    said = [atom for atom in old.atoms if not atom.is_first and atom.role != VERB and atom.kind == "word"]
    said = [atom for atom in said if atom.key not in _TIMED]
    if predicate == "be" and any(atom.role in {COMPLEMENT, "on", "in", "at"} for atom in said):
        return False
    has_other_value = any(atom.kind in {"time", "number"} for atom in old.atoms if atom.key != one.key)
    return predicate in {"be", "happen"} or not has_other_value


def _is_reversed(one: Statement, values: Sequence[Atom]) -> bool:
    """Whether it says what fills a place first: Bob is the owner, March 5 is the deadline."""
    predicate = one.predicates[0]
    behind = [atom for atom in one.atoms if not atom.is_first and atom.role != VERB]
    if sum(atom.is_first for atom in one.atoms) != len(values) or not behind:
        return False
    if predicate == "lead":
        return "passive" not in one.flags and all(atom.is_capital for atom in values)
    if predicate == "use":
        return bool(_purpose(one)) and all(atom.key in CLASSES for atom in values)
    is_definite = any(atom.determiner == "the" or atom.role == OWNER for atom in behind) or bool(one.persons)
    is_value = all(atom.is_capital or atom.kind != "word" or atom.key in CLASSES for atom in values)
    is_place = all(atom.role in {COMPLEMENT, OWNER, "for", "in"} for atom in behind)
    return predicate == "be" and is_definite and is_value and is_place


def _purpose(one: Statement) -> frozenset[str]:
    return frozenset(atom.key for atom in one.atoms if atom.role in {"as", "for"})


def _takes_one_word(old: Statement, new: Statement, values: _Values) -> bool:
    predicate = old.predicates[0]
    if values.shared == "frequency":
        return predicate not in MULTI and "event" not in old.flags
    if "event" in old.flags or "event" in new.flags:
        return False
    if predicate in {"be", "set"}:
        return _equates_one(old, new, values)
    if predicate in _CHOICES:
        return _chooses_one(old, new, values)
    if predicate == "prefer":
        return bool(values.shared) or (values.are_names and len(old.keys & new.keys) > 1)
    return _relates_one(old, new, values)


def _relates_one(old: Statement, new: Statement, values: _Values) -> bool:
    predicate = old.predicates[0]
    one, other = values.ones[-1], values.others[-1]
    if predicate in _RELATIONS:
        roles = _RELATIONS[predicate].split()
        is_place = one.role in roles or (other.role in roles and one.role in {*roles, "to", OBJECT})
        return is_place and (values.are_names or bool(values.shared) or one.role == "as")
    return (predicate in _CLASSED and bool(values.shared)) or _names_one(old, new, values)


def _names_one(old: Statement, new: Statement, values: _Values) -> bool:
    """Whether it says by whom, with what or where something is done: is handled by Stripe, is built with Vite."""
    role = values.ones[-1].role
    if not values.are_names or "passive" not in old.flags & new.flags or role != values.others[-1].role:
        return False
    is_shared = old.predicates[0] in SHARED and role != SUBJECT
    return role in _PASSIVE_roles and not is_shared and old.predicates[0] != "use"


def _equates_one(old: Statement, new: Statement, values: _Values) -> bool:
    place = [atom for atom in old.atoms if atom.is_first and atom.key in new.keys]
    one, other = values.ones[0], values.others[0]
    if any(atom.key in _SINGLE_WORDS for atom in place):
        return True
    if one.role in {"in", "at", "on", "from"}:
        has_more = any(atom.role == COMPLEMENT and atom.key not in _TIMED for atom in old.atoms)
        is_placed = (
            values.are_names and one.role == other.role and not has_more
        )  # not "is available in German"
        return is_placed and bool(place or old.persons)
    if one.role not in {COMPLEMENT, OBJECT, "to"}:
        return False
    return bool(values.shared) or (
        "a" not in {one.determiner, other.determiner} and _is_one_thing(old, place, values)
    )


def _is_one_thing(old: Statement, place: Sequence[Atom], values: _Values) -> bool:
    """Whether what stands before the verb is one thing that has one name, or one value."""
    heads = [atom for atom in place if atom.role == SUBJECT]
    if heads and heads[-1].key in _SINGLE_NOUNS:
        return True
    is_owned = any(atom.determiner == "the" or atom.role == OWNER for atom in place)
    return values.are_names and (is_owned or bool(old.persons and place)) and not _is_plural(heads)


def _is_plural(heads: Sequence[Atom]) -> bool:
    return bool(heads) and heads[-1].text.lower().endswith("s") and not heads[-1].text.lower().endswith("ss")


def _chooses_one(old: Statement, new: Statement, values: _Values) -> bool:
    if _purpose(old) & _purpose(new):
        return bool(values.shared) or values.are_names
    if not values.shared:
        return False
    is_decided = "now" in new.flags or any(
        "choose" in one.keys
        or "will" in one.modals
        or "imperative" in one.flags
        or one.predicates[0] in CHANGES
        for one in (old, new)
    )
    has_subject = any(atom.is_first and atom.role != VERB and atom.key in new.keys for atom in old.atoms)
    return is_decided or has_subject
