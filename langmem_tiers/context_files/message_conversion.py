"""Lossless conversion between history entries of a context file and messages of an engine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.common.messages import COUNTED_BY_CALLER, Message, MessageDraft, Role, ToolCall
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.context_files.models import HistoryEntry

if TYPE_CHECKING:
    from langmem_tiers.common.json_values import JsonValue
    from langmem_tiers.common.ports import TokenCounter

GENERATED_ID_PREFIX = "context-file-"
"""Prefix of message ids that were generated for entries without an id."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Role names of other libraries and APIs, besides our own.
_ROLES = {
    **{role.value: role for role in Role},
    "ai": Role.ASSISTANT,
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
    "human": Role.USER,
    "model": Role.ASSISTANT,
}
# MessageDraft refuses a larger token count; the import record keeps the original entry.
_MAX_TOKENS = 2**31


def parse_role(role: str) -> Role:
    """Return the engine role for a role in a file; unknown roles become ``system``."""
    return _ROLES.get(role.lower(), Role.SYSTEM)


def from_unix_seconds(seconds: float) -> datetime:
    """Convert seconds since 1970 to a time in UTC, rounded to microseconds."""
    return _EPOCH + timedelta(microseconds=round(seconds * 1_000_000))


def to_unix_seconds(moment: datetime) -> float:
    """Convert a time to seconds since 1970; an integer if the time has no fraction."""
    whole, rest = divmod(to_microseconds(moment), 1_000_000)
    return whole + rest / 1_000_000 if rest else whole


def entry_to_message(entry: HistoryEntry, number: int) -> Message:
    """Convert an entry to a temporary message, for summarizing and for grouping tool calls."""
    draft = entry_to_draft(entry, f"{number}", None)
    return Message(
        id=draft.id or f"{number}",
        role=draft.role,
        content=draft.content,
        created_at=from_unix_seconds(entry.timestamp),
        token_count=entry.token_count or 0,
        token_counter=COUNTED_BY_CALLER,
        tool_calls=draft.tool_calls,
        tool_call_id=draft.tool_call_id,
    )


def entry_to_draft(entry: HistoryEntry, made_id: str, counter: TokenCounter | None) -> MessageDraft:
    """Convert an entry to a draft that can be added to a session.

    Args:
        entry: The entry.
        made_id: Id of the draft if the entry has no valid one.
        counter: Token counter of the engine, or None.
    """
    extra, count = entry.extra, entry.token_count
    # If the engine's own counter produced the count, leave it out: the engine counts again with the same result and
    # records its counter, so that the export restores ``token_counter``.
    is_recounted = counter is not None and extra.get("token_counter") == counter.name
    return MessageDraft(
        parse_role(entry.role),
        entry.content,
        id=_parse_id(extra.get("id")) or made_id,
        created_at=from_unix_seconds(entry.timestamp),
        name=_parse_text(extra.get("name")),
        tool_calls=_parse_tool_calls(extra.get("tool_calls")),
        tool_call_id=_parse_text(extra.get("tool_call_id")),
        payload=_parse_payload(extra.get("payload_json")),
        token_count=None if is_recounted or count is None or count >= _MAX_TOKENS else count,
    )


def message_to_entry(message: Message) -> HistoryEntry:
    """Convert a message to an entry; attributes without a field in the file go into ``extra``."""
    extra: dict[str, JsonValue] = {}
    if not message.id.startswith(GENERATED_ID_PREFIX):
        extra["id"] = message.id
    if message.name is not None:
        extra["name"] = message.name
    if message.tool_calls:
        extra["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        extra["tool_call_id"] = message.tool_call_id
    if message.payload_json is not None:
        extra["payload_json"] = message.payload_json
    if message.token_counter != COUNTED_BY_CALLER:
        extra["token_counter"] = message.token_counter
    entry = HistoryEntry(
        to_unix_seconds(message.created_at), message.role.value, message.content, message.token_count, extra
    )
    return hide_entry(entry) if message.is_compressed else entry


def hide_entry(entry: HistoryEntry) -> HistoryEntry:
    """Return a copy of the entry that is marked as replaced by the summary."""
    return replace(entry, extra={**entry.extra, "is_compressed": True})


def is_hidden_entry(entry: HistoryEntry) -> bool:
    """Return True if the entry is replaced by the summary."""
    return entry.extra.get("is_compressed") is True


class EntryIdGenerator:
    """Generates deterministic ids for entries without one: a second import finds the same messages."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id
        self._seen: dict[str, int] = {}

    def generate_id(self, entry: HistoryEntry) -> str:
        """Return the id of an entry; equal entries are numbered and get different ids."""
        identity = json.dumps([self._session, entry.timestamp, entry.role, entry.content])
        number = self._seen[identity] = self._seen.get(identity, -1) + 1
        digest = hashlib.blake2b(f"{number} {identity}".encode(), digest_size=16).hexdigest()
        return f"{GENERATED_ID_PREFIX}{digest}"


def _parse_id(value: object) -> str | None:
    try:
        return check_name(value, "message id") if isinstance(value, str) else None
    except ValueError:
        return None


def _parse_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _parse_tool_calls(value: object) -> list[ToolCall]:
    names = ("id", "name", "arguments")
    if not isinstance(value, list):
        return []
    valid_calls = [
        call
        for call in value
        if isinstance(call, dict) and all(isinstance(call.get(name), str) for name in names)
    ]
    return [ToolCall(call["id"], call["name"], call["arguments"]) for call in valid_calls]


def _parse_payload(value: object) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None
