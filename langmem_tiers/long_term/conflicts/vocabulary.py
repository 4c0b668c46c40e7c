"""Word tables by the keys that texts are parsed into."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Final

from langmem_tiers.long_term.conflicts.inflection import IRREGULAR_BASES, stem
from langmem_tiers.text.word_lists import load_groups, load_lines, load_words

ARTICLES = frozenset("a an the".split())
POINTERS = ARTICLES | frozenset("his her their its this that".split())
"""Determiners that are left out."""
PERSONS: Final = {
    "user": frozenset("i me my mine".split()),
    "we": frozenset("we us our ours".split()),
    "you": frozenset("you your yours".split()),
}
"""Persons by pronoun."""
OWNERS = frozenset("my our your".split())
ASSISTANTS = frozenset("assistant agent ai chatbot bot".split())
BE = frozenset("be is are was were am been being".split())
DO = frozenset("do does did".split())
HAVE = frozenset("have has had".split())
GET = frozenset("get gets got getting".split())
NEGATIONS = frozenset("not never no none nobody nothing neither nor nowhere unable".split())
MODALS = frozenset("must should can may will would shall could might".split())
PREPOSITIONS = frozenset(
    """
    in at on to for from by with of as over than before after above below under until since during between via into
    onto against within without toward near behind because if when while unless except about across inside outside
    per among beside beyond versus vs upon
    """.split()
) | {"instead of"}
CONJUNCTIONS = frozenset("and but or".split())
_ADDING = frozenset("also additionally both another besides further moreover likewise".split())
_ADDING_PAIRS = frozenset({("as", "well"), ("in", "addition"), ("one", "more"), ("along", "with")})


def is_adding(words: list[str]) -> bool:
    """Return True if a text adds something to earlier statements: "also", "as well"."""
    # "too" means "also" after a word, but not in "too small".
    if any(word == "too" and after in ".,;!" for word, after in pairwise([*words, "."])):
        return True
    return not _ADDING.isdisjoint(words) or any(pair in _ADDING_PAIRS for pair in pairwise(words))


FILLERS = frozenset(load_words(__name__, "fillers", "words"))
"""Words."""

FILLER_PHRASES = load_lines(__name__, "fillers", "phrases")
"""Filler phrases, in any inflection."""


def _load_synonyms(section: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for canonical, others in load_groups(__name__, "synonyms", section):
        for other in (canonical, *others.split(",")):
            found.setdefault(other.strip(), canonical)
    return found


_VERB_SYNONYMS = _load_synonyms("verbs")
# The canonical word of each word or phrase.
_SYNONYMS = _VERB_SYNONYMS | _load_synonyms("nouns") | _load_synonyms("others")
_Rest = tuple[tuple[str, ...], str]


def _stems(phrase: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in phrase.split() if word not in POINTERS)


def _phrases() -> tuple[dict[str, str], dict[str, list[_Rest]]]:
    singles: dict[str, str] = {}
    longer: dict[str, list[_Rest]] = {}
    table = {**dict.fromkeys(FILLER_PHRASES, ""), **_SYNONYMS}
    for phrase, canonical in table.items():
        stems = _stems(phrase)
        if len(stems) == 1 and len(phrase.split()) > 1 and not ARTICLES & set(phrase.split()):
            continue  # only function words make it a phrase, and they are removed before phrases are matched
        if len(stems) == 1:
            singles.setdefault(stems[0], canonical)
        elif stems:
            longer.setdefault(stems[0], []).append((stems[1:], canonical))
    for rests in longer.values():
        rests.sort(key=lambda rest: -len(rest[0]))
    return singles, longer


_SINGLES, PHRASES = _phrases()
"""Phrases by their first stem: the other stems and the canonical word, longest phrase first."""
_FILLER_STEMS = frozenset(FILLERS)


@lru_cache(maxsize=50_000)
def get_canonical_key(word: str) -> str:
    """Return the canonical key of a word in lower case, or an empty string if the word can be left out."""
    if word in _FILLER_STEMS:
        return ""
    root = stem(word)
    return _SINGLES.get(root, root)


def get_canonical_keys(words: str) -> frozenset[str]:
    """Return the canonical keys of words."""
    return frozenset(get_canonical_key(word) or word for word in words.split())


def _load_classes() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for name, members in load_groups(__name__, "classes", "classes"):
        for member in members.split():
            word = member.replace("_", " ")
            key = get_canonical_key(word) or word
            found[key] = found.get(key, frozenset()) | {name}
    return found


def _load_pairs(section: str) -> frozenset[tuple[str, str]]:
    pairs = [line.split("/") for line in load_lines(__name__, "opposites", section)]
    return frozenset(pair for one, other in pairs for pair in ((one, other), (other, one)))


VERBS: Final = (
    get_canonical_keys(" ".join(load_words(__name__, "verbs", "verbs")))
    | (frozenset(_VERB_SYNONYMS.values()) - {"birthday", "name", "date"})
    | (IRREGULAR_BASES - {"be", "do"})
)
"""Keys that can be verbs."""
NOUNS_TOO: Final = get_canonical_keys(" ".join(load_words(__name__, "verbs", "nouns too")))
"""Keys of verbs that can also be nouns."""
CLASSES: Final = _load_classes()
"""Classes of a key."""
_COMPLEMENT_WORDS = _load_pairs("complements")
_OPPOSITE_WORDS = _load_pairs("states") | _COMPLEMENT_WORDS
OPPOSITES: Final = (
    frozenset(
        (" ".join(map(get_canonical_key, word.split())), " ".join(map(get_canonical_key, other.split())))
        for word, other in _OPPOSITE_WORDS
    )
    | _OPPOSITE_WORDS
)
"""Pairs of opposite keys, in both orders."""
COMPLEMENTS: Final = frozenset(
    (get_canonical_key(one), get_canonical_key(other)) for one, other in _COMPLEMENT_WORDS
)
"""Opposites without anything in between."""
SCOPES: Final = frozenset(map(get_canonical_key, load_words(__name__, "scopes", "scopes")))
"""Words that limit a statement to a place or group. It need not be valid for another place or group."""
REGIONS: Final = frozenset(map(get_canonical_key, load_words(__name__, "scopes", "regions")))
"""Countries and other regions that contain places."""


def are_opposite(one: str, other: str) -> bool:
    """Return True if two keys are opposites, or one is the other with a negative prefix."""
    if (one, other) in OPPOSITES or (_to_adjective(one), _to_adjective(other)) in OPPOSITES:
        return True
    short, long = sorted((one, other), key=len)
    return len(short) > 3 and any(
        long == prefix + short for prefix in ("un", "in", "im", "dis", "non", "ir", "il")
    )


def are_complements(one: str, other: str) -> bool:
    """Return True if two keys exclude anything in between: open and closed, but not hot and cold."""
    if (one, other) in COMPLEMENTS:
        return True
    return are_opposite(one, other) and (one, other) not in OPPOSITES


def _to_adjective(key: str) -> str:
    # "lazily" is compared as "lazy", "quickly" as "quick".
    if not key.endswith("ly"):
        return key
    bare = key[:-2]
    return get_canonical_key(f"{bare[:-1]}y" if bare.endswith("i") else bare)


def find_shared_class(one: str, other: str) -> str:
    """Return the name of a class that contains both keys, or an empty string."""
    both = CLASSES.get(one, frozenset()) & CLASSES.get(other, frozenset())
    return min(both, default="")
