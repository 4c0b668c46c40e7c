"""Parts of a parsed statement, and verbs that decide how long it is valid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from langmem_tiers.long_term.conflicts.vocabulary import get_canonical_keys

SUBJECT, OBJECT, COMPLEMENT, VERB, OWNER = "subject", "object", "complement", "verb", "'s"
REJECTED, REASON = "instead of", "because"
GONE: Final = get_canonical_keys(
    "cancel abandon discontinue revoke revert withdraw deprecate sell leave divorce undo drop stop resign retire fire"
)
"""Verbs that end a former state."""
CHANGES: Final = get_canonical_keys(
    "switch migrate change move replace convert rename upgrade downgrade update"
)
"""Verbs that replace one thing by another."""
STATES: Final = get_canonical_keys(
    "use live work like prefer own need want locate store host run cost manage lead report"
)
"""Verbs of lasting states. In the past tense, the state may have ended."""


class Atom(NamedTuple):
    """A meaningful part of a statement."""

    key: str
    text: str
    role: str
    kind: str
    unit: str
    determiner: str
    is_capital: bool
    is_first: bool
    """True if it precedes the verb of its clause."""
    is_start: bool = False
    """True if the text begins with it. Its capital letter then means nothing."""


@dataclass(slots=True)
class Sentence:
    """State of a text while it is parsed."""

    atoms: list[Atom] = field(default_factory=list)
    persons: set[str] = field(default_factory=set)
    person_roles: list[tuple[str, str]] = field(default_factory=list)
    modals: set[str] = field(default_factory=set)
    flags: set[str] = field(default_factory=set)
    denials: list[str] = field(default_factory=list)
    clauses: list[frozenset[str]] = field(default_factory=list)
    predicates: list[str] = field(default_factory=list)
