"""Patterns of sentences that state something worth storing. The table can be extended with rows and languages.

A pattern is applied to one sentence, with single spaces between its words. The first matching row determines the kind
of the fact, so the order is a ranking: a sentence that states a decision about a goal is a decision, and "need to" is a
constraint before "need" is a preference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import check_score
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.long_term.models import EntryKind
from langmem_tiers.text.stop_words import STOP_WORDS
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Mapping


def build_not_after_pattern(words: str) -> str:
    """Return a pattern that matches a position not preceded by any of the words."""
    # One lookbehind per word: Python requires lookbehinds of a fixed width, so alternatives of different
    # lengths cannot share one.
    return "".join(rf"(?<!\b{word} )" for word in words.split())


def build_any_of_pattern(words: str) -> str:
    """Return a pattern for any of the words. An underscore means a space; both kinds of apostrophe match."""
    return f"(?:{'|'.join(words.split())})".replace("_", " ").replace("'", "['’]")


def _read_words(section: str) -> str:
    return " ".join(load_words(__name__, "patterns", section))


_NOT = r"n['’]t"
NOT_NEGATED = build_not_after_pattern("not never no") + rf"(?<!{_NOT} )"
"""Position that is not preceded by a negation."""
_ADVERB = build_any_of_pattern(_read_words("adverbs"))
OPTIONAL_ADVERBS = rf"(?:{_ADVERB} ){{0,2}}"
"""Up to two adverbs between subject and verb."""
_AUXILIARY = build_any_of_pattern(_read_words("auxiliaries"))
_AUXILIARY_AND_ADVERBS = rf"(?:{_AUXILIARY} )?{OPTIONAL_ADVERBS}"
_IS = r"(?:\b(?:am|are|is|was|were)|['’](?:m|re|s)) (?:now )?"
PERSON_WORDS = build_any_of_pattern(_read_words("persons"))
"""Subjects that decide, like and want."""
_OTHERS = build_any_of_pattern("me us him them you")
_PERFECT_TENSE = r"have (?:been|had|gone|done|got|made|seen|\w+ed)\b"

DECISION_PARTS = (
    rf"{NOT_NEGATED}{build_not_after_pattern('be yet')}\bdecided\b",
    rf"\b(?:{PERSON_WORDS}|it) {OPTIONAL_ADVERBS}decides?\b",
    rf"{NOT_NEGATED}{build_not_after_pattern('still')}\bdeciding (?=on\b|to\b|for\b|against\b|in favou?r)",
    rf"{NOT_NEGATED}\bchose\b",
    r"(?:\b(?:have|has|had|been|was|were|is|are)|['’](?:ve|s)) (?:(?:now|also|finally|all) )?chosen\b",
    rf"{NOT_NEGATED}{build_not_after_pattern(_read_words('before an adjective'))}\bselected\b",
    (
        rf"{build_not_after_pattern('ones what which how when if sure')}\b{PERSON_WORDS} "
        rf"{OPTIONAL_ADVERBS}(?:choose|select)s?\b"
    ),
    rf"{_IS}(?:choosing|selecting)\b",
    # "I went with my sister" is not a choice, "we went with our own fork" is.
    rf"\bwent with\b(?! (?:{_OTHERS}|my|his|her|our|their)\b(?! own\b))",
    rf"\b(?:let['’]s|we|i|we['’]ll|i['’]ll|we will|i will) {OPTIONAL_ADVERBS}go with\b",
    rf"{_IS}going with\b(?! {_OTHERS}\b)",
    r"\b(?:the|our|my|final) decision(?: is\b| was\b|:)",
    r"^decision:",
)
"""Patterns for decisions: decided, chose, selected, went with."""
_NOUN_GOES_ON = build_any_of_pattern(_read_words("after a goal"))
_NOUN_ENDS = rf"(?=:| [\u2013\u2014-]| {_NOUN_GOES_ON}\b)"
_DEMANDED = build_any_of_pattern("must should cannot can't needs?_to")
_POSSESSIVE = r"(?:my|our|the|his|her|their) (?:[\w'’-]+ )?"
GOAL_PARTS = (
    # The noun with a statement about it; a passing mention, or a goal scored in a match, does not count.
    rf"{build_not_after_pattern('own winning scored scores scoring penalty')}(?<!\bscored a )\bgoals?{_NOUN_ENDS}",
    (
        rf"\b(?:is|are|was|as|be|remains?) (?:(?:still|now|also|one of) )?{_POSSESSIVE}(?:[\w'’-]+ )?"
        r"(?:goal|objective|target)s?\b"
    ),
    # The noun, not the adjective ("be objective") and not Objective-C.
    rf"{build_not_after_pattern('be being more less very remain stay')}\bobjectives?{_NOUN_ENDS}",
    rf"{NOT_NEGATED}\baim(?:s|ed|ing)?\b",
    rf"{build_not_after_pattern('at moving')}\btargets?{_NOUN_ENDS}",
    rf"\b{PERSON_WORDS} (?:are |is |am |were |was )?target(?:s|ed|ing)?\b(?! \w+ {_DEMANDED}\b)",
    r"['’](?:m|re|s) targeting\b",
    r"\btargets (?=the\b|an?\b|\d|(?-i:[A-Z]))",
)
"""Patterns for goals: goal, objective, aim, target."""
_FEELINGS = build_any_of_pattern(_read_words("feelings"))
_FEELING_PHRASE = (
    rf"(?:(?:so|really|such|pretty)\b|(?:(?:very|quite) )?(?:an? )?(?:(?:lot of|great|real|truly) "
    rf")?{_FEELINGS})"
)
_HELPLESS_VERBS = build_any_of_pattern(_read_words("helpless verbs"))
_ASKING_VERBS = build_any_of_pattern(_read_words("asking verbs"))
_HELP_NOUNS = (
    rf"(?:(?:some|more|your|further|any|a bit of) )*{build_any_of_pattern(_read_words('help nouns'))}"
)
CONSTRAINT_PARTS = (
    # "It must have been the cache" is a guess, "must have two reviewers" is a constraint.
    (
        rf"{build_not_after_pattern('a')}\bmust(?:{_NOT})?\b(?!-|['’]ve| {_PERFECT_TENSE}| (?:be|have) "
        rf"{_FEELING_PHRASE}\b"
        rf"| {build_any_of_pattern('feel remind love miss know bring')}\b)"
    ),
    # "That should be fine" and "this should work" express expectations, not constraints.
    (
        rf"\bshould(?:{_NOT})?\b(?!['’]ve| {_PERFECT_TENSE}| be {_FEELING_PHRASE}\b"
        rf"| {build_any_of_pattern('work do_it help suffice see really feel')}\b|[,.]"
        rf"| {build_any_of_pattern(_read_words('subjects'))}\b)"
    ),
    rf"\bcan(?:not| not|['’]t)\b(?! {_HELPLESS_VERBS}\b)",
    rf"{NOT_NEGATED}\bneed(?:s|ing)? to\b(?! {_ASKING_VERBS}\b)",
    rf"\b(?:{PERSON_WORDS}|it) {OPTIONAL_ADVERBS}needed to\b(?! {_ASKING_VERBS}\b)",
)
"""Patterns for constraints: must, should, cannot, can't, need to."""
_NOT_A_REQUEST = rf"(?! to {_ASKING_VERBS}\b| {_HELP_NOUNS}\b)"
# Excludes generic statements: "find what you need", "for those who want", "it made me want".
_NOT_GENERIC = (
    build_not_after_pattern("who that me them us")
    + r"(?<!\bwhat you )(?<!\bwhat i )(?<!\bwhat we )(?<!\bhow i )"
)
NOT_A_REACTION = (
    r"(?! (?:the|this|that|these|those|your) (?:\w+ ){0,3}"
    r"(?:(?:idea|suggestion|option|caption|one)s?\b(?! of\b)|(?:sound|look)s? of\b))"
)
"""Excludes reactions to a proposal ("I like that idea"), which mean nothing outside the conversation."""
PREFERENCE_PARTS = (
    rf"{build_not_after_pattern('the who')}\bprefer(?:s|red|ring)?\b",
    rf"\b{_POSSESSIVE}preferences? (?:is|are|would be)\b",
    # "like" is a verb only after a person: not in "looks like", "something like", "tools like".
    rf"\b{PERSON_WORDS}(?:['’]d)? {_AUXILIARY_AND_ADVERBS}liked?\b{_NOT_A_REQUEST}{NOT_A_REACTION}(?! {_OTHERS}\b)",
    (
        rf"{build_not_after_pattern('if as would do did')}(?<!ever )\byou(?:['’]d)? "
        rf"{_AUXILIARY_AND_ADVERBS}liked?\b{_NOT_A_REQUEST}"
    ),
    rf"{build_not_after_pattern(_read_words('before a plural'))}(?<!\d )\blikes\b(?! of\b)",
    rf"{_IS}liking\b",
    rf"{build_not_after_pattern('to')}{_NOT_GENERIC}\bwants?\b{_NOT_A_REQUEST}",
    # "I wanted to stand out" is an anecdote, "I always wanted to sing" is a preference.
    rf"{build_not_after_pattern('to')}{_NOT_GENERIC}(?:\bwanted\b(?! to\b)|(?<=always )wanted\b){_NOT_A_REQUEST}",
    rf"(?:{_IS}|\bbeen )wanting\b{_NOT_A_REQUEST}",
    # The verb "need" is followed by an object, the noun is not.
    (
        rf"{build_not_after_pattern(_read_words('before a noun'))}{_NOT_GENERIC}(?<!-)\bneeds?\b(?= \w)"
        rf"(?! {build_any_of_pattern(_read_words('after a noun'))}\b){_NOT_A_REQUEST}"
    ),
    rf"\b(?:{PERSON_WORDS}|it) {OPTIONAL_ADVERBS}needed\b(?= \w)(?! to\b){_NOT_A_REQUEST}",
)
"""Patterns for preferences: prefer, like, want, need."""


@dataclass(frozen=True, slots=True)
class ExtractionPattern:
    """One row of the extraction table.

    Args:
        pattern: Regular expression for the wording. The matched words alone are not content: a sentence must contain
            others, too.
        kind: Kind of the entry that a matching sentence would become.
        confidence: Confidence of a plain statement by the user, from 0 to 1.
        language: Key of ``REFERRING_WORDS``: the words that do not count as content. Default: ``"en"``.
    """

    pattern: re.Pattern[str]
    kind: str
    confidence: float
    language: str = "en"

    def __post_init__(self) -> None:
        pattern: object = self.pattern
        if not isinstance(pattern, re.Pattern) or not isinstance(pattern.pattern, str):
            raise InvalidInputError(
                f"an extraction pattern must be a compiled text pattern, got {type(pattern).__name__}: "
                "use re.compile(r'...')"
            )
        if self.pattern.search("") is not None:
            raise InvalidInputError(
                f"the pattern {self.pattern.pattern!r} matches the empty text: require at least one character"
            )
        check_score(self.confidence, "confidence")


def _build_row(kind: str, confidence: float, *parts: str, language: str = "en") -> ExtractionPattern:
    # Every part begins at the start of a word. The shared prefix lets the engine skip all other positions
    # before it tries the alternatives.
    pattern = re.compile(rf"\b(?=[\w'’])(?:{'|'.join(parts)})", re.IGNORECASE)
    return ExtractionPattern(pattern, kind, confidence, language)


EXTRACTION_PATTERNS: tuple[ExtractionPattern, ...] = (
    _build_row(EntryKind.DECISION, 0.8, *DECISION_PARTS),
    _build_row(EntryKind.GOAL, 0.8, *GOAL_PARTS),
    _build_row(EntryKind.CONSTRAINT, 0.7, *CONSTRAINT_PARTS),
    _build_row(EntryKind.PREFERENCE, 0.7, *PREFERENCE_PARTS),
)
"""Default rows for decisions, goals, constraints and preferences."""

_STATE = build_any_of_pattern(rf"\w+ing {_read_words('temporary states')}")
_TEMPORARY_STATE = rf"(?:{build_any_of_pattern(_read_words('state adverbs'))} ){{0,2}}{_STATE}\b"
_TALK_NOUNS = build_any_of_pattern(_read_words("talk nouns"))
_REFERRING_WORDS = build_any_of_pattern(_read_words("not names"))
_STEP_VERBS = build_any_of_pattern(_read_words("step verbs"))
_NAME = rf"(?-i:(?!{_REFERRING_WORDS}\b)[A-Z][\w.'’-]*(?: [A-Z][\w.'’-]*){{0,3}})"
_SETTLED = build_any_of_pattern("agreed_to agreed_on agreed_that settled_on opted_for picked(?!_up)")

EXTRA_PATTERNS: tuple[ExtractionPattern, ...] = (
    _build_row(
        EntryKind.DECISION,
        0.65,
        rf"{NOT_NEGATED}\b(?:we|i|they|team) (?:have |all |finally )?{_SETTLED}\b",
        r"\b(?:let['’]s|we will|we['’]ll) (?:use|switch to)\b",
        r"\b(?:we|i|they|team) (?:have |just |finally )?switched (?:from .{1,60} )?to\b",
    ),
    _build_row(
        EntryKind.PREFERENCE,
        0.65,
        rf"\b{PERSON_WORDS} {OPTIONAL_ADVERBS}(?:loves?|hates?|dislikes?|can['’]t stand|would rather|"
        rf"enjoys?|favou?rs?)\b"
        rf"(?! {build_any_of_pattern(_read_words('not objects'))}\b){NOT_A_REACTION}",
        r"\bi['’]d rather\b",
        r"\b(?:my|our) favou?rite (?:[\w'’-]+ ){0,4}(?:is|are)\b",
        r"\b(?:is|are) (?:one of )?(?:my|our) favou?rites?\b",
    ),
    _build_row(
        EntryKind.ENTITY,
        0.65,
        r"\bmy name(?:['’]s| is)\b",
        r"\b(?:i am called|i['’]m called|i go by)\b",
        r"(?-i:\bcall me (?=[A-Z]))",
        rf"(?<![\w.] )(?<!\w){_NAME} (?:is|are|was) (?:my|our)\b",
        r"\b(?:my|our) [\w'’ -]{1,40} (?:is|are) (?:called|named)\b",
    ),
    _build_row(
        EntryKind.PROCEDURE,
        0.65,
        rf"^(?:in order )?to [^,]{{2,80}}, {_STEP_VERBS}\b",
        r"\bthe (?:way|steps?|command|procedure|trick) (?:to|for) .{2,80}? (?:is|are)\b",
        r"\bhow we [^,]{2,60} is\b",
    ),
    _build_row(
        EntryKind.FACT,
        0.65,
        rf"\bi {OPTIONAL_ADVERBS}(?:live in|live at|work (?:at|as|for|in|on|with)|grew up in|come from|"
        rf"was born|moved to)\b",
        r"\b(?:i am|i['’]m) (?:allergic to|based in|from|married to)\b",
        r"\b(?:i am|i['’]m) an? (?!bit\b|little\b|lot\b|mix\b|big\b|huge\b)",
        rf"(?:^|(?<=[,;:] )|(?<=\band )|(?<=\bbut )|(?<=\bbecause ))(?:my|our) "
        rf"(?!{_TALK_NOUNS}\b)(?:[\w'’.-]+ ){{1,4}}?"
        rf"(?:is|are|was)\b (?!{_TEMPORARY_STATE})",
        r"(?<!\bif )\b(?:we|i|they) (?:(?:currently|still|now|also|always|mostly|only|all|mainly) )?"
        r"(?:use|host|deploy)\b(?! (?:to be|case)\b)",
        r"\b(?:runs? on|(?:is|are) (?:hosted|deployed|running|based) (?:on|in|at)|(?:is|are) written in"
        r"|(?:is|are) built (?:with|on|in))\b",
    ),
)
"""Additional default rows for the other kinds and wordings. They have a lower confidence and are tried last."""

GERMAN_PATTERNS: tuple[ExtractionPattern, ...] = (
    _build_row(EntryKind.DECISION, 0.8, r"(?<!\bnicht )\bentschieden\b", r"\bausgewählt\b", language="de"),
    _build_row(EntryKind.GOAL, 0.8, r"\bziele? (?:ist|sind)\b", r"\bunser ziel\b", language="de"),
    _build_row(
        EntryKind.CONSTRAINT,
        0.7,
        r"\b(?:muss|müssen|musst|müsst)\b",
        r"\b(?:darf|dürfen|soll|sollen) nicht\b",
        language="de",
    ),
    _build_row(
        EntryKind.PREFERENCE,
        0.7,
        r"\bbevorzug(?:e|en|t|st)\b",
        r"\b(?:mag|möchte|brauche|hätte gern)\b",
        language="de",
    ),
)
"""Example rows for German: ``FactExtractor((*EXTRACTION_PATTERNS, *GERMAN_PATTERNS))``."""

REFERRING_WORDS: Mapping[str, frozenset[str]] = {
    "en": STOP_WORDS | frozenset(load_words(__name__, "referring_words", "english")),
    "de": frozenset(load_words(__name__, "referring_words", "german")),
}
"""Words per language that only refer to earlier statements; a sentence made of these is not a fact."""
