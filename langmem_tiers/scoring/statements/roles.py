"""Who does what to whom: the role of each part of a sentence, by verbs, prepositions and the passive.

No grammar of English, but enough of one to tell "A depends on B" from "B depends on A", and "we chose it" to be
"it was chosen".
"""

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
    Atom,
    Sentence,
)
from langmem_tiers.scoring.statements.vocabulary import NOUNS_TOO, keys_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.scoring.statements.items import Item

_SAID = frozenset(
    """before after above below under over until since between within without against except unless if when while
    because than from per beyond outside""".split()
)
"""Prepositions that change what is said; others only join."""
_DENYING_VERBS: Final = {
    "dislike": "like", "avoid": "use", "stop": "", "refuse": "want", "lack": "own", "forbid": "allow",
    "disable": "enable",
}  # fmt: skip
"""Verbs that deny, with what they deny."""
_LASTING: Final = (
    STATES
    | CHANGES
    | GONE
    | keys_of(
        """
        choose name birthday marry set increase decrease postpone reschedule release launch establish die join graduate
        approve agree enable disable allow forbid happen start end grow locate schedule assign build write
        """
    )
)
"""Verbs whose past still holds, or which happen once: others tell of one event among several."""


def _is_infinitive(item: Item) -> bool:
    # "to plan", but neither "to trains" nor "to Go".
    is_plain = item.word.endswith("ss") or not item.word.endswith(("s", "ing"))
    return is_plain and not item.is_capital and not item.is_past


def roles_of(items: Sequence[Item]) -> Sentence:
    """The parts of a text with their roles."""
    return _Reader(items).read()


class _Reader:
    """Goes through the items once, and remembers what the next one depends on."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.sentence = Sentence()
        self.role = SUBJECT
        self.has_verb = self.is_denied = self.was_content = False
        self.clause_start = 0  # the first atom of the clause
        self.predicate = ""
        self.clause_persons: list[tuple[str, str]] = []
        self.is_passive = self.is_reason = False

    def read(self) -> Sentence:
        if self.items and self.items[0].part == "verb" and not self.items[0].is_past:
            self.sentence.flags.add("imperative")
        for index, item in enumerate(self.items):
            getattr(self, f"_{item.part}")(item, index)
        self._end_clause()
        return self.sentence

    def _next(self, index: int) -> Item | None:
        for item in self.items[index + 1 :]:
            if item.part not in {"helper", "no"}:
                return item
        return None

    def _add(self, item: Item, role: str) -> None:
        if self.is_reason:
            role = REASON
        if self.is_denied:
            self.sentence.denials.append(item.key)
            self.is_denied = False
        is_first = not self.has_verb
        self.sentence.atoms.append(
            Atom(item.key, item.text, role, item.kind, item.unit, item.determiner, item.is_capital, is_first)
        )

    def _content(self, item: Item, index: int) -> None:
        behind = self.items[index + 1] if index + 1 < len(self.items) else None
        if behind is not None and behind.part == "possessive":
            self._add(item, OWNER)
            return
        is_prepositional = self.role not in {SUBJECT, OBJECT, COMPLEMENT}
        if item.determiner and is_prepositional and self.was_content:
            self.role = OBJECT if self.has_verb else SUBJECT
        if item.kind in {"date", "time"} and self.role == SUBJECT and self.is_passive:
            self.role = "by"
        self._add(item, self.role)
        self.was_content = True

    def _verb(self, item: Item, index: int) -> None:
        before = self.items[index - 1] if index else None
        if item.key in _DENYING_VERBS and self._denies(item, index):
            self._deny(item, index, before)
        elif self._is_noun_here(before, index):
            self._content(item, index)
            return
        else:
            self._predicate(item, index, before)
        self.has_verb, self.role, self.was_content = True, OBJECT, False

    def _predicate(self, item: Item, index: int, before: Item | None) -> None:
        if before is not None and before.part in {"be", "no"} and item.is_past and self._has_be(index):
            self.is_passive = True
            self.sentence.flags.add("passive")
        if item.key in STATES and self._was(item, index):
            self.sentence.flags.add("past")
        if item.is_past and item.key not in _LASTING and not self._has_helper(index):
            self.sentence.flags.add("event")
        self._add(item, VERB)
        if not self.predicate or self.predicate == "be":
            self.predicate = item.key

    def _denies(self, item: Item, index: int) -> bool:
        behind = self._next(index)
        if item.key != "stop":
            return True
        return behind is not None and behind.part in {"verb", "content"} and behind.text.endswith("ing")

    def _deny(self, item: Item, index: int, before: Item | None) -> None:
        self.sentence.denials.append(item.key)
        if meant := _DENYING_VERBS[item.key]:
            self._predicate(item._replace(key=meant), index, before)

    def _is_noun_here(self, before: Item | None, index: int) -> bool:
        item = self.items[index]
        behind = self.items[index + 1] if index + 1 < len(self.items) else None
        if behind is not None and behind.key == "-":
            return True  # "check-in"
        if before is None:
            return False
        if before.part == "be":
            return not item.is_past and not item.text.lower().endswith("ing")  # "the branch is develop"
        if before.part == "verb" and before.key not in _DENYING_VERBS:
            return item.key in NOUNS_TOO or item.text.lower().endswith("ing")  # "prefers trains"
        if before.part == "preposition":
            return before.key != "to" or not _is_infinitive(item)
        return before.part in {"owner", "possessive"} or before.key == "-"

    def _has_be(self, index: int) -> bool:
        return any(item.part == "be" for item in self.items[max(0, index - 2) : index])

    def _helped(self, index: int) -> bool:
        before = self.items[max(0, index - 3) : index]
        return any(item.part in {"be", "helper"} or item.key == "to" for item in before)

    def _was(self, item: Item, index: int) -> bool:
        # "used", "was using", "was used", but not "has used".
        before = self.items[max(0, index - 3) : index]
        if any(one.part == "be" and one.is_past for one in before):
            return True
        return item.is_past and not self._helped(index)

    def _has_helper(self, index: int) -> bool:
        return any(item.part == "be" and not item.is_past for item in self.items[max(0, index - 3) : index])

    def _be(self, item: Item, index: int) -> None:
        behind = self._next(index)
        is_passive = behind is not None and behind.part == "verb"
        if item.is_past and not is_passive and (behind is None or not behind.is_past):
            self.sentence.flags.add("past")
        if item.word == ":" and self.has_verb:
            return
        self.predicate = self.predicate or "be"
        self.has_verb, self.role, self.was_content = True, COMPLEMENT, False

    def _modal(self, item: Item, _index: int) -> None:
        self.sentence.modals.add(item.key)
        if self.is_denied and item.key == "must":
            self.sentence.flags.add("needless")  # "does not have to" forbids nothing

    def _no(self, item: Item, index: int) -> None:
        before = self.items[index - 1] if index else None
        if before is not None and (before.key in {",", "and", "but", "-", "("} and self.has_verb):
            self.role = REJECTED  # "tabs, not spaces"
            return
        if item.key == "unable":
            self.sentence.modals.add("can")
        self.is_denied = True

    def _helper(self, item: Item, _index: int) -> None:
        if item.is_past and not self.predicate:
            self.sentence.flags.add("past")

    def _preposition(self, item: Item, index: int) -> None:
        behind = self._next(index)
        if behind is None or behind.part == "mark":
            if item.key in {"on", "off", "over", "up", "down"}:
                self._add(item, self.role)
            return
        if item.key == "to" and behind.part == "verb" and _is_infinitive(behind):
            self.role = OBJECT
            return
        self.is_reason = self.is_reason or item.key == REASON
        if item.key in _SAID:
            self._add(item, "preposition")
        self.role = self._role_of(item, behind)
        self.was_content = False

    def _role_of(self, item: Item, behind: Item) -> str:
        if item.key == "of":
            return OWNER
        if item.key == "by" and self.is_passive and behind.kind == "word":
            return "by agent"
        if item.key == REJECTED or (item.key in {"over", "to"} and self.predicate == "prefer"):
            return REJECTED
        return item.key

    def _conjunction(self, item: Item, _index: int) -> None:
        if item.key == "or":
            self._add(item, "conjunction")

    def _person(self, item: Item, _index: int) -> None:
        self.sentence.persons.add(item.key)
        if not self.has_verb:
            self.role, self.was_content = SUBJECT, False
        self.clause_persons.append((item.key, self.role))

    def _owner(self, item: Item, _index: int) -> None:
        self.sentence.persons.add(item.key)
        self.clause_persons.append((item.key, OWNER))

    def _possessive(self, item: Item, index: int) -> None:
        """Read with what stands before it."""

    def _mark(self, item: Item, index: int) -> None:
        if item.key in {".", ";", "!", "?"}:
            if index + 1 < len(self.items):
                self._end_clause()
        elif not self.has_verb:
            self.role, self.was_content = SUBJECT, False
        elif self.role not in {OBJECT, COMPLEMENT}:
            self.was_content = True

    def _end_clause(self) -> None:
        atoms = self.sentence.atoms
        flipped = {SUBJECT: OBJECT, "by agent": SUBJECT} if self.is_passive else {}
        self.sentence.person_roles += [(key, flipped.get(role, role)) for key, role in self.clause_persons]
        self.clause_persons = []
        for place in range(self.clause_start, len(atoms)) if flipped else ():
            atoms[place] = atoms[place]._replace(role=flipped.get(atoms[place].role, atoms[place].role))
        if len(atoms) > self.clause_start:
            self.sentence.predicates.append(self.predicate)
            self.sentence.clauses.append(frozenset(atom.key for atom in atoms[self.clause_start :]))
        if self.is_denied:
            self.sentence.denials.append("")
        self.clause_start = len(atoms)
        self.role, self.predicate = SUBJECT, ""
        self.has_verb = self.is_passive = self.is_denied = self.was_content = self.is_reason = False
