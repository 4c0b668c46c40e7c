"""Matching what is left over on both sides: words of one family, words alike, words near in meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from langmem_tiers.scoring.statements.atoms import VERB
from langmem_tiers.scoring.statements.families import are_akin, are_derived
from langmem_tiers.scoring.statements.inflection import stem
from langmem_tiers.scoring.statements.kinds import are_of_one_kind
from langmem_tiers.scoring.statements.slot_words import PLANS
from langmem_tiers.scoring.statements.vocabulary import (
    CLASSES,
    REGIONS,
    SCOPES,
    are_opposite,
    keys_of,
    share_class,
)

if TYPE_CHECKING:
    from langmem_tiers.scoring.statements.atoms import Atom
    from langmem_tiers.scoring.statements.differences import Difference
    from langmem_tiers.scoring.statements.reading import Statement

Kin = Callable[[str, str], float]
"""The cosine of two words."""
NEAR: Final = 0.42
"""The cosine from which on two words stand for each other: of the tuned pairs, no wrong ones are as near."""
_NEAR_ACROSS: Final = 0.55
"""The same between a verb and another word."""
_NEAR_PHRASES: Final = 0.45
_LONGEST_PHRASE: Final = 3
_SURE: Final = 3.0
"""Of one family, which needs nothing else in common."""
_MOST: Final = 6
"""Leftover words on a side: with more of them, two statements speak of different things."""
_DEMONYMS: Final = ("ian", "ish", "ese", "an", "n", "i", "ean", "ien")
_FIXED_ROLES: Final = frozenset({"preposition", "conjunction"})
_NEVER: Final = (PLANS - {"want"}) | keys_of(
    "always never sometimes often rarely only new also more less first last"
)


def aligned(new: Statement, found: Difference, kin: Kin | None) -> Statement:
    """The new statement with the words of the old one where it has others for the same."""
    if not found.common and len(found.old) + len(found.new) > 2:
        return new
    ones, others = _candidates(found.old), _candidates(found.new)
    if not ones or not others or max(len(found.old), len(found.new)) > _MOST:
        return new
    scored = sorted(
        ((near, at, to) for at, one in enumerate(ones) for to, other in enumerate(others)
         if (near := _nearness(one, other, kin)) >= (NEAR if found.common else _SURE)),
        key=lambda entry: -entry[0],
    )  # fmt: skip
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for _, at, to in scored:
        if others[to].key not in keys and ones[at].key not in taken:
            keys[others[to].key] = ones[at].key
            taken.add(ones[at].key)
    return _renamed(new, keys) if keys else new


def rephrased(new: Statement, found: Difference, kin: Kin) -> Statement:
    """The new statement with all that is left over in the old one for all that is left over in it, if they are near."""
    both = (*found.old, *found.new)
    if max(len(found.old), len(found.new)) > _LONGEST_PHRASE or len(both) < 3 or not found.common:
        return new
    if len(_candidates(both)) < len(both) or any(_is_name(atom) or _is_exclusive(atom.key) for atom in both):
        return new
    if any(_rule_out(one.key, other.key) for one in found.old for other in found.new):
        return new
    one, other = (" ".join(atom.text.lower() for atom in atoms) for atoms in (found.old, found.new))
    if kin(one, other) < _NEAR_PHRASES:
        return new
    keys = {new.key: old.key for old, new in zip(found.old, found.new, strict=False)}
    left = {atom.key for atom in found.new} - keys.keys()
    atoms = [atom for atom in new.atoms if atom.key not in left]
    atoms += found.old[len(found.new) :]
    kept = replace(
        new,
        atoms=tuple(atoms),
        roles={key: roles for key, roles in new.roles.items() if key not in left}
        | {atom.key: frozenset({atom.role}) for atom in found.old[len(found.new) :]},
    )
    return _renamed(kept, keys)


def _rule_out(one: str, other: str) -> bool:
    return are_opposite(one, other) or bool(share_class(one, other)) or are_of_one_kind(one, other)


def _candidates(atoms: tuple[Atom, ...]) -> list[Atom]:
    return [
        atom
        for atom in atoms
        if atom.kind == "word" and atom.role not in _FIXED_ROLES and atom.key not in _NEVER
    ]


def _nearness(one: Atom, other: Atom, kin: Kin | None) -> float:
    if _is_name(one) or _is_name(other):
        return _SURE if _is_demonym(one.key, other.key) else 0.0
    if _are_of_one_word(one, other) and not are_opposite(one.key, other.key):
        return _SURE
    if are_of_one_kind(one.key, other.key) or {one.key, other.key} <= SCOPES:
        return 0.0
    is_like_part = (one.role == VERB) == (other.role == VERB) or one.text.endswith("ing")
    is_like_part = is_like_part or other.text.endswith("ing")
    if is_like_part and are_akin(one.key, other.key):
        return 2.0
    is_open = (
        not _is_exclusive(one.key) and not _is_exclusive(other.key) and not _rule_out(one.key, other.key)
    )
    if kin is None or not is_open:
        return 0.0
    near = kin(one.text.lower(), other.text.lower())
    return near if is_like_part or near >= _NEAR_ACROSS else 0.0


def _is_demonym(one: str, other: str) -> bool:
    # Brazilian, of Brazil
    short, long = sorted((one, other), key=len)
    return short in REGIONS and any(long == short.rstrip("aey") + ending for ending in _DEMONYMS)


def _are_of_one_word(one: Atom, other: Atom) -> bool:
    if are_derived(one.key, other.key):
        return True
    return are_derived(stem(one.text.lower()), stem(other.text.lower()))


def _is_exclusive(key: str) -> bool:
    return key in CLASSES or key in SCOPES or key in REGIONS


def _is_name(atom: Atom) -> bool:
    return atom.is_capital and not atom.is_start


def _renamed(one: Statement, keys: dict[str, str]) -> Statement:
    """The same statement with other keys for some words."""
    roles: dict[str, frozenset[str]] = {}
    for key, some in one.roles.items():
        name = keys.get(key, key)
        roles[name] = roles.get(name, frozenset()) | some
    return replace(
        one,
        atoms=tuple(atom._replace(key=keys[atom.key]) if atom.key in keys else atom for atom in one.atoms),
        keys=frozenset(roles),
        roles=roles,
        denials=tuple(keys.get(key, key) for key in one.denials),
        clauses=tuple(frozenset(keys.get(key, key) for key in clause) for clause in one.clauses),
        predicates=tuple(keys.get(key, key) for key in one.predicates),
    )
