"""Which sentences state something worth keeping: one table of patterns, open to more rows and other languages.

A pattern is tried on one sentence with single spaces between its words, and the first row that fits gives the fact
its kind. So the order is a ranking: a decision is a decision even where it names a goal, and "need to" is a
constraint before "need" is a preference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.core.entries import check_score
from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.long_term import EntryKind
from langmem_tiers.scoring.fact_phrases import (
    CONSTRAINT,
    DECISION,
    GOAL,
    PEOPLE,
    PREFERENCE,
    REACTION,
    SOON,
    UNDENIED,
    any_of,
)
from langmem_tiers.scoring.words import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ExtractionPattern:
    """One row of the table.

    Args:
        pattern: What a sentence holds that states such a thing; what it matches carries no content of its own.
        kind: What kind of entry the sentence would be.
        confidence: What a plain statement by the user is worth, from 0 to 1.
        language: Whose words that carry nothing, see ``REFERRING``, are passed over.
    """

    pattern: re.Pattern[str]
    kind: str
    confidence: float
    language: str = "en"

    def __post_init__(self) -> None:
        pattern: object = self.pattern
        if not isinstance(pattern, re.Pattern) or not isinstance(pattern.pattern, str):
            raise InvalidInputError(
                f"an extraction pattern must be a compiled text pattern, got a {type(pattern).__name__}: "
                "use re.compile(r'...')"
            )
        if self.pattern.search("") is not None:
            raise InvalidInputError(
                f"the pattern {self.pattern.pattern!r} matches the empty text: ask for one character at least"
            )
        check_score(self.confidence, "confidence")


def _row(kind: str, confidence: float, *parts: str, language: str = "en") -> ExtractionPattern:
    # Every part begins with a word, so the engine need not try it inside of one.
    pattern = re.compile(rf"\b(?=[\w'’])(?:{'|'.join(parts)})", re.IGNORECASE)
    return ExtractionPattern(pattern, kind, confidence, language)


EXTRACTION_PATTERNS: tuple[ExtractionPattern, ...] = (
    _row(EntryKind.DECISION, 0.8, *DECISION),
    _row(EntryKind.GOAL, 0.8, *GOAL),
    _row(EntryKind.CONSTRAINT, 0.7, *CONSTRAINT),
    _row(EntryKind.PREFERENCE, 0.7, *PREFERENCE),
)
"""The rows of the design document."""

_STATE = any_of(
    r"""
    \w+ing broken down slow stuck wrong fine ok okay good great bad green red done ready gone empty sure sorry glad
    happy full flaky up off back here there late tired better worse crashed failed it that this what why how like
    """
)
_FLEETING = rf"(?:{any_of('not still now all very so too just quite really a_bit')} ){{0,2}}{_STATE}\b"
_TALK = any_of(
    """
    question point guess problem issue concern understanding suspicion idea thought apology apologies mistake bad fault
    feeling impression worry hope answer opinion request turn pleasure
    """
)
_POINTING = any_of(
    "This That These Those It Here There He She They We You I What Who Which Where How So And But Now"
)
_RUN = any_of(
    "run use call open press type execute set click go enter start add first you just simply always do edit push"
)
_NAME = rf"(?-i:(?!{_POINTING}\b)[A-Z][\w.'’-]*(?: [A-Z][\w.'’-]*){{0,3}})"
_SETTLED = any_of("agreed_to agreed_on agreed_that settled_on opted_for picked(?!_up)")

EXTRA_PATTERNS: tuple[ExtractionPattern, ...] = (
    _row(
        EntryKind.DECISION,
        0.65,
        rf"{UNDENIED}\b(?:we|i|they|team) (?:have |all |finally )?{_SETTLED}\b",
        r"\b(?:let['’]s|we will|we['’]ll) (?:use|switch to)\b",
        r"\b(?:we|i|they|team) (?:have |just |finally )?switched (?:from .{1,60} )?to\b",
    ),
    _row(
        EntryKind.PREFERENCE,
        0.65,
        rf"\b{PEOPLE} {SOON}(?:loves?|hates?|dislikes?|can['’]t stand|would rather|enjoys?|favou?rs?)\b"
        rf"(?! {any_of('your you how that it this what when these those the_way not')}\b){REACTION}",
        r"\bi['’]d rather\b",
        r"\b(?:my|our) favou?rite (?:[\w'’-]+ ){0,4}(?:is|are)\b",
        r"\b(?:is|are) (?:one of )?(?:my|our) favou?rites?\b",
    ),
    _row(
        EntryKind.ENTITY,
        0.65,
        r"\bmy name(?:['’]s| is)\b",
        r"\b(?:i am called|i['’]m called|i go by)\b",
        r"(?-i:\bcall me (?=[A-Z]))",
        rf"(?<![\w.] )(?<!\w){_NAME} (?:is|are|was) (?:my|our)\b",
        r"\b(?:my|our) [\w'’ -]{1,40} (?:is|are) (?:called|named)\b",
    ),
    _row(
        EntryKind.PROCEDURE,
        0.65,
        rf"^(?:in order )?to [^,]{{2,80}}, {_RUN}\b",
        r"\bthe (?:way|steps?|command|procedure|trick) (?:to|for) .{2,80}? (?:is|are)\b",
        r"\bhow we [^,]{2,60} is\b",
    ),
    _row(
        EntryKind.FACT,
        0.65,
        rf"\bi {SOON}(?:live in|live at|work (?:at|as|for|in|on|with)|grew up in|come from|was born|moved to)\b",
        r"\b(?:i am|i['’]m) (?:allergic to|based in|from|married to)\b",
        r"\b(?:i am|i['’]m) an? (?!bit\b|little\b|lot\b|mix\b|big\b|huge\b)",
        rf"(?:^|(?<=[,;:] )|(?<=\band )|(?<=\bbut )|(?<=\bbecause ))(?:my|our) (?!{_TALK}\b)(?:[\w'’.-]+ ){{1,4}}?"
        rf"(?:is|are|was)\b (?!{_FLEETING})",
        r"(?<!\bif )\b(?:we|i|they) (?:(?:currently|still|now|also|always|mostly|only|all|mainly) )?"
        r"(?:use|host|deploy)\b(?! (?:to be|case)\b)",
        r"\b(?:runs? on|(?:is|are) (?:hosted|deployed|running|based) (?:on|in|at)|(?:is|are) written in"
        r"|(?:is|are) built (?:with|on|in))\b",
    ),
)
"""Rows for what the design document names without a pattern: less certain, and tried after the others."""

GERMAN_PATTERNS: tuple[ExtractionPattern, ...] = (
    _row(EntryKind.DECISION, 0.8, r"(?<!\bnicht )\bentschieden\b", r"\bausgewählt\b", language="de"),
    _row(EntryKind.GOAL, 0.8, r"\bziele? (?:ist|sind)\b", r"\bunser ziel\b", language="de"),
    _row(
        EntryKind.CONSTRAINT,
        0.7,
        r"\b(?:muss|müssen|musst|müsst)\b",
        r"\b(?:darf|dürfen|soll|sollen) nicht\b",
        language="de",
    ),
    _row(
        EntryKind.PREFERENCE,
        0.7,
        r"\bbevorzug(?:e|en|t|st)\b",
        r"\b(?:mag|möchte|brauche|hätte gern)\b",
        language="de",
    ),
)
"""Rows for German, as an example: ``FactExtractor((*EXTRACTION_PATTERNS, *GERMAN_PATTERNS))``."""

REFERRING: Mapping[str, frozenset[str]] = {
    "en": STOP_WORDS
    | frozenset(
        """
        i'm we're it's that's i've we've i'd we'd i'll we'll don't one ones first second third last latter former same
        thing things something anything everything way yes no yeah ok okay else either both another too well really
        think guess already again today finally actually maybe definitely instead option indeed right sure thanks
        wants need needs want also do does done have got get s t d m ll re ve
        """.split()
    ),
    "de": frozenset(
        """
        ich du er sie es wir ihr uns euch mich dich das dies dieses diese der die den dem dafür dagegen so auch ja nein
        haben hat habe ist sind war und oder aber schon jetzt noch man zu an auf für mit von
        """.split()
    ),
}
"""For each language the words that only point at something that was said before."""
