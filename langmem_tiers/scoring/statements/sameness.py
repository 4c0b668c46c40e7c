"""Whether two statements say the same, although in other words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.scoring.statements.atoms import VERB
from langmem_tiers.scoring.statements.swaps import swapped_roles
from langmem_tiers.scoring.statements.vocabulary import are_complements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.scoring.statements.atoms import Atom
    from langmem_tiers.scoring.statements.differences import Difference
    from langmem_tiers.scoring.statements.reading import Statement

_FLAGS = {
    "question": "one of them asks",
    "past": "one of them is past",
    "needless": "one of them obliges to nothing",
}


def why_not_same(old: Statement, new: Statement, found: Difference) -> str:
    """Why the two do not say the same; nothing if they do."""
    is_turned = _is_turned(old, new, found)
    if (found.old or found.new) and not is_turned and not _is_converse(old, new, found):
        return _unshared(found)
    for flag in old.flags ^ new.flags:
        if flag in _FLAGS and not (flag == "past" and _are_both_told(old, new, found)):
            return _FLAGS[flag]
    if old.persons and new.persons and old.persons != new.persons:
        return f"{_listed(old.persons)} against {_listed(new.persons)}"
    if not _have_like_modals(old, new):
        return f"{_listed(old.modals) or 'a fact'} against {_listed(new.modals) or 'a fact'}"
    if is_turned:
        return ""
    return _denied_otherwise(old, new, found) or ("" if found.old else swapped_roles(old, new))


def _are_both_told(old: Statement, new: Statement, found: Difference) -> bool:
    # "My wedding was in 2016", "I got married in 2016"
    other = new if "past" in old.flags else old
    return "told" in other.flags or any(
        atom.kind == "date" and atom.key in found.common and atom.key[-4:].isdecimal() for atom in other.atoms
    )


def _is_turned(old: Statement, new: Statement, found: Difference) -> bool:
    """Whether one denies the opposite of what the other says: who fails does not pass."""
    if len(found.old) != 1 or len(found.new) != 1 or abs(len(old.denials) - len(new.denials)) != 1:
        return False
    one, other = found.old[0], found.new[0]
    denying = old if len(old.denials) > len(new.denials) else new
    is_of_it = denying.denials[-1] in {one.key, other.key, ""}
    return is_of_it and (one.role == VERB) == (other.role == VERB) and are_complements(one.key, other.key)


def _denied_otherwise(old: Statement, new: Statement, found: Difference) -> str:
    if len(old.denials) != len(new.denials):
        return "one of them denies it"
    if len(old.clauses) == len(new.clauses) == 1:
        return ""
    if sorted(old.denials) != sorted(new.denials):
        return "they deny different parts"
    ones, others = ({clause & found.common for clause in one.clauses} for one in (old, new))
    return "" if len(old.clauses) != len(new.clauses) or ones == others else "what is said of what"


def _is_converse(old: Statement, new: Statement, found: Difference) -> bool:
    """Whether one says "A before B" and the other "B after A"."""
    ones, others = ([atom.key for atom in atoms] for atoms in (found.old, found.new))
    if len(ones) != 1 or len(others) != 1 or {ones[0], others[0]} != {"before", "after"}:
        return False
    behind_old = {atom.key for atom in old.atoms if atom.role == ones[0]}
    behind_new = {atom.key for atom in new.atoms if atom.role == others[0]}
    return bool(behind_old and behind_new) and not behind_old & behind_new


def _have_like_modals(old: Statement, new: Statement) -> bool:
    """Whether both are as sure, and oblige as much."""
    differing = old.modals ^ new.modals
    if differing == {"may", "might"} or (_forbids(old) and _forbids(new)):
        return True
    for modal in differing:
        without = old if modal in new.modals else new
        with_it = new if modal in new.modals else old
        if modal == "must" and ("imperative" in without.flags or "need" in without.keys):
            continue
        if modal == "should" and "want" in without.keys:
            continue
        if modal in {"may", "can"} and ("allow" in without.keys or {"may", "can"} & without.modals):
            continue
        if modal == "will" and (set(with_it.predicates) <= {"be", "happen"} or _has_time(with_it)):
            continue
        return False
    return True


def _forbids(one: Statement) -> bool:
    """Must not, may not, can not, never do."""
    if len(one.denials) != 1 or "needless" in one.flags or one.modals - {"must", "may", "can", "should"}:
        return False
    return bool(one.modals) or "imperative" in one.flags or "allow" in one.keys


def _has_time(one: Statement) -> bool:
    return any(atom.kind in {"date", "time", "day"} for atom in one.atoms)


def _unshared(found: Difference) -> str:
    if found.old and found.new:
        return f"'{_texts(found.old)}' against '{_texts(found.new)}'"
    return f"only one of them says '{_texts(found.old or found.new)}'"


def _texts(atoms: Sequence[Atom]) -> str:
    return " ".join(atom.text for atom in atoms[:4])


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))
