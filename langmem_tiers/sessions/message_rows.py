"""Convert messages to rows and back without loss."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.common.messages import Message, Role, ToolCall
from langmem_tiers.common.namespaces import escape, unescape
from langmem_tiers.storage.column_types import pack_json, to_storable_text, unpack_json

if TYPE_CHECKING:
    from sqlalchemy import Row

    AnyRow: TypeAlias = Row[*tuple[Any, ...]]

_ROLES = {role.value: role for role in Role}


def to_message_row(message: Message, session_pk: int, position: int) -> dict[str, Any]:
    """Return the columns of a message."""
    # Databases cannot store every text, for example not a NUL character. Then the exact text goes into `extra`.
    content = to_storable_text(message.content)
    return {
        "session_pk": session_pk,
        "position": position,
        "id": escape(message.id),
        "role": message.role.value,
        "content": content,
        "created_at": message.created_at,
        "token_count": message.token_count,
        "token_counter": message.token_counter,
        "extra": _pack_extra(message, exact=content is not message.content),
        "payload": None if message.payload_json is None else pack_json(message.payload_json),
    }


def from_message_row(row: AnyRow, view: tuple[int, int]) -> Message:
    """Return the message of a row.

    Args:
        row: The row.
        view: Position and key at which the view of the session starts. Messages before it are compressed.
    """
    extra: dict[str, Any] = {} if row.extra is None else json.loads(unpack_json(row.extra))
    return Message(
        id=unescape(row.id),
        role=_ROLES[row.role],
        content=extra.get("content", row.content),
        created_at=row.created_at,
        token_count=row.token_count,
        token_counter=row.token_counter,
        is_compressed=(row.position, row.pk) < view,
        name=extra.get("name"),
        tool_calls=tuple(ToolCall(*call) for call in extra.get("tool_calls", ())),
        tool_call_id=extra.get("tool_call_id"),
        payload_json=None if row.payload is None else unpack_json(row.payload),
    )


def _pack_extra(message: Message, *, exact: bool) -> str | None:
    extra: dict[str, object] = {}
    if exact:
        extra["content"] = message.content
    if message.name is not None:
        extra["name"] = message.name
    if message.tool_calls:
        extra["tool_calls"] = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    if message.tool_call_id is not None:
        extra["tool_call_id"] = message.tool_call_id
    return pack_json(json.dumps(extra, ensure_ascii=False, separators=(",", ":"))) if extra else None
