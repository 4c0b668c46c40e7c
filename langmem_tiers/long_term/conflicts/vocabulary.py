"""Word tables by the keys that texts are parsed into."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from langmem_tiers.long_term.conflicts import verbs, word_classes
from langmem_tiers.long_term.conflicts.function_words import ARTICLES, POINTERS
from langmem_tiers.long_term.conflicts.inflection import IRREGULAR_BASES, stem
from langmem_tiers.long_term.conflicts.synonyms import SYNONYMS, VERB_KEYS

FILLERS = frozenset(
    """
    please really just actually currently presently now very quite basically simply still already also too
    additionally definitely certainly absolutely clearly kindly so well okay ok overall generally usually
    normally typically however today's hi hello hey remember thanks personally honestly truly highly strongly
    particularly especially officially formally itself themselves ourselves myself himself herself then there
    here that which who pretty rather somewhat apparently obviously essentially literally again yet hence thus
    therefore indeed surely naturally nowadays lately recently anyway um uh particular specific certain mainly
    mostly primarily simply eventually finally totally completely fully strictly etc it he she they them him
    one's entirely exactly wholly altogether these those this such any ever
    """.split()
)
"""Words."""
_PHRASES = """
in my opinion; as for me; if you ask me; as a user; for instance; as always; in principle; in terms of; per
se; in short; long story short; at the end of the day; like i say; i mean; to be clear; to be precise; on
the whole; by all means; at the moment; right now; these days; for now; at present; as of now; as of today;
from now on; going forward; note that; keep in mind that; please note; remember that; remember to; be aware
that; make sure to; be sure to; make sure that; make sure; it is important that; in general; as a rule; for
the record; by the way; in the future; the fact is that; in order; kind of; sort of; a bit; a lot; of
course; as usual; the user say that; the user mention that; the user state that; user say that; user mention
that; i say that; user note that; it has been decide that; fyi; a total of; in total; at all; for sure; as a
matter of fact; in fact; to be honest; located at the; from now; for the time being; so far; whenever
possible; if possible; when possible; way to go; in addition; as well; once and for all; any more; anymore;
in fact; also known as; a copy of; just so you know; you know; as you know; it turns out that; pretty much;
as such; needless to say; as mentioned; as a reminder; reminder; heads up; for your information; it should
be note that; it is worth noting that; the fact that; at this point; at the current time; in any case; I
would say; in particular; once again; of all; as far as; for your reference; i want you to know that; this
means that; i would like you to know that; the user has said that; the user has mentioned that; the user has
stated that; it is known that
"""
FILLER_PHRASES = tuple(" ".join(phrase.lower().split()) for phrase in _PHRASES.split(";"))
"""Filler phrases, in any inflection."""


_Rest = tuple[tuple[str, ...], str]


def _stems(phrase: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in phrase.split() if word not in POINTERS)


def _phrases() -> tuple[dict[str, str], dict[str, list[_Rest]]]:
    singles: dict[str, str] = {}
    longer: dict[str, list[_Rest]] = {}
    table = {**dict.fromkeys(FILLER_PHRASES, ""), **SYNONYMS}
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


def _group_by_key(table: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for word, names in table.items():
        key = get_canonical_key(word) or word
        found[key] = found.get(key, frozenset()) | names
    return found


VERBS: Final = get_canonical_keys(" ".join(verbs.VERBS)) | VERB_KEYS | (IRREGULAR_BASES - {"be", "do"})
"""Keys that can be verbs."""
NOUNS_TOO: Final = get_canonical_keys(" ".join(verbs.NOUNS_TOO))
"""Keys of verbs that can also be nouns."""
CLASSES: Final = _group_by_key(word_classes.CLASSES)
"""Classes of a key."""
OPPOSITES: Final = (
    frozenset(
        (" ".join(map(get_canonical_key, word.split())), " ".join(map(get_canonical_key, other.split())))
        for word, other in word_classes.OPPOSITES
    )
    | word_classes.OPPOSITES
)
"""Pairs of opposite keys, in both orders."""
COMPLEMENTS: Final = frozenset(
    (get_canonical_key(one), get_canonical_key(other)) for one, other in word_classes.COMPLEMENTS
)
"""Opposites without anything in between."""
SCOPES: Final = frozenset(get_canonical_key(word) for word in word_classes.SCOPES)
REGIONS: Final = frozenset(get_canonical_key(word) for word in word_classes.REGIONS)


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
