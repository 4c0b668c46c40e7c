"""Readable JSON serialization of contexts. Parsing is strict: ambiguous input is an error."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.common.messages import COUNTED_BY_CALLER, Message, MessageDraft, MessageToolCall, Role
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.context_files.models import (
    ActiveTask,
    ContextData,
    HistoryEntry,
    KnownEnvironment,
    TokenUsage,
    ToolStats,
)
from langmem_tiers.errors import InvalidInputError, LangmemTiersError

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


def _parse_tool_calls(value: object) -> list[MessageToolCall]:
    names = ("id", "name", "arguments")
    if not isinstance(value, list):
        return []
    valid_calls = [
        call
        for call in value
        if isinstance(call, dict) and all(isinstance(call.get(name), str) for name in names)
    ]
    return [MessageToolCall(call["id"], call["name"], call["arguments"]) for call in valid_calls]


def _parse_payload(value: object) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None


_Part = TypeVar("_Part", HistoryEntry, ActiveTask, ToolStats, KnownEnvironment, TokenUsage)
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNWRITTEN_FIELDS = {"extra", "based_on", "recovery"}
_LIST_FIELDS = {"recent_history": HistoryEntry, "active_tasks": ActiveTask}
_PART_FIELDS = {
    "tool_stats": ToolStats,
    "last_known_environment": KnownEnvironment,
    "token_usage": TokenUsage,
}
_BOM = b"\xef\xbb\xbf"


def context_to_bytes(context: ContextData) -> bytes:
    """Serialize a context as UTF-8 JSON with two spaces of indent and fields in declaration order."""
    return (to_json_text(part_to_dict(context), indent=2) + "\n").encode()


def to_json_text(value: object, *, indent: int | None = None) -> str:
    """Serialize a JSON value as text that can be encoded as UTF-8."""
    # Text stays readable (ensure_ascii=False), but lone surrogates have no UTF-8 encoding and must be escaped.
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def part_to_dict(part: Any) -> dict[str, Any]:  # noqa: ANN401 - a context or a part of one
    """Convert a context, or a part of one, to plain JSON values."""
    known = {
        field.name: getattr(part, field.name) for field in fields(part) if field.name not in _UNWRITTEN_FIELDS
    }
    written = {
        name: [part_to_dict(item) for item in value]
        if name in _LIST_FIELDS
        else part_to_dict(value)
        if name in _PART_FIELDS
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in known.items()
    }
    return {**written, **part.extra}


def context_from_bytes(data: bytes, session_id: str) -> ContextData:
    """Parse the content of a context file.

    Args:
        data: The content of the file.
        session_id: The session that the file belongs to. Default for a file without ``session_id``.

    Raises:
        InvalidInputError: The data is not JSON or not a context of this session. The message names the position.
    """
    try:
        text = data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"it is not UTF-8 at byte {error.start}") from None
    context = context_from_dict(_parse_json(text), session_id)
    if context.session_id != session_id:
        raise InvalidInputError(f"it belongs to session {context.session_id[:80]!r}")
    return context


def context_from_dict(value: object, session_id: str) -> ContextData:
    """Convert plain JSON values to a context; missing fields and null get their defaults."""
    known, extra = _split_fields(ContextData, value, "the file")
    known = {name: part for name, part in known.items() if part is not None}
    known.setdefault("session_id", session_id)
    for name, kind in _LIST_FIELDS.items():
        if name in known:
            known[name] = _parse_list(kind, known[name], name)
    for name, kind in _PART_FIELDS.items():
        if name in known:
            known[name] = part_from_dict(kind, known[name], name)
    if not isinstance(known.get("facts", []), list):
        raise InvalidInputError(f"facts must be a list, got {type(known['facts']).__name__}")
    return ContextData(**known, extra=extra)


def part_from_dict(kind: type[_Part], value: object, where: str) -> _Part:
    """Convert plain JSON values to a part of a context."""
    known, extra = _split_fields(kind, value, where)
    try:
        return kind(**known, extra=extra)
    except TypeError:
        # A required field is missing; no check raises a TypeError. Required fields come first, so the first absent
        # field is one of them.
        missing = [field.name for field in fields(kind) if field.name not in known and field.name != "extra"]
        raise InvalidInputError(f"{where} lacks {missing[0]!r}") from None
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from None


def _parse_list(kind: Any, value: object, where: str) -> tuple[Any, ...]:  # noqa: ANN401 - one of the parts
    if not isinstance(value, list):
        raise InvalidInputError(f"{where} must be a list, got {type(value).__name__}")
    return tuple(part_from_dict(kind, item, f"{where}[{index}]") for index, item in enumerate(value))


def _split_fields(kind: Any, value: object, where: str) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - as above
    if not isinstance(value, dict):
        raise InvalidInputError(f"{where} must be an object, got {type(value).__name__}")
    names = {field.name for field in fields(kind)} - _UNWRITTEN_FIELDS
    known = {name: part for name, part in value.items() if name in names}
    return known, {name: part for name, part in value.items() if name not in names}


def _parse_json(text: str) -> object:
    try:
        return json.loads(
            text,
            object_pairs_hook=_reject_duplicates,
            parse_constant=_reject_constant,
            parse_float=_parse_finite_float,
        )
    except RecursionError:
        raise InvalidInputError("it is nested too deeply") from None
    except LangmemTiersError:
        # Our hooks raise InvalidInputError, which is a ValueError; keep their message.
        raise
    except ValueError as error:
        # Name only the line: the content of the file must not get into logs. A ValueError that is not a
        # JSONDecodeError comes from an integer with too many digits.
        position = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidInputError(f"it is not valid JSON{position}") from None


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        ((duplicate, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise InvalidInputError(f"it contains the key {duplicate[:40]!r} twice in one object")
    return result


def _reject_constant(constant: str) -> object:
    raise InvalidInputError(f"it contains {constant}, which is not a JSON number")


def _parse_finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidInputError("it contains a number that is too large")
    return number
