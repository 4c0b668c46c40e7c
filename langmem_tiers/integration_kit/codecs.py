"""Lossless JSON codec for message payloads.

Values without a JSON equivalent are encoded as ``{"$lmt": kind, "value": ...}``. Data that has the same
shape is escaped. Decoding only creates types of the standard library and types with a registered decoder. A
class is never looked up by a stored name, so a manipulated payload cannot run code.
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
    """Writer and reader for the values of one type."""

    type: type[Any]
    kind: str
    write: Callable[[Any], JsonValue]
    read: Callable[[Any], object]

    def encode(self, value: object) -> JsonValue | None:
        """Return the stored form, or None if decoding it would not return an equal value."""
        try:
            stored = self.write(value)
            decoded = self.read(stored)
            # Decimal("NaN") is not equal to itself, so equal text is accepted as well.
            return stored if decoded == value or str(decoded) == str(value) else None
        except Exception:  # noqa: BLE001 - a user-defined subclass may raise anything
            return None


def find_scalar_codec(value: object) -> ScalarCodec | None:
    """Return the codec for the type of the value, or None."""
    return next((codec for codec in SCALAR_CODECS if isinstance(value, codec.type)), None)


def _write_datetime(value: datetime) -> JsonValue:
    # The offset alone would lose the zone and its daylight saving rules, and isoformat() drops `fold`, which
    # selects one of two equal local times when clocks are set back.
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
    # On Windows, Path(stored) would replace the slashes of a POSIX path.
    return Path(stored) if isinstance(Path(), PurePosixPath) else PurePosixPath(stored)


# The first match wins, so subclasses precede their base: datetime before date, PureWindowsPath before PurePath.
SCALAR_CODECS = (
    ScalarCodec(datetime, "datetime", _write_datetime, _read_datetime),
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
"""Key that identifies a tagged value."""
Encoder: TypeAlias = "Callable[[Any, int], JsonValue]"
"""Encode a value at a nesting depth as JSON."""
Decoder: TypeAlias = Callable[[Any], object]
# The engine accepts 200 levels of JSON, and each level costs about three nested Python calls: 100 levels stay well
# below both limits.
_MAX_DEPTH = 100
# Larger integers are stored as hex: Python limits the length of decimal conversions.
_MAX_PLAIN_INT = 2**63


def tag(kind: str, value: JsonValue) -> dict[str, JsonValue]:
    """Return a tagged value, to be decoded by the decoder of that kind."""
    return {TAG_KEY: kind, "value": value}


def describe_unstored(value: object) -> str:
    """Return a placeholder that names the type of a value that cannot be stored."""
    # Not repr(value): it may contain secrets or be huge.
    return f"[not stored: {type(value).__module__}.{type(value).__qualname__}]"


class ValueCodec:
    """Encodes values as JSON and decodes them.

    Args:
        encoders: Additional types with their encoders; they take precedence over mappings and lists.
        decoders: Additional decoders by tag kind.
    """

    def __init__(
        self,
        encoders: Sequence[tuple[Any, Encoder]] = (),
        decoders: Mapping[str, Decoder] | None = None,
    ) -> None:
        # The first match wins. Enum comes first because members may also be str or int (StrEnum, IntEnum).
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
            **{codec.kind: codec.read for codec in SCALAR_CODECS},
            **(decoders or {}),
        }

    def encode(self, value: object, depth: int = 0) -> JsonValue:  # noqa: PLR0911 - one return per kind
        """Return the value as plain JSON."""
        # Exact types first: they are the common case, and subclasses need the slower checks below.
        kind = type(value)
        if kind is str or kind is bool or value is None:
            return value  # type: ignore[return-value]
        if depth > _MAX_DEPTH:
            return "[not stored: nested too deeply]"
        if kind is int and -_MAX_PLAIN_INT < value < _MAX_PLAIN_INT:  # type: ignore[operator]
            return value  # type: ignore[return-value]
        if kind is float and value == value:  # noqa: PLR0124 - nan is not equal to itself
            return value  # type: ignore[return-value]
        if kind is list:
            return [self.encode(part, depth + 1) for part in value]  # type: ignore[attr-defined]
        if kind is dict:
            return self.encode_dict(value, depth)  # type: ignore[arg-type]
        return self._encode_other(value, depth)

    def decode(self, value: JsonValue) -> Any:  # noqa: ANN401 - whatever was encoded
        """Return the value that ``encode`` received."""
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
            return value  # not written by this codec: keep the data unchanged

    def encode_dict(self, value: Mapping[Any, object], depth: int) -> JsonValue:
        """Encode a mapping; one with keys other than str becomes a tagged list of pairs."""
        # A mapping that contains TAG_KEY is escaped too, so that it is not decoded as a tagged value.
        if TAG_KEY not in value and all(type(key) is str for key in value):
            return {key: self.encode(part, depth + 1) for key, part in value.items()}
        pairs: list[JsonValue] = [
            [self._encode_key(key, depth + 3, position), self.encode(part, depth + 3)]
            for position, (key, part) in enumerate(value.items())
        ]
        return tag("dict", pairs)

    def _encode_key(self, key: object, depth: int, position: int) -> JsonValue:
        # A key that cannot be decoded becomes a placeholder; the position keeps placeholders distinct.
        encoded = self.encode(key, depth)
        return encoded if self._round_trips(encoded, key) else f"{describe_unstored(key)} {position}"

    def _round_trips(self, encoded: JsonValue, value: object) -> bool:
        try:
            return bool(self.decode(encoded) == value)
        except Exception:  # noqa: BLE001 - a user-defined __eq__ may raise anything
            return False

    def _encode_other(self, value: object, depth: int) -> JsonValue:
        for kinds, encoder in self._encoders:
            if isinstance(value, kinds):
                return encoder(value, depth)
        codec = find_scalar_codec(value)
        if codec is not None and (stored := codec.encode(value)) is not None:
            return tag(codec.kind, stored)
        # Recognized by module name, because numpy is optional. tolist() of some scalars (such as longdouble)
        # returns the scalar itself; encoding it again would not end.
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            plain = value.tolist()
            if type(plain).__module__ != "numpy":
                return self.encode(plain, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return self.encode_dict(fields, depth)
        return describe_unstored(value)

    def _encode_set(self, value: AbstractSet[object], depth: int) -> JsonValue:
        # Sorted by JSON text: elements may not be comparable, and equal sets should be stored equally.
        parts = sorted((self.encode(part, depth + 2) for part in value), key=json.dumps)
        tagged = tag("frozenset" if isinstance(value, frozenset) else "set", parts)
        return tagged if self._round_trips(tagged, value) else parts


def _encode_int(value: int, _: int) -> JsonValue:
    plain = int.__index__(value)  # a plain int, whatever a subclass overrides
    return plain if -_MAX_PLAIN_INT < plain < _MAX_PLAIN_INT else tag("int", hex(plain))


def _encode_float(value: float, _: int) -> JsonValue:
    return float.__pos__(value) if value == value else tag("float", "nan")  # noqa: PLR0124 - as above
