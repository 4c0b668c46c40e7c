"""The HTML layout of tables."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from langmem_tiers.display.html import render_html
from langmem_tiers.display.tables import Cell, DisplayContent, StackedBar, Table, UntrustedText
from langmem_tiers.display.text import render_text

LONG = "It has more than thirty-two characters."


def element_of(sheet: DisplayContent) -> ET.Element:
    return ET.fromstring(render_html(sheet))  # noqa: S314 - our own HTML, without entities


def style_of(element: ET.Element) -> dict[str, str]:
    """Return the properties of an element; the last one of a name is valid."""
    parts = (part.partition(":") for part in element.get("style", "").split(";"))
    return {name: value for name, _, value in parts}


def words_of(element: ET.Element) -> str:
    return "".join(element.itertext())


def column_of(*cells: Cell) -> list[ET.Element]:
    """Return the heading and the cells of a table with one column."""
    table = element_of(DisplayContent("", tables=(Table(("name",), tuple((cell,) for cell in cells)),)))
    return [*table.iter("th"), *table.iter("td")]


@pytest.mark.parametrize(
    ("cells", "sides"),
    [
        ((1, 2.5), ["right", "right", "right"]),
        ((1, None), ["right", "right"]),
        ((UntrustedText("a"), UntrustedText("b")), ["left", "left", "left"]),
        ((1, UntrustedText("b")), ["left", "left", "left"]),
        (("yes", None), ["left", "left", "left"]),
        ((None,), ["left", "left"]),
        ((), ["left"]),
    ],
    ids=["numbers", "a number is missing", "texts", "numbers and texts", "words", "nothing", "no rows"],
)
def test_a_column_of_numbers_is_aligned_right_with_its_heading(
    cells: tuple[Cell, ...], sides: list[str]
) -> None:
    shown = column_of(*cells)[: len(sides)]
    assert [style_of(element)["text-align"] for element in shown] == sides
    digits = [style_of(element).get("font-variant-numeric") == "tabular-nums" for element in shown]
    assert digits == [side == "right" for side in sides]


def test_texts_up_to_32_characters_do_not_wrap_and_others_keep_line_breaks() -> None:
    texts = ("short", "x" * 32, "x" * 33, "a\nb", LONG)
    heading, *cells = column_of(*map(UntrustedText, texts), None)
    spaces = ["nowrap", "nowrap", "pre-wrap", "pre-wrap", "pre-wrap", "nowrap"]
    assert [style_of(cell)["white-space"] for cell in cells] == spaces
    assert [words_of(cell) for cell in cells] == [*texts, "-"]
    assert style_of(heading)["white-space"] == "nowrap"


def test_short_facts_share_a_line_and_each_long_one_has_its_own() -> None:
    facts = {"first": "short", "long": LONG, "count": 1234, "lines": "a\nb"}
    _, *lines = element_of(DisplayContent("title", facts))
    assert [words_of(line).strip() for line in lines] == [
        "first short count 1,234",
        f"long {LONG}",
        "lines a\nb",
    ]
    assert [style_of(line).get("white-space") for line in lines] == [None, "pre-wrap", "pre-wrap"]
    assert [words_of(line) for line in element_of(DisplayContent("title", {"long": LONG}))] == [
        "title",
        f"long {LONG}",
    ]


@pytest.mark.parametrize(
    ("left_out", "gap_at", "shown"),
    [
        (0, None, ["a", "b", "c"]),
        (1200, None, ["a", "b", "c", "and 1,200 more"]),
        (5, 0, ["and 5 more", "a", "b", "c"]),
        (5, 2, ["a", "b", "and 5 more", "c"]),
        (5, 3, ["a", "b", "c", "and 5 more"]),
        (0, 1, ["a", "b", "c"]),
    ],
)
def test_omitted_rows_are_counted_at_their_position(
    left_out: int, gap_at: int | None, shown: list[str]
) -> None:
    rows = tuple((UntrustedText(word), 1) for word in "abc")
    sheet = DisplayContent("", tables=(Table(("word", "number"), rows, "Words", left_out, gap_at),))
    element = element_of(sheet)
    assert [words_of(row[0]) for row in element.iter("tr")] == ["word", *shown]
    assert [row[0].get("colspan") for row in element.iter("tr") if len(row) == 1] == ["2"] * bool(left_out)
    assert "Words" in words_of(element)


@pytest.mark.parametrize(
    ("left_out", "gap_at", "shown"),
    [
        (0, None, ["a", "b", "c"]),
        (1200, None, ["a", "b", "c", "… and 1,200 more"]),
        (5, 2, ["a", "b", "… and 5 more", "c"]),
        (5, 3, ["a", "b", "c", "… and 5 more"]),
    ],
)
def test_omitted_rows_are_counted_at_their_position_in_plain_text_too(
    left_out: int, gap_at: int | None, shown: list[str]
) -> None:
    rows = tuple((UntrustedText(word),) for word in "abc")
    sheet = DisplayContent("title", tables=(Table(("word",), rows, "Words", left_out, gap_at),))
    assert [line.strip() for line in render_text(sheet).splitlines()] == ["title", "Words:", "word", *shown]


def test_truncated_characters_are_counted() -> None:
    sheet = DisplayContent("", {"fact": "x" * 401}, (Table(("text",), ((UntrustedText.of("y" * 1760),),)),))
    shown = words_of(element_of(sheet))
    assert "x" * 400 + " … (+1 characters)" in shown
    assert "y" * 160 + " … (+1,600 characters)" in shown


@pytest.mark.parametrize(
    ("parts", "whole", "widths"),
    [
        ({"a": 25, "none": 0, "b": 50}, 100, {"a: 25": "25.00%", "b: 50": "50.00%"}),
        ({"a": 1000, "b": 3000}, 100, {"a: 1,000": "25.00%", "b: 3,000": "75.00%"}),  # more than the whole
        ({"a": 1}, 1, {"a: 1": "100.00%"}),
        ({"a": 0}, 0, {}),
    ],
)
def test_a_bar_shows_the_share_of_each_part_and_names_it(
    parts: dict[str, int], whole: int, widths: dict[str, str]
) -> None:
    _, bar, legend = element_of(DisplayContent("", bar=StackedBar(parts, whole)))
    assert {part.get("title"): style_of(part)["width"] for part in bar} == widths
    assert [words_of(name) for name in legend] == [f"■ {label.replace(':', '')}" for label in widths]
    colors = [style_of(part)["background"] for part in bar]
    assert colors == [style_of(name[0])["color"] for name in legend]
    assert len(set(colors)) == len(widths)
