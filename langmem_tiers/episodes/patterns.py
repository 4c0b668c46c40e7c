"""Patterns of sentences that report a key moment. The table can be extended with rows and languages.

If several rows match a message, the strongest one determines the kind. All repetitions are bounded, so matching takes
linear time for any text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from langmem_tiers.common.entries import check_score
from langmem_tiers.episodes.models import EpisodeKind, check_episode_kind
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.text.word_lists import load_words


class OutcomeSide(StrEnum):
    """Position of the outcome in a sentence, relative to the matched words."""

    BEFORE = "before"
    """Before the match, as in "the migration is done"."""
    AFTER = "after"
    """After the match, as in "we decided on Redis"."""
    MEANS = "means"
    """After "by" or before the verb, as in "solved by waiting" and "waiting solved it"."""
    NOWHERE = "nowhere"
    """No separate part: the whole sentence is the outcome."""


def compile_any_of(*parts: str) -> re.Pattern[str]:
    """Compile a case-insensitive pattern for any of the parts, each at the start of a word."""
    return re.compile(rf"\b(?:{'|'.join(parts)})", re.IGNORECASE)


def build_any_of_pattern(section: str) -> str:
    """Return a pattern for any of the words of a section of the data file."""
    return f"(?:{'|'.join(load_words(__name__, 'moments', section))})".replace("_", " ")


_NEGATED = (
    r"not\b",
    r"[a-z]{1,8}n't\b",
    rf"{build_any_of_pattern('negations')}\b",
)
_HYPOTHETICAL = (
    rf"{build_any_of_pattern('conditions')}\b",
    rf"{build_any_of_pattern('possibilities')}\b",
    r"(?:consider(?:ing)?|thinking (?:about|of)|wonder(?:ing)?|what about|how about|propos(?:e|ed|ing|al))\b",
    r"(?:wants?|wanted|needs?|needed|have|has|plan(?:s|ned|ning)?|try|trying|tries|tried|like|remember|ready) to\b",
    r"(?:wants?|needs?) (?:its?|this|that|these|them|the|my|our)\b",
    r"(?:(?:make|making|be) sure|ensure|verify|check|please|let (?:me|us) know|tell (?:me|us))\b",
    r"(?:for example|e\.g|for instance|todo|to-do|pretend)\b",
)
_PLANNED = (
    rf"{build_any_of_pattern('plans')}\b",
    r"[a-z]{1,6}'(?:ll|d (?!just|finally|already|fixed|finished|completed))",
    r"(?:when|whenever|once|before|by the time|(?:every|each) time|(?:after|as) (?:it|this|that|these|you|they))\b",
    r"how\b|(?:almost|nearly|half|partly|partially|being|getting|gets?|(?:have|had) (?:it|this|that))\b",
)

RETRACTED = compile_any_of(*_NEGATED, *_HYPOTHETICAL)
"""Words that invalidate a decision or pivot: negations and hypotheses. Plans count as decisions."""
NOT_YET = compile_any_of(*_NEGATED, *_HYPOTHETICAL, *_PLANNED)
"""Words that invalidate a success: negations, hypotheses and plans."""
NO_ISSUE = compile_any_of(
    *_NEGATED,
    *_HYPOTHETICAL,
    r"(?:will|used to|when(?:ever)? (?:an?|any|one|some\w{0,6})|in the event|handles?|handling|catch(?:es)?)\b",
    r"(?:none|zero|without|free of|avoid(?:s|ed|ing)?|prevent(?:s|ed|ing)?|fix(?:e[sd])?|resolved?|solved?)\b",
    r"(?:let's|let me|help you|reproduce|troubleshoot|fear of|risk of|believe)\b",
)
"""Words that invalidate an issue: negations, hypotheses, and issues that are handled or fixed."""


@dataclass(frozen=True, slots=True)
class MomentPattern:
    """One row of the moment table.

    Args:
        kind: Kind of moment that the pattern reports.
        pattern: Regular expression for one sentence. Typographic apostrophes are replaced by straight ones before.
        strength: Reliability of the pattern, from 0 to 1: the strongest matching row determines the kind of a message.
        unless: Pattern that invalidates a match if found before it in the same clause. None: nothing invalidates it.
        outcome: Position of the outcome in the sentence.
    """

    kind: EpisodeKind
    pattern: re.Pattern[str]
    strength: float = 0.6
    unless: re.Pattern[str] | None = NOT_YET
    outcome: OutcomeSide = OutcomeSide.NOWHERE

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", check_episode_kind(self.kind))
        check_score(self.strength, "strength")
        pattern: object = self.pattern
        if not isinstance(pattern, re.Pattern) or not isinstance(pattern.pattern, str):
            raise InvalidInputError(
                f"a moment pattern must be a compiled text pattern, got {type(pattern).__name__}: "
                "use re.compile(r'...')"
            )
        if self.pattern.search("") is not None:
            raise InvalidInputError(
                f"the pattern {self.pattern.pattern!r} matches the empty text: require at least one character"
            )


__all__ = ["MOMENT_PATTERNS", "MomentPattern", "OutcomeSide"]

_WHO = build_any_of_pattern("subjects")
_WE_WILL = r"(?:let's|we'll|we will|we're|we are|i'll|i will|i'm|i am)(?: just| now| going to| rather){0,2}"
_HAVE = (
    r"(?:'ve|'d|'s| have| had| has)?(?: (?:all|both|just|now|finally|already|also|since|then|suddenly)){0,2}"
)
_IS = r"(?:is|are|was|were|has been|have been|been)(?: (?:now|all|finally|just|already|fully|successfully)){0,2}"
_DET = r"(?:an?|the|this|some|several|many|multiple|few|two|three|four|five|another|more|still an?|\d{1,4})"
_TROUBLE = (
    r"(?:bugs?|errors?|exceptions?|problems?|issues?|crash(?:es)?|leaks?|failures?|regressions?|race conditions?"
    r"|deadlocks?|outages?|vulnerabilit(?:y|ies)|typos?|glitch(?:es)?|flaws?|mismatch(?:es)?)\b"
    r"(?![ -](?:handl|messag|report|track|code|log|page|rate|bar|margin|type|class|list|number|fix|bounty|solv|area"
    r"|set|statement|space))"
)
_SOME_TROUBLE_PHRASE = rf"(?:{_DET} (?:[^\s,;:.]{{1,30}} ){{0,3}}?)?{_TROUBLE}"
_NO_WORDS = r"(?! (?:[^\s,;:.]{1,30} ){0,3}?(?:no|zero|any|0|fewer|fix\w{0,4}|resolv\w{1,4}|solv\w{1,4})\b)"
_FEW_WORDS = r"(?:[^\s,;:.]{1,30} ){0,4}?"
_FINISHED = r"(?:finished|completed|shipped|deployed|merged|launched|rolled out|wrapped up)"
_HANDED_OVER = r"(?:released|published|delivered|submitted(?! that))"
# After an article or a possessive, the participle is an adjective: "the finished product".
_NO_ADJECTIVE = r"(?<![-.])" + "".join(
    rf"(?<!\b{word} )" for word in load_words(__name__, "moments", "before an adjective")
)
_FIXED = (  # the next word distinguishes the verb from the adjective: not "a fixed price"
    r"(?:^fixed\b(?! ?-)|(?<!^)fixed(?=$|[^\w\s-]| (?:the|an?|it|that|this|these|my|our|your|his|her|all|both|some"
    r"|another|two|three|by|in|with|now|and|for|up|when|after|today|yesterday|¤|#|\d)\b| ¤))"
)
_NOT_MUNDANE = (
    r"(?! (?:that )?(?:i|we)(?: (?:need|forgot|still|have|haven't|made|was|am|went|should|don't|didn't|might|left"
    r"|missed|never|provided|gave)|'m|'ve|'re)\b)"
)

_PIVOTS = (
    MomentPattern(
        EpisodeKind.PIVOT,
        compile_any_of(
            r"^(?:(?:ok|okay|so|well|right|actually|sorry)\b,? ?)?change of plans?(?=[:,!]| -)|u-turn\b",
            r"there(?:'s| is| has|'s been| has been) (?:been )?a (?:\w{1,10} )?change of plans?\b",
            r"new (?:plan|direction|approach):|back to the drawing board\b|decided against\b|scratch that(?=[,.!:]|$)",
            r"(?:changed|changing|(?:let's|we) change) (?:course|direction|tack|our minds?|my mind|the plan)\b",
            r"(?:switch(?:ed|es|ing)?|migrat(?:e|ed|es|ing)) (?:over )?from (?:[^\s,;.]{1,30} ){1,4}?to (?!\d|it\b)",
            rf"{_WHO}(?:'re| are| have|'ve)?(?: now)? mov(?:ed|ing) away from\b|we(?:'re| are) moving from\b",
            rf"(?:{_WE_WILL}|we|i|decided to|and) (?:scrap|ditch|abandon) (?:the|our|that|this|all|it|every)\b",
            r"(?:scrapp|ditch|abandon)(?:ed|ing) (?:the|our|that|this|all|it|every)\b|pull(?:ed|ing) the plug on\b",
            r"(?:go|going|went) back on (?:the|our|my|that|this)\b|reversed (?:the|our|that|my|course)\b",
            rf"{_WHO}{_HAVE} (?:reversed|overturned|revoked|dropped the (?:idea|plan)|pivoted)\b",
            rf"{_WHO}(?:'re| are|'m| am)(?: now)? (?:dropping|abandoning|scrapping|ditching|pivoting)\b",
        ),
        0.95,
        RETRACTED,
    ),
    MomentPattern(
        EpisodeKind.PIVOT,
        compile_any_of(
            r"we(?:'re| are)? no longer (?!see|get|have (?:the|this|that)|hit|fail|crash)",
            rf"{_WE_WILL} (?!consider|think|hop|try|wonder|look|not)[^,;!?]{{1,80}} instead\b(?! of)",
            r"(?:let's|we'll|we will|i'll) [^,;!?]{1,80} instead of\b|going with [^,;!?]{1,60} instead\b",
            r"(?:actually|no|wait|ok(?:ay)?|hmm?), (?:let's )?(?:use|do|take|make|build|go|try|keep)\b"
            r"[^!?]{1,80} instead\b",
            r"^(?:on second thoughts?|instead), (?:we|i|let's)\b|^instead of [^,;!?]{1,60}, (?:we|i|let's)\b",
            r"we(?:'re| are|'ll| will| have|'ve)? (?:now )?replac(?:e|ed|ing) [^,;!?]{1,50} with\b",
            r"(?:let's|we(?:'ll| will|'re going to)?|i(?:'ll| will)) (?:keep|stay|go|do)\b[^,;!?]{1,50} after all\b",
            r"(?:dropped|dropping|rejected|shelved|cancell?ed) (?:the|our) (?:\w{1,20} )?"
            r"(?:plan|project|idea|launch|rewrite)\b",
            r"(?:dropp|abandon|remov|retir)(?:ed|ing) [^,;!?]{1,50} in favou?r of\b|start(?:ing)? over from scratch\b",
            r"(?:forget|never mind) (?:about )?[^!?]{1,60}? (?:let's|we'll|we will)\b",
        ),
        0.92,
        RETRACTED,
    ),
)
_BREAKTHROUGHS = (
    MomentPattern(
        EpisodeKind.BREAKTHROUGH,
        compile_any_of(
            r"(?:huge|major|big|real|a|the|our) breakthrough\b|breakthrough[:!]|eureka\b",
            r"(?:key|crucial|big) insight\b|it (?:just |finally )?(?:all )?clicked\b|(?:it )?dawned on (?:me|us)\b",
            r"(?:suddenly|now) (?:it )?(?:all )?makes sense\b|nailed it\b|for the first time ever\b",
            rf"{_WHO}{_HAVE} reali[sz]ed\b{_NOT_MUNDANE}|{_WHO}{_HAVE} discovered (?:that|how|why|what|the|a way)\b",
            rf"{_WHO}{_HAVE} (?:figured (?:it )?out|cracked|worked out (?:how|why|what))\b",
            r"(?:cut|down|reduced|drop(?:s|ped)|fell|went|goes|shrank|improved|brought|got|rose|jumped|takes?|took)\b"
            r"[^.!?]{0,60}?\bfrom \d[\d.,]{0,10} ?(?:%|[a-zµ]{1,12})?(?: [a-z]{1,12})? (?:down |up )?to"
            r"(?: under| about| just| only)? \d",
            r"\d[\d.]{0,5} ?(?:x|times) (?:faster|smaller|cheaper|better)\b",
        ),
        0.88,
    ),
    MomentPattern(
        EpisodeKind.BREAKTHROUGH,
        compile_any_of(
            rf"(?:finally|at last),? (?!\S{{1,20}} (?:would|will|should|could|can|must|may)\b){_FEW_WORDS}"
            r"(?:works?|working|worked|got(?! around)|found|managed|understand"
            r"|understood|gone|nailed|figured|cracked|succeeded|converges?|runs|(?:see|know) why|makes? sense"
            r"|made it|did it)\b",
            r"(?:now (?:i|we)|(?:i|we) now) (?:finally )?(?:understand|see|know) (?:why|how|what)\b|aha[,!]",
        ),
        0.86,
    ),
)
_DECISIONS = (
    MomentPattern(
        EpisodeKind.DECISION_MADE,
        compile_any_of(
            rf"{_WHO}{_HAVE} (?:decided|agreed|resolved to|concluded)(?: (?:on|to|that|upon|for))?\b",
            rf"{_WHO}{_HAVE} (?:chose|chosen|picked|selected|settled (?:on|for)|opted (?:for|to)|went with|gone with)\b"
            r"(?! (?:up|on)\b)",
            r"it(?:'s| is| was| has been)(?: now| all)? (?:decided|settled|agreed)(?: that)?\b",
            r"(?:the|our|final|my) decision (?:is|was)(?: to)?\b|^(?:(?:the|our|final|my) )?decision:",
            r"(?:decided|settled) (?:on|to|that)\b|agreed (?:to|that)\b|decision made\b|^(?:decided|agreed)[:,]",
            r"(?:made|reached|took) (?:the|a|our) (?:final )?decision(?: to)?\b|made up (?:my|our|their) minds?\b",
            rf"{_WHO}{_HAVE} (?:voted (?:for|to)|committed to|ruled out|approved|signed off on)\b|^final answer:",
            r"\w{2,30} it is(?=[.!]|$)|(?:we|i)(?:'re| are|'m| am) taking the\b",
        ),
        0.9,
        RETRACTED,
        OutcomeSide.AFTER,
    ),
    MomentPattern(
        EpisodeKind.DECISION_MADE,
        compile_any_of(
            r"let's (?:just )?(?:(?:go|stick|stay|proceed) with|settle on|adopt|choose|use)\b(?! an? example\b)",
            r"(?:we|i)(?:'ll| will|'re| are|'m| am)(?: just| now| going to)? (?:go|going|stick|sticking|stay|staying)"
            r" with\b(?! (?:my|his|her|them|him|you|us)\b)",
            r"(?:we|i)(?:'ll| will) (?:settle on|adopt|use (?=[^.!?]{1,80} (?:for|as|because|since)\b))",
        ),
        0.8,
        RETRACTED,
        OutcomeSide.AFTER,
    ),
)
_SOLUTIONS = (
    MomentPattern(
        EpisodeKind.PROBLEM_SOLVED,
        compile_any_of(
            r"(?:the|root|real|actual) cause(?: of [^,;.]{1,60}?)? (?:was|turned out to be)\b",
            r"(?:root )?cause:|culprit:|(?:the|our|that) (?:fix|solution|culprit|trick) (?:was|is|turned out to be)\b",
            r"^(?:ah, |ok, |so )?(?:it )?turn(?:s|ed) out (?:that |it was )?(?=the|a|my|our|we|i|someone|it)",
            r"(?:the|our) (?:problem|issue|bug|error) (?:was|turned out to be)\b(?! (?:reported|found|not))",
        ),
        0.85,
        NOT_YET,
        OutcomeSide.AFTER,
    ),
    MomentPattern(
        EpisodeKind.PROBLEM_SOLVED,
        compile_any_of(
            rf"{_NO_ADJECTIVE}(?<!with )(?<!at )"
            rf"(?:{_FIXED}|(?:resolved|solved|sorted out|patched|repaired|unblocked)\b)",
            r"(?:got|have|had) (?:it|this|that|everything|the \w{1,20}) (?:working|running|sorted|fixed)\b",
        ),
        0.84,
        NOT_YET,
        OutcomeSide.MEANS,
    ),
    MomentPattern(
        EpisodeKind.PROBLEM_SOLVED,
        compile_any_of(
            r"(?:works|runs|loads|builds|passes|responds|works (?:fine|well)|runs (?:fine|well)) (?:now|again)\b"
            r"|now (?:it )?(?:works|runs|loads|builds|passes)\b",
            r"(?:they|we|tests|things|both|all)(?: all)? (?:work|run|load|pass) (?:fine |well )?(?:now|again)\b",
            r"(?:is|are|it's|they're|everything's) (?:now )?(?:working|running) (?:fine |well |correctly |properly )?"
            r"(?:now|again)\b|(?:is|are) now working\b",
            r"(?:is|are|was|were) (?:back (?:up|online|to normal)|gone now|working as expected)\b|did the trick\b",
            r"(?:problem|issue|bug|error|crash|leak)s? (?:is|are|has|have) (?:now )?(?:gone|disappeared)\b|went away\b",
            r"all good (?:now|again)\b|(?:up and running|back in business)\b",
            r"no longer (?:fail|crash|hang|leak|happen|occur|break)(?:s|es)?\b",
            r"(?:doesn't|don't) (?:fail|crash|hang|leak|happen|occur|break) any ?more\b",
            r"stopped (?:failing|crashing|hanging|leaking|happening|breaking)\b",
        ),
        0.83,
        NOT_YET,
        OutcomeSide.MEANS,
    ),
)
_COMPLETIONS = (
    MomentPattern(
        EpisodeKind.TASK_COMPLETED,
        compile_any_of(
            rf"{_IS} (?:{_FINISHED}|{_HANDED_OVER}|done|live|complete|in production)\b"
            r"(?! (?:by|with|via|through|using|when|if|in|on|for|under|every|non\w|from|at)\b)",
            r"(?:it|that|everything)'s (?:all |now )?(?:done|live|finished)\b(?! (?:by|with|in)\b)",
        ),
        0.75,
        NOT_YET,
        OutcomeSide.BEFORE,
    ),
    MomentPattern(
        EpisodeKind.TASK_COMPLETED,
        compile_any_of(
            rf"{_NO_ADJECTIVE}(?<!is )(?<!are )(?<!was )(?<!recently ){_FINISHED}\b"
            r"(?! (?:version|product|goods|state|cell|form|last|first|second|third|\w{1,20}ly)s?\b)",
            rf"^{_HANDED_OVER} (?!by|in)|{_WHO}{_HAVE} {_HANDED_OVER}\b",
        ),
        0.74,
        NOT_YET,
        OutcomeSide.AFTER,
    ),
    MomentPattern(
        EpisodeKind.TASK_COMPLETED,
        compile_any_of(
            r"^(?:all )?done(?=[.!:,]|$)|all done\b"
            r"|(?:i'm|we're|i am|we are) (?:all )?done\b(?! with (?:you|this|it)\b)",
            r"all (?:[^\s,;.]{1,20} ){0,3}?tests (?:are |have |now ){0,2}(?:pass|passed|passing|green)\b",
            r"tests (?:are |now ){0,2}(?:all )?(?:green|passing)\b|everything passes\b|all green\b",
            r"milestone (?:reached|hit|done)\b|mission accomplished\b|(?:went|gone) live\b",
            r"got (?:it|everything) done\b|(?:checked|crossed|ticked) off\b",
            r"handed (?:in|over) (?:the|my|our)\b|implemented (?:the|all|both)\b",
            r"passed (?:the|my|our|his|her) (?:exam|audit|review|interview|driving|final)\w{0,4}\b",
        ),
        0.73,
    ),
)
_ISSUES = (
    MomentPattern(
        EpisodeKind.ISSUE_IDENTIFIED,
        compile_any_of(
            r"(?:there(?:'s| is| are| was| were| seems? to be)(?: still)?|found|discovered|spotted|noticed|ran into|hit"
            r"|have|has|having|got|gets?|getting|see|sees|seeing|throws?|throwing|raises? an|returns?"
            r"|gives?(?: me| us)?|encounter(?:ed|ing)|facing|caus(?:es?|ed|ing)|shows?|reported)"
            rf"{_NO_WORDS} {_SOME_TROUBLE_PHRASE}",
            r"(?:the|one|another|main|only) (?:problem|issue|trouble|bug) is\b",
            r"^(?:bug|issue|problem|error|blocker): \S|(?:that's|this is|it's|which is) a (?:bug|regression|problem)\b",
            r"(?:seeing|get|getting|got|with|throws|hit|raises) (?:an? )?(?-i:[A-Z]\w{1,60}(?:Error|Exception))\b",
            r"(?:users|customers|people|clients|testers) (?:report|complain)",
        ),
        0.6,
        NO_ISSUE,
    ),
    MomentPattern(
        EpisodeKind.ISSUE_IDENTIFIED,
        compile_any_of(
            r"(?:fails|crashes|crashed|timed out|times out|freezes|leaks memory|failing (?:tests?|builds?))\b",
            r"(?<!0 )failed\b(?=$|[.,;:!]| (?:to|with|on|at|in|again|because|due|after|when|last|the|for|yesterday"
            r"|today|twice|and|this|too|during)\b)|froze\b(?! (?:it|them|the)\b)",
            r"(?:is|are|keeps?|was|were|still|started|starts|tests?|builds?) (?:failing|crashing|hanging|timing out)\b",
            r"(?:is|are|got|looks?|seems?|still) (?:completely |totally |badly )?(?:broken|down|stuck|corrupt(?:ed)?)\b"
            r"(?! (?:by|down|into|up|to)\b)",
            r"(?:it|this|that|which|update|change|commit|upgrade|something|deploy|i|we) (?:breaks|broke)"
            r" (?:the|our|my|on|in|when|after|again|every)\b|went down\b|(?:went|goes|something is) wrong\b",
            r"(?<!she )(?<!\bhe )(?:doesn't|does not|didn't|isn't|is not|aren't) (?:even |really )?(?:work|working"
            r"|load|start|compile|build|connect|respond|converge|save)\b(?! (?:here|there|for|at|with|weekends)\b)",
            r"(?<!\bi )(?<!you )(?<!we )(?:won't|can't|cannot) (?:load|start|compile|boot|build)\b|not working\b",
            r"(?:stopped|quit) working\b|does nothing\b",
            r"(?:is|are|been) (?:red|flaky|unreachable|unresponsive|offline)(?= since|[.,!]|$)",
            r"(?:out of memory|segfaults?|wrong (?:total|value|result|number|amount)s?)\b|(?:is|are) leaking\b",
            r"i (?:still )?(?:can't|cannot) (?:log in|sign in|connect)\b",
        ),
        0.58,
        NO_ISSUE,
    ),
)

MOMENT_PATTERNS: tuple[MomentPattern, ...] = (
    *_PIVOTS,
    *_BREAKTHROUGHS,
    *_DECISIONS,
    *_SOLUTIONS,
    *_COMPLETIONS,
    *_ISSUES,
)
"""Default rows for English. For other languages, add rows: ``(*MOMENT_PATTERNS, my_pattern)``."""
