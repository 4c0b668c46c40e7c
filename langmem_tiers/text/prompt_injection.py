"""Text that must not become a memory by itself: orders to the model, hidden characters, secrets.

What is found here is kept aside, not thrown away, so the patterns may be wider than the harm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from unicodedata import category, normalize

from langmem_tiers.common.messages import SUMMARY_PREFIX
from langmem_tiers.common.prompt_fences import FENCE_OPENING, neutralize_fence_tags

MAX_INSPECTED_CHARACTERS = 8_000
"""Characters of a text that are looked at."""


@dataclass(frozen=True, slots=True)
class UnsafePattern:
    """What a text may not hold: the reason, which never repeats the text, and the pattern that tells."""

    reason: str
    pattern: re.Pattern[str]


def _build_unsafe_pattern(reason: str, *parts: str) -> UnsafePattern:
    return UnsafePattern(reason, re.compile("|".join(parts), re.IGNORECASE))


_EARLIER_WORDS = (
    r"(?:all|any|every|each|of|the|your|my|our|these|those|previous|prior|above|earlier|preceding|former|"
    r"system)"
)
_INSTRUCTION_WORDS = (
    r"(?:instructions?|prompts?|rules|directives?|guidelines|commands?|orders|messages|conversations?)"
)
_RESPONSE_VERBS = (
    r"(?:answer|reply|respond|output|say|write|speak|act|behave|pretend|include|append|begin|start|end|obey|follow|print"
    r"|recommend|promote|mention)"
)
INJECTION_PATTERNS: tuple[UnsafePattern, ...] = (
    _build_unsafe_pattern(
        "it tells the model to drop its instructions",
        # Without a word between them it may be any rule; with one like "previous" it is the model's.
        rf"\b(?:ignore|disregard|forget|override|bypass|discard|overrule|neglect)(?: "
        rf"{_EARLIER_WORDS}){{1,5}} {_INSTRUCTION_WORDS}\b",
        r"\bforget (?:everything|all you know|what you were told|what (?:i|we) (?:said|told you))\b",
        r"\b(?:ignore|disregard) (?:everything|anything|all) (?:above|before|so far|you|that was)\b",
    ),
    _build_unsafe_pattern(
        "it tells the model what it is",
        r"\byou(?: are|['’]re) now\b",
        r"\bpretend (?:that )?(?:you|to be)\b",
        r"\bact as (?:if you|though you|an? (?:ai|unrestricted|uncensored|evil|different) )",
        r"\b(?:do anything now|jailbreak(?:ed)?|developer mode|god mode)\b",
    ),
    _build_unsafe_pattern(
        "it tells the model how to answer from now on",
        rf"\b(?:from now on|henceforth|from this point (?:on|forward))\b,?(?: [\w'’,]+){{0,5}} {_RESPONSE_VERBS}\b",
        rf"\b{_RESPONSE_VERBS}\b.{{0,80}}\b(?:from now on|henceforth"
        r"|in (?:all|every) (?:future )?(?:answers?|repl(?:y|ies)|responses?))\b",
    ),
    _build_unsafe_pattern(
        "it speaks of the model's prompt",
        r"\bsystem prompts?\b",
        r"\b(?:your (?:initial|original|hidden|secret)|hidden|secret) (?:instructions|prompt)\b",
        r"\b(?:reveal|print|show|repeat|output|leak|change) (?:\w+ ){0,2}your (?:\w+ )?(?:instructions|prompt)\b",
        r"\b(?:new|updated|additional) (?:system )?instructions?:",
    ),
    _build_unsafe_pattern(
        "it tells the model to act behind the user's back",
        r"\b(?:do not|don['’]t|never) (?:tell|inform|alert|warn|ask) the user\b",
        r"\bwithout (?:telling|asking|informing) the user\b",
    ),
    _build_unsafe_pattern(
        "it tells memory what to do",
        r"\b(?:update|overwrite|erase|delete|wipe|clear|rewrite|replace|purge) (?:all )?(?:of )?"
        r"your (?:[\w-]+ )?memor(?:y|ies)\b",
        r"\b(?:erase|delete|wipe|purge) all (?:the )?memories\b",
        r"\b(?:save|store|write|add|commit) (?:this|that|it|the following) "
        r"(?:in|to|into) (?:your |the |long-term )+memory\b",
    ),
)
"""Orders in place of statements. Add rows of your own through ``why_unsafe(text, orders=(*ORDERS, ...))``."""

_WEAK_REASONS = frozenset({"it speaks of the model's prompt", "it tells the model how to answer from now on"})
_MODEL_TAG = re.compile(
    r"<\\?/?\s*(?:conversation|system|assistant|instructions?)\b|\[/?INST\]|<\|[\w ]{1,40}\|>|<</?SYS>>"
    r"|^\s*#{2,}\s*(?:system|instruction)",
    re.IGNORECASE,
)
_ENCODED_DATA = re.compile(r"[A-Za-z0-9+/_=-]{201}")
_HIDDEN_CHARACTER = re.compile(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u0084\u0086-\u009f\u00ad\u180e\u200b\u2060-\u2064\u202a-\u202e\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
    # Joiners and marks of direction belong to other scripts; between Latin letters they hide something.
    "|(?<=[A-Za-z])[\u200c-\u200f]|[\u200c-\u200f](?=[A-Za-z])"
)

_SECRET_VALUE = r"['\"`“]?(?!<|\*{3}|\$|\{|%|os\.|env\b|your|xxx|\.\.\.|None\b|null\b|process\.)"
_SECRET_NAME = r"(?:pass ?words?|passwd|pass ?phrase|pass ?code|pwd|credentials?)"
_KEY_NAME = (
    r"(?:(?:api|access|secret|private|signing|encryption|auth|service|account)[ _-]?keys?"
    r"|(?:client|app|shared)[ _-]?secret"
    r"|secret|(?:(?:access|auth|bearer|refresh|api|session|bot|id)[ _-]?)?token)"
)
_NOT_A_SECRET = (
    r"(?!(?:on|in|at|with|by|for|from|to|not|never|no|always|too|the|a|an|very|also|still|now|only|stored|kept|saved"
    r"|required|needed|optional|missing|wrong|incorrect|correct|invalid|valid|expired|empty|set|unset|hashed|encrypted"
    r"|rotated|changed|reset|secret|hidden|different|the same|same|known|unknown|shared|safe|secure|weak|strong|long"
    r"|short|at|least|longer|shorter|checked|sent|shown|read|written|validated|broken|leaked|lost|gone|ready|there|here"
    r"|managed|generated|created|case|rejected|accepted|being|used|unique|limited|part|one|what|how|why|where)\b)"
)
SECRET_PATTERNS: tuple[UnsafePattern, ...] = (
    UnsafePattern("it looks like a private key", re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY")),
    UnsafePattern(
        "it looks like an API key",
        re.compile(
            r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}|\b(?:sk|rk|pk)[-_](?:[a-z]{2,12}[-_]){0,3}[A-Za-z0-9_-]{16,}"
            r"|\bSG\.[\w-]{16,}\.[\w-]{16,}|\bSK[0-9a-f]{32}\b|\bkey-[0-9a-f]{32}\b"
        ),
    ),
    UnsafePattern(
        "it looks like an access token",
        re.compile(
            r"\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bxox[abeprs]-[\w-]{10,}|\bnpm_[A-Za-z0-9]{20,}"
            r"|\bhf_[A-Za-z0-9]{20,}|\bpypi-[\w-]{20,}|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}|\b[Bb]earer [\w.~+/-]{16,}"
            r"|\b\d{8,10}:[A-Za-z0-9_-]{30,}"
        ),
    ),
    UnsafePattern(
        "it looks like an address with a password", re.compile(r"://[^\s/@:]{0,100}:[^\s/@]{1,200}@")
    ),
    _build_unsafe_pattern(
        "it looks like a password",
        rf"{_SECRET_NAME}\b['\"]?\s?(?:[:=]|=>)\s?{_SECRET_VALUE}\S{{3}}",
        rf"{_SECRET_NAME}\b(?: for [\w .@-]{{1,40}}?)? (?:is|are|was)(?: now)? {_SECRET_VALUE}{_NOT_A_SECRET}\S{{3}}",
        r"\bpin(?: code| number)?(?: is|:|=) ?\d{4,8}\b",
    ),
    _build_unsafe_pattern(
        "it looks like a key or a token",
        rf"(?<![a-z]){_KEY_NAME}['\"]?\s?(?:[:=]|=>| is| was)\s?{_SECRET_VALUE}(?=\S*\d)[^\s,;]{{8}}",
        rf"(?<![a-z]){_KEY_NAME}['\"]?\s?(?:[:=]|=>| is| was)\s?{_SECRET_VALUE}[A-Za-z0-9+/_.=-]{{20}}",
    ),
)
"""What looks like a secret."""


def find_unsafe_reason(text: str, *, orders: tuple[UnsafePattern, ...] = INJECTION_PATTERNS) -> str:
    """Why the text must not be believed or kept by itself; empty where nothing speaks against it."""
    text = text[:MAX_INSPECTED_CHARACTERS]
    seen = _to_visible_text(text)
    for danger in SECRET_PATTERNS:
        if danger.pattern.search(text) or danger.pattern.search(seen):
            return danger.reason
    if _HIDDEN_CHARACTER.search(text):
        return "it holds hidden characters"
    if (
        neutralize_fence_tags(text) != text
        or _MODEL_TAG.search(seen)
        or FENCE_OPENING.partition("\n")[0] in text
        or SUMMARY_PREFIX in text
    ):
        return "it holds marks that memory or a model reads as its own"
    if _ENCODED_DATA.search(text):
        return "it holds encoded data"
    return next((danger.reason for danger in orders if danger.pattern.search(seen)), "")


def find_injection_reason(text: str) -> str:
    """What a text orders outright, so that nothing beside it is believed either; empty where it does not."""
    seen = _to_visible_text(text[:MAX_INSPECTED_CHARACTERS])
    return next(
        (
            one.reason
            for one in INJECTION_PATTERNS
            if one.reason not in _WEAK_REASONS and one.pattern.search(seen)
        ),
        "",
    )


def _to_visible_text(text: str) -> str:
    # As a reader sees it: without what is invisible, in plain letters, with single spaces.
    if text.isascii():
        return " ".join(text.split())
    plain = "".join(char for char in normalize("NFKC", text) if category(char) not in {"Cf", "Mn", "Me"})
    return " ".join(plain.split())
