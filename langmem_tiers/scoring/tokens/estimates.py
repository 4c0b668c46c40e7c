"""Counters that need nothing but the text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from langmem_tiers.scoring.tokens.content import ContentType, detect_content

CHARACTERS_PER_TOKEN = {
    ContentType.TEXT: 4.0,
    ContentType.CODE: 3.5,
    ContentType.JSON: 3.0,
    ContentType.HTML: 2.5,
}

# Outside ASCII a character is about a token of its own, whatever stands around it. Two
# exceptions, measured with cl100k_base: Cyrillic has words of its own in the vocabulary,
# and what lies beyond the basic plane, emoji above all, is cut into bytes.
_CYRILLIC = re.compile("[\u0400-\u052f]+")
_TOKENS_PER_CYRILLIC = 0.45
_TOKENS_PER_ASTRAL = 2.5


class CharCounter:
    """``ceil(len(text) / 4)``: the quickest, right for English prose and for nothing else."""

    name = "chars4"

    def count(self, text: str) -> int:
        """Tokens of the text."""
        return -(-len(text) // 4)


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """A count with what it rests on."""

    tokens: int
    content_type: ContentType
    confidence: float


class ContentAwareCounter:
    """Knows that code, JSON and HTML take more tokens than prose, and so do CJK and emoji.

    The same everywhere and offline, so it is the engine's default.
    """

    name = "content1"

    def count(self, text: str) -> int:
        """Tokens of the text."""
        return self.estimate(text).tokens if text else 0

    def estimate(self, text: str, content_type: ContentType | None = None) -> TokenEstimate:
        """Tokens with the kind of text that was found, or that you say it is."""
        confidence = 1.0
        if content_type is None:
            content_type, confidence = detect_content(text)
        ratio = CHARACTERS_PER_TOKEN[content_type]
        tokens = len(text) / ratio if text.isascii() else _tokens_of_mixed(text, ratio)
        return TokenEstimate(math.ceil(tokens), content_type, confidence)


def _tokens_of_mixed(text: str, ratio: float) -> float:
    # Encoders count in C what a regular expression would collect character by character.
    ascii_only = len(text.encode("ascii", "ignore"))
    astral = len(text.encode("utf-16-le", "surrogatepass")) // 2 - len(text)
    cyrillic = sum(map(len, _CYRILLIC.findall(text)))
    single = len(text) - ascii_only - astral - cyrillic
    return ascii_only / ratio + single + cyrillic * _TOKENS_PER_CYRILLIC + astral * _TOKENS_PER_ASTRAL
