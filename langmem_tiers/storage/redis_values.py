"""Messages as members of a sorted set in Redis, and back, without loss."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import TYPE_CHECKING

from langmem_tiers.core.clock import microseconds
from langmem_tiers.core.messages import Message, Role, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGEST = 16  # hex digits
_FARTHEST = (
    2**53 - 2**40
)  # Redis counts in doubles: whole up to 2**53, and there is room behind the farthest time


def to_member(key: str, message: Message) -> bytes:
    """A message of the window under that key."""
    body = json.dumps(
        [
            message.id,
            message.role.value,
            message.content,
            message.created_at.isoformat(),
            message.token_count,
            message.token_counter,
            message.is_compressed,
            message.name,
            [[call.id, call.name, call.arguments] for call in message.tool_calls],
            message.tool_call_id,
            message.payload_json,
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode("utf-8", "surrogatepass")
    return _digest(key, body) + body


def to_message(key: str, member: object) -> Message:
    """The message, or a ``ValueError`` for what is none, or of another window."""
    if not isinstance(member, bytes) or member[:_DIGEST] != _digest(key, member[_DIGEST:]):
        raise ValueError("redis holds what is no message of ours")
    fields = json.loads(member[_DIGEST:].decode("utf-8", "surrogatepass"))
    return Message(
        id=fields[0],
        role=Role(fields[1]),
        content=fields[2],
        created_at=datetime.fromisoformat(fields[3]),
        token_count=fields[4],
        token_counter=fields[5],
        is_compressed=fields[6],
        name=fields[7],
        tool_calls=tuple(ToolCall(*call) for call in fields[8]),
        tool_call_id=fields[9],
        payload_json=fields[10],
    )


def time_of(message: Message) -> int:
    """The message's time as a score: microseconds since 1970."""
    return max(-_FARTHEST, min(_FARTHEST, microseconds(message.created_at)))


def scores_of(messages: Sequence[Message]) -> list[int]:
    """Their times, each behind the one before it, so that their order is that of the record."""
    scores: list[int] = []
    for message in messages:
        time = time_of(message)
        scores.append(max(time, scores[-1] + 1) if scores else time)
    return scores


def _digest(key: str, body: bytes) -> bytes:
    # With the key: a window that was moved to another session is none there.
    found = hashlib.blake2b(key.encode(), digest_size=_DIGEST // 2)
    found.update(body)
    return found.hexdigest().encode()
