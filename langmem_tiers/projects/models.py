"""Models of a project's memory: settings, conversations, and the division of a context window."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_fraction, check_whole
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.display.displayable import Displayable, build_table
from langmem_tiers.display.tables import DisplayContent, StackedBar
from langmem_tiers.errors import InvalidConfigError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from langmem_tiers.common.messages import Message
    from langmem_tiers.recall.models import Hit

RECENT_SHARE = 0.6
"""Share of the available tokens for recent messages. Retrieved memories get the rest."""
SYSTEM_PRIORITY, RECENT_PRIORITY, CHUNK_PRIORITY = 1.0, 0.9, 0.5
MAX_RETRIEVED_MEMORIES = 1000
PRIORITY_STEP = 0.01
"""Difference in priority between a message or chunk and the next newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySystemConfig:
    """Settings of a ``MemorySystem``.

    Args:
        memory_dir: Folder for the database and the JSON files.
        project_name: Name of the project. It is also the name of the namespace.
        max_context_tokens: Size of the model's context window, in tokens.
        working_memory_tokens: Tokens reserved for the current turn.
        system_prompt_tokens: Tokens reserved for the system prompt.
        chunk_size: Number of messages in a chunk.
        max_recent_messages: Number of recent messages to keep. Beyond it, the oldest ones become a chunk.
        short_term_retention_turns: Chunks of this many latest turns are in every context, if they fit. Older
            chunks are included only if retrieval finds them.
        consolidation_threshold_days: Minimum age in days of entries that consolidation archives.
        max_episodic_memories: Maximum number of active episodes. The rest is archived.
        retrieval_top_k: Maximum number of memories retrieved for a context.
        relevance_threshold: Minimum score of a retrieved memory, from 0 to 1.
        recency_weight: Weight of recency in the score, from 0 to 1.
        importance_weight: Weight of importance in the score, from 0 to 1.
    """

    memory_dir: str | Path = ".project-memory"
    project_name: str = "Project"
    max_context_tokens: int = 128_000
    working_memory_tokens: int = 8_000
    system_prompt_tokens: int = 2_000
    chunk_size: int = 10
    max_recent_messages: int = 20
    short_term_retention_turns: int = 50
    consolidation_threshold_days: int = 30
    max_episodic_memories: int = 100
    retrieval_top_k: int = 10
    relevance_threshold: float = 0.3
    recency_weight: float = 0.3
    importance_weight: float = 0.4

    def __post_init__(self) -> None:
        check_name(self.project_name, "project_name")
        check_whole(self.max_context_tokens, 1, "max_context_tokens")
        for name in ("chunk_size", "max_recent_messages", "max_episodic_memories"):
            check_whole(getattr(self, name), 1, name, max_value=1_000_000)
        check_whole(self.consolidation_threshold_days, 1, "consolidation_threshold_days", max_value=100_000)
        check_whole(self.retrieval_top_k, 1, "retrieval_top_k", max_value=MAX_RETRIEVED_MEMORIES)
        for name in ("working_memory_tokens", "system_prompt_tokens", "short_term_retention_turns"):
            check_whole(getattr(self, name), 0, name)
        for name in ("relevance_threshold", "recency_weight", "importance_weight"):
            check_fraction(getattr(self, name), name)
        if self.available_tokens < 1:
            raise InvalidConfigError(
                f"max_context_tokens {self.max_context_tokens!r} leaves nothing after system_prompt_tokens "
                f"{self.system_prompt_tokens!r} and working_memory_tokens {self.working_memory_tokens!r}: "
                "raise it or lower the reserves"
            )

    @property
    def available_tokens(self) -> int:
        """Number of tokens for messages and memories: the window without the reserves."""
        return self.max_context_tokens - self.system_prompt_tokens - self.working_memory_tokens


class ConversationStatus(StrEnum):
    """State of a conversation."""

    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Displayable):
    """A conversation of a project."""

    id: str
    project_id: str
    started_at: datetime
    ended_at: datetime | None = None
    status: ConversationStatus = ConversationStatus.ACTIVE
    outcome: str | None = None
    total_turns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBudget(Displayable):
    """Division of the tokens of a context window."""

    total: int
    system_prompt: int
    """Tokens reserved for the system prompt."""
    working_memory: int
    """Tokens reserved for the current turn."""
    recent_messages: int
    """Maximum tokens for recent messages."""
    retrieved_context: int
    """Maximum tokens for retrieved memories."""
    used: int = 0
    available: int = 0
    """Unused tokens for messages and memories."""


class ContextItemKind(StrEnum):
    """Kind of a context item."""

    SYSTEM_PROMPT = "system_prompt"
    MESSAGE = "message"
    MEMORY = "memory"
    CHUNK = "chunk"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItem(Displayable):
    """A part of a context with its priority and size."""

    kind: ContextItemKind
    id: str
    content: str
    priority: float
    token_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAllocation(Displayable):
    """Content of a context."""

    items: tuple[ContextItem, ...]
    """All items by priority, highest first."""
    messages: tuple[Message, ...] = field(repr=False)
    """Messages for the model, in order."""
    total_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBuildResult(Displayable):
    """A context, the retrieved memories, and warnings about everything that did not fit."""

    allocation: ContextAllocation
    budget: ContextBudget
    retrieval_results: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """Messages for the model, in order."""
        return self.allocation.messages

    def _to_display(self) -> DisplayContent:
        kinds = Counter[str]()
        for item in self.allocation.items:
            kinds[item.kind.replace("_", " ")] += item.token_count
        limit = self.budget.used + self.budget.available
        facts: dict[str, object] = {"retrieved": len(self.retrieval_results)}
        if self.warnings:
            facts["warnings"] = self.warnings
        items = (build_table(self.allocation.items),) if self.allocation.items else ()
        title = f"Context: {self.allocation.total_tokens:,} of {limit:,} tokens"
        return DisplayContent(title, facts, items, StackedBar(kinds, limit))
