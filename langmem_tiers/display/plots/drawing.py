"""What all pictures share: axes, colours, letters and legends."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from langmem_tiers.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
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
_MISSING_GLYPH = "□"


def truncate_label(text: object, most: int = 48) -> str:
    """A text on one line, of so many characters at most."""
    line = " ".join(_replace_unprintable(str(text)[: most * 20]).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def disable_text_markup(text: Text) -> Text:
    """A text that stands there letter by letter: no formula, no TeX, in fonts that have its letters."""
    text.set_parse_math(False)
    text.set_usetex(False)
    if not text.get_text().isascii():
        text.set_fontfamily(list(_list_font_families()))
        text.set_text(replace_missing_glyphs(text.get_text()))
    return text


def replace_missing_glyphs(said: str) -> str:
    """A text with a mark in place of each letter that no font has. Labels of ticks are asked for it beforehand."""
    if said.isascii():
        return said
    there = _collect_glyphs(_list_font_families())
    return "".join(one if ord(one) in there else _MISSING_GLYPH for one in said)


def _replace_unprintable(text: str) -> str:
    # Marks that turn the direction of all that follows, or that end lines, have no place in a label.
    return "".join(
        one if unicodedata.category(one) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} else " " for one in text
    )


def _list_font_families() -> tuple[str, ...]:
    from matplotlib import rcParams  # noqa: PLC0415 - an extra, and here it is in use

    return (*rcParams["font.family"], *_list_installed_fonts())


@lru_cache(maxsize=1)
def _list_installed_fonts() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager  # noqa: PLC0415 - an extra, and here it is in use

    there = {font.name for font in fontManager.ttflist}
    return tuple(name for name in _WIDE_FONTS if name in there)


def _collect_glyphs(families: Iterable[str]) -> frozenset[int]:
    from matplotlib.font_manager import FontProperties, findfont  # noqa: PLC0415 - as above

    return frozenset().union(*(_load_glyphs(findfont(FontProperties(family=[name]))) for name in families))


@lru_cache(maxsize=64)
def _load_glyphs(path: str) -> frozenset[int]:
    # The letters are kept and not the font, which belongs to the thread that opened it.
    from matplotlib.font_manager import get_font  # noqa: PLC0415 - as above

    return frozenset(get_font(path).get_charmap())


_T = TypeVar("_T")
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7AE6", "#A07855")
"""Of Okabe and Ito, without those that a light or a dark ground swallows, and two more."""
GRAY = "#8A8A8A"
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo")
"""Where there are more things than colours."""


def resolve_axes(ax: Axes | None, *, width: float = 8.0, height: float = 3.6) -> Axes:
    """The axes that were handed in, or new ones.

    Raises:
        MissingExtraError: There is no matplotlib.
        InvalidInputError: It is something else.
    """
    try:
        from matplotlib.axes import Axes as Known  # noqa: PLC0415 - an extra, and not before it is needed

        from langmem_tiers.display.plots.notebook_axes import create_axes  # noqa: PLC0415 - as above
    except ImportError as error:
        raise MissingExtraError(
            "langmem_tiers.display.plots needs matplotlib: pip install 'langmem-tiers[notebook]'"
        ) from error
    if ax is None:
        return create_axes(width, height)
    given: object = ax
    if not isinstance(given, Known):
        raise InvalidInputError(
            f"ax must be matplotlib axes, got a {type(ax).__name__}: use figure.add_subplot(), or leave it out"
        )
    return ax


def check_plot_values(values: object, kind: type[_T], how: str) -> list[_T]:
    """What is to be drawn, in a list.

    Args:
        values: As they were handed in.
        kind: What each of them must be.
        how: Where one gets them.

    Raises:
        InvalidInputError: They are something else.
    """
    found: list[_T] = []
    for one in values if isinstance(values, Iterable) else [values]:
        if not isinstance(one, kind):
            raise InvalidInputError(
                f"{kind.__name__} objects are drawn here, got a {type(one).__name__}: use what {how} gave"
            )
        found.append(one)
    return found


def get_color(index: int) -> str:
    """The colour of the n-th thing."""
    return COLORS[index % len(COLORS)]


def get_hatch(index: int) -> str:
    """What tells the n-th thing from the one with the same colour."""
    return HATCHES[index // len(COLORS) % len(HATCHES)]


def draw_empty_plot(ax: Axes, title: str, why: str) -> Axes:
    """Axes that say that there is nothing to draw, and why."""
    set_plot_title(ax, title)
    ax.set_axis_off()
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes, color=GRAY)
    return ax


def set_plot_title(ax: Axes, title: str) -> None:
    """A title that stands where the axes begin."""
    disable_text_markup(ax.set_title(title, loc="left", fontsize="medium"))


def draw_legend(ax: Axes, handles: Iterable[Artist], labels: Sequence[str], *, right: float = 1.01) -> Legend:
    """A legend beside the axes, so that it hides nothing.

    Args:
        ax: Beside these.
        handles: What is explained.
        labels: By what.
        right: Where it begins, in widths of the axes: farther out beside those with a second scale.
    """
    made = ax.legend(
        list(handles),
        list(labels),
        loc="upper left",
        bbox_to_anchor=(right, 1.0),
        frameon=False,
        fontsize="small",
        borderaxespad=0.0,
    )
    for text in made.get_texts():
        disable_text_markup(text)
    return made


def style_axes(ax: Axes, *, grid: str | None = None) -> None:
    """Without the lines that say nothing, and with those that help reading."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if grid is not None:
        ax.grid(visible=True, axis=grid, alpha=0.25, linewidth=0.6)  # type: ignore[arg-type]  # x, y or both
        ax.set_axisbelow(True)
