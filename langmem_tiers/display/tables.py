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

ROWS = 20
"""Rows of a table; the others are counted."""
CHARACTERS = 160
"""Of a text in a row; the others are counted."""
FACT_CHARACTERS = 400
"""Of a text that stands by itself."""
_PIECES = 8  # of a list or a mapping inside a fact
_TURNING: dict[int, str | None] = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF])
"""Marks that turn the direction of what follows: left out, because they reach beyond their own text."""
_CONTROLS: dict[int, str | None] = dict.fromkeys(
    [*range(9), *range(14, 32), *range(127, 160), 11, 12, 0x2028, 0x2029], "�"
)
_UNSAFE = _TURNING | _CONTROLS


@dataclass(frozen=True, slots=True)
class Text:
    """Words of somebody else; what else is shown are words of this library."""

    words: str
    left_out: int = 0
    """How many characters were cut off."""

    @classmethod
    def of(cls, words: str, most: int = CHARACTERS) -> Text:
        """A text that is safe to show: cut, without control characters, and whole as UTF-8."""
        shown = words[:most].encode("utf-8", "replace").decode().translate(_UNSAFE)
        return cls(shown, max(0, len(words) - most))

    def __str__(self) -> str:
        return f"{self.words}… (+{self.left_out:,} characters)" if self.left_out else self.words


Cell = str | int | float | Text | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with names of their columns; a number stands to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    left_out: int = 0
    """How many rows there are besides."""
    gap_at: int | None = None
    """Before which row the others stand; behind all of them, if None."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Parts of a whole, such as tokens of a budget."""

    parts: Mapping[str, int]
    whole: int


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a value shows of itself."""

    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    """Any values; they are put in a few words when they are shown."""
    tables: tuple[Table, ...] = ()
    bar: Bar | None = None


def path_text(namespace: NamespacePath) -> str:
    """A namespace as people write it."""
    return "/".join(namespace)


def cell(value: object, most: int = CHARACTERS) -> Cell:
    """Any value in a few words."""
    plain = value.value if isinstance(value, Enum) else value
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if plain is None or isinstance(plain, Text | int | float):
        return plain
    if isinstance(plain, datetime):
        return _moment(plain)
    return Text.of(plain if isinstance(plain, str) else _several(plain), most)


def number_text(number: float) -> str:
    """A number as people write it, with three places at most."""
    if isinstance(number, int):
        # Python refuses to write numbers of thousands of digits.
        return f"{number:,}" if number.bit_length() < 1024 else f"a number of {number.bit_length():,} bits"
    if not math.isfinite(number) or (number != 0 and not 0.001 <= abs(number) < 1e15):
        return f"{number:.3g}"
    return f"{number:,.3f}".rstrip("0").rstrip(".")


def cell_text(shown: Cell) -> str:
    """A cell as plain text."""
    if shown is None:
        return "-"
    return number_text(shown) if isinstance(shown, int | float) else str(shown)


def _moment(value: datetime) -> str:
    zone = "" if value.tzinfo is None else " UTC" if not value.utcoffset() else f" {value:%z}"
    return f"{value:%Y-%m-%d %H:%M:%S}{zone}"


def _several(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_short(key)}: {_short(one)}" for key, one in islice(value.items(), _PIECES))
        return _joined(pairs, len(value) - _PIECES) or "none"
    if isinstance(value, AbstractSet):
        return _joined(sorted(_short(one) for one in islice(value, _PIECES)), len(value) - _PIECES) or "none"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return _joined((_short(one) for one in islice(value, _PIECES)), len(value) - _PIECES) or "none"
    if is_dataclass(value) and not isinstance(value, type):
        line = getattr(value, "_line", None)
        if callable(line):
            return str(line())
        return fields_text(value) if type(value).__str__ is object.__str__ else str(value)
    return str(value)


def fields_text(value: object) -> str:
    """A dataclass on one line."""
    names = [one.name for one in fields(value) if one.repr]  # type: ignore[arg-type]  # it is a dataclass
    return ", ".join(f"{words(name)} {_short(getattr(value, name))}" for name in names)


def words(name: str) -> str:
    """The name of a field as words."""
    return name.removeprefix("is_").replace("_", " ")


def _short(value: object) -> str:
    return cell_text(cell(value, CHARACTERS // 2))


def _joined(pieces: Iterable[str], left_out: int) -> str:
    text = ", ".join(pieces)
    return f"{text}, and {left_out:,} more" if left_out > 0 else text
