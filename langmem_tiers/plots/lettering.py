"""Texts of memories in pictures: short, on one line, and never read as formulas."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.text import Text

_WIDE_FONTS = (
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Noto Sans Arabic",
    "Noto Naskh Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Arial Unicode MS",
    "Segoe UI",
    "Noto Emoji",
    "Segoe UI Emoji",
)
"""Families that hold what matplotlib's own lack, where they are installed."""
_NO_GLYPH = "□"


def cut(text: object, most: int = 48) -> str:
    """A text on one line, of so many characters at most."""
    line = " ".join(_printable(str(text)[: most * 20]).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def plain(text: Text) -> Text:
    """A text that stands there letter by letter: no formula, no TeX, in fonts that have its letters."""
    text.set_parse_math(False)
    text.set_usetex(False)
    if not text.get_text().isascii():
        text.set_fontfamily(list(_families()))
        text.set_text(legible(text.get_text()))
    return text


def legible(said: str) -> str:
    """A text with a mark in place of each letter that no font has. Labels of ticks are asked for it beforehand."""
    if said.isascii():
        return said
    there = _letters(_families())
    return "".join(one if ord(one) in there else _NO_GLYPH for one in said)


def _printable(text: str) -> str:
    # Marks that turn the direction of all that follows, or that end lines, have no place in a label.
    return "".join(
        one if unicodedata.category(one) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} else " " for one in text
    )


def _families() -> tuple[str, ...]:
    from matplotlib import rcParams  # noqa: PLC0415 - an extra, and here it is in use

    return (*rcParams["font.family"], *_installed())


@lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager  # noqa: PLC0415 - an extra, and here it is in use

    there = {font.name for font in fontManager.ttflist}
    return tuple(name for name in _WIDE_FONTS if name in there)


def _letters(families: Iterable[str]) -> frozenset[int]:
    from matplotlib.font_manager import FontProperties, findfont  # noqa: PLC0415 - as above

    return frozenset().union(*(_letters_in(findfont(FontProperties(family=[name]))) for name in families))


@lru_cache(maxsize=64)
def _letters_in(path: str) -> frozenset[int]:
    # The letters are kept and not the font, which belongs to the thread that opened it.
    from matplotlib.font_manager import get_font  # noqa: PLC0415 - as above

    return frozenset(get_font(path).get_charmap())
