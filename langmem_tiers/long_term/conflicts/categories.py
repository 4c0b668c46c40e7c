"""Categories of things. A denied category denies each of its members, and no member is another."""

from __future__ import annotations

from typing import Final

from langmem_tiers.long_term.conflicts.vocabulary import get_canonical_key
from langmem_tiers.text.word_lists import load_groups


def _members() -> dict[str, frozenset[str]]:
    above: dict[str, set[str]] = {}
    for kind, members in load_groups(__name__, "categories", "categories"):
        for member in members.split():
            above.setdefault(get_canonical_key(member) or member, set()).add(get_canonical_key(kind) or kind)
    return {member: frozenset(kinds) for member, kinds in above.items()}


ABOVE: Final = _members()
"""Categories of a key."""


def are_of_one_kind(one: str, other: str) -> bool:
    """Return True if both keys have a common category: a brother is not a sister."""
    return not ABOVE.get(one, frozenset()).isdisjoint(ABOVE.get(other, frozenset()))


def kinds_of(keys: frozenset[str]) -> frozenset[str]:
    """Return the categories of the keys."""
    return frozenset(kind for key in keys for kind in ABOVE.get(key, ()))
