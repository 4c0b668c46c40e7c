"""Value types and helpers that every feature uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.clock import Clock, SystemClock
    from langmem_tiers.common.entries import Change, Entry, EntryState, Tier
    from langmem_tiers.common.ids import IdSource, TimeSortedIds
    from langmem_tiers.common.messages import Message, MessageDraft, MessageToolCall, Role
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import Embedder, LanguageModel, TokenCounter
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".budget": "TokenBudget",
            ".clock": "Clock SystemClock",
            ".entries": "Change Entry EntryState Tier",
            ".ids": "IdSource TimeSortedIds",
            ".messages": "Message MessageDraft MessageToolCall Role",
            ".namespaces": "NamespacePath",
            ".ports": "Embedder LanguageModel TokenCounter",
        },
    )

__all__ = [
    "Change",
    "Clock",
    "Embedder",
    "Entry",
    "EntryState",
    "IdSource",
    "LanguageModel",
    "Message",
    "MessageDraft",
    "MessageToolCall",
    "NamespacePath",
    "Role",
    "SystemClock",
    "Tier",
    "TimeSortedIds",
    "TokenBudget",
    "TokenCounter",
]
