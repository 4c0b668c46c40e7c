"""Whether one statement denies what the other says, or says that it was given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.scoring.statements.atoms import (
    CHANGES,
    COMPLEMENT,
    GONE,
    OBJECT,
    OWNER,
    REASON,
    REJECTED,
    STATES,
    SUBJECT,
    VERB,
)
from langmem_tiers.scoring.statements.inflection import is_past
from langmem_tiers.scoring.statements.slots import PLANS, SHARED
from langmem_tiers.scoring.statements.swaps import swapped_roles
from langmem_tiers.scoring.statements.vocabulary import CLASSES, key_of

if TYPE_CHECKING:
    from langmem_tiers.scoring.statements.atoms import Atom
    from langmem_tiers.scoring.statements.reading import Statement

_REPLACE: Final = key_of("replace")
_ENDS: Final = {
    key_of(verb): key_of(state)
    for verb, state in (
        ("retire", "work"), ("resign", "work"), ("fire", "work"), ("stop", "work"), ("leave", "work"),
        ("divorce", "marry"),
    )
}  # fmt: skip
"""Verbs that tell of one person, with what they end."""
_UNSAID = frozenset({"always", "all", "any"})
_LOOSE_roles = frozenset({OBJECT, COMPLEMENT, "to", REASON, VERB, SUBJECT})


def is_denying(one: Statement) -> bool:
    """Whether it denies something, or says that something ended."""
    return len(one.denials) % 2 == 1 or bool(_ended(one))


def _ended(one: Statement) -> frozenset[str]:
    verbs = (atom for atom in one.atoms if atom.role == VERB and atom.key in GONE)
    return frozenset(atom.key for atom in verbs if is_past(atom.text.split()[0].lower()))


def denied(old: Statement, new: Statement) -> str:
    """Why one denies what the other says; nothing if it does not.

    Who denies the general denies the particular, but not the other way around: "we do not deploy" rules out
    "we deploy on Fridays"; "we do not deploy on Fridays" leaves "we deploy" as it is.
    """
    if is_denying(old) == is_denying(new):
        return ""
    denying, affirming = (old, new) if is_denying(old) else (new, old)
    ended = _ended(denying)
    rest = frozenset(atom.key for atom in denying.atoms if atom.role != REASON) - ended - _UNSAID
    rest -= {"from"} if ended else set()
    if not (rest or ended) or not rest <= affirming.keys or _is_given_up_there(rest, affirming):
        return ""
    if not _can_be_denied(denying, affirming, is_end=bool(ended)):
        return ""
    is_hit = _ends_it(denying, affirming, ended, rest) if ended else _shares_predicate(denying, affirming)
    return f"one of them denies it: '{denying.text}'" if is_hit and not swapped_roles(old, new) else ""


def _is_given_up_there(keys: frozenset[str], affirming: Statement) -> bool:
    return any(affirming.roles[key] <= {REJECTED, "from"} for key in keys - {"from"})


def _can_be_denied(denying: Statement, affirming: Statement, *, is_end: bool) -> bool:
    was_so = "past" in denying.flags and not is_end
    if affirming.predicates[0] in PLANS or ("past" in affirming.flags) != was_so:
        return False
    if denying.persons & {"user", "we"} and _subjects(affirming) - denying.keys:
        return False  # what the user does not like, Alice may like
    return "needless" not in denying.flags or "must" in affirming.modals


def _subjects(one: Statement) -> set[str]:
    return {atom.key for atom in one.atoms if atom.role == SUBJECT} - {"project", "team"}


def _ends_it(denying: Statement, affirming: Statement, ended: frozenset[str], rest: frozenset[str]) -> bool:
    # Who retired does not work any more, but may still live in Berlin; a subscription that stopped is no more.
    is_person = bool(denying.persons) or any(atom.is_capital for atom in denying.atoms if atom.key in rest)
    is_subject_alone = len(rest) < 2 and all(denying.roles[key] <= {SUBJECT, OWNER} for key in rest)
    if is_person and is_subject_alone:
        ends = {_ENDS.get(key) for key in ended}
        return _subjects(affirming) == rest and affirming.predicates[0] in ends
    first = {atom.key for atom in affirming.atoms if atom.is_first and atom.role != VERB}
    return not first & rest or first <= rest  # the check that was cancelled is not the health check


def _shares_predicate(denying: Statement, affirming: Statement) -> bool:
    if denying.predicates[0] == "be":
        return affirming.predicates[0] in STATES | {"be"}
    return bool(set(denying.predicates) & set(affirming.predicates))


def given_up(keeping: Statement, leaving: Statement) -> str:
    """Why what the one says was given up for something else by the other; nothing if it was not."""
    if is_denying(keeping) or "past" in keeping.flags or keeping.predicates[0] in PLANS | SHARED:
        return ""
    is_end = bool(_ended(leaving)) or leaving.predicates[0] == _REPLACE
    left = _left(leaving, is_end=is_end)
    kept = [
        atom for atom in left if atom.key in keeping.keys and not keeping.roles[atom.key] & {REJECTED, "from"}
    ]
    loose = {*keeping.predicates, *leaving.predicates, *(atom.key for atom in left)}
    if not kept or _has_more(keeping, leaving, loose, left, is_end=is_end):
        return ""
    limits = [
        atom
        for atom in leaving.atoms
        if atom.key not in keeping.keys
        and atom.key not in {*loose, "from", REJECTED}
        and atom.role not in _LOOSE_roles
        and not (is_end and atom.role in {"with", "by", "for"})
    ]
    return "" if limits else f"'{kept[0].text}' was given up"


def _left(leaving: Statement, *, is_end: bool) -> list[Atom]:
    roles = {REJECTED}
    if leaving.predicates[0] in CHANGES:
        roles.add("from")
    if is_end:
        roles.add(OBJECT)
    return [atom for atom in leaving.atoms if atom.role in roles]


def _has_more(
    keeping: Statement, leaving: Statement, loose: set[str], left: list[Atom], *, is_end: bool
) -> bool:
    """Whether what is kept says more than what was left."""
    names = {name for atom in left for name in CLASSES.get(atom.key, ())}
    rest = keeping.keys - leaving.keys - loose - names
    if is_end and not any(atom.is_first for atom in leaving.atoms if atom not in left):
        rest -= {atom.key for atom in keeping.atoms if atom.is_first and not atom.is_capital}
    return bool(rest)
