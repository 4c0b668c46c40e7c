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
from langmem_tiers.scoring.statements.inflection import SAME_PASTS, is_past
from langmem_tiers.scoring.statements.kinds import kinds_of
from langmem_tiers.scoring.statements.slot_words import PLANS, SHARED
from langmem_tiers.scoring.statements.swaps import swapped_roles
from langmem_tiers.scoring.statements.vocabulary import CLASSES, key_of, keys_of

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


_WHEN = keys_of("last week year month yesterday today ago recently finally yet")
_GETTING = keys_of("buy get adopt inherit acquire")
"""What one has got one owns from then on."""
_HAVING = keys_of("take attend subscribe pay receive")
_MUSIC = frozenset({"musical"})  # no kind of its own beside an instrument


def is_denying(one: Statement) -> bool:
    """Whether it denies something, or says that something ended."""
    return len(one.denials) % 2 == 1 or bool(_ended(one))


def _ended(one: Statement) -> frozenset[str]:
    verbs = (atom for atom in one.atoms if atom.role == VERB and atom.key in GONE)
    return frozenset(
        atom.key for atom in verbs if is_past(word := atom.text.split()[0].lower()) or word in SAME_PASTS
    )


def denied(old: Statement, new: Statement) -> str:
    """Why one denies what the other says; nothing if it does not.

    Who denies the general denies the particular, but not the other way around: "we do not deploy" rules out
    "we deploy on Fridays"; "we do not deploy on Fridays" leaves "we deploy" as it is.
    """
    if is_denying(old) == is_denying(new):
        return ""
    denying, affirming = (old, new) if is_denying(old) else (new, old)
    ended = _ended(denying)
    rest = _denied_of(denying, affirming, ended)
    said = affirming.keys | kinds_of(affirming.keys) | _MUSIC
    is_other = any(atom.determiner == "a" and atom.role == OBJECT for atom in denying.atoms)
    if ended and (is_other or "event" in affirming.flags):
        return ""  # who sold a house may have another, and what happened has happened
    if affirming is new and _GETTING & frozenset(affirming.predicates):
        said |= {"own"}
    if (
        not (rest or ended)
        or not rest <= said
        or (rest and rest <= _MUSIC)
        or _is_given_up_there(rest, affirming)
    ):
        return ""
    if not _can_be_denied(denying, affirming, is_end=bool(ended)):
        return ""
    is_hit = _ends_it(denying, affirming, ended, rest) if ended else _shares_predicate(denying, affirming)
    return f"one of them denies it: '{denying.text}'" if is_hit and not swapped_roles(old, new) else ""


def _denied_of(denying: Statement, affirming: Statement, ended: frozenset[str]) -> frozenset[str]:
    """What must be said by the other for the denial to hit it."""
    rest = frozenset(atom.key for atom in denying.atoms if atom.role != REASON) - ended - _UNSAID
    rest -= _WHEN - affirming.keys
    rest -= {"from"} if ended else set()
    rest -= {"need"} if "must" in affirming.modals else set()
    return rest - ({"allow"} if affirming.modals & {"may", "can", "must"} else set())


def _is_given_up_there(keys: frozenset[str], affirming: Statement) -> bool:
    return any(
        affirming.roles[key] <= {REJECTED, "from"} for key in keys - {"from"} if key in affirming.roles
    )


def _can_be_denied(denying: Statement, affirming: Statement, *, is_end: bool) -> bool:
    was_so = "past" in denying.flags and not is_end
    if affirming.modals & {"may", "can"} and not _speaks_of_leave(denying):
        return False
    if affirming.predicates[0] in PLANS or ("past" in affirming.flags) != was_so:
        return False
    is_personal = any(key in {"user", "we"} and role == SUBJECT for key, role in denying.person_roles)
    if is_personal and _subjects(affirming) - denying.keys:
        return False  # what the user does not like, Alice may like
    return "needless" not in denying.flags or "must" in affirming.modals or "need" in affirming.keys


def _speaks_of_leave(one: Statement) -> bool:
    return bool(one.modals) or "imperative" in one.flags or "allow" in one.keys


def _subjects(one: Statement) -> set[str]:
    return {atom.key for atom in one.atoms if atom.role == SUBJECT} - {"project", "team"}


def _ends_it(denying: Statement, affirming: Statement, ended: frozenset[str], rest: frozenset[str]) -> bool:
    # Who retired does not work any more, but may still live in Berlin; a subscription that stopped is no more.
    is_person = bool(denying.persons) or any(atom.is_capital for atom in denying.atoms if atom.key in rest)
    rest = frozenset(key for key in rest if ":" not in key)  # when it was says not what it was
    is_subject_alone = len(rest) < 2 and all(denying.roles[key] <= {SUBJECT, OWNER} for key in rest)
    if is_person and is_subject_alone:
        ends = {_ENDS.get(key) for key in ended}
        return _subjects(affirming) == rest and affirming.predicates[0] in ends
    if _only_stopped(affirming, denying):
        return False
    first = {atom.key for atom in affirming.atoms if atom.is_first and atom.role != VERB}
    return not first & rest or first <= rest  # the check that was cancelled is not the health check


def _shares_predicate(denying: Statement, affirming: Statement) -> bool:
    if denying.predicates[0] == "be":
        return affirming.predicates[0] in STATES | {"be"} or affirming.predicates[0] in denying.keys
    if affirming.predicates[0] == "be" and denying.predicates[0] in affirming.keys:
        return True  # signing is a must
    if denying.predicates[0] == "own" and affirming.predicates[0] in _GETTING:
        return True
    if denying.predicates[0] == "allow" and affirming.modals & {"may", "can", "must"}:
        return True
    return bool(set(denying.predicates) & set(affirming.predicates))


def given_up(keeping: Statement, leaving: Statement) -> str:
    """Why what the one says was given up for something else by the other; nothing if it was not."""
    if is_denying(keeping) or keeping.flags & {"past", "event"} or keeping.predicates[0] in PLANS | SHARED:
        return ""
    if _is_of_somebody_else(keeping, leaving):
        return ""
    is_end = bool(_ended(leaving)) or leaving.predicates[0] == _REPLACE
    left = _left(leaving, is_end=is_end)
    if is_end and (not _is_head_kept(left, keeping) or _only_stopped(keeping, leaving)):
        return ""
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


def _is_of_somebody_else(keeping: Statement, leaving: Statement) -> bool:
    # The user's brother left: the user did not.
    does = (any(role == SUBJECT for _, role in one.person_roles) for one in (keeping, leaving))
    owned = any(role == OWNER for _, role in leaving.person_roles)
    return next(does) and not next(does) and owned and bool(_subjects(leaving) - keeping.keys)


def _only_stopped(keeping: Statement, leaving: Statement) -> bool:
    # Who stopped the car still drives it.
    return bool(leaving.persons) and _ended(leaving) == {"stop"} and keeping.predicates[0] not in _HAVING


def _is_head_kept(left: list[Atom], keeping: Statement) -> bool:
    # Who quit the chess club may still play chess.
    objects = [
        atom.key for atom in left if atom.role == OBJECT and atom.kind == "word" and atom.key not in _WHEN
    ]
    return not objects or objects[-1] in keeping.keys


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
