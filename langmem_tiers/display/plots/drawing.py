"""Helpers shared by all plots: axes, colors, text and legends."""

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
"""Font families with glyphs that matplotlib's own fonts lack; used if installed."""
_MISSING_GLYPH = "□"


def truncate_label(text: object, max_characters: int = 48) -> str:
    """Return a text on one line, cut to a maximum number of characters."""
    line = " ".join(_replace_unprintable(str(text)[: max_characters * 20]).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1].rstrip()}…"


def disable_text_markup(text: Text) -> Text:
    """Draw a text literally, without mathtext or TeX, in fonts that have its glyphs; return it."""
    text.set_parse_math(False)
    text.set_usetex(False)
    if not text.get_text().isascii():
        text.set_fontfamily(list(_list_font_families()))
        text.set_text(replace_missing_glyphs(text.get_text()))
    return text


def replace_missing_glyphs(text: str) -> str:
    """Replace characters that no font has by a box. Apply it to tick labels before they are set."""
    if text.isascii():
        return text
    glyphs = _collect_glyphs(_list_font_families())
    return "".join(char if ord(char) in glyphs else _MISSING_GLYPH for char in text)


def _replace_unprintable(text: str) -> str:
    # Direction marks would reorder the text after the label, and line separators would break it.
    return "".join(
        char if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} else " " for char in text
    )


def _list_font_families() -> tuple[str, ...]:
    from matplotlib import rcParams  # noqa: PLC0415 - optional dependency, loaded already

    return (*rcParams["font.family"], *_list_installed_fonts())


@lru_cache(maxsize=1)
def _list_installed_fonts() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager  # noqa: PLC0415 - optional dependency, loaded already

    installed = {font.name for font in fontManager.ttflist}
    return tuple(name for name in _WIDE_FONTS if name in installed)


def _collect_glyphs(families: Iterable[str]) -> frozenset[int]:
    from matplotlib.font_manager import FontProperties, findfont  # noqa: PLC0415 - as above

    return frozenset().union(*(_load_glyphs(findfont(FontProperties(family=[name]))) for name in families))


@lru_cache(maxsize=64)
def _load_glyphs(path: str) -> frozenset[int]:
    # Caches the character codes instead of the font object, which belongs to the thread that opened it.
    from matplotlib.font_manager import get_font  # noqa: PLC0415 - as above

    return frozenset(get_font(path).get_charmap())


_T = TypeVar("_T")
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7AE6", "#A07855")
"""The palette of Okabe and Ito without the colors that are hard to see on a light or dark background, plus two more."""
GRAY = "#8A8A8A"
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo")
"""Patterns that distinguish bars when there are more of them than colors."""


def resolve_axes(ax: Axes | None, *, width: float = 8.0, height: float = 3.6) -> Axes:
    """Return the given axes, or new ones.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InvalidInputError: ``ax`` is not matplotlib axes.
    """
    try:
        from matplotlib.axes import Axes as Known  # noqa: PLC0415 - optional dependency, imported on demand

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
            f"ax must be matplotlib axes, got {type(ax).__name__}: use figure.add_subplot(), or leave it out"
        )
    return ax


def check_plot_values(values: object, kind: type[_T], how: str) -> list[_T]:
    """Return the values as a list; raise InvalidInputError if one has another type.

    Args:
        values: The values, as passed by the caller.
        kind: Required type of each value.
        how: Calls that return such values, for the error message.

    Raises:
        InvalidInputError: A value has another type.
    """
    found: list[_T] = []
    for value in values if isinstance(values, Iterable) else [values]:
        if not isinstance(value, kind):
            raise InvalidInputError(
                f"expected {kind.__name__} objects, got {type(value).__name__}: pass the result of {how}"
            )
        found.append(value)
    return found


def get_color(index: int) -> str:
    """Return the color of the n-th item."""
    return COLORS[index % len(COLORS)]


def get_hatch(index: int) -> str:
    """Return the hatch pattern that distinguishes the n-th item from others of the same color."""
    return HATCHES[index // len(COLORS) % len(HATCHES)]


def draw_empty_plot(ax: Axes, title: str, why: str) -> Axes:
    """Draw axes with a message that explains why there is nothing to draw."""
    set_plot_title(ax, title)
    ax.set_axis_off()
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes, color=GRAY)
    return ax


def set_plot_title(ax: Axes, title: str) -> None:
    """Set a left-aligned title."""
    disable_text_markup(ax.set_title(title, loc="left", fontsize="medium"))


def draw_legend(ax: Axes, handles: Iterable[Artist], labels: Sequence[str], *, right: float = 1.01) -> Legend:
    """Draw a legend beside the axes, so that it covers nothing.

    Args:
        ax: The axes.
        handles: Artists to explain.
        labels: Label of each artist.
        right: Left edge of the legend, in widths of the axes; larger beside axes with a second scale.
    """
    legend = ax.legend(
        list(handles),
        list(labels),
        loc="upper left",
        bbox_to_anchor=(right, 1.0),
        frameon=False,
        fontsize="small",
        borderaxespad=0.0,
    )
    for text in legend.get_texts():
        disable_text_markup(text)
    return legend


def style_axes(ax: Axes, *, grid: str | None = None) -> None:
    """Hide the top and right borders and draw light grid lines."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if grid is not None:
        ax.grid(visible=True, axis=grid, alpha=0.25, linewidth=0.6)  # type: ignore[arg-type]  # x, y or both
        ax.set_axisbelow(True)
