"""Grammatical roles of the parts of a sentence, derived from verbs, prepositions and the passive.

This is not a full grammar. It is enough to distinguish "A depends on B" from "B depends on A", and to recognize that
"we chose it" means "it was chosen".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.long_term.conflicts.models import (
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
from langmem_tiers.long_term.conflicts.vocabulary import NOUNS_TOO, get_canonical_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.long_term.conflicts.items import SentenceItem


SAID = frozenset(
    """before after above below under over until since between within without against except unless if when while
    because than from per beyond outside""".split()
)
"""Prepositions that change the meaning. Other prepositions only connect."""
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
"""Words after "is" that express obligation or permission."""
FINITE: Final = frozenset("is are was were :".split())
CLAUSES: Final = frozenset("if when while because until before after unless since".split())
LASTING: Final = (
    STATES
    | CHANGES
    | GONE
    | get_canonical_keys(
        """
        choose name birthday marry set increase decrease postpone reschedule release launch establish die join graduate
        approve agree enable disable allow forbid happen start end grow locate schedule assign build write
        """
    )
    | {"grow up"}
)
"""Verbs of single events, or with results that last. Other verbs in the past tense refer to one of several events."""


def is_infinitive(item: SentenceItem) -> bool:
    """Return True for an infinitive after "to": "to plan", but neither "to trains" nor "to Go"."""
    is_plain = item.word.endswith("ss") or not item.word.endswith(("s", "ing"))
    return is_plain and not item.is_capital and not item.is_past


def is_noun_here(
    item: SentenceItem, before: SentenceItem | None, behind: SentenceItem | None, *, is_behind_verb: bool
) -> bool:
    """Return True if a word that can be a verb is a noun in its context."""
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


def _is_noun_behind_verb(item: SentenceItem, *, is_behind_be: bool) -> bool:
    is_ing = item.text.lower().endswith("ing")
    if is_behind_be:
        return not item.is_past and not is_ing  # "the branch is develop"
    return item.key in NOUNS_TOO or is_ing  # "prefers trains"


def make_subject(atoms: list[Atom], start: int) -> None:
    """Mark all atoms from ``start`` on as parts of the subject."""
    for place in range(start, len(atoms)):
        atom = atoms[place]
        role = SUBJECT if atom.role in {VERB, OBJECT} else atom.role
        atoms[place] = atom._replace(role=role, is_first=True)


def exclude_front_from_subject(atoms: list[Atom], start: int) -> None:
    """Exclude words before a comma from the subject: they say when or where."""
    for place in range(start, len(atoms)):
        if atoms[place].role not in {SUBJECT, OWNER, VERB}:
            atoms[place] = atoms[place]._replace(is_first=False)


def is_one_phrase(items: Sequence[SentenceItem], index: int) -> bool:
    """Return True if nothing divides the items before the index, back to the last mark."""
    start = next((at + 1 for at in range(index - 1, -1, -1) if items[at].key in {".", ";", "!", "?", ","}), 0)
    return not any(
        item.part in {"mark", "conjunction", "be", "modal", "helper", "no"} or item.key in CLAUSES
        for item in items[start:index]
    )


def has_be(items: Sequence[SentenceItem], index: int) -> bool:
    """Return True if a form of "be" precedes the item."""
    return any(item.part == "be" for item in items[max(0, index - 2) : index])


def has_helper(items: Sequence[SentenceItem], index: int) -> bool:
    """Return True if the passive is in the present tense: "is made", "is being made"."""
    return any(item.part == "be" and not item.is_past for item in items[max(0, index - 3) : index])


def is_about_past(items: Sequence[SentenceItem], index: int) -> bool:
    """Return True if a verb refers to the past: "used", "was using", "was used", but not "has used"."""
    before = items[max(0, index - 3) : index]
    if any(item.part == "be" and item.is_past for item in before):
        return True
    is_helped = any(item.part in {"be", "helper"} or item.key == "to" for item in before)
    return items[index].is_past and not is_helped


def assign_roles(items: Sequence[SentenceItem]) -> Sentence:
    """Return the parts of a text with their roles."""
    return _Reader(items).read()


class _Reader:
    """Reads the items once, and keeps the state that the next items depend on."""

    def __init__(self, items: Sequence[SentenceItem]) -> None:
        self.items = items
        self.sentence = Sentence()
        self.role = SUBJECT
        self.has_verb = self.is_denied = self.was_content = False
        self.clause_start = 0  # index of the first atom of the clause
        self.predicate = ""
        self.clause_persons: list[tuple[str, str]] = []
        self.is_passive = self.is_reason = False

    def read(self) -> Sentence:
        first = next((item for item in self.items if item.part not in {"no", "helper"}), None)
        if first is not None and first.part == "verb" and not (first.is_past or first.word.endswith("ing")):
            self.sentence.flags.add("imperative")
        for index, item in enumerate(self.items):
            getattr(self, f"_{item.part}")(item, index)
        self._end_clause()
        return self.sentence

    def _next(self, index: int) -> SentenceItem | None:
        for item in self.items[index + 1 :]:
            if item.part not in {"helper", "no"}:
                return item
        return None

    def _add(self, item: SentenceItem, role: str) -> None:
        if self.is_reason:
            role = REASON
        if self.is_denied:
            self.sentence.denials.append(item.key)
            self.is_denied = False
        is_first = not self.has_verb
        is_start = not self.sentence.atoms and item is self.items[0]
        said = (item.key, item.text, role, item.kind, item.unit, item.determiner, item.is_capital)
        self.sentence.atoms.append(Atom(*said, is_first, is_start))

    def _content(self, item: SentenceItem, index: int) -> None:
        behind = self.items[index + 1] if index + 1 < len(self.items) else None
        if behind is not None and behind.part == "possessive":
            self._add(item, OWNER)
            return
        if item.key == "off" and self._is_state(index, self._next(index)):
            self._verb(item._replace(part="verb", key="disable", is_past=True), index)
            return
        if item.key == "default" and item.text.lower().startswith("by "):
            self._add(item, "by")
            return
        if self.role == COMPLEMENT and item.word in OBLIGING_WORDS and not item.determiner:
            self._oblige(OBLIGING_WORDS[item.word])
            return
        is_prepositional = self.role not in {SUBJECT, OBJECT, COMPLEMENT}
        if item.determiner and is_prepositional and self.was_content:
            self.role = OBJECT if self.has_verb else SUBJECT
        if item.kind in {"date", "time"} and self.role == SUBJECT and self.is_passive:
            self.role = "by"
        self._add(item, self.role)
        self.was_content = True

    def _verb(self, item: SentenceItem, index: int) -> None:
        before = self.items[index - 1] if index else None
        if item.key in DENYING_VERBS and self._denies(item, index):
            self._deny(item, index, before)
        elif self._is_noun(item, index, before) or (self.role == COMPLEMENT and item.word in OBLIGING_WORDS):
            self._content(item, index)
            return
        else:
            self._predicate(item, index, before)
        self.has_verb, self.role, self.was_content = True, OBJECT, False

    def _predicate(self, item: SentenceItem, index: int, before: SentenceItem | None) -> None:
        if before is not None and before.part in {"be", "no"} and item.is_past and has_be(self.items, index):
            if item.key in OBLIGING:
                self._oblige(OBLIGING[item.key])
                return
            self.is_passive = True
            self.sentence.flags.add("passive")
        if item.key in STATES and is_about_past(self.items, index):
            self.sentence.flags.add("past")
        if item.is_past and item.key not in LASTING and not has_helper(self.items, index):
            self.sentence.flags.add("event")
        if item.is_past and not has_helper(self.items, index):
            self.sentence.flags.add("told")
        self._add(item, VERB)
        if not self.predicate or self.predicate == "be":
            self.predicate = item.key

    def _oblige(self, modal: str) -> None:
        """Apply words of obligation: required means must, allowed means may, optional means need not."""
        if modal == "optional":
            self.sentence.flags.add("needless")
            self.sentence.denials.append("")
        elif modal == "must" and self.is_denied:
            self.sentence.flags.add("needless")
        self.sentence.modals.add("must" if modal == "optional" else modal)
        self.predicate = self.predicate or "be"

    def _denies(self, item: SentenceItem, index: int) -> bool:
        behind = self._next(index)
        if item.key != "stop":
            return True
        return behind is not None and behind.part in {"verb", "content"} and behind.text.endswith("ing")

    def _deny(self, item: SentenceItem, index: int, before: SentenceItem | None) -> None:
        self.sentence.denials.append(item.key)
        if meant := DENYING_VERBS[item.key]:
            self._predicate(item._replace(key=meant), index, before)

    def _is_noun(self, item: SentenceItem, index: int, before: SentenceItem | None) -> bool:
        behind = self.items[index + 1] if index + 1 < len(self.items) else None
        return is_noun_here(item, before, behind, is_behind_verb=self.has_verb and bool(self.predicate))

    def _be(self, item: SentenceItem, index: int) -> None:
        behind = self._next(index)
        is_passive = behind is not None and behind.part == "verb"
        if item.is_past and not is_passive and (behind is None or not behind.is_past):
            self.sentence.flags.add("past")
        if item.word == ":" and self.has_verb and not self._is_all_subject(index):
            return
        if self.has_verb and item.word in FINITE and self._is_all_subject(index):
            make_subject(self.sentence.atoms, self.clause_start)
            self.sentence.flags -= {"imperative", "event"}
            self.predicate = ""
        self.predicate = self.predicate or "be"
        self.has_verb, self.role, self.was_content = True, COMPLEMENT, False

    def _is_all_subject(self, index: int) -> bool:
        """Return True if an assumed verb is a part of the subject: "debug logging is off", "signing is a must"."""
        if self.predicate in {"", "be"} or any(role == SUBJECT for _, role in self.clause_persons):
            return False
        return is_one_phrase(self.items, index)

    def _modal(self, item: SentenceItem, _index: int) -> None:
        self.sentence.modals.add(item.key)
        if self.is_denied and item.key == "must":
            self.sentence.flags.add("needless")  # "does not have to" is not a prohibition

    def _no(self, item: SentenceItem, index: int) -> None:
        before = self.items[index - 1] if index else None
        if before is not None and (before.key in {",", "and", "but", "-", "("} and self.has_verb):
            self.role = REJECTED  # "tabs, not spaces"
            return
        if item.key == "unable":
            self.sentence.modals.add("can")
        self.is_denied = True

    def _helper(self, item: SentenceItem, _index: int) -> None:
        if item.is_past and not self.predicate:
            self.sentence.flags.add("past")

    def _preposition(self, item: SentenceItem, index: int) -> None:
        behind = self._next(index)
        if item.key == "on" and self._is_state(index, behind):
            self._verb(item._replace(part="verb", key="enable", is_past=True), index)
            return
        if behind is None or behind.part == "mark":
            if item.key in {"on", "off", "over", "up", "down"}:
                self._add(item, self.role)
            return
        if item.key == "to" and behind.part == "verb" and is_infinitive(behind):
            self.role = OBJECT
            return
        self.is_reason = self.is_reason or item.key == REASON
        self.role = self._role_of(item, behind)
        if item.key in SAID and not (self.role == REJECTED and item.key != REJECTED):
            self._add(item, "preposition")
        self.was_content = False

    def _is_state(self, index: int, behind: SentenceItem | None) -> bool:
        # "Logging is on", "is off by default"
        if not index or self.items[index - 1].part != "be":
            return False
        return behind is None or behind.part in {"mark", "preposition"} or behind.key == "default"

    def _role_of(self, item: SentenceItem, behind: SentenceItem) -> str:
        if item.key == "of":
            return OWNER
        if item.key == "by" and self.is_passive and behind.kind == "word":
            return "by agent"
        if item.key == REJECTED or (item.key in {"over", "to"} and self.predicate == "prefer"):
            return REJECTED
        return item.key

    def _conjunction(self, item: SentenceItem, _index: int) -> None:
        if item.key == "or":
            self._add(item, "conjunction")

    def _person(self, item: SentenceItem, index: int) -> None:
        self.sentence.persons.add(item.key)
        if index + 1 < len(self.items) and self.items[index + 1].part == "possessive":
            self.clause_persons.append((item.key, OWNER))
            return
        if not self.has_verb:
            self.role, self.was_content = SUBJECT, False
        self.clause_persons.append((item.key, self.role))

    def _owner(self, item: SentenceItem, _index: int) -> None:
        self.sentence.persons.add(item.key)
        self.clause_persons.append((item.key, OWNER))

    def _possessive(self, item: SentenceItem, index: int) -> None:
        """Read a possessive with the words before it."""

    def _mark(self, item: SentenceItem, index: int) -> None:
        if item.key in {".", ";", "!", "?"}:
            if index + 1 < len(self.items):
                self._end_clause()
        elif not self.has_verb:
            exclude_front_from_subject(self.sentence.atoms, self.clause_start)
            self.role, self.was_content = SUBJECT, False
        elif self.role not in {OBJECT, COMPLEMENT}:
            self.was_content = True

    def _end_note(self) -> None:
        """Read a note without a verb as an equation: "essay due May 3"."""
        atoms = self.sentence.atoms
        if self.has_verb or len(atoms) < self.clause_start + 2 or atoms[-1].kind not in {"date", "time"}:
            return
        atoms[-1] = atoms[-1]._replace(role=COMPLEMENT, is_first=False)
        self.predicate = "be"

    def _end_clause(self) -> None:
        self._end_note()
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
