"""Token counters: the quick estimate, the content-aware one, and tiktoken offline."""

from langmem_tiers.scoring.tokens.content import ContentType, detect_content
from langmem_tiers.scoring.tokens.estimates import CharCounter, ContentAwareCounter, TokenEstimate
from langmem_tiers.scoring.tokens.lists import count_draft, count_framed, count_messages, count_tools
from langmem_tiers.scoring.tokens.vocabulary import TiktokenCounter, tiktoken_or_estimate

__all__ = [
    "CharCounter",
    "ContentAwareCounter",
    "ContentType",
    "TiktokenCounter",
    "TokenEstimate",
    "count_draft",
    "count_framed",
    "count_messages",
    "count_tools",
    "detect_content",
    "tiktoken_or_estimate",
]
