"""One row of the table that tells moments, and the words that take back what a row says.

"Fixed" tells of a solved problem; "will be fixed", "not fixed" and "if it is fixed" do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from langmem_tiers.core.entries import check_score
from langmem_tiers.core.episodes import EpisodeKind, check_episode_kind
from langmem_tiers.core.errors import InvalidInputError


class Side(StrEnum):
    """Where a sentence says what came of it."""

    BEFORE = "before"
    """As in "the migration is done"."""
    AFTER = "after"
    """As in "we decided on Redis"."""
    MEANS = "means"
    """Behind "by" or before the verb, as in "solved by waiting" and "waiting solved it"."""
    NOWHERE = "nowhere"
    """It says so as a whole."""


def any_of(*parts: str) -> re.Pattern[str]:
    """One pattern for any of the parts, each from the start of a word, in any case."""
    return re.compile(rf"\b(?:{'|'.join(parts)})", re.IGNORECASE)


_NEGATED = (
    r"not\b",
    r"[a-z]{1,8}n't\b",
    r"(?:cannot|never|neither|nor|nothing|nobody|hardly|barely|no|yet to|far from)\b",
)
_IMAGINED = (
    r"(?:if|unless|whether|until|till|suppose|supposing|imagine|assuming|in case|as soon as|lest)\b",
    r"(?:might|may|could|would|should|ought|must|can|wish|hope|hopefully|gotta|looking forward|afraid|reminder)\b",
    r"(?:consider(?:ing)?|thinking (?:about|of)|wonder(?:ing)?|what about|how about|propos(?:e|ed|ing|al))\b",
    r"(?:wants?|wanted|needs?|needed|have|has|plan(?:s|ned|ning)?|try|trying|tries|tried|like|remember|ready) to\b",
    r"(?:wants?|needs?) (?:its?|this|that|these|them|the|my|our)\b",
    r"(?:(?:make|making|be) sure|ensure|verify|check|please|let (?:me|us) know|tell (?:me|us))\b",
    r"(?:for example|e\.g|for instance|todo|to-do|pretend)\b",
)
_PLANNED = (
    r"(?:will|shall|going to|gonna|about to|supposed to|expected to|scheduled to|due to be|to be|to get)\b",
    r"[a-z]{1,6}'(?:ll|d (?!just|finally|already|fixed|finished|completed))",
    r"(?:when|whenever|once|before|by the time|(?:every|each) time|(?:after|as) (?:it|this|that|these|you|they))\b",
    r"how\b|(?:almost|nearly|half|partly|partially|being|getting|gets?|(?:have|had) (?:it|this|that))\b",
)

TAKEN_BACK = any_of(*_NEGATED, *_IMAGINED)
"""What keeps a decision or a change of direction from being one: what will be counts, what may be does not."""
NOT_YET = any_of(*_NEGATED, *_IMAGINED, *_PLANNED)
"""What keeps a success from being one."""
NO_ISSUE = any_of(
    *_NEGATED,
    *_IMAGINED,
    r"(?:will|used to|when(?:ever)? (?:an?|any|one|some\w{0,6})|in the event|handles?|handling|catch(?:es)?)\b",
    r"(?:none|zero|without|free of|avoid(?:s|ed|ing)?|prevent(?:s|ed|ing)?|fix(?:e[sd])?|resolved?|solved?)\b",
    r"(?:let's|let me|help you|reproduce|troubleshoot|fear of|risk of|believe)\b",
)
"""What keeps an issue from being one."""


@dataclass(frozen=True, slots=True)
class MomentPattern:
    """One row of the table.

    Args:
        kind: Which moment it tells.
        pattern: What is said, within one sentence. Typographic apostrophes arrive as straight ones.
        strength: How surely it says so, from 0 to 1: the strongest row decides what a message tells.
        unless: What takes it back where it stands before it in its clause; nothing, if None.
        outcome: Where the sentence says what came of it.
    """

    kind: EpisodeKind
    pattern: re.Pattern[str]
    strength: float = 0.6
    unless: re.Pattern[str] | None = NOT_YET
    outcome: Side = Side.NOWHERE

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", check_episode_kind(self.kind))
        check_score(self.strength, "strength")
        pattern: object = self.pattern
        if not isinstance(pattern, re.Pattern) or not isinstance(pattern.pattern, str):
            raise InvalidInputError(
                f"a moment pattern must be a compiled text pattern, got a {type(pattern).__name__}: "
                "use re.compile(r'...')"
            )
        if self.pattern.search("") is not None:
            raise InvalidInputError(
                f"the pattern {self.pattern.pattern!r} matches the empty text: ask for one character at least"
            )
