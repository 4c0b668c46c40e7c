"""Display content of a value, independent of the output format: a title, facts and tables."""

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


MAX_TABLE_ROWS = 20
"""Maximum number of rows of a table; omitted rows are counted."""
MAX_CELL_CHARACTERS = 160
"""Maximum length of a text in a table cell; omitted characters are counted."""
MAX_FACT_CHARACTERS = 400
"""Maximum length of a text outside a table."""
_MAX_ITEMS = 8  # shown per list or mapping inside a fact
_DIRECTION_MARKS: dict[int, str | None] = dict.fromkeys(
    [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF]
)
"""Bidirectional control characters. They are removed because they would affect text after their own."""
_CONTROL_CHARACTERS: dict[int, str | None] = dict.fromkeys(
    [*range(9), *range(14, 32), *range(127, 160), 11, 12, 0x2028, 0x2029], "�"
)
_UNSAFE_CHARACTERS = _DIRECTION_MARKS | _CONTROL_CHARACTERS


@dataclass(frozen=True, slots=True)
class UntrustedText:
    """User or model text, as opposed to text of this library."""

    text: str
    omitted_characters: int = 0
    """Number of characters that were cut off."""

    @classmethod
    def of(cls, words: str, max_characters: int = MAX_CELL_CHARACTERS) -> UntrustedText:
        """Return a displayable text: cut, without control characters, and valid UTF-8."""
        # Lone surrogates cannot be written to a terminal or a notebook file.
        shown = words[:max_characters].encode("utf-8", "replace").decode().translate(_UNSAFE_CHARACTERS)
        return cls(shown, max(0, len(words) - max_characters))

    def __str__(self) -> str:
        return (
            f"{self.text}… (+{self.omitted_characters:,} characters)"
            if self.omitted_characters
            else self.text
        )


Cell = str | int | float | UntrustedText | None


@dataclass(frozen=True, slots=True)
class Table:
    """Column names and rows; numbers are right-aligned."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    omitted_rows: int = 0
    """Number of rows that are not shown."""
    gap_index: int | None = None
    """Index of the row before which rows were omitted; None if they follow the last row."""


@dataclass(frozen=True, slots=True)
class StackedBar:
    """Parts of a whole, such as the tokens of a budget."""

    parts: Mapping[str, int]
    total: int


@dataclass(frozen=True, slots=True)
class DisplayContent:
    """Title, facts, tables and bar of a value."""

    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    """Values by label; they are formatted when rendered."""
    tables: tuple[Table, ...] = ()
    bar: StackedBar | None = None


def to_cell(value: object, max_characters: int = MAX_CELL_CHARACTERS) -> Cell:
    """Convert any value to a short table cell."""
    plain = value.value if isinstance(value, Enum) else value
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if plain is None or isinstance(plain, UntrustedText | int | float):
        return plain
    if isinstance(plain, datetime):
        return _format_time(plain)
    return UntrustedText.of(plain if isinstance(plain, str) else _format_collection(plain), max_characters)


def format_number(number: float) -> str:
    """Format a number with thousands separators and at most three decimal places."""
    if isinstance(number, int):
        # Python refuses to convert integers of more than 4,300 digits to text.
        return f"{number:,}" if number.bit_length() < 1024 else f"a number of {number.bit_length():,} bits"
    if not math.isfinite(number) or (number != 0 and not 0.001 <= abs(number) < 1e15):
        return f"{number:.3g}"
    return f"{number:,.3f}".rstrip("0").rstrip(".")


def format_cell(shown: Cell) -> str:
    """Format a cell as plain text."""
    if shown is None:
        return "-"
    return format_number(shown) if isinstance(shown, int | float) else str(shown)


def _format_time(value: datetime) -> str:
    # Naive times get no zone, UTC its name, others their offset.
    zone = "" if value.tzinfo is None else " UTC" if not value.utcoffset() else f" {value:%z}"
    return f"{value:%Y-%m-%d %H:%M:%S}{zone}"


def _format_collection(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (
            f"{_format_short(key)}: {_format_short(item)}" for key, item in islice(value.items(), _MAX_ITEMS)
        )
        return _join_items(pairs, len(value) - _MAX_ITEMS) or "none"
    if isinstance(value, AbstractSet):
        return (
            _join_items(
                sorted(_format_short(item) for item in islice(value, _MAX_ITEMS)), len(value) - _MAX_ITEMS
            )
            or "none"
        )
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return (
            _join_items((_format_short(item) for item in islice(value, _MAX_ITEMS)), len(value) - _MAX_ITEMS)
            or "none"
        )
    if is_dataclass(value) and not isinstance(value, type):
        line = getattr(value, "_to_line", None)
        if callable(line):
            return str(line())
        return format_fields(value) if type(value).__str__ is object.__str__ else str(value)
    return str(value)


def format_fields(value: object) -> str:
    """Format a dataclass on one line."""
    names = [field.name for field in fields(value) if field.repr]  # type: ignore[arg-type]  # it is a dataclass
    return ", ".join(f"{humanize_field_name(name)} {_format_short(getattr(value, name))}" for name in names)


def humanize_field_name(name: str) -> str:
    """Return the name of a field as words."""
    return name.removeprefix("is_").replace("_", " ")


def _format_short(value: object) -> str:
    return format_cell(to_cell(value, MAX_CELL_CHARACTERS // 2))


def _join_items(pieces: Iterable[str], omitted: int) -> str:
    text = ", ".join(pieces)
    return f"{text}, and {omitted:,} more" if omitted > 0 else text
