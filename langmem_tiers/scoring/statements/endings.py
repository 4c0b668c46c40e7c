"""Verbs that end a state: what was looked for is found, what was broken is fixed, who was engaged has parted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.scoring.statements.atoms import OBJECT, SUBJECT, VERB
from langmem_tiers.scoring.statements.families import are_akin
from langmem_tiers.scoring.statements.inflection import SAME_PASTS, is_past
from langmem_tiers.scoring.statements.kinds import kinds_of
from langmem_tiers.scoring.statements.vocabulary import key_of, keys_of

if TYPE_CHECKING:
    from langmem_tiers.scoring.statements.reading import Statement

_TABLE = """
find: seek search look need want lose lost unemployed miss
fix: broken break fail crash open bug down leak defective faulty flaky unresolved
repair: broken break fail crash down leak defective faulty
replace: broken break old cracked
resolve: open pending broken bug
finish: read write study attend work watch build train plan draft take learn school unfinished ongoing
complete: read write study attend work build draft pending ongoing incomplete
graduate: study attend student enroll school
die: own have live alive be name
divorce: marry married date engage engaged together relationship spouse wife husband couple live see partner
separate: marry date engage together
recover: ill sick injured suffer covid flu cold
heal: broken injured sprained cast hurt
return: leave travel abroad away on holiday vacation sabbatical trip
deliver: pending pregnant expecting
approve: pending wait review submit await
reject: pending wait await approve
accept: pending wait await
decide: undecided consider think plan
choose: undecided consider
pay: owe unpaid outstanding pending debt
receive: wait await expect order
arrive: wait await expect order way
hire: vacant open recruit seek unemployed
merge: open pending review draft
close: open pending
release: unreleased upcoming pending beta
sell: own have drive keep use
lose: own have
cancel: belong subscribe member subscription attend plan happen own book have
quit: belong work smoke drink use play attend take study job member vape
stop: work smoke drink use play attend take study eat
leave: belong work live study attend member employ job belong team
come off: take use on wear cast in
move out: live stay rent share
drop out: study attend student enroll
abandon: use support plan write work build
"""
_PHRASES: Final = (
    (("come", "off"), "come off"), (("move", "out"), "move out"), (("drop", "out"), "drop out"),
    (("take", "off"), "come off"), (("get", "off"), "come off"), (("get", "over"), "recover"),
)  # fmt: skip
_LIGHT: Final = keys_of(
    "new own take have get go be still currently looking member work on in at of the job own name"
)
_WHEN: Final = keys_of("last week year month day yesterday today ago recently finally again now since")


def _endings() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for line in _TABLE.strip().splitlines():
        verb, _, states = line.partition(":")
        key = key_of(verb) if " " not in verb else verb
        found[key] = found.get(key, frozenset()) | keys_of(states)
    return found


_ENDINGS: Final = _endings()


def ended_state(old: Statement, new: Statement) -> str:
    """Which verb of the new statement ends the state that the old one tells of; nothing if none does."""
    if old.denials or new.denials or old.flags & {"past", "event"} or new.modals or old.modals:
        return ""
    if any(atom.kind == "day" for atom in new.atoms):
        return ""  # closed on Fridays
    if "back" in new.keys and any("from" in roles and key in old.keys for key, roles in new.roles.items()):
        return "it is over: somebody is back" if old.persons <= new.persons else ""
    for verb, key in _ending_verbs(new):
        if _is_ended(old, new, key):
            return f"'{verb}' ends it"
    return ""


def _ending_verbs(one: Statement) -> list[tuple[str, str]]:
    verbs = []
    keys = [atom.key for atom in one.atoms]
    for phrase, key in _PHRASES:
        if phrase[0] in keys and phrase[1] in one.keys | {
            role for roles in one.roles.values() for role in roles
        }:
            verbs.append((" ".join(phrase), key))
    for atom in one.atoms:
        word = atom.text.split()[0].lower()
        if atom.role == VERB and atom.key in _ENDINGS and (is_past(word) or word in SAME_PASTS):
            verbs.append((atom.text, atom.key))
    return verbs


def _is_ended(old: Statement, new: Statement, verb: str) -> bool:
    states = _ENDINGS[verb]
    state = {atom.key for atom in old.atoms if atom.key in states} | {
        key for key in old.predicates if key in states
    }
    if not state or not old.persons <= new.persons | {"we"} or verb in old.keys:
        return False
    left = {atom.key for atom in old.atoms if atom.kind == "word"} - state - _LIGHT - new.keys
    left = {key for key in left if not any(are_akin(key, other) for other in new.keys)}
    if left:
        return False
    shared = (old.keys & new.keys) - _LIGHT
    if not shared and not (state - {"be", "own", "live", "work"} and old.persons == new.persons):
        return False
    return not _tells_of_another(old, new, shared)


def _tells_of_another(old: Statement, new: Statement, shared: frozenset[str] | set[str]) -> bool:
    """Whether somebody else did it, or did it to something else."""
    subjects = {atom.key for atom in new.atoms if atom.is_first and atom.role in {SUBJECT, OBJECT}} - _WHEN
    if subjects - old.keys:
        return True
    objects = [
        atom.key
        for atom in new.atoms
        if atom.role == OBJECT
        and not atom.is_first
        and atom.kind == "word"
        and atom.key not in _WHEN | _LIGHT
    ]
    return bool(objects) and not any(are_akin(objects[-1], key) for key in old.keys | shared)


_DIETS: Final = {
    "vegetarian": frozenset({"meat", "seafood"}),
    "vegan": frozenset({"meat", "seafood", "dairy"}),
    "pescatarian": frozenset({"meat"}),
    "teetotal": frozenset({"alcohol"}),
    "teetotaler": frozenset({"alcohol"}),
}


def broken_diet(one: Statement, other: Statement) -> str:
    """What the other eats or drinks although the one is on a diet without it; nothing if there is no such thing."""
    diets = one.keys & _DIETS.keys()
    if len(one.keys) != 1 or not diets or one.denials or other.denials or other.flags & {"past", "event"}:
        return ""
    if one.persons != other.persons or not {"eat", "drink", "consume"} & {*other.predicates} or other.modals:
        return ""
    eaten = other.keys | kinds_of(other.keys)
    broken = eaten & _DIETS[min(diets)]
    return f"'{min(diets)}' rules out '{min(broken)}'" if broken else ""
