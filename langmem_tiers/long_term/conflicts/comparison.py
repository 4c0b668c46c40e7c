"""Comparison of two statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from langmem_tiers.long_term.conflicts.contradiction import are_of_one_kind, find_contradiction
from langmem_tiers.long_term.conflicts.differences import compute_difference
from langmem_tiers.long_term.conflicts.inflection import stem
from langmem_tiers.long_term.conflicts.models import VERB
from langmem_tiers.long_term.conflicts.role_swaps import find_swapped_roles
from langmem_tiers.long_term.conflicts.single_value_slots import PLANS
from langmem_tiers.long_term.conflicts.vocabulary import (
    CLASSES,
    REGIONS,
    SCOPES,
    are_complements,
    are_opposite,
    find_shared_class,
    get_canonical_keys,
)
from langmem_tiers.long_term.conflicts.word_families import are_derived, are_related_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.long_term.conflicts.differences import StatementDifference
    from langmem_tiers.long_term.conflicts.models import Atom
    from langmem_tiers.long_term.conflicts.statement import Statement


class Verdict(StrEnum):
    """Relation of a new statement to an old one."""

    SAME = "same"
    CONTRADICTS = "contradicts"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict with its reason."""

    verdict: Verdict
    reason: str
    """Reason in English, with the words that decided."""
    similarity: float
    """Share of the content that both statements have, from 0 to 1. 1 means the same."""


_FLAGS = {
    "question": "only one is a question",
    "past": "only one is in the past",
    "needless": "only one is binding",
}


def find_difference_reason(old: Statement, new: Statement, found: StatementDifference) -> str:
    """Return why two statements are not the same, or an empty string."""
    is_turned = _is_negated_opposite(old, new, found)
    if (found.old or found.new) and not is_turned and not _is_converse(old, new, found):
        return _describe_unshared(found)
    for flag in old.flags ^ new.flags:
        if flag in _FLAGS and not (flag == "past" and _are_both_past(old, new, found)):
            return _FLAGS[flag]
    if old.persons and new.persons and old.persons != new.persons:
        return f"{_join_sorted(old.persons)} versus {_join_sorted(new.persons)}"
    if not _have_like_modals(old, new):
        return f"{_join_sorted(old.modals) or 'a fact'} versus {_join_sorted(new.modals) or 'a fact'}"
    if is_turned:
        return ""
    return _find_denial_difference(old, new, found) or ("" if found.old else find_swapped_roles(old, new))


def _are_both_past(old: Statement, new: Statement, found: StatementDifference) -> bool:
    # "My wedding was in 2016", "I got married in 2016"
    other = new if "past" in old.flags else old
    return "told" in other.flags or any(
        atom.kind == "date" and atom.key in found.common and atom.key[-4:].isdecimal() for atom in other.atoms
    )


def _is_negated_opposite(old: Statement, new: Statement, found: StatementDifference) -> bool:
    """Return True if one statement denies the opposite of the other: to fail is not to pass."""
    if len(found.old) != 1 or len(found.new) != 1 or abs(len(old.denials) - len(new.denials)) != 1:
        return False
    one, other = found.old[0], found.new[0]
    denying = old if len(old.denials) > len(new.denials) else new
    is_of_it = denying.denials[-1] in {one.key, other.key, ""}
    return is_of_it and (one.role == VERB) == (other.role == VERB) and are_complements(one.key, other.key)


def _find_denial_difference(old: Statement, new: Statement, found: StatementDifference) -> str:
    if len(old.denials) != len(new.denials):
        return "one of them negates it"
    if len(old.clauses) == len(new.clauses) == 1:
        return ""
    if sorted(old.denials) != sorted(new.denials):
        return "they negate different parts"
    ones, others = ({clause & found.common for clause in statement.clauses} for statement in (old, new))
    is_different = len(old.clauses) == len(new.clauses) and ones != others
    return "properties are assigned differently" if is_different else ""


def _is_converse(old: Statement, new: Statement, found: StatementDifference) -> bool:
    """Return True if one statement says "A before B" and the other "B after A"."""
    ones, others = ([atom.key for atom in atoms] for atoms in (found.old, found.new))
    if len(ones) != 1 or len(others) != 1 or {ones[0], others[0]} != {"before", "after"}:
        return False
    behind_old = {atom.key for atom in old.atoms if atom.role == ones[0]}
    behind_new = {atom.key for atom in new.atoms if atom.role == others[0]}
    return bool(behind_old and behind_new) and not behind_old & behind_new


def _have_like_modals(old: Statement, new: Statement) -> bool:
    """Return True if both statements are equally certain and equally binding."""
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
    """Return True for "must not", "may not", "can not" and "never do"."""
    if len(one.denials) != 1 or "needless" in one.flags or one.modals - {"must", "may", "can", "should"}:
        return False
    return bool(one.modals) or "imperative" in one.flags or "allow" in one.keys


def _has_time(one: Statement) -> bool:
    return any(atom.kind in {"date", "time", "day"} for atom in one.atoms)


def _describe_unshared(found: StatementDifference) -> str:
    if found.old and found.new:
        return f"'{_join_texts(found.old)}' versus '{_join_texts(found.new)}'"
    return f"only one of them says '{_join_texts(found.old or found.new)}'"


def _join_texts(atoms: Sequence[Atom]) -> str:
    return " ".join(atom.text for atom in atoms[:4])


def _join_sorted(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))


Kin = Callable[[str, str], float]
"""Returns the cosine similarity of two words."""
NEAR: Final = 0.42
"""Minimum similarity of interchangeable words. In the pairs used for tuning, no wrong pair is as similar."""
_NEAR_ACROSS: Final = 0.55
"""Minimum similarity of a verb and another word."""
_NEAR_PHRASES: Final = 0.45
_LONGEST_PHRASE: Final = 3
_SURE: Final = 3.0
"""Score of words of one family, which need no other common word."""
_MOST: Final = 6
"""Maximum number of unmatched words on each side. With more, the statements are about different things."""
_DEMONYMS: Final = ("ian", "ish", "ese", "an", "n", "i", "ean", "ien")
_FIXED_ROLES: Final = frozenset({"preposition", "conjunction"})
_NEVER: Final = (PLANS - {"want"}) | get_canonical_keys(
    "always never sometimes often rarely only new also more less first last"
)


def align_words(new: Statement, found: StatementDifference, kin: Kin | None) -> Statement:
    """Return the new statement with words of the old one in place of equivalent words.

    Pairs are matched greedily, the most similar first, and each word is used once.
    """
    if not found.common and len(found.old) + len(found.new) > 2:
        return new
    ones, others = _candidates(found.old), _candidates(found.new)
    if not ones or not others or max(len(found.old), len(found.new)) > _MOST:
        return new
    scored = sorted(
        ((near, at, to) for at, word in enumerate(ones) for to, other in enumerate(others)
         if (near := _nearness(word, other, kin)) >= (NEAR if found.common else _SURE)),
        key=lambda entry: -entry[0],
    )  # fmt: skip
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for _, at, to in scored:
        if others[to].key not in keys and ones[at].key not in taken:
            keys[others[to].key] = ones[at].key
            taken.add(ones[at].key)
    return _rename_keys(new, keys) if keys else new


def align_phrase(new: Statement, found: StatementDifference, kin: Kin) -> Statement:
    """Return the new statement with the unmatched phrase of the old one, if both phrases are similar."""
    both = (*found.old, *found.new)
    if max(len(found.old), len(found.new)) > _LONGEST_PHRASE or len(both) < 3 or not found.common:
        return new
    if len(_candidates(both)) < len(both) or any(_is_name(atom) or _is_exclusive(atom.key) for atom in both):
        return new
    if any(_rule_out(atom.key, other.key) for atom in found.old for other in found.new):
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
    return _rename_keys(kept, keys)


def _rule_out(one: str, other: str) -> bool:
    return are_opposite(one, other) or bool(find_shared_class(one, other)) or are_of_one_kind(one, other)


def _candidates(atoms: tuple[Atom, ...]) -> list[Atom]:
    return [
        atom
        for atom in atoms
        if atom.kind == "word" and atom.role not in _FIXED_ROLES and atom.key not in _NEVER
    ]


def _nearness(one: Atom, other: Atom, kin: Kin | None) -> float:
    if _is_name(one) or _is_name(other):
        return _SURE if _is_demonym(one.key, other.key) else 0.0
    if _share_root(one, other) and not are_opposite(one.key, other.key):
        return _SURE
    if are_of_one_kind(one.key, other.key) or {one.key, other.key} <= SCOPES:
        return 0.0
    is_like_part = (one.role == VERB) == (other.role == VERB) or one.text.endswith("ing")
    is_like_part = is_like_part or other.text.endswith("ing")
    if is_like_part and are_related_words(one.key, other.key):
        return 2.0
    is_open = (
        not _is_exclusive(one.key) and not _is_exclusive(other.key) and not _rule_out(one.key, other.key)
    )
    if kin is None or not is_open:
        return 0.0
    near = kin(one.text.lower(), other.text.lower())
    return near if is_like_part or near >= _NEAR_ACROSS else 0.0


def _is_demonym(one: str, other: str) -> bool:
    # "Brazilian" is derived from "Brazil".
    short, long = sorted((one, other), key=len)
    return short in REGIONS and any(long == short.rstrip("aey") + ending for ending in _DEMONYMS)


def _share_root(one: Atom, other: Atom) -> bool:
    if are_derived(one.key, other.key):
        return True
    return are_derived(stem(one.text.lower()), stem(other.text.lower()))


def _is_exclusive(key: str) -> bool:
    return key in CLASSES or key in SCOPES or key in REGIONS


def _is_name(atom: Atom) -> bool:
    return atom.is_capital and not atom.is_start


def _rename_keys(one: Statement, keys: dict[str, str]) -> Statement:
    """Return the statement with other keys for some words."""
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


def compare(old: Statement, new: Statement, kin: Kin | None = None) -> Comparison:
    """Compare a new statement with an old one.

    Args:
        old: Statement in memory.
        new: Statement to store.
        kin: Returns the cosine similarity of two words. It matches words that the tables do not contain. Default: only
            tables and word endings.
    """
    if old.plain == new.plain:
        return Comparison(Verdict.SAME, "identical text", 1.0)
    if not old.atoms or not new.atoms:
        return Comparison(Verdict.DIFFERENT, "nothing to compare", 0.0)
    written = new
    found = compute_difference(old, new)
    if found.old and found.new and (matched := align_words(new, found, kin)) is not new:
        new = matched
        found = compute_difference(old, new)
    if not (why_not := find_difference_reason(old, new, found)) or (
        kin and _is_paraphrase(old, new, found, kin)
    ):
        return Comparison(Verdict.SAME, "same meaning", 1.0)
    if why := find_contradiction(old, new, found):
        return Comparison(Verdict.CONTRADICTS, why, found.similarity)
    for part in written.parts if "question" not in written.flags else ():
        if why := _find_clause_contradiction(old, part, kin):
            return Comparison(Verdict.CONTRADICTS, why, found.similarity)
    return Comparison(Verdict.DIFFERENT, why_not, found.similarity)


def _is_paraphrase(old: Statement, new: Statement, found: StatementDifference, kin: Kin) -> bool:
    if not found.old or not found.new or (other := align_phrase(new, found, kin)) is new:
        return False
    return not find_difference_reason(old, other, compute_difference(old, other))


def _find_clause_contradiction(old: Statement, part: Statement, kin: Kin | None) -> str:
    """Return why one clause of the new statement contradicts the old statement, or an empty string."""
    found = compute_difference(old, part)
    if found.old and found.new:
        part = align_words(part, found, kin)
        found = compute_difference(old, part)
    return find_contradiction(old, part, found) if find_difference_reason(old, part, found) else ""
