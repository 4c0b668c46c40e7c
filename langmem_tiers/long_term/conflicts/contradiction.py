"""Rules that find out whether two statements contradict each other.

Only statements about the same thing can contradict each other: one denies the other, says the opposite, replaces it,
or gives another value where only one is possible. Any other difference, such as a scope, a subject or a purpose,
means that they are about different things.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langmem_tiers.long_term.conflicts.inflection import SAME_PASTS, is_past
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
)
from langmem_tiers.long_term.conflicts.role_swaps import find_swapped_roles
from langmem_tiers.long_term.conflicts.single_value_slots import MULTI, PLANS, SHARED, is_exclusive
from langmem_tiers.long_term.conflicts.vocabulary import (
    CLASSES,
    are_complements,
    are_opposite,
    find_shared_class,
    get_canonical_key,
    get_canonical_keys,
)
from langmem_tiers.long_term.conflicts.word_families import are_related_words
from langmem_tiers.text.word_lists import load_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.long_term.conflicts.differences import StatementDifference
    from langmem_tiers.long_term.conflicts.models import Atom
    from langmem_tiers.long_term.conflicts.statement import Statement


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


_REPLACE: Final = get_canonical_key("replace")
_ENDS: Final = {
    get_canonical_key(verb): get_canonical_key(state)
    for verb, state in (
        ("retire", "work"), ("resign", "work"), ("fire", "work"), ("stop", "work"), ("leave", "work"),
        ("divorce", "marry"),
    )
}  # fmt: skip
"""Verbs about one person, with the states that they end."""
_UNSAID = frozenset({"always", "all", "any"})
_LOOSE_ROLES = frozenset({OBJECT, COMPLEMENT, "to", REASON, VERB, SUBJECT})


_WHEN = get_canonical_keys("last week year month yesterday today ago recently finally yet")
_GETTING = get_canonical_keys("buy get adopt inherit acquire")
"""Verbs of obtaining something. Afterwards the person owns it."""
_HAVING = get_canonical_keys("take attend subscribe pay receive")
_MUSIC = frozenset({"musical"})  # not a category of its own beside an instrument


def is_denying(one: Statement) -> bool:
    """Return True if the statement denies something, or says that something ended."""
    return len(one.denials) % 2 == 1 or bool(_find_termination_verbs(one))


def _find_termination_verbs(one: Statement) -> frozenset[str]:
    verbs = (atom for atom in one.atoms if atom.role == VERB and atom.key in GONE)
    return frozenset(
        atom.key for atom in verbs if is_past(word := atom.text.split()[0].lower()) or word in SAME_PASTS
    )


def find_denial(old: Statement, new: Statement) -> str:
    """Return why one statement denies the other, or an empty string.

    Denying the general denies the particular, but not the other way around: "we do not deploy" rules out "we deploy on
    Fridays", but "we do not deploy on Fridays" does not rule out "we deploy".
    """
    if is_denying(old) == is_denying(new):
        return ""
    denying, affirming = (old, new) if is_denying(old) else (new, old)
    ended = _find_termination_verbs(denying)
    rest = _find_denied_keys(denying, affirming, ended)
    said = affirming.keys | kinds_of(affirming.keys) | _MUSIC
    is_other = any(atom.determiner == "a" and atom.role == OBJECT for atom in denying.atoms)
    if ended and (is_other or "event" in affirming.flags):
        return ""  # someone who sold a house may own another one, and a past event remains true
    if affirming is new and _GETTING & frozenset(affirming.predicates):
        said |= {"own"}
    if (
        not (rest or ended)
        or not rest <= said
        or (rest and rest <= _MUSIC)
        or _is_abandoned_in(rest, affirming)
    ):
        return ""
    if not _can_be_denied(denying, affirming, is_end=bool(ended)):
        return ""
    is_hit = (
        _ends_statement(denying, affirming, ended, rest) if ended else _shares_predicate(denying, affirming)
    )
    return f"one of them negates it: '{denying.text}'" if is_hit and not find_swapped_roles(old, new) else ""


def _find_denied_keys(denying: Statement, affirming: Statement, ended: frozenset[str]) -> frozenset[str]:
    """Return the keys of the denying statement that the other one must contain to be denied."""
    rest = frozenset(atom.key for atom in denying.atoms if atom.role != REASON) - ended - _UNSAID
    rest -= _WHEN - affirming.keys
    rest -= {"from"} if ended else set()
    rest -= {"need"} if "must" in affirming.modals else set()
    return rest - ({"allow"} if affirming.modals & {"may", "can", "must"} else set())


def _is_abandoned_in(keys: frozenset[str], affirming: Statement) -> bool:
    return any(
        affirming.roles[key] <= {REJECTED, "from"} for key in keys - {"from"} if key in affirming.roles
    )


def _can_be_denied(denying: Statement, affirming: Statement, *, is_end: bool) -> bool:
    was_so = "past" in denying.flags and not is_end
    if affirming.modals & {"may", "can"} and not _is_about_permission(denying):
        return False
    if affirming.predicates[0] in PLANS or ("past" in affirming.flags) != was_so:
        return False
    is_personal = any(key in {"user", "we"} and role == SUBJECT for key, role in denying.person_roles)
    if is_personal and _subjects(affirming) - denying.keys:
        return False  # a dislike of the user says nothing about Alice
    return "needless" not in denying.flags or "must" in affirming.modals or "need" in affirming.keys


def _is_about_permission(one: Statement) -> bool:
    return bool(one.modals) or "imperative" in one.flags or "allow" in one.keys


def _subjects(one: Statement) -> set[str]:
    return {atom.key for atom in one.atoms if atom.role == SUBJECT} - {"project", "team"}


def _ends_statement(
    denying: Statement, affirming: Statement, ended: frozenset[str], rest: frozenset[str]
) -> bool:
    # A retired person does not work any more, but may still live in Berlin. A stopped subscription does not exist.
    is_person = bool(denying.persons) or any(atom.is_capital for atom in denying.atoms if atom.key in rest)
    rest = frozenset(key for key in rest if ":" not in key)  # a date tells when it was, not what it was
    is_subject_alone = len(rest) < 2 and all(denying.roles[key] <= {SUBJECT, OWNER} for key in rest)
    if is_person and is_subject_alone:
        ends = {_ENDS.get(key) for key in ended}
        return _subjects(affirming) == rest and affirming.predicates[0] in ends
    if _is_only_stopped(affirming, denying):
        return False
    first = {atom.key for atom in affirming.atoms if atom.is_first and atom.role != VERB}
    return not first & rest or first <= rest  # the canceled check is not the health check


def _shares_predicate(denying: Statement, affirming: Statement) -> bool:
    if denying.predicates[0] == "be":
        return affirming.predicates[0] in STATES | {"be"} or affirming.predicates[0] in denying.keys
    if affirming.predicates[0] == "be" and denying.predicates[0] in affirming.keys:
        return True  # "signing is a must"
    if denying.predicates[0] == "own" and affirming.predicates[0] in _GETTING:
        return True
    if denying.predicates[0] == "allow" and affirming.modals & {"may", "can", "must"}:
        return True
    return bool(set(denying.predicates) & set(affirming.predicates))


def find_abandonment(keeping: Statement, leaving: Statement) -> str:
    """Return what one statement states and the other one replaces by something else, or an empty string."""
    if is_denying(keeping) or keeping.flags & {"past", "event"} or keeping.predicates[0] in PLANS | SHARED:
        return ""
    if _is_about_another_person(keeping, leaving):
        return ""
    is_end = bool(_find_termination_verbs(leaving)) or leaving.predicates[0] == _REPLACE
    left = _find_abandoned_atoms(leaving, is_end=is_end)
    if is_end and (not _is_head_kept(left, keeping) or _is_only_stopped(keeping, leaving)):
        return ""
    kept = [
        atom for atom in left if atom.key in keeping.keys and not keeping.roles[atom.key] & {REJECTED, "from"}
    ]
    loose = {*keeping.predicates, *leaving.predicates, *(atom.key for atom in left)}
    if not kept or _has_more(keeping, leaving, loose, left, is_end=is_end):
        return ""
    limits = [
        atom
        for atom in leaving.atoms
        if atom.key not in keeping.keys
        and atom.key not in {*loose, "from", REJECTED}
        and atom.role not in _LOOSE_ROLES
        and not (is_end and atom.role in {"with", "by", "for"})
    ]
    return "" if limits else f"'{kept[0].text}' was abandoned"


def _is_about_another_person(keeping: Statement, leaving: Statement) -> bool:
    # "The user's brother left" does not mean that the user left.
    does = (any(role == SUBJECT for _, role in statement.person_roles) for statement in (keeping, leaving))
    owned = any(role == OWNER for _, role in leaving.person_roles)
    return next(does) and not next(does) and owned and bool(_subjects(leaving) - keeping.keys)


def _is_only_stopped(keeping: Statement, leaving: Statement) -> bool:
    # Stopping the car does not mean to stop driving it.
    return (
        bool(leaving.persons)
        and _find_termination_verbs(leaving) == {"stop"}
        and keeping.predicates[0] not in _HAVING
    )


def _is_head_kept(left: list[Atom], keeping: Statement) -> bool:
    # Someone who quit the chess club may still play chess.
    objects = [
        atom.key for atom in left if atom.role == OBJECT and atom.kind == "word" and atom.key not in _WHEN
    ]
    return not objects or objects[-1] in keeping.keys


def _find_abandoned_atoms(leaving: Statement, *, is_end: bool) -> list[Atom]:
    roles = {REJECTED}
    if leaving.predicates[0] in CHANGES:
        roles.add("from")
    if is_end:
        roles.add(OBJECT)
    return [atom for atom in leaving.atoms if atom.role in roles]


def _has_more(
    keeping: Statement, leaving: Statement, loose: set[str], left: list[Atom], *, is_end: bool
) -> bool:
    """Return True if the kept part says more than the abandoned part."""
    names = {name for atom in left for name in CLASSES.get(atom.key, ())}
    rest = keeping.keys - leaving.keys - loose - names
    if is_end and not any(atom.is_first for atom in leaving.atoms if atom not in left):
        rest -= {atom.key for atom in keeping.atoms if atom.is_first and not atom.is_capital}
    return bool(rest)


_PHRASES: Final = (
    (("come", "off"), "come off"), (("move", "out"), "move out"), (("drop", "out"), "drop out"),
    (("take", "off"), "come off"), (("get", "off"), "come off"), (("get", "over"), "recover"),
)  # fmt: skip
_LIGHT: Final = get_canonical_keys(
    "new own take have get go be still currently looking member work on in at of the job own name"
)
_TIME_WORDS: Final = get_canonical_keys(
    "last week year month day yesterday today ago recently finally again now since"
)


def _parse_endings() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for verb, states in load_groups(__name__, "endings", "endings"):
        key = get_canonical_key(verb) if " " not in verb else verb
        found[key] = found.get(key, frozenset()) | get_canonical_keys(states)
    return found


_ENDINGS: Final = _parse_endings()


def find_ended_state(old: Statement, new: Statement) -> str:
    """Return the verb of the new statement that ends the state in the old one, or an empty string."""
    if old.denials or new.denials or old.flags & {"past", "event"} or new.modals or old.modals:
        return ""
    if any(atom.kind == "day" for atom in new.atoms):
        return ""  # "closed on Fridays" is not an end
    if "back" in new.keys and any("from" in roles and key in old.keys for key, roles in new.roles.items()):
        return "it ended: the person is back" if old.persons <= new.persons else ""
    for verb, key in _find_ending_verbs(new):
        if _is_ended(old, new, key):
            return f"'{verb}' ends it"
    return ""


def _find_ending_verbs(one: Statement) -> list[tuple[str, str]]:
    verbs = []
    keys = [atom.key for atom in one.atoms]
    for phrase, key in _PHRASES:
        if phrase[0] in keys and phrase[1] in one.keys | {
            role for roles in one.roles.values() for role in roles
        }:
            verbs.append((" ".join(phrase), key))
    for atom in one.atoms:
        word = atom.text.split()[0].lower()
        if atom.role == VERB and atom.key in _ENDINGS and (is_past(word) or word in SAME_PASTS):
            verbs.append((atom.text, atom.key))
    return verbs


def _is_ended(old: Statement, new: Statement, verb: str) -> bool:
    states = _ENDINGS[verb]
    state = {atom.key for atom in old.atoms if atom.key in states} | {
        key for key in old.predicates if key in states
    }
    if not state or not old.persons <= new.persons | {"we"} or verb in old.keys:
        return False
    left = {atom.key for atom in old.atoms if atom.kind == "word"} - state - _LIGHT - new.keys
    left = {key for key in left if not any(are_related_words(key, other) for other in new.keys)}
    if left:
        return False
    shared = (old.keys & new.keys) - _LIGHT
    if not shared and not (state - {"be", "own", "live", "work"} and old.persons == new.persons):
        return False
    return not _is_about_another(old, new, shared)


def _is_about_another(old: Statement, new: Statement, shared: frozenset[str] | set[str]) -> bool:
    """Return True if another person did it, or did it to another thing."""
    subjects = {
        atom.key for atom in new.atoms if atom.is_first and atom.role in {SUBJECT, OBJECT}
    } - _TIME_WORDS
    if subjects - old.keys:
        return True
    objects = [
        atom.key
        for atom in new.atoms
        if atom.role == OBJECT
        and not atom.is_first
        and atom.kind == "word"
        and atom.key not in _TIME_WORDS | _LIGHT
    ]
    return bool(objects) and not any(are_related_words(objects[-1], key) for key in old.keys | shared)


_DIETS: Final = {
    "vegetarian": frozenset({"meat", "seafood"}),
    "vegan": frozenset({"meat", "seafood", "dairy"}),
    "pescatarian": frozenset({"meat"}),
    "teetotal": frozenset({"alcohol"}),
    "teetotaler": frozenset({"alcohol"}),
}


def find_diet_violation(one: Statement, other: Statement) -> str:
    """Return what the other statement eats or drinks against the diet in the first, or an empty string."""
    diets = one.keys & _DIETS.keys()
    if len(one.keys) != 1 or not diets or one.denials or other.denials or other.flags & {"past", "event"}:
        return ""
    if one.persons != other.persons or not {"eat", "drink", "consume"} & {*other.predicates} or other.modals:
        return ""
    eaten = other.keys | kinds_of(other.keys)
    broken = eaten & _DIETS[min(diets)]
    return f"'{min(diets)}' rules out '{min(broken)}'" if broken else ""


_FAMILIES: Final = (
    get_canonical_keys("use choose switch migrate be build replace adopt"),
    get_canonical_keys("live move locate be"),
    get_canonical_keys("work join be"),
    get_canonical_keys("be happen set cost"),
    get_canonical_keys("be set change update switch"),
    get_canonical_keys("name rename"),
    get_canonical_keys("build write rewrite implement code create redo"),
    get_canonical_keys("be happen start"),
)
_TO_VALUES: Final = CHANGES | get_canonical_keys("increase decrease postpone reschedule set")
_MEASURING: Final = get_canonical_keys(
    "own pay earn take last cost weigh need set happen wear hold measure charge"
) | {
    "be",
    "",
}
"""Verbs that assign a value to something."""
_ORDERING: Final = frozenset({"over", "than", "before", "after", "above", "below", REJECTED})
_NEWLY: Final = get_canonical_keys("new now instead next")
_CERTAIN: Final = frozenset({"must", "should", "will"})
_SETTLED: Final = get_canonical_keys("use choose happen start end open close leave arrive") | {"be"}
"""Verbs that mean the same for a present state and for a decided one."""
_DEMANDS: Final = get_canonical_keys("want need")
_LIKE_PLACES: Final = frozenset({OBJECT, COMPLEMENT, "to", "in", "on", "at", "for", "by", SUBJECT})
_MEANS: Final = frozenset({"with", "in", "on"})
_OBJECTS: Final = frozenset({OBJECT, COMPLEMENT})
_MOST_ATOMS, _MOST_VALUES = 24, 4


def find_contradiction(old: Statement, new: Statement, found: StatementDifference) -> str:
    """Return why two statements contradict each other, or an empty string."""
    if "question" in old.flags | new.flags or "might" in old.modals | new.modals:
        return ""
    if old.persons and new.persons and old.persons != new.persons:
        return ""
    if not (found.common or old.persons & new.persons) or max(len(old.atoms), len(new.atoms)) > _MOST_ATOMS:
        return ""
    return (
        find_denial(old, new)
        or find_abandonment(old, new)
        or find_abandonment(new, old)
        or find_ended_state(old, new)
        or find_diet_violation(old, new)
        or find_diet_violation(new, old)
        or _find_reordering(old, new, found)
        or _find_opposition(old, new, found)
        or _find_replacement(old, new, found)
    )


def _find_reordering(old: Statement, new: Statement, found: StatementDifference) -> str:
    """Return parts in another order of preference: "tea over coffee" against "coffee over tea"."""
    if found.old or found.new or old.denials or new.denials:
        return ""
    moved = {
        role for atom in old.atoms for role in old.roles[atom.key] ^ new.roles.get(atom.key, frozenset())
    }
    return find_swapped_roles(old, new) if moved & _ORDERING else ""


def _find_opposition(old: Statement, new: Statement, found: StatementDifference) -> str:
    ones, others = _drop_reasons(found.old), _drop_reasons(found.new)
    if old.denials or new.denials or not _have_same_validity(old, new):
        return ""
    if len(ones) + len(others) == 1:
        return _find_missing_attribute(old, new) if others else _find_missing_attribute(new, old)
    if len(ones) != 1 or len(others) != 1 or not are_opposite(ones[0].key, others[0].key):
        return ""
    one, other = ones[0], others[0]
    if "told" in old.flags & new.flags and not are_complements(one.key, other.key):
        return ""  # a thing that was bought can be sold later, but who failed did not pass
    if _names_the_subject(old, new, one, other) or _applies_to_several(old, one, other):
        return ""
    is_swapped = one.role != "preposition" and find_swapped_roles(old, new)
    return "" if is_swapped else f"'{one.text}' versus '{other.text}'"


def _names_the_subject(old: Statement, new: Statement, one: Atom, other: Atom) -> bool:
    # "The front door is locked" says nothing about the back door, but "dark mode is preferred" is a choice.
    if VERB in {one.role, other.role} or not (one.is_first or other.is_first):
        return False
    return old.predicates[0] not in {"prefer", "choose"} or "passive" not in old.flags & new.flags


def _applies_to_several(old: Statement, one: Atom, other: Atom) -> bool:
    # There may be two dogs, a big one and a small one. But hair is either long or short.
    if old.predicates[0] not in MULTI or one.key == old.predicates[0] or old.predicates[0] in _DEMANDS:
        return False
    return old.predicates[0] != "own" or "a" in {one.determiner, other.determiner}


def _find_missing_attribute(having: Statement, lacking: Statement) -> str:
    missed = [atom for atom in lacking.atoms if atom.role == "without"]
    if not missed or "with" not in having.roles.get(missed[0].key, ()):
        return ""
    return f"with and without '{missed[0].text}'"


def _drop_reasons(atoms: Iterable[Atom]) -> list[Atom]:
    return [atom for atom in atoms if REASON not in {atom.role, atom.key}]


def _have_same_validity(old: Statement, new: Statement) -> bool:
    is_change = new.predicates[0] in _TO_VALUES
    if not is_change and ("past" in old.flags or "past" in new.flags):
        measured = {"be", "cost", "weigh", "last"}
        if old.predicates[0] not in measured or ("past" in old.flags) != ("past" in new.flags):
            return False
    if "will" in old.modals ^ new.modals and old.predicates[0] not in _SETTLED:
        return False  # someone who is going to move still lives here
    return old.modals - _CERTAIN == new.modals - _CERTAIN


def _find_replacement(old: Statement, new: Statement, found: StatementDifference) -> str:
    if (
        is_denying(old)
        or is_denying(new)
        or "also" in old.flags | new.flags
        or not _have_same_validity(old, new)
    ):
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
    if not _are_related(old, new, is_word=is_word) or not _have_matching_roles(ones, others):
        return ""
    is_other_claim = is_exclusive(old, new, ones, others)
    return (
        f"'{_join_texts(ones)}' versus '{_join_texts(others)}' in the same position" if is_other_claim else ""
    )


def _are_related(old: Statement, new: Statement, *, is_word: bool) -> bool:
    one, other = old.predicates[0], new.predicates[0]
    if one == other or any({one, other} <= family for family in _FAMILIES):
        return True
    if {one, other} == {"be", "name"} and "name" in old.keys & new.keys:
        return True
    if {one, other} == {"own", "be"} or (not is_word and {one, other} <= _MEASURING):
        return True
    if not is_word and ((one == "be" and other in old.keys) or (other == "be" and one in new.keys)):
        return True  # "the retention is 5 days" and "logs are retained for 5 days"
    is_moved = other in _TO_VALUES and (one in STATES or one in {"be", "happen", "set", "start", "end"})
    return is_moved and not is_word


def _values(one: Statement, atoms: Iterable[Atom]) -> list[Atom]:
    left_out = _NEWLY.union(one.predicates)
    atoms = list(atoms)
    if any(atom.kind == "number" for atom in atoms):
        left_out |= {"only"}
    return [atom for atom in _drop_reasons(atoms) if atom.role != VERB and atom.key not in left_out]


def _is_list(atoms: Sequence[Atom]) -> bool:
    return len(atoms) > 1 and all(atom.key in CLASSES for atom in atoms)


def _have_matching_roles(ones: Sequence[Atom], others: Sequence[Atom]) -> bool:
    roles, other_roles = ({atom.role for atom in atoms} for atoms in (ones, others))
    both = (*ones, *others)
    is_word = any(atom.kind == "word" for atom in both)
    if len(roles) > 1 or len(other_roles) > 1:
        # Moved from one date to another: several values, each with a counterpart.
        return roles == other_roles and not is_word and not any(atom.is_first for atom in both)
    if roles == other_roles:
        return True
    if roles | other_roles <= _MEANS and find_shared_class(ones[-1].key, others[-1].key):
        return True
    if other_roles == {"to"} and roles == {"with"}:
        return True  # "is with one bank" and "switched to another"
    loose = _OBJECTS if is_word and "to" not in roles | other_roles else _LIKE_PLACES
    return roles | other_roles <= loose


def _join_texts(atoms: Iterable[Atom]) -> str:
    return " ".join(atom.text for atom in atoms)
