"""Division of a context window by priority: system prompt, recent messages, retrieved memories, chunks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import MessageDraft, Role
from langmem_tiers.common.prompt_fences import MEMORY_NAME, neutralize_fence_tags, strip_fences, wrap_in_fence
from langmem_tiers.common.tool_call_groups import group_tool_calls, remove_orphans
from langmem_tiers.context.memory_hits import find_repeated_hits
from langmem_tiers.errors import BudgetExceededError
from langmem_tiers.projects.models import (
    CHUNK_PRIORITY,
    PRIORITY_STEP,
    RECENT_PRIORITY,
    RECENT_SHARE,
    SYSTEM_PRIORITY,
    ContextAllocation,
    ContextBudget,
    ContextBuildResult,
    ContextItem,
    ContextItemKind,
)
from langmem_tiers.sessions.service import complete_drafts
from langmem_tiers.text.token_counting import count_framed, count_messages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import Chunk
    from langmem_tiers.common.messages import Message
    from langmem_tiers.projects.models import MemorySystemConfig
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.sessions.service import SessionDependencies

_MIN_PRIORITY = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSources:
    """Material for a context."""

    system_prompt: str
    recent: Sequence[Message]
    """Recent messages, oldest first."""
    retrieved: Sequence[Hit]
    """Retrieved memories, best first."""
    chunks: Sequence[Chunk]
    """Chunks, oldest first."""


@dataclass(slots=True)
class _ContextSection:
    """One section of a context while it is built."""

    messages: list[Message] = field(default_factory=list)
    items: list[ContextItem] = field(default_factory=list)
    tokens: int = 0
    warnings: list[str] = field(default_factory=list)


class ContextAllocator:
    """Divides the tokens of one context window.

    Args:
        dependencies: Session services that count tokens and create messages.
        config: Window size and reserves.
        now: Creation time of the messages that it creates.
    """

    def __init__(self, dependencies: SessionDependencies, config: MemorySystemConfig, now: datetime) -> None:
        self._dependencies = dependencies
        self._counter = dependencies.counter
        self._config = config
        self._now = now

    def allocate(self, material: ContextSources) -> ContextBuildResult:
        """Build a context within its budget.

        Raises:
            BudgetExceededError: The system prompt and the newest message do not fit.
        """
        system = self._build_system_section(material.system_prompt)
        overhead = count_messages(self._counter, ())
        # The overhead of the message format counts as part of the system prompt. If the prompt exceeds its reserve, the
        # excess is taken from messages and memories.
        excess = max(0, system.tokens + overhead - self._config.system_prompt_tokens)
        available = self._config.available_tokens - excess
        if available < 0 and system.messages:
            raise BudgetExceededError(
                f"the system prompt takes {system.tokens} tokens and does not fit into a context of "
                f"{self._config.max_context_tokens}: shorten it or raise max_context_tokens"
            )
        available = max(0, available)
        # The recent messages come first: retrieved memories and chunks share the tokens that they leave.
        recent = self._build_recent_section(material.recent, available)
        left = available - recent.tokens
        # 1e-9 compensates for floating-point errors, as in int(0.29 * 100) == 28.
        share = available - int(available * RECENT_SHARE + 1e-9)
        new_hits = _drop_echoes(material.retrieved, recent.messages)
        retrieved = self._build_retrieved_section(new_hits, min(left, share))
        chunks = self._build_chunk_section(material.chunks, left - retrieved.tokens)
        # In the order of the context: the recent messages come last, next to the model's answer.
        sections = (system, retrieved, chunks, recent)
        messages = tuple(message for section in sections for message in section.messages)
        items = sorted(
            (item for section in (system, recent, retrieved, chunks) for item in section.items),
            key=lambda item: -item.priority,
        )
        total = count_messages(self._counter, messages) if messages else 0
        warnings = [warning for section in sections for warning in section.warnings]
        return ContextBuildResult(
            allocation=ContextAllocation(items=tuple(items), messages=messages, total_tokens=total),
            budget=self._build_budget(total, available - recent.tokens - retrieved.tokens - chunks.tokens),
            retrieval_results=tuple(material.retrieved),
            warnings=tuple(warnings),
        )

    def _build_budget(self, used: int, left: int) -> ContextBudget:
        config = self._config
        recent = int(config.available_tokens * RECENT_SHARE + 1e-9)
        return ContextBudget(
            total=config.max_context_tokens,
            system_prompt=config.system_prompt_tokens,
            working_memory=config.working_memory_tokens,
            recent_messages=recent,
            retrieved_context=config.available_tokens - recent,
            used=used,
            available=max(0, left),
        )

    def _build_system_section(self, prompt: str) -> _ContextSection:
        if not prompt.strip():
            return _ContextSection()
        message = self._build_message(prompt, "system-prompt", speaker=None)
        section = self._build_section(
            [message], [(ContextItemKind.SYSTEM_PROMPT, message.id, prompt, SYSTEM_PRIORITY)]
        )
        if section.tokens > self._config.system_prompt_tokens:
            section.warnings.append(
                f"the system prompt takes {section.tokens} tokens, more than the {self._config.system_prompt_tokens} "
                "reserved for it: fewer are left for messages and memories"
            )
        return section

    def _build_recent_section(self, recent: Sequence[Message], available: int) -> _ContextSection:
        groups = group_tool_calls(recent)
        kept: list[Message] = []
        left, share = available, int(available * RECENT_SHARE + 1e-9)
        # Backwards from the newest group. A tool call and its results are one group, so they are kept or dropped
        # together.
        for start, end in reversed(groups):
            size = sum(count_framed(self._counter, message) for message in recent[start:end])
            # The newest group may use everything; older ones share the rest of the quota.
            limit = left if not kept else share - (available - left)
            if size > limit:
                break
            kept[:0] = recent[start:end]
            left -= size
        if recent and not kept:
            raise BudgetExceededError(
                f"the newest message does not fit into the {available} tokens that are left for messages: "
                "raise max_context_tokens or lower the reserves"
            )
        shown = remove_orphans(kept)
        positions = {message.id: position for position, message in enumerate(reversed(shown))}
        section = self._build_section(
            shown,
            [
                (
                    ContextItemKind.MESSAGE,
                    message.id,
                    message.content,
                    _compute_priority(RECENT_PRIORITY, positions[message.id]),
                )
                for message in reversed(shown)
            ],
        )
        if len(kept) < len(recent):
            section.warnings.append(f"{len(recent) - len(kept)} recent messages did not fit")
        return section

    def _build_retrieved_section(self, hits: Sequence[Hit], available: int) -> _ContextSection:
        lines = [
            (ContextItemKind.MEMORY, hit.entry.id, _format_line(hit), max(_MIN_PRIORITY, min(1.0, hit.score)))
            for hit in hits
        ]
        return self._pack_lines(lines, available, "retrieved-memories", "retrieved memories")

    def _build_chunk_section(self, chunks: Sequence[Chunk], available: int) -> _ContextSection:
        lines = [
            (
                ContextItemKind.CHUNK,
                chunk.id,
                neutralize_fence_tags(
                    " ".join(
                        strip_fences(
                            f"Messages {chunk.first_turn}-{chunk.last_turn}: {chunk.summary}"
                        ).split()
                    )
                ),
                _compute_priority(CHUNK_PRIORITY, position),
            )
            for position, chunk in enumerate(reversed(chunks))
        ]
        return self._pack_lines(lines, available, "earlier-chunks", "chunks", backwards=True)

    def _pack_lines(
        self,
        lines: Sequence[tuple[ContextItemKind, str, str, float]],
        available: int,
        name: str,
        what: str,
        *,
        backwards: bool = False,
    ) -> _ContextSection:
        packed: list[tuple[ContextItemKind, str, str, float]] = []
        section = _ContextSection()
        # A line that does not fit is skipped, and shorter ones after it are still tried. The whole message is
        # counted each time, because tokens of joined lines are not the sum of their parts.
        for line in lines:
            texts = [text for _, _, text, _ in (*packed, line)]
            message = self._build_message(wrap_in_fence(texts[::-1] if backwards else texts), name)
            tokens = count_framed(self._counter, message)
            if tokens <= available:
                packed.append(line)
                section.messages, section.tokens = [message], tokens
        section.items = [self._build_item(*line) for line in packed]
        if len(packed) < len(lines):
            section.warnings.append(f"{len(lines) - len(packed)} {what} did not fit")
        return section

    def _build_section(
        self, messages: Sequence[Message], items: Sequence[tuple[ContextItemKind, str, str, float]]
    ) -> _ContextSection:
        tokens = sum(count_framed(self._counter, message) for message in messages)
        return _ContextSection(list(messages), [self._build_item(*item) for item in items], tokens)

    def _build_item(self, kind: ContextItemKind, name: str, content: str, priority: float) -> ContextItem:
        tokens = self._counter.count(content)
        return ContextItem(kind=kind, id=name, content=content, priority=priority, token_count=tokens)

    def _build_message(self, text: str, name: str, *, speaker: str | None = MEMORY_NAME) -> Message:
        draft = MessageDraft(Role.SYSTEM, text, id=name, created_at=self._now, name=speaker)
        (message,) = complete_drafts(self._dependencies, [draft])
        return message


def _drop_echoes(hits: Sequence[Hit], recent: Sequence[Message]) -> list[Hit]:
    # Skip memories that repeat a recent message or a better memory.
    echoes = find_repeated_hits(hits, [message.content for message in recent])
    return [hit for hit in hits if id(hit) not in echoes]


def _compute_priority(highest: float, position: int) -> float:
    return round(max(_MIN_PRIORITY, highest - PRIORITY_STEP * position), 6)


def _format_line(hit: Hit) -> str:
    line = (
        f"- {hit.entry.created_at.date().isoformat()} | {hit.entry.kind}: {strip_fences(hit.entry.content)}"
    )
    return neutralize_fence_tags(" ".join(line.split()))
