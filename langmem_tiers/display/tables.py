"""What a value shows of itself: a title, a few facts and some rows, before it is HTML or plain text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.common.namespaces import NamespacePath

MAX_TABLE_ROWS = 20
"""Rows of a table; the others are counted."""
MAX_CELL_CHARACTERS = 160
"""Of a text in a row; the others are counted."""
MAX_FACT_CHARACTERS = 400
"""Of a text that stands by itself."""
_MAX_ITEMS = 8  # of a list or a mapping inside a fact
_DIRECTION_MARKS: dict[int, str | None] = dict.fromkeys(
    [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF]
)
"""Marks that turn the direction of what follows: left out, because they reach beyond their own text."""
_CONTROL_CHARACTERS: dict[int, str | None] = dict.fromkeys(
    [*range(9), *range(14, 32), *range(127, 160), 11, 12, 0x2028, 0x2029], "�"
)
_UNSAFE_CHARACTERS = _DIRECTION_MARKS | _CONTROL_CHARACTERS


@dataclass(frozen=True, slots=True)
class UntrustedText:
    """Words of somebody else; what else is shown are words of this library."""

    text: str
    omitted_characters: int = 0
    """How many characters were cut off."""

    @classmethod
    def of(cls, words: str, most: int = MAX_CELL_CHARACTERS) -> UntrustedText:
        """A text that is safe to show: cut, without control characters, and whole as UTF-8."""
        shown = words[:most].encode("utf-8", "replace").decode().translate(_UNSAFE_CHARACTERS)
        return cls(shown, max(0, len(words) - most))

    def __str__(self) -> str:
        return (
            f"{self.text}… (+{self.omitted_characters:,} characters)"
            if self.omitted_characters
            else self.text
        )


Cell = str | int | float | UntrustedText | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with names of their columns; a number stands to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    omitted_rows: int = 0
    """How many rows there are besides."""
    gap_index: int | None = None
    """Before which row the others stand; behind all of them, if None."""


@dataclass(frozen=True, slots=True)
class StackedBar:
    """Parts of a whole, such as tokens of a budget."""

    parts: Mapping[str, int]
    total: int


@dataclass(frozen=True, slots=True)
class DisplayContent:
    """What a value shows of itself."""

    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    """Any values; they are put in a few words when they are shown."""
    tables: tuple[Table, ...] = ()
    bar: StackedBar | None = None


def join_namespace(namespace: NamespacePath) -> str:
    """A namespace as people write it."""
    return "/".join(namespace)


def to_cell(value: object, most: int = MAX_CELL_CHARACTERS) -> Cell:
    """Any value in a few words."""
    plain = value.value if isinstance(value, Enum) else value
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if plain is None or isinstance(plain, UntrustedText | int | float):
        return plain
    if isinstance(plain, datetime):
        return _format_time(plain)
    return UntrustedText.of(plain if isinstance(plain, str) else _format_collection(plain), most)


def format_number(number: float) -> str:
    """A number as people write it, with three places at most."""
    if isinstance(number, int):
        # Python refuses to write numbers of thousands of digits.
        return f"{number:,}" if number.bit_length() < 1024 else f"a number of {number.bit_length():,} bits"
    if not math.isfinite(number) or (number != 0 and not 0.001 <= abs(number) < 1e15):
        return f"{number:.3g}"
    return f"{number:,.3f}".rstrip("0").rstrip(".")


def format_cell(shown: Cell) -> str:
    """A cell as plain text."""
    if shown is None:
        return "-"
    return format_number(shown) if isinstance(shown, int | float) else str(shown)


def _format_time(value: datetime) -> str:
    zone = "" if value.tzinfo is None else " UTC" if not value.utcoffset() else f" {value:%z}"
    return f"{value:%Y-%m-%d %H:%M:%S}{zone}"


def _format_collection(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (
            f"{_format_short(key)}: {_format_short(one)}" for key, one in islice(value.items(), _MAX_ITEMS)
        )
        return _join_items(pairs, len(value) - _MAX_ITEMS) or "none"
    if isinstance(value, AbstractSet):
        return (
            _join_items(
                sorted(_format_short(one) for one in islice(value, _MAX_ITEMS)), len(value) - _MAX_ITEMS
            )
            or "none"
        )
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return (
            _join_items((_format_short(one) for one in islice(value, _MAX_ITEMS)), len(value) - _MAX_ITEMS)
            or "none"
        )
    if is_dataclass(value) and not isinstance(value, type):
        line = getattr(value, "_to_line", None)
        if callable(line):
            return str(line())
        return format_fields(value) if type(value).__str__ is object.__str__ else str(value)
    return str(value)


def format_fields(value: object) -> str:
    """A dataclass on one line."""
    names = [one.name for one in fields(value) if one.repr]  # type: ignore[arg-type]  # it is a dataclass
    return ", ".join(f"{humanize_field_name(name)} {_format_short(getattr(value, name))}" for name in names)


def humanize_field_name(name: str) -> str:
    """The name of a field as words."""
    return name.removeprefix("is_").replace("_", " ")


def _format_short(value: object) -> str:
    return format_cell(to_cell(value, MAX_CELL_CHARACTERS // 2))


def _join_items(pieces: Iterable[str], left_out: int) -> str:
    text = ", ".join(pieces)
    return f"{text}, and {left_out:,} more" if left_out > 0 else text
