"""Contexts as JSON that people read, and back: strict where a reader would have to guess."""

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
    """The context as it stands in a file: UTF-8, two spaces of indent, the fields in the order of the design."""
    return (to_json_text(part_to_dict(context), indent=2) + "\n").encode()


def to_json_text(value: object, *, indent: int | None = None) -> str:
    """A JSON value as text that UTF-8 can hold."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def part_to_dict(part: Any) -> dict[str, Any]:  # noqa: ANN401 - a context or a part of one
    """A context, or a part of one, as plain JSON."""
    known = {one.name: getattr(part, one.name) for one in fields(part) if one.name not in _UNWRITTEN_FIELDS}
    written = {
        name: [part_to_dict(one) for one in value]
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
    """The context of a file.

    Args:
        data: What stands in it.
        session_id: Whose file it is; taken for a file that does not say.

    Raises:
        InvalidInputError: It is no JSON, or not such a context; the message says where.
    """
    try:
        text = data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"it is not UTF-8 at byte {error.start}") from None
    context = context_from_dict(_parse_json(text), session_id)
    if context.session_id != session_id:
        raise InvalidInputError(f"it says that it is of session {context.session_id[:80]!r}")
    return context


def context_from_dict(value: object, session_id: str) -> ContextData:
    """The context that plain JSON stands for; fields that are missing or null get what is usual."""
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
    """A part of a context from plain JSON."""
    known, extra = _split_fields(kind, value, where)
    try:
        return kind(**known, extra=extra)
    except TypeError:
        missing = [one.name for one in fields(kind) if one.name not in known and one.name != "extra"]
        raise InvalidInputError(f"{where} lacks {missing[0]!r}") from None
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from None


def _parse_list(kind: Any, value: object, where: str) -> tuple[Any, ...]:  # noqa: ANN401 - one of the parts
    if not isinstance(value, list):
        raise InvalidInputError(f"{where} must be a list, got a {type(value).__name__}")
    return tuple(part_from_dict(kind, one, f"{where}[{index}]") for index, one in enumerate(value))


def _split_fields(kind: Any, value: object, where: str) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - as above
    if not isinstance(value, dict):
        raise InvalidInputError(f"{where} must be an object, got a {type(value).__name__}")
    names = {one.name for one in fields(kind)} - _UNWRITTEN_FIELDS
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
        raise InvalidInputError("it is nested too deep") from None
    except LangmemTiersError:
        raise
    except ValueError as error:
        # What json says quotes no text, only the place; a number of too many digits is one of its errors, too.
        place = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidInputError(f"it is no JSON{place}") from None


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((double, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise InvalidInputError(f"it names {double[:40]!r} twice in one object")
    return found


def _reject_constant(constant: str) -> object:
    raise InvalidInputError(f"it holds {constant}, which is no number of JSON")


def _parse_finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidInputError("it holds a number that is too large")
    return number
