"""Sample messages."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

from langmem_tiers import ContentAwareCounter, Message, MessageToolCall, Role
from langmem_tiers.text.token_counting import count_draft

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
COUNTER = ContentAwareCounter()
_numbers = count(1)


def message(
    content: str,
    role: str = "user",
    *,
    id: str | None = None,  # noqa: A002 - as in Message
    tool_calls: tuple[MessageToolCall, ...] = (),
    tool_call_id: str | None = None,
    created_at: datetime = NOW,
) -> Message:
    """A stored message, counted by the default counter."""
    draft = Message(
        id=id or f"m{next(_numbers)}",
        role=Role(role),
        content=content,
        created_at=created_at,
        token_count=0,
        token_counter=COUNTER.name,
        tool_calls=tool_calls,
        tool_call_id=tool_call_id,
    )
    return Message(
        **{
            **{field: getattr(draft, field) for field in draft.__dataclass_fields__},
            "token_count": count_draft(COUNTER, draft),
        }
    )
