"""Dividing a context window by priority: the system prompt, recent messages, retrieved memories, chunks."""

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
    """What a context is made of."""

    system_prompt: str
    recent: Sequence[Message]
    """Oldest first."""
    retrieved: Sequence[Hit]
    """Best first."""
    chunks: Sequence[Chunk]
    """Oldest first."""


@dataclass(slots=True)
class _ContextSection:
    """One part of a context as it is laid out."""

    messages: list[Message] = field(default_factory=list)
    items: list[ContextItem] = field(default_factory=list)
    tokens: int = 0
    warnings: list[str] = field(default_factory=list)


class ContextAllocator:
    """Divides one context.

    Args:
        parts: Counts tokens and makes messages.
        config: Sizes and reserves.
        now: The time of the messages that it makes.
    """

    def __init__(self, parts: SessionDependencies, config: MemorySystemConfig, now: datetime) -> None:
        self._dependencies = parts
        self._counter = parts.counter
        self._config = config
        self._now = now

    def allocate(self, material: ContextSources) -> ContextBuildResult:
        """The context, never more than its budget.

        Raises:
            BudgetExceededError: The system prompt and the newest message do not fit.
        """
        system = self._build_system_section(material.system_prompt)
        frame = count_messages(self._counter, ())
        beyond = max(0, system.tokens + frame - self._config.system_prompt_tokens)
        room = self._config.available_tokens - beyond
        if room < 0 and system.messages:
            raise BudgetExceededError(
                f"the system prompt takes {system.tokens} tokens and does not fit into a context of "
                f"{self._config.max_context_tokens}: shorten it or raise max_context_tokens"
            )
        room = max(0, room)
        recent = self._build_recent_section(material.recent, room)
        left = room - recent.tokens
        share = room - int(room * RECENT_SHARE + 1e-9)
        untold = _drop_echoes(material.retrieved, recent.messages)
        retrieved = self._build_retrieved_section(untold, min(left, share))
        chunks = self._build_chunk_section(material.chunks, left - retrieved.tokens)
        parts = (system, retrieved, chunks, recent)
        messages = tuple(message for part in parts for message in part.messages)
        items = sorted(
            (item for part in (system, recent, retrieved, chunks) for item in part.items),
            key=lambda item: -item.priority,
        )
        total = count_messages(self._counter, messages) if messages else 0
        warnings = [warning for part in parts for warning in part.warnings]
        return ContextBuildResult(
            allocation=ContextAllocation(items=tuple(items), messages=messages, total_tokens=total),
            budget=self._build_budget(total, room - recent.tokens - retrieved.tokens - chunks.tokens),
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
        laid = self._build_section(
            [message], [(ContextItemKind.SYSTEM_PROMPT, message.id, prompt, SYSTEM_PRIORITY)]
        )
        if laid.tokens > self._config.system_prompt_tokens:
            laid.warnings.append(
                f"the system prompt takes {laid.tokens} tokens, more than the {self._config.system_prompt_tokens} "
                "that are reserved for it: messages and memories have less"
            )
        return laid

    def _build_recent_section(self, recent: Sequence[Message], room: int) -> _ContextSection:
        groups = group_tool_calls(recent)
        kept: list[Message] = []
        left, share = room, int(room * RECENT_SHARE + 1e-9)
        for start, end in reversed(groups):
            size = sum(count_framed(self._counter, message) for message in recent[start:end])
            most = left if not kept else share - (room - left)  # the newest may take all there is
            if size > most:
                break
            kept[:0] = recent[start:end]
            left -= size
        if recent and not kept:
            raise BudgetExceededError(
                f"the newest message does not fit into the {room} tokens that are left for messages: "
                "raise max_context_tokens or lower the reserves"
            )
        shown = remove_orphans(kept)
        places = {message.id: place for place, message in enumerate(reversed(shown))}
        laid = self._build_section(
            shown,
            [
                (
                    ContextItemKind.MESSAGE,
                    one.id,
                    one.content,
                    _compute_priority(RECENT_PRIORITY, places[one.id]),
                )
                for one in reversed(shown)
            ],
        )
        if len(kept) < len(recent):
            laid.warnings.append(f"{len(recent) - len(kept)} recent messages had no room")
        return laid

    def _build_retrieved_section(self, hits: Sequence[Hit], room: int) -> _ContextSection:
        lines = [
            (ContextItemKind.MEMORY, hit.entry.id, _format_line(hit), max(_MIN_PRIORITY, min(1.0, hit.score)))
            for hit in hits
        ]
        return self._pack_lines(lines, room, "retrieved-memories", "retrieved memories")

    def _build_chunk_section(self, chunks: Sequence[Chunk], room: int) -> _ContextSection:
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
                _compute_priority(CHUNK_PRIORITY, place),
            )
            for place, chunk in enumerate(reversed(chunks))
        ]
        return self._pack_lines(lines, room, "earlier-chunks", "chunks", backwards=True)

    def _pack_lines(
        self,
        lines: Sequence[tuple[ContextItemKind, str, str, float]],
        room: int,
        name: str,
        what: str,
        *,
        backwards: bool = False,
    ) -> _ContextSection:
        chosen: list[tuple[ContextItemKind, str, str, float]] = []
        laid = _ContextSection()
        for line in lines:
            texts = [text for _, _, text, _ in (*chosen, line)]
            message = self._build_message(wrap_in_fence(texts[::-1] if backwards else texts), name)
            tokens = count_framed(self._counter, message)
            if tokens <= room:
                chosen.append(line)
                laid.messages, laid.tokens = [message], tokens
        laid.items = [self._build_item(*line) for line in chosen]
        if len(chosen) < len(lines):
            laid.warnings.append(f"{len(lines) - len(chosen)} {what} had no room")
        return laid

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
    # What a recent message says is in sight already, and what one memory says another need not.
    echoes = find_repeated_hits(hits, [message.content for message in recent])
    return [hit for hit in hits if id(hit) not in echoes]


def _compute_priority(highest: float, place: int) -> float:
    return round(max(_MIN_PRIORITY, highest - PRIORITY_STEP * place), 6)


def _format_line(hit: Hit) -> str:
    said = (
        f"- {hit.entry.created_at.date().isoformat()} | {hit.entry.kind}: {strip_fences(hit.entry.content)}"
    )
    return neutralize_fence_tags(" ".join(said.split()))
