"""Any value of a message as JSON that comes back equal, as far as that is safe.

What JSON does not know is written as ``{"$lmt": kind, "value": ...}``; data that looks like that is escaped.
Only values of the standard library, LangChain's documents and messages are made again from what was stored:
no class is ever looked up by a stored name.
"""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from copy import copy
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from pydantic import BaseModel

from langmem_tiers_langchain.leaves import LEAVES, leaf_of

if TYPE_CHECKING:
    from langmem_tiers.core.json_values import JsonValue

MARK = "$lmt"
"""The key by which a tagged value is known."""
_DEEPEST = 100  # the engine takes 200 levels, and each costs Python three calls
_LONGEST_INT = 2**63  # longer ones in full may be longer than Python writes as decimals

_KINDS: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "chat": ChatMessage,
    "function": FunctionMessage,
    "base": BaseMessage,
    **{
        chunk.__name__: chunk
        for chunk in (
            AIMessageChunk,
            ChatMessageChunk,
            FunctionMessageChunk,
            HumanMessageChunk,
            SystemMessageChunk,
            ToolMessageChunk,
        )
    },
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_FORM = 1
_EMPTY = (type(None), list, dict)


def encode_message(message: BaseMessage, depth: int = 0) -> dict[str, JsonValue]:
    """All fields of a message, in the shape of LangChain's ``message_to_dict``.

    What a field holds by default is left out. A class of its own is stored as its nearest base.
    """
    name, defaults = _known(type(message))
    fields = {
        key: encode(value, depth + 2)
        for key, value in message.__dict__.items()
        if (type(value) not in _EMPTY or value or type(defaults.get(key, ...)) is not type(value))
        and (key != "type" or name == "base")
    }
    extra = {key: encode(value, depth + 2) for key, value in (message.__pydantic_extra__ or {}).items()}
    return {"type": name, "data": {**fields, **extra}, MARK: _FORM}


def decode_message(form: object) -> BaseMessage | None:
    """The message, if that is the form of one: of ours, or of LangChain's ``message_to_dict``."""
    if not isinstance(form, dict):
        return None
    name, data = form.get("type"), form.get("data")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None or not isinstance(data, dict):
        return None
    is_ours = form.get(MARK) == _FORM
    fields = {key: decode(value) for key, value in data.items()} if is_ours else data
    try:
        message = kind(**fields)
    except (TypeError, ValueError):
        return kind.model_construct(**fields) if is_ours else None
    return _as_it_was(message, fields) if is_ours else message


def _as_it_was(message: BaseMessage, fields: dict[str, object]) -> BaseMessage:
    # Validators add to a message, such as the calls that they read from its chunks.
    values = message.__dict__
    for key, default in _known(type(message))[1].items():
        if key not in fields and values[key] != default:
            values[key] = copy(default)
    values.update((key, value) for key, value in fields.items() if key in values)
    return message


@cache
def _known(kind: type[BaseMessage]) -> tuple[str, dict[str, object]]:
    base = next(one for one in kind.__mro__ if one in _NAMES)
    return _NAMES[base], {
        name: field.get_default(call_default_factory=True)
        for name, field in base.model_fields.items()
        if not field.is_required()
    }


def encode(value: object, depth: int = 0) -> JsonValue:  # noqa: PLR0911 - one way out per kind
    """The value as plain JSON."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value  # type: ignore[return-value]
    if depth > _DEEPEST:
        return "[not stored: nested too deeply]"
    if kind is int and -_LONGEST_INT < value < _LONGEST_INT:  # type: ignore[operator]
        return value  # type: ignore[return-value]
    if kind is float and value == value:  # noqa: PLR0124 - nan equals nothing
        return value  # type: ignore[return-value]
    if kind is list:
        return [encode(part, depth + 1) for part in value]  # type: ignore[attr-defined]
    if kind is dict:
        return _dict(value, depth)  # type: ignore[arg-type]
    return _other(value, depth)


def decode(value: JsonValue) -> Any:  # noqa: ANN401 - whatever was encoded
    """The value that ``encode`` was given."""
    if isinstance(value, list):
        return [decode(part) for part in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(MARK)
    if kind is None:
        return {key: decode(part) for key, part in value.items()}
    decoder = _DECODERS.get(kind) if isinstance(kind, str) else None
    try:
        return value if decoder is None else decoder(value.get("value"))
    except (ArithmeticError, KeyError, LookupError, TypeError, ValueError):
        return value  # no tag of ours: better as it stands than not at all


def _tag(kind: str, value: JsonValue) -> dict[str, JsonValue]:
    return {MARK: kind, "value": value}


def _dict(value: Mapping[Any, object], depth: int) -> JsonValue:
    if MARK not in value and all(type(key) is str for key in value):
        return {key: encode(part, depth + 1) for key, part in value.items()}
    pairs: list[JsonValue] = [
        [_key(key, depth + 3, place), encode(part, depth + 3)]
        for place, (key, part) in enumerate(value.items())
    ]
    return _tag("dict", pairs)


def _key(key: object, depth: int, place: int) -> JsonValue:
    # A key that cannot be made again becomes a text, one of its own. Equal keys have equal hashes.
    encoded = encode(key, depth)
    return encoded if _comes_back(encoded, key) else f"{_described(key)} {place}"


def _comes_back(encoded: JsonValue, value: object) -> bool:
    try:
        return bool(decode(encoded) == value)
    except Exception:  # noqa: BLE001 - any __eq__ may be at work here
        return False


def _other(value: object, depth: int) -> JsonValue:
    for kinds, encoder in _ENCODERS:
        if isinstance(value, kinds):
            return encoder(value, depth)
    leaf = leaf_of(value)
    if leaf is not None and (stored := leaf.as_json(value)) is not None:
        return _tag(leaf.kind, stored)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        plain = value.tolist()
        if type(plain).__module__ != "numpy":
            return encode(plain, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dict({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, depth)
    return _described(value)


def _described(value: object) -> str:
    # Only what it was: its own words may hold secrets, or not end.
    return f"[not stored: {type(value).__module__}.{type(value).__qualname__}]"


def _model(value: BaseModel, depth: int) -> JsonValue:
    return _dict({**value.__dict__, **(value.__pydantic_extra__ or {})}, depth)


def _document(value: Document, depth: int) -> JsonValue:
    return _tag("document", _model(value, depth + 1))


def _whole(value: int, _: int) -> JsonValue:
    plain = int.__index__(value)
    return plain if -_LONGEST_INT < plain < _LONGEST_INT else _tag("int", hex(plain))


def _float(value: float, _: int) -> JsonValue:
    return float.__pos__(value) if value == value else _tag("float", "nan")  # noqa: PLR0124 - as above


def _set(value: AbstractSet[object], depth: int) -> JsonValue:
    parts = sorted((encode(part, depth + 2) for part in value), key=json.dumps)
    tag = _tag("frozenset" if isinstance(value, frozenset) else "set", parts)
    return tag if _comes_back(tag, value) else parts


_ENCODERS: tuple[tuple[Any, Callable[[Any, int], JsonValue]], ...] = (
    (Enum, lambda value, depth: encode(value.value, depth)),
    (str, lambda value, _: str.__str__(value)),
    (int, _whole),
    (float, _float),
    (tuple, lambda value, depth: _tag("tuple", [encode(part, depth + 2) for part in value])),
    ((set, frozenset), _set),
    (BaseMessage, lambda value, depth: _tag("message", encode_message(value, depth + 1))),
    (Document, _document),
    (BaseModel, _model),
    (Mapping, _dict),
    ((list, deque), lambda value, depth: [encode(part, depth + 1) for part in value]),
)


def _to_document(stored: JsonValue) -> Document:
    return Document.model_construct(**decode(stored))


_DECODERS: dict[str, Callable[[Any], object]] = {
    "dict": lambda stored: {decode(key): decode(part) for key, part in stored},
    "int": lambda stored: int(stored, 16),
    "float": float,
    "tuple": lambda stored: tuple(decode(part) for part in stored),
    "set": lambda stored: {decode(part) for part in stored},
    "frozenset": lambda stored: frozenset(decode(part) for part in stored),
    "document": _to_document,
    "message": decode_message,
    **{leaf.kind: leaf.read for leaf in LEAVES},
}
