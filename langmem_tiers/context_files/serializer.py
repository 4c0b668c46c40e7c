"""Readable JSON serialization of contexts. Parsing is strict: ambiguous input is an error."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import fields
from typing import Any, TypeVar

from langmem_tiers.context_files.models import (
    ActiveTask,
    ContextData,
    HistoryEntry,
    KnownEnvironment,
    TokenUsage,
    ToolStats,
)
from langmem_tiers.errors import InvalidInputError, LangmemTiersError

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
        raise InvalidInputError(f"facts must be a list, got a {type(known['facts']).__name__}")
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
        raise InvalidInputError(f"{where} must be a list, got a {type(value).__name__}")
    return tuple(part_from_dict(kind, item, f"{where}[{index}]") for index, item in enumerate(value))


def _split_fields(kind: Any, value: object, where: str) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - as above
    if not isinstance(value, dict):
        raise InvalidInputError(f"{where} must be an object, got a {type(value).__name__}")
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
