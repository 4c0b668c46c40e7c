"""Detection of swapped roles in statements with the same words: "A depends on B", "B depends on A"."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from langmem_tiers.long_term.conflicts.models import COMPLEMENT, OBJECT, OWNER, SUBJECT, VERB
from langmem_tiers.long_term.conflicts.vocabulary import get_canonical_keys

if TYPE_CHECKING:
    from langmem_tiers.long_term.conflicts.models import Atom
    from langmem_tiers.long_term.conflicts.statement import Statement

_PLACES = frozenset({SUBJECT, OBJECT, COMPLEMENT, VERB})
"""Roles given by word order, without a preposition."""
_LIKE_JOINTS = (
    frozenset({"in", "at", "on", "during", OWNER, "inside", "within", "for", "from"}),
    frozenset({"with", "via", "by", "in", "on"}),
    frozenset({"as", "for", "in"}),
    frozenset({"to", "for", "into", "onto", "in", OWNER}),
    frozenset({"about", "on", OWNER}),
    frozenset({"with", OWNER}),
    frozenset({"by agent", SUBJECT, OWNER, "by"}),
)
"""Groups of interchangeable prepositions."""
_MUTUAL = get_canonical_keys(
    "marry engaged friend sibling neighbor colleague twin equal meet cousin same identical roommate"
)
"""Words for relations that are symmetric."""
_NONE: frozenset[str] = frozenset()
_MOST_ATOMS = 60
"""Maximum number of parts. Longer texts are compared only for equal order."""


class _RoleChange(NamedTuple):
    """A part with different roles in two statements."""

    atom: Atom
    before: frozenset[str]
    after: frozenset[str]


def find_swapped_roles(old: Statement, new: Statement) -> str:
    """Return the two parts that swapped roles, as text, or an empty string."""
    is_alike = ("passive" in old.flags) == ("passive" in new.flags)
    if is_alike and [(atom.key, atom.role) for atom in old.atoms] == [
        (atom.key, atom.role) for atom in new.atoms
    ]:
        return ""
    if joined := _find_changed_preposition(old, new):
        return joined
    if is_alike and [atom.key for atom in old.atoms] == [atom.key for atom in new.atoms]:
        return ""
    if not old.predicates[0] or not new.predicates[0] or max(len(old.atoms), len(new.atoms)) > _MOST_ATOMS:
        return "the word order differs"
    return _find_changed_places(old, new)


def _find_changed_places(old: Statement, new: Statement) -> str:
    if _are_persons_swapped(old, new):
        return "subject and object are swapped"
    mutual = (old.keys | new.keys) & _MUTUAL
    if any(OWNER not in old.roles.get(key, _NONE) | new.roles.get(key, _NONE) for key in mutual):
        return ""
    is_equation = set(old.predicates) == set(new.predicates) == {"be"}
    moved = [
        _RoleChange(atom, old.roles[atom.key], new.roles[atom.key])
        for atom in old.atoms
        if atom.key in new.roles
        and old.roles[atom.key].isdisjoint(new.roles[atom.key])
        and atom.key != "what"
    ]
    for one, other in combinations(moved, 2):
        if _is_exchange(one, other, is_equation=is_equation):
            return f"'{one.atom.text}' and '{other.atom.text}' are swapped"
    return _find_crossed_parts(old, new)


def _find_changed_preposition(old: Statement, new: Statement) -> str:
    """Return a part with another preposition: "works for Bob", "works with Bob"."""
    for atom in old.atoms:
        if atom.kind != "word" or atom.key not in new.roles:
            continue
        before, after = (
            _drop_positional_roles(old.roles[atom.key]),
            _drop_positional_roles(new.roles[atom.key]),
        )
        both = before | after
        if before and after and before.isdisjoint(after) and not any(both <= group for group in _LIKE_JOINTS):
            return f"'{min(before)} {atom.text}' versus '{min(after)} {atom.text}'"
    return ""


def _are_persons_swapped(old: Statement, new: Statement) -> bool:
    """Return True if "I pay Bob" became "Bob pays me"."""
    is_mutual = bool((old.keys | new.keys) & _MUTUAL)
    for person in old.persons & new.persons:
        if _is_owner_doer_swap(old, new, person):
            return True
        before = {role for key, role in old.person_roles if key == person} - {OWNER, COMPLEMENT}
        after = {role for key, role in new.person_roles if key == person} - {OWNER, COMPLEMENT}
        if not is_mutual and before and after and before.isdisjoint(after) and SUBJECT in before | after:
            return any(
                (SUBJECT in old.roles[key]) != (SUBJECT in new.roles[key]) for key in old.keys & new.keys
            )
    return False


def _is_owner_doer_swap(old: Statement, new: Statement, person: str) -> bool:
    """Return True if "I walk Bob's dog" became "Bob walks my dog"."""
    before, after = (
        {role for key, role in statement.person_roles if key == person} for statement in (old, new)
    )
    if not (SUBJECT in before ^ after and OWNER in before & after | (before ^ after)):
        return False
    doing, owning = (old, new) if SUBJECT in before else (new, old)
    is_alike = old.predicates[0] == new.predicates[0] and old.predicates[0] not in {"be", "own"}
    return any(
        (OWNER in roles or is_alike) and SUBJECT in owning.roles.get(key, ()) and SUBJECT not in roles
        for key, roles in doing.roles.items()
    )


def _find_crossed_parts(old: Statement, new: Statement) -> str:
    """Return two parts that swapped places with other words between them: "a dog here, a cat there"."""
    if len(old.atoms) != len(new.atoms) or ("passive" in old.flags) != ("passive" in new.flags):
        return ""
    pairs = list(zip(old.atoms, new.atoms, strict=True))
    places = [at for at, (one, other) in enumerate(pairs) if one.key != other.key]
    if len(places) != 2 or any(pairs[at][0].role != pairs[at][1].role for at in places):
        return ""
    first, last = places
    if pairs[first][0].key != pairs[last][1].key or pairs[last][0].key != pairs[first][1].key:
        return ""
    between = {atom.role for atom in old.atoms[first + 1 : last]}
    if between <= {old.atoms[first].role}:
        return ""  # the same list in another order
    return f"'{old.atoms[first].text}' and '{old.atoms[last].text}' are swapped"


def _is_exchange(one: _RoleChange, other: _RoleChange, *, is_equation: bool) -> bool:
    lost, gained = (
        _drop_positional_roles(one.before) & _drop_positional_roles(other.after),
        _drop_positional_roles(one.after) & _drop_positional_roles(other.before),
    )
    if lost or gained:
        return True
    return not is_equation and bool(one.before & other.after and one.after & other.before)


def _drop_positional_roles(roles: frozenset[str]) -> frozenset[str]:
    return roles - _PLACES
