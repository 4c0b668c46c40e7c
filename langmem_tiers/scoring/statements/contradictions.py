"""Whether two statements cannot both be in force.

Only what is said of the same thing can contradict: one denies what the other says, says the opposite, gives it up
for something else, or puts another value where there can be one only. Whatever else differs - a scope, a subject, a
purpose - makes them two statements about two things.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.scoring.statements.atoms import (
    CHANGES,
    COMPLEMENT,
    OBJECT,
    REASON,
    REJECTED,
    STATES,
    SUBJECT,
    VERB,
)
from langmem_tiers.scoring.statements.denials import denied, given_up, is_denying
from langmem_tiers.scoring.statements.endings import broken_diet, ended_state
from langmem_tiers.scoring.statements.slot_words import MULTI, PLANS
from langmem_tiers.scoring.statements.slots import is_exclusive
from langmem_tiers.scoring.statements.swaps import swapped_roles
from langmem_tiers.scoring.statements.vocabulary import (
    CLASSES,
    are_complements,
    are_opposite,
    keys_of,
    share_class,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.scoring.statements.atoms import Atom
    from langmem_tiers.scoring.statements.differences import Difference
    from langmem_tiers.scoring.statements.reading import Statement

_FAMILIES: Final = (
    keys_of("use choose switch migrate be build replace adopt"),
    keys_of("live move locate be"),
    keys_of("work join be"),
    keys_of("be happen set cost"),
    keys_of("be set change update switch"),
    keys_of("name rename"),
    keys_of("build write rewrite implement code create redo"),
    keys_of("be happen start"),
)
_TO_VALUES: Final = CHANGES | keys_of("increase decrease postpone reschedule set")
_MEASURING: Final = keys_of("own pay earn take last cost weigh need set happen wear hold measure charge") | {
    "be",
    "",
}
"""Verbs by which a value is said of something."""
_ORDERING: Final = frozenset({"over", "than", "before", "after", "above", "below", REJECTED})
_NEWLY: Final = keys_of("new now instead next")
_CERTAIN: Final = frozenset({"must", "should", "will"})
_SETTLED: Final = keys_of("use choose happen start end open close leave arrive") | {"be"}
"""Verbs that say the same of what is and of what is settled to be."""
_DEMANDS: Final = keys_of("want need")
_LIKE_PLACES: Final = frozenset({OBJECT, COMPLEMENT, "to", "in", "on", "at", "for", "by", SUBJECT})
_MEANS: Final = frozenset({"with", "in", "on"})
_OBJECTS: Final = frozenset({OBJECT, COMPLEMENT})
_MOST_ATOMS, _MOST_VALUES = 24, 4


def contradiction(old: Statement, new: Statement, found: Difference) -> str:
    """Why the two contradict each other; nothing if they do not."""
    if "question" in old.flags | new.flags or "might" in old.modals | new.modals:
        return ""
    if old.persons and new.persons and old.persons != new.persons:
        return ""
    if not (found.common or old.persons & new.persons) or max(len(old.atoms), len(new.atoms)) > _MOST_ATOMS:
        return ""
    return (
        denied(old, new)
        or given_up(old, new)
        or given_up(new, old)
        or ended_state(old, new)
        or broken_diet(old, new)
        or broken_diet(new, old)
        or _reordered(old, new, found)
        or _opposed(old, new, found)
        or _replaced(old, new, found)
    )


def _reordered(old: Statement, new: Statement, found: Difference) -> str:
    """The same parts in another order of rank: tea over coffee, coffee over tea."""
    if found.old or found.new or old.denials or new.denials:
        return ""
    moved = {
        role for atom in old.atoms for role in old.roles[atom.key] ^ new.roles.get(atom.key, frozenset())
    }
    return swapped_roles(old, new) if moved & _ORDERING else ""


def _opposed(old: Statement, new: Statement, found: Difference) -> str:
    ones, others = _without_reasons(found.old), _without_reasons(found.new)
    if old.denials or new.denials or not _hold_alike(old, new):
        return ""
    if len(ones) + len(others) == 1:
        return _lacks(old, new) if others else _lacks(new, old)
    if len(ones) != 1 or len(others) != 1 or not are_opposite(ones[0].key, others[0].key):
        return ""
    one, other = ones[0], others[0]
    if "told" in old.flags & new.flags and not are_complements(one.key, other.key):
        return ""  # what was bought can be sold later, but who failed did not pass
    if _names_the_subject(old, new, one, other) or _holds_of_several(old, one, other):
        return ""
    is_swapped = one.role != "preposition" and swapped_roles(old, new)
    return "" if is_swapped else f"'{one.text}' against '{other.text}'"


def _names_the_subject(old: Statement, new: Statement, one: Atom, other: Atom) -> bool:
    # "The front door is locked" says nothing about the back door; but "dark mode is preferred" is a choice.
    if VERB in {one.role, other.role} or not (one.is_first or other.is_first):
        return False
    return old.predicates[0] not in {"prefer", "choose"} or "passive" not in old.flags & new.flags


def _holds_of_several(old: Statement, one: Atom, other: Atom) -> bool:
    # Two dogs, a big one and a small one; but hair is long or short.
    if old.predicates[0] not in MULTI or one.key == old.predicates[0] or old.predicates[0] in _DEMANDS:
        return False
    return old.predicates[0] != "own" or "a" in {one.determiner, other.determiner}


def _lacks(having: Statement, lacking: Statement) -> str:
    missed = [atom for atom in lacking.atoms if atom.role == "without"]
    if not missed or "with" not in having.roles.get(missed[0].key, ()):
        return ""
    return f"with and without '{missed[0].text}'"


def _without_reasons(atoms: Iterable[Atom]) -> list[Atom]:
    return [atom for atom in atoms if REASON not in {atom.role, atom.key}]


def _hold_alike(old: Statement, new: Statement) -> bool:
    is_change = new.predicates[0] in _TO_VALUES
    if not is_change and ("past" in old.flags or "past" in new.flags):
        measured = {"be", "cost", "weigh", "last"}
        if old.predicates[0] not in measured or ("past" in old.flags) != ("past" in new.flags):
            return False
    if "will" in old.modals ^ new.modals and old.predicates[0] not in _SETTLED:
        return False  # who will move still lives here
    return old.modals - _CERTAIN == new.modals - _CERTAIN


def _replaced(old: Statement, new: Statement, found: Difference) -> str:
    if is_denying(old) or is_denying(new) or "also" in old.flags | new.flags or not _hold_alike(old, new):
        return ""
    if (old.keys | new.keys) & PLANS - found.common or len(old.predicates) > 1:
        return ""
    ones, others = _values(old, found.old), _values(new, found.new)
    if (
        not ones
        or not others
        or max(len(ones), len(others)) > _MOST_VALUES
        or _is_list(ones)
        or _is_list(others)
    ):
        return ""
    is_word = any(atom.kind == "word" for atom in (*ones, *others))
    if not _are_related(old, new, is_word=is_word) or not _stand_alike(ones, others):
        return ""
    is_other_claim = is_exclusive(old, new, ones, others)
    return f"'{_said(ones)}' against '{_said(others)}' in the same place" if is_other_claim else ""


def _are_related(old: Statement, new: Statement, *, is_word: bool) -> bool:
    one, other = old.predicates[0], new.predicates[0]
    if one == other or any({one, other} <= family for family in _FAMILIES):
        return True
    if {one, other} == {"be", "name"} and "name" in old.keys & new.keys:
        return True
    if {one, other} == {"own", "be"} or (not is_word and {one, other} <= _MEASURING):
        return True
    if not is_word and ((one == "be" and other in old.keys) or (other == "be" and one in new.keys)):
        return True  # the retention is, logs are retained
    is_moved = other in _TO_VALUES and (one in STATES or one in {"be", "happen", "set", "start", "end"})
    return is_moved and not is_word


def _values(one: Statement, atoms: Iterable[Atom]) -> list[Atom]:
    left_out = _NEWLY.union(one.predicates)
    atoms = list(atoms)
    if any(atom.kind == "number" for atom in atoms):
        left_out |= {"only"}
    return [atom for atom in _without_reasons(atoms) if atom.role != VERB and atom.key not in left_out]


def _is_list(atoms: Sequence[Atom]) -> bool:
    return len(atoms) > 1 and all(atom.key in CLASSES for atom in atoms)


def _stand_alike(ones: Sequence[Atom], others: Sequence[Atom]) -> bool:
    roles, other_roles = ({atom.role for atom in atoms} for atoms in (ones, others))
    both = (*ones, *others)
    is_word = any(atom.kind == "word" for atom in both)
    if len(roles) > 1 or len(other_roles) > 1:
        # From one date to another: several values that all have their counterpart.
        return roles == other_roles and not is_word and not any(atom.is_first for atom in both)
    if roles == other_roles:
        return True
    if roles | other_roles <= _MEANS and share_class(ones[-1].key, others[-1].key):
        return True
    if other_roles == {"to"} and roles == {"with"}:
        return True  # is with one bank, switched to another
    loose = _OBJECTS if is_word and "to" not in roles | other_roles else _LIKE_PLACES
    return roles | other_roles <= loose


def _said(atoms: Iterable[Atom]) -> str:
    return " ".join(atom.text for atom in atoms)
