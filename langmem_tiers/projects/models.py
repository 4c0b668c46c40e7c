"""A project's memory: its settings, its conversations, and how a context is divided among its parts."""

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
"""What recent messages may take of what is available; retrieved memories have the rest."""
SYSTEM_PRIORITY, RECENT_PRIORITY, CHUNK_PRIORITY = 1.0, 0.9, 0.5
MAX_RETRIEVED_MEMORIES = 1000
PRIORITY_STEP = 0.01
"""By how much each older message, and each older chunk, comes behind the one after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySystemConfig:
    """How a ``MemorySystem`` keeps and shows the memory of a project.

    Args:
        memory_dir: The folder of its database and its JSON files.
        project_name: What the project is called: its namespace.
        max_context_tokens: The model's whole context window.
        working_memory_tokens: Reserved for the turn at hand.
        system_prompt_tokens: Reserved for the system prompt.
        chunk_size: Messages in a chunk.
        max_recent_messages: Beyond so many messages the oldest become a chunk.
        short_term_retention_turns: Chunks of the last so many turns are in every context, if there is room; older
            ones only where retrieval finds them.
        consolidation_threshold_days: How old an entry must be for consolidation to archive it.
        max_episodic_memories: Episodes that are kept in sight.
        retrieval_top_k: Memories that are retrieved for a context, at most.
        relevance_threshold: What a memory must score for that.
        recency_weight: What being new counts in that score.
        importance_weight: What being important counts in it.
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
            check_whole(getattr(self, name), 1, name, most=1_000_000)
        check_whole(self.consolidation_threshold_days, 1, "consolidation_threshold_days", most=100_000)
        check_whole(self.retrieval_top_k, 1, "retrieval_top_k", most=MAX_RETRIEVED_MEMORIES)
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
        """What is left for messages and memories."""
        return self.max_context_tokens - self.system_prompt_tokens - self.working_memory_tokens


class ConversationStatus(StrEnum):
    """Whether a conversation goes on."""

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
    """How the tokens of a context window are divided."""

    total: int
    system_prompt: int
    """Reserved for the system prompt."""
    working_memory: int
    """Reserved for the turn at hand."""
    recent_messages: int
    """What recent messages may take."""
    retrieved_context: int
    """What retrieved memories may take."""
    used: int = 0
    available: int = 0
    """What is left of the tokens for messages and memories."""


class ContextItemKind(StrEnum):
    """What an item of a context is."""

    SYSTEM_PROMPT = "system_prompt"
    MESSAGE = "message"
    MEMORY = "memory"
    CHUNK = "chunk"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItem(Displayable):
    """One thing that is in a context, and how much it matters there."""

    kind: ContextItemKind
    id: str
    content: str
    priority: float
    token_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAllocation(Displayable):
    """What is in a context."""

    items: tuple[ContextItem, ...]
    """By priority, the highest first."""
    messages: tuple[Message, ...] = field(repr=False)
    """What goes to the model, in its order."""
    total_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBuildResult(Displayable):
    """A context, what was retrieved for it, and what had no room."""

    allocation: ContextAllocation
    budget: ContextBudget
    retrieval_results: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """What goes to the model."""
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
