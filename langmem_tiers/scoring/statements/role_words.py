"""Words and places by which the roles of a sentence are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.scoring.statements.atoms import CHANGES, GONE, OBJECT, OWNER, STATES, SUBJECT, VERB
from langmem_tiers.scoring.statements.vocabulary import NOUNS_TOO, keys_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.scoring.statements.atoms import Atom
    from langmem_tiers.scoring.statements.items import Item

SAID = frozenset(
    """before after above below under over until since between within without against except unless if when while
    because than from per beyond outside""".split()
)
"""Prepositions that change what is said; others only join."""
DENYING_VERBS: Final = {
    "abstain": "consume",
    "dislike": "like", "avoid": "use", "stop": "", "refuse": "want", "lack": "own", "forbid": "allow",
    "disable": "enable",
}  # fmt: skip
"""Verbs that deny, with what they deny."""
OBLIGING: Final = {"allow": "may", "need": "must"}
OBLIGING_WORDS: Final = {
    "mandatory": "must", "compulsory": "must", "obligatory": "must", "required": "must", "necessary": "must",
    "optional": "optional", "voluntary": "optional", "unnecessary": "optional", "permissible": "may",
}  # fmt: skip
"""Words behind "is" that say what must be and what may be."""
FINITE: Final = frozenset("is are was were :".split())
CLAUSES: Final = frozenset("if when while because until before after unless since".split())
LASTING: Final = (
    STATES
    | CHANGES
    | GONE
    | keys_of(
        """
        choose name birthday marry set increase decrease postpone reschedule release launch establish die join graduate
        approve agree enable disable allow forbid happen start end grow locate schedule assign build write
        """
    )
    | {"grow up"}
)
"""Verbs whose past still holds, or which happen once: others tell of one event among several."""


def is_infinitive(item: Item) -> bool:
    """Whether it is one behind "to": "to plan", but neither "to trains" nor "to Go"."""
    is_plain = item.word.endswith("ss") or not item.word.endswith(("s", "ing"))
    return is_plain and not item.is_capital and not item.is_past


def is_noun_here(item: Item, before: Item | None, behind: Item | None, *, is_behind_verb: bool) -> bool:
    """Whether what can be a verb is a noun where it stands."""
    if behind is not None and behind.key == "-":
        return True  # "check-in"
    if before is None:
        return False
    if before.part in {"be", "verb"} and before.key not in DENYING_VERBS:
        return _is_noun_behind_verb(item, is_behind_be=before.part == "be")
    if before.part == "content" and is_behind_verb and item.key in NOUNS_TOO:
        return not item.is_past and before.kind == "word"  # "took the driving test"
    if before.part == "preposition":
        return before.key != "to" or not is_infinitive(item)
    is_counted = before.kind == "number" and not item.is_past  # "six engineers"
    return is_counted or before.part in {"owner", "possessive"} or before.key == "-"


def _is_noun_behind_verb(item: Item, *, is_behind_be: bool) -> bool:
    is_ing = item.text.lower().endswith("ing")
    if is_behind_be:
        return not item.is_past and not is_ing  # "the branch is develop"
    return item.key in NOUNS_TOO or is_ing  # "prefers trains"


def make_subject(atoms: list[Atom], start: int) -> None:
    """All atoms from one on as a part of the subject."""
    for place in range(start, len(atoms)):
        atom = atoms[place]
        role = SUBJECT if atom.role in {VERB, OBJECT} else atom.role
        atoms[place] = atom._replace(role=role, is_first=True)


def end_front(atoms: list[Atom], start: int) -> None:
    """What stands before a comma and the subject says when or where: it is no part of the subject."""
    for place in range(start, len(atoms)):
        if atoms[place].role not in {SUBJECT, OWNER, VERB}:
            atoms[place] = atoms[place]._replace(is_first=False)


def is_one_phrase(items: Sequence[Item], index: int) -> bool:
    """Whether nothing divides what stands before it, back to the last mark."""
    start = next((at + 1 for at in range(index - 1, -1, -1) if items[at].key in {".", ";", "!", "?", ","}), 0)
    return not any(
        one.part in {"mark", "conjunction", "be", "modal", "helper", "no"} or one.key in CLAUSES
        for one in items[start:index]
    )


def has_be(items: Sequence[Item], index: int) -> bool:
    """Whether a form of "be" stands right before it."""
    return any(item.part == "be" for item in items[max(0, index - 2) : index])


def has_helper(items: Sequence[Item], index: int) -> bool:
    """Whether it is said of now: is made, is being made."""
    return any(item.part == "be" and not item.is_past for item in items[max(0, index - 3) : index])


def was(items: Sequence[Item], index: int) -> bool:
    """Whether a verb tells of what was: "used", "was using", "was used", but not "has used"."""
    before = items[max(0, index - 3) : index]
    if any(one.part == "be" and one.is_past for one in before):
        return True
    is_helped = any(item.part in {"be", "helper"} or item.key == "to" for item in before)
    return items[index].is_past and not is_helped
