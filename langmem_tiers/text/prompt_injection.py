"""Detection of text that must not become a memory automatically: instructions, hidden characters, secrets.

Matching text is quarantined, not discarded, so the patterns may be broad.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from unicodedata import category, normalize

from langmem_tiers.common.messages import SUMMARY_PREFIX
from langmem_tiers.common.prompt_fences import FENCE_OPENING, neutralize_fence_tags
from langmem_tiers.text.word_lists import load_words

MAX_INSPECTED_CHARACTERS = 8_000
"""Maximum number of characters inspected per text."""


@dataclass(frozen=True, slots=True)
class UnsafePattern:
    """A forbidden pattern with its reason, which never quotes the text."""

    reason: str
    pattern: re.Pattern[str]


def _build_unsafe_pattern(reason: str, *parts: str) -> UnsafePattern:
    return UnsafePattern(reason, re.compile("|".join(parts), re.IGNORECASE))


_EARLIER_WORDS = rf"(?:{'|'.join(load_words(__name__, 'prompt_injection', 'earlier words'))})"
_INSTRUCTION_WORDS = (
    r"(?:instructions?|prompts?|rules|directives?|guidelines|commands?|orders|messages|conversations?)"
)
_RESPONSE_VERBS = rf"(?:{'|'.join(load_words(__name__, 'prompt_injection', 'response verbs'))})"
INJECTION_PATTERNS: tuple[UnsafePattern, ...] = (
    _build_unsafe_pattern(
        "tells the model to ignore its instructions",
        # "ignore rules" may mean any rules; a word such as "previous" in between refers to the model's.
        rf"\b(?:ignore|disregard|forget|override|bypass|discard|overrule|neglect)(?: "
        rf"{_EARLIER_WORDS}){{1,5}} {_INSTRUCTION_WORDS}\b",
        r"\bforget (?:everything|all you know|what you were told|what (?:i|we) (?:said|told you))\b",
        r"\b(?:ignore|disregard) (?:everything|anything|all) (?:above|before|so far|you|that was)\b",
    ),
    _build_unsafe_pattern(
        "assigns the model another role",
        r"\byou(?: are|['’]re) now\b",
        r"\bpretend (?:that )?(?:you|to be)\b",
        r"\bact as (?:if you|though you|an? (?:ai|unrestricted|uncensored|evil|different) )",
        r"\b(?:do anything now|jailbreak(?:ed)?|developer mode|god mode)\b",
    ),
    _build_unsafe_pattern(
        "tells the model how to answer from now on",
        rf"\b(?:from now on|henceforth|from this point (?:on|forward))\b,?(?: [\w'’,]+){{0,5}} {_RESPONSE_VERBS}\b",
        rf"\b{_RESPONSE_VERBS}\b.{{0,80}}\b(?:from now on|henceforth"
        r"|in (?:all|every) (?:future )?(?:answers?|repl(?:y|ies)|responses?))\b",
    ),
    _build_unsafe_pattern(
        "mentions the model's prompt",
        r"\bsystem prompts?\b",
        r"\b(?:your (?:initial|original|hidden|secret)|hidden|secret) (?:instructions|prompt)\b",
        r"\b(?:reveal|print|show|repeat|output|leak|change) (?:\w+ ){0,2}your (?:\w+ )?(?:instructions|prompt)\b",
        r"\b(?:new|updated|additional) (?:system )?instructions?:",
    ),
    _build_unsafe_pattern(
        "tells the model to hide something from the user",
        r"\b(?:do not|don['’]t|never) (?:tell|inform|alert|warn|ask) the user\b",
        r"\bwithout (?:telling|asking|informing) the user\b",
    ),
    _build_unsafe_pattern(
        "instructs the memory",
        r"\b(?:update|overwrite|erase|delete|wipe|clear|rewrite|replace|purge) (?:all )?(?:of )?"
        r"your (?:[\w-]+ )?memor(?:y|ies)\b",
        r"\b(?:erase|delete|wipe|purge) all (?:the )?memories\b",
        r"\b(?:save|store|write|add|commit) (?:this|that|it|the following) "
        r"(?:in|to|into) (?:your |the |long-term )+memory\b",
    ),
)
"""Instructions to the model. Add rows through ``find_unsafe_reason(text, orders=(*INJECTION_PATTERNS, ...))``."""

# These also occur in harmless talk about prompts. They quarantine the text, but do not discredit text near it.
_WEAK_REASONS = frozenset({"mentions the model's prompt", "tells the model how to answer from now on"})
_MODEL_TAG = re.compile(
    r"<\\?/?\s*(?:conversation|system|assistant|instructions?)\b|\[/?INST\]|<\|[\w ]{1,40}\|>|<</?SYS>>"
    r"|^\s*#{2,}\s*(?:system|instruction)",
    re.IGNORECASE,
)
# More than 200 characters without a space: base64 or similar, which may hide instructions.
_ENCODED_DATA = re.compile(r"[A-Za-z0-9+/_=-]{201}")
_HIDDEN_CHARACTER = re.compile(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u0084\u0086-\u009f\u00ad\u180e\u200b\u2060-\u2064\u202a-\u202e\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
    # Joiners and direction marks are legitimate in other scripts; next to Latin letters they hide something.
    "|(?<=[A-Za-z])[\u200c-\u200f]|[\u200c-\u200f](?=[A-Za-z])"
)

# The negative lookahead excludes placeholders: <password>, ***, $VAR, {{var}}, os.environ, "your-key", None.
_SECRET_VALUE = r"['\"`“]?(?!<|\*{3}|\$|\{|%|os\.|env\b|your|xxx|\.\.\.|None\b|null\b|process\.)"
_SECRET_NAME = r"(?:pass ?words?|passwd|pass ?phrase|pass ?code|pwd|credentials?)"
_KEY_NAME = (
    r"(?:(?:api|access|secret|private|signing|encryption|auth|service|account)[ _-]?keys?"
    r"|(?:client|app|shared)[ _-]?secret"
    r"|secret|(?:(?:access|auth|bearer|refresh|api|session|bot|id)[ _-]?)?token)"
)
_NOT_A_SECRET = rf"(?!(?:{'|'.join(load_words(__name__, 'not_secrets', 'words')).replace('_', ' ')})\b)"
SECRET_PATTERNS: tuple[UnsafePattern, ...] = (
    UnsafePattern("looks like a private key", re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY")),
    UnsafePattern(
        "looks like an API key",
        re.compile(
            r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}|\b(?:sk|rk|pk)[-_](?:[a-z]{2,12}[-_]){0,3}[A-Za-z0-9_-]{16,}"
            r"|\bSG\.[\w-]{16,}\.[\w-]{16,}|\bSK[0-9a-f]{32}\b|\bkey-[0-9a-f]{32}\b"
        ),
    ),
    UnsafePattern(
        "looks like an access token",
        re.compile(
            r"\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bxox[abeprs]-[\w-]{10,}|\bnpm_[A-Za-z0-9]{20,}"
            r"|\bhf_[A-Za-z0-9]{20,}|\bpypi-[\w-]{20,}|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}|\b[Bb]earer [\w.~+/-]{16,}"
            r"|\b\d{8,10}:[A-Za-z0-9_-]{30,}"
        ),
    ),
    UnsafePattern("looks like an address with a password", re.compile(r"://[^\s/@:]{0,100}:[^\s/@]{1,200}@")),
    _build_unsafe_pattern(
        "looks like a password",
        rf"{_SECRET_NAME}\b['\"]?\s?(?:[:=]|=>)\s?{_SECRET_VALUE}\S{{3}}",
        rf"{_SECRET_NAME}\b(?: for [\w .@-]{{1,40}}?)? (?:is|are|was)(?: now)? {_SECRET_VALUE}{_NOT_A_SECRET}\S{{3}}",
        r"\bpin(?: code| number)?(?: is|:|=) ?\d{4,8}\b",
    ),
    _build_unsafe_pattern(
        "looks like a key or a token",
        rf"(?<![a-z]){_KEY_NAME}['\"]?\s?(?:[:=]|=>| is| was)\s?{_SECRET_VALUE}(?=\S*\d)[^\s,;]{{8}}",
        rf"(?<![a-z]){_KEY_NAME}['\"]?\s?(?:[:=]|=>| is| was)\s?{_SECRET_VALUE}[A-Za-z0-9+/_.=-]{{20}}",
    ),
)
"""Patterns of secrets."""


def find_unsafe_reason(text: str, *, orders: tuple[UnsafePattern, ...] = INJECTION_PATTERNS) -> str:
    """Return the reason why the text must not be stored automatically; empty if there is none."""
    text = text[:MAX_INSPECTED_CHARACTERS]
    visible = _to_visible_text(text)
    # Both the raw and the normalized text are searched: removing invisible characters and extra spaces may complete
    # a match or break one.
    for rule in SECRET_PATTERNS:
        if rule.pattern.search(text) or rule.pattern.search(visible):
            return rule.reason
    if _HIDDEN_CHARACTER.search(text):
        return "contains hidden characters"
    if (
        neutralize_fence_tags(text) != text
        or _MODEL_TAG.search(visible)
        or FENCE_OPENING.partition("\n")[0] in text
        or SUMMARY_PREFIX in text
    ):
        return "contains control markup"
    if _ENCODED_DATA.search(text):
        return "contains encoded data"
    return next((rule.reason for rule in orders if rule.pattern.search(visible)), "")


def find_injection_reason(text: str) -> str:
    """Return the reason if a text clearly gives orders, so that nothing near it is trusted; otherwise empty."""
    visible = _to_visible_text(text[:MAX_INSPECTED_CHARACTERS])
    return next(
        (
            rule.reason
            for rule in INJECTION_PATTERNS
            if rule.reason not in _WEAK_REASONS and rule.pattern.search(visible)
        ),
        "",
    )


def _to_visible_text(text: str) -> str:
    # As a reader sees it: without invisible characters, in plain letters, with single spaces.
    if text.isascii():
        return " ".join(text.split())
    plain = "".join(char for char in normalize("NFKC", text) if category(char) not in {"Cf", "Mn", "Me"})
    return " ".join(plain.split())
