"""Values of the standard library that JSON does not know, each as JSON and back."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.core.json_values import JsonValue


@dataclass(frozen=True, slots=True)
class Leaf:
    """How values of one type are written and read."""

    type: type[Any]
    kind: str
    write: Callable[[Any], JsonValue]
    read: Callable[[Any], object]

    def as_json(self, value: object) -> JsonValue | None:
        """What is stored of the value; None if it would not come back equal."""
        try:
            stored = self.write(value)
            found = self.read(stored)
            return stored if found == value or str(found) == str(value) else None
        except Exception:  # noqa: BLE001 - a class derived from it may do anything
            return None


def leaf_of(value: object) -> Leaf | None:
    """How the value is written, if it is one of these."""
    return next((leaf for leaf in LEAVES if isinstance(value, leaf.type)), None)


def _write_moment(value: datetime) -> JsonValue:
    zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    text = value.isoformat() if zone is None else value.replace(tzinfo=None).isoformat()
    return [text, value.fold, zone]


def _read_moment(stored: list[Any]) -> datetime:
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


LEAVES = (
    Leaf(datetime, "datetime", _write_moment, _read_moment),  # before date, which it derives from
    Leaf(date, "date", date.isoformat, date.fromisoformat),
    Leaf(time, "time", time.isoformat, time.fromisoformat),
    Leaf(
        timedelta,
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda stored: timedelta(*stored),
    ),
    Leaf(bytes, "bytes", _write_bytes, b64decode),
    Leaf(bytearray, "bytearray", _write_bytes, lambda stored: bytearray(b64decode(stored))),
    Leaf(Decimal, "decimal", str, Decimal),
    Leaf(UUID, "uuid", str, UUID),
    Leaf(PureWindowsPath, "windows_path", str, PureWindowsPath),
    Leaf(PurePath, "path", str, _read_path),
)
