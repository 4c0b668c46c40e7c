"""Validation of extracted facts: confidence, and whether a fact may be promoted automatically."""

from __future__ import annotations

import re
from dataclasses import dataclass

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.facts.models import FactDraft, Validation
from langmem_tiers.long_term.models import EntryKind
from langmem_tiers.text.prompt_injection import find_injection_reason, find_unsafe_reason

MAX_STATEMENT_CHARACTERS = 300
"""A longer statement probably combines several; its confidence is reduced."""
MIN_STATEMENT_WORDS = 3
"""A statement of fewer words says too little; its confidence is reduced."""
ASSISTANT_STATEMENT_FACTOR = 0.9
"""Confidence factor of a statement by the assistant, compared with the same statement by the user."""
ASSISTANT_GENERALITY_FACTOR = 0.7
"""Confidence factor of a general statement by the assistant, not about the participants."""


@dataclass(frozen=True, slots=True)
class DoubtRule:
    """A pattern that reduces the confidence of a statement: the name appears in reasons, the factor is multiplied."""

    name: str
    factor: float
    pattern: re.Pattern[str]


def _build_doubt_rule(name: str, factor: float, *parts: str) -> DoubtRule:
    return DoubtRule(name, factor, re.compile("|".join(parts), re.IGNORECASE))


_QUESTION_RULE = _build_doubt_rule(
    "a question",
    0.3,
    r"[?\uff1f\u061f][\s\"'”’)\]*_]*$",
    r"^(?:and |but |so |or |then )?(?:what|who|whom|whose|which|how|why|when|where) "
    r"(?:do|does|did|is|are|was|were|will|would|can|could|should|shall|must|has|have|about|if|to|many|much|long|often)\b",
    r"^(?:and |but |so |or )?"
    r"(?:do|does|did|can|could|would|will|shall|should|may|is|are|was|were|has|have|am|must)(?:n['’]t)? "
    r"(?:i|we|you|he|she|it|they|there|this|that|anyone|anybody|someone)\b",
    r"^(?:any|do you) (?:idea|thoughts|preference)\b",
)
_NOT_LASTING = r"(?!.*\b(?:always|never|only|every|each|daily|weekly|monthly|stop|call me|remember)\b)"
DOUBT_RULES: tuple[DoubtRule, ...] = (
    _QUESTION_RULE,
    _build_doubt_rule(
        "a hedge",
        0.7,
        r"\b(?:maybe|perhaps|might|probably|possibly|presumably|unsure|apparently)\b",
        r"\bi (?:think|guess|suppose|believe|assume|suspect|wonder|doubt)\b",
        r"\b(?:i|we|they|you|he|she|it) may\b",
        r"\b(?:not|n['’]t) (?:quite |really |entirely )?(?:sure|certain)\b",
        r"\b(?:kind|sort) of (?!\w+s\b)",
        r"\bseems?\b",
        r"\b(?:likely|leaning toward)",
    ),
    _build_doubt_rule(
        "a condition",
        0.6,
        r"\bif\b(?! (?:possible|necessary|needed)\b)",
        # "I would like" states a preference, not a condition.
        r"\bwould(?:n['’]t)?\b(?! (?:(?:really|also|much) )?(?:like|prefer|love|rather)\b)",
        r"\bcould(?:n['’]t)?\b",
        r"\b(?:suppose|supposing|assuming|imagine|hypothetically|in theory|unless)\b",
    ),
    _build_doubt_rule(
        "hearsay",
        0.8,
        r"\b(?!(?:i|we|you) )\w+ (?:said|says|told|claims?|claimed|mentioned|reported|thinks|believes|reckons)\b",
        r"\b(?:according to|supposedly|allegedly|rumou?r|i (?:heard|read) (?:that )?)",
    ),
    # A one-time request is a task, not a fact. With "always" or "never" it is a lasting preference.
    _build_doubt_rule(
        "a request",
        0.6,
        rf"\b(?:want|need|like|prefer) you to\b{_NOT_LASTING}",
        r"\bi(?:['’]d| would)? (?:really |just |also )?(?:like|want|need) to "
        r"(?:cancel|change|make changes|modify|book|upgrade|downgrade"
        rf"|return|fix|update|add|remove|find|get|give you)\b{_NOT_LASTING}",
        rf"\bi(?:['’]d| would)? (?:like|want|need)\b.*\bplease\b{_NOT_LASTING}",
    ),
)
"""Rules that reduce the confidence. Each matching rule is applied once."""
OFFER_RULE = _build_doubt_rule(
    "an offer",
    0.6,
    r"\b(?:recommend|suggest|advise|propose|consider|perhaps|feel free|let me|how about|why not|best to|better to)\b",
    r"\bi(?:['’](?:ll|d|m going to|m unable)| will| cannot| can['’]t| can| could| should"
    r"| need to| want to| must| am going to)\b",
    r"\bwe(?:['’](?:ll|d)| will| can| could| should)\b",
    r"\byou(?:['’](?:ll|d)| (?:(?:really|also|probably|just|then) )?"
    r"(?:can|could|should|may|might|must|will|need to|want|do not want|don['’]t want))\b",
    r"\b(?:let['’]s|would you|do you|happy to|glad to|please)\b",
    r"^(?:first|next|then|now|make sure|remember to|be sure to|try)\b",
)
"""Rule for assistant messages that recommend, offer or plan something instead of stating it."""
_ABOUT_PARTICIPANTS = re.compile(
    r"^\W*(?:(?:so|ok|okay|noted|right|understood|yes|got it)\b\W*)*(?:you|your|we|our|the user|user)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w[\w.'’/@:-]*")
_MAX_CHECKED_CHARACTERS = 2_000


def validate_fact(draft: FactDraft, message: Message) -> Validation:
    """Compute the confidence of a fact and decide whether it may be promoted automatically.

    A plain statement by the user keeps its confidence. A fact is unsafe if it resembles a prompt injection, contains
    hidden characters or markup, resembles a secret, or comes from a message that contains a prompt injection. The
    reason never quotes a secret.

    Args:
        draft: The fact as extracted.
        message: The message that contains the fact.
    """
    # Category and tags come from a model and end up in contexts, too.
    reason = find_unsafe_reason(" \n".join([draft.content, draft.category or "", *draft.tags]))
    if not reason and (order := find_injection_reason(strip_fences(message.content))):
        reason = f"another part of the message: {order}"
    # Facts from a model or a caller may be long: the patterns are applied to the beginning only.
    doubts = _find_doubts(draft.content[:_MAX_CHECKED_CHARACTERS], draft.kind, message.role)
    confidence = draft.confidence
    for _, factor in doubts:
        confidence *= factor
    # An unchanged confidence is not rounded: it must stay equal to what the pattern or the model gave.
    if doubts:
        confidence = round(confidence, 2)
    doubt_names = ", ".join(name for name, _ in doubts)
    return Validation(
        confidence=confidence,
        is_safe=not reason,
        reason=reason or (f"reduced confidence: {doubt_names}" if doubt_names else ""),
    )


def is_question(sentence: str) -> bool:
    """Return True if the sentence is a question."""
    return _QUESTION_RULE.pattern.search(sentence) is not None


def _find_doubts(text: str, kind: str, role: Role) -> list[tuple[str, float]]:
    found = [(doubt.name, doubt.factor) for doubt in DOUBT_RULES if doubt.pattern.search(text)]
    if role is Role.ASSISTANT:
        found.append(_rate_assistant_statement(text, kind))
    if len(_WORD.findall(text)) < MIN_STATEMENT_WORDS:
        found.append(("very short", 0.5))
    if len(text) > MAX_STATEMENT_CHARACTERS:
        found.append(("very long", 0.8))
    return found


def _rate_assistant_statement(text: str, kind: str) -> tuple[str, float]:
    if OFFER_RULE.pattern.search(text):
        return OFFER_RULE.name, OFFER_RULE.factor
    # "Orchids prefer shade" is general knowledge of the model; "you prefer shade" repeats what the user said.
    if kind == EntryKind.DECISION or _ABOUT_PARTICIPANTS.match(text):
        return "stated by the assistant", ASSISTANT_STATEMENT_FACTOR
    return "general statement by the assistant", ASSISTANT_GENERALITY_FACTOR
