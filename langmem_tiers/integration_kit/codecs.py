"""Any value as JSON that comes back equal, as far as that is safe.

What JSON does not know is written as ``{"$lmt": kind, "value": ...}``; data that looks like that is escaped.
Only values of the standard library, and those that a codec was told of, are made again from what was stored:
no class is ever looked up by a stored name.
"""

from __future__ import annotations

import dataclasses
import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.json_values import JsonValue


@dataclass(frozen=True, slots=True)
class ScalarCodec:
    """How values of one type are written and read."""

    type: type[Any]
    kind: str
    write: Callable[[Any], JsonValue]
    read: Callable[[Any], object]

    def encode(self, value: object) -> JsonValue | None:
        """What is stored of the value; None if it would not come back equal."""
        try:
            stored = self.write(value)
            found = self.read(stored)
            return stored if found == value or str(found) == str(value) else None
        except Exception:  # noqa: BLE001 - a class derived from it may do anything
            return None


def find_scalar_codec(value: object) -> ScalarCodec | None:
    """How the value is written, if it is one of these."""
    return next((leaf for leaf in SCALAR_CODECS if isinstance(value, leaf.type)), None)


def _write_datetime(value: datetime) -> JsonValue:
    zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    text = value.isoformat() if zone is None else value.replace(tzinfo=None).isoformat()
    return [text, value.fold, zone]


def _read_datetime(stored: list[Any]) -> datetime:
    text, fold, zone = stored
    moment = datetime.fromisoformat(text).replace(fold=fold)
    if zone is None:
        return moment
    try:
        return moment.replace(tzinfo=ZoneInfo(zone))
    except ZoneInfoNotFoundError as error:
        raise ValueError(zone) from error


def _write_bytes(value: bytes | bytearray) -> str:
    return b64encode(value).decode()


def _read_path(stored: str) -> PurePath:
    return Path(stored) if isinstance(Path(), PurePosixPath) else PurePosixPath(stored)


SCALAR_CODECS = (
    ScalarCodec(datetime, "datetime", _write_datetime, _read_datetime),  # before date, which it derives from
    ScalarCodec(date, "date", date.isoformat, date.fromisoformat),
    ScalarCodec(time, "time", time.isoformat, time.fromisoformat),
    ScalarCodec(
        timedelta,
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda stored: timedelta(*stored),
    ),
    ScalarCodec(bytes, "bytes", _write_bytes, b64decode),
    ScalarCodec(bytearray, "bytearray", _write_bytes, lambda stored: bytearray(b64decode(stored))),
    ScalarCodec(Decimal, "decimal", str, Decimal),
    ScalarCodec(UUID, "uuid", str, UUID),
    ScalarCodec(PureWindowsPath, "windows_path", str, PureWindowsPath),
    ScalarCodec(PurePath, "path", str, _read_path),
)


TAG_KEY = "$lmt"
"""The key by which a tagged value is known."""
Encoder: TypeAlias = "Callable[[Any, int], JsonValue]"
"""From a value and how deep it lies to JSON."""
Decoder: TypeAlias = Callable[[Any], object]
_MAX_DEPTH = 100  # the engine takes 200 levels, and each costs Python three calls
_MAX_PLAIN_INT = 2**63  # longer ones in full may be longer than Python writes as decimals


def tag(kind: str, value: JsonValue) -> dict[str, JsonValue]:
    """A value that a decoder of that kind makes again."""
    return {TAG_KEY: kind, "value": value}


def describe_unstored(value: object) -> str:
    """What a value was that cannot be stored. Its own words may hold secrets, or not end."""
    return f"[not stored: {type(value).__module__}.{type(value).__qualname__}]"


class ValueCodec:
    """Writes and reads values.

    Args:
        encoders: Types of your own, each with what writes it; they come before mappings and lists.
        decoders: By the kind of their tag.
    """

    def __init__(
        self,
        encoders: Sequence[tuple[Any, Encoder]] = (),
        decoders: Mapping[str, Decoder] | None = None,
    ) -> None:
        self._encoders: tuple[tuple[Any, Encoder], ...] = (
            (Enum, lambda value, depth: self.encode(value.value, depth)),
            (str, lambda value, _: str.__str__(value)),
            (int, _encode_int),
            (float, _encode_float),
            (tuple, lambda value, depth: tag("tuple", [self.encode(part, depth + 2) for part in value])),
            ((set, frozenset), self._encode_set),
            *encoders,
            (Mapping, self.encode_dict),
            ((list, deque), lambda value, depth: [self.encode(part, depth + 1) for part in value]),
        )
        decode = self.decode
        self._decoders: dict[str, Decoder] = {
            "dict": lambda stored: {decode(key): decode(part) for key, part in stored},
            "int": lambda stored: int(stored, 16),
            "float": float,
            "tuple": lambda stored: tuple(decode(part) for part in stored),
            "set": lambda stored: {decode(part) for part in stored},
            "frozenset": lambda stored: frozenset(decode(part) for part in stored),
            **{leaf.kind: leaf.read for leaf in SCALAR_CODECS},
            **(decoders or {}),
        }

    def encode(self, value: object, depth: int = 0) -> JsonValue:  # noqa: PLR0911 - one way out per kind
        """The value as plain JSON."""
        kind = type(value)
        if kind is str or kind is bool or value is None:
            return value  # type: ignore[return-value]
        if depth > _MAX_DEPTH:
            return "[not stored: nested too deeply]"
        if kind is int and -_MAX_PLAIN_INT < value < _MAX_PLAIN_INT:  # type: ignore[operator]
            return value  # type: ignore[return-value]
        if kind is float and value == value:  # noqa: PLR0124 - nan equals nothing
            return value  # type: ignore[return-value]
        if kind is list:
            return [self.encode(part, depth + 1) for part in value]  # type: ignore[attr-defined]
        if kind is dict:
            return self.encode_dict(value, depth)  # type: ignore[arg-type]
        return self._encode_other(value, depth)

    def decode(self, value: JsonValue) -> Any:  # noqa: ANN401 - whatever was encoded
        """The value that ``encode`` was given."""
        if isinstance(value, list):
            return [self.decode(part) for part in value]
        if not isinstance(value, dict):
            return value
        kind = value.get(TAG_KEY)
        if kind is None:
            return {key: self.decode(part) for key, part in value.items()}
        decoder = self._decoders.get(kind) if isinstance(kind, str) else None
        try:
            return value if decoder is None else decoder(value.get("value"))
        except (ArithmeticError, KeyError, LookupError, TypeError, ValueError):
            return value  # no tag of ours: better as it stands than not at all

    def encode_dict(self, value: Mapping[Any, object], depth: int) -> JsonValue:
        """A mapping, whatever its keys are."""
        if TAG_KEY not in value and all(type(key) is str for key in value):
            return {key: self.encode(part, depth + 1) for key, part in value.items()}
        pairs: list[JsonValue] = [
            [self._encode_key(key, depth + 3, place), self.encode(part, depth + 3)]
            for place, (key, part) in enumerate(value.items())
        ]
        return tag("dict", pairs)

    def _encode_key(self, key: object, depth: int, place: int) -> JsonValue:
        # A key that cannot be made again becomes a text, one of its own. Equal keys have equal hashes.
        encoded = self.encode(key, depth)
        return encoded if self._round_trips(encoded, key) else f"{describe_unstored(key)} {place}"

    def _round_trips(self, encoded: JsonValue, value: object) -> bool:
        try:
            return bool(self.decode(encoded) == value)
        except Exception:  # noqa: BLE001 - any __eq__ may be at work here
            return False

    def _encode_other(self, value: object, depth: int) -> JsonValue:
        for kinds, encoder in self._encoders:
            if isinstance(value, kinds):
                return encoder(value, depth)
        leaf = find_scalar_codec(value)
        if leaf is not None and (stored := leaf.encode(value)) is not None:
            return tag(leaf.kind, stored)
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            plain = value.tolist()
            if type(plain).__module__ != "numpy":
                return self.encode(plain, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return self.encode_dict(fields, depth)
        return describe_unstored(value)

    def _encode_set(self, value: AbstractSet[object], depth: int) -> JsonValue:
        parts = sorted((self.encode(part, depth + 2) for part in value), key=json.dumps)
        tagged = tag("frozenset" if isinstance(value, frozenset) else "set", parts)
        return tagged if self._round_trips(tagged, value) else parts


def _encode_int(value: int, _: int) -> JsonValue:
    plain = int.__index__(value)
    return plain if -_MAX_PLAIN_INT < plain < _MAX_PLAIN_INT else tag("int", hex(plain))


def _encode_float(value: float, _: int) -> JsonValue:
    return float.__pos__(value) if value == value else tag("float", "nan")  # noqa: PLR0124 - as above
