from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import CharCounter, ContentAwareCounter
from langmem_tiers.compression.tool_output.compressor import (
    COMPRESSIBLE_TOOLS,
    TIER_TOKEN_SHARES,
    URL_CRITICAL_TOOLS,
    ContextCompressor,
)
from langmem_tiers.compression.tool_output.models import (
    CompressedExtraction,
    CompressionContentType,
    ErrorDetails,
)
from langmem_tiers.compression.tool_output.page_elements import to_output_content
from langmem_tiers.compression.tool_output.pages import build_selector, read_page
from tests.compression.tool_results import FORM, PAGE, PROSE, RESULTS, ROWS, TRACE, TREE

compressor = ContextCompressor()


def test_the_lists_of_tools_are_those_of_the_design() -> None:
    assert (
        set("search search_human search_api search_rank get_page_state get_attribute".split())
        == URL_CRITICAL_TOOLS
    )
    assert (
        set("extract_text extract_data extract_structured_data evaluate_javascript get_page_content".split())
        == COMPRESSIBLE_TOOLS
    )


@pytest.mark.parametrize("tool", sorted(URL_CRITICAL_TOOLS))
def test_results_of_url_critical_tools_are_never_compressed(tool: str) -> None:
    assert not compressor.should_compress(tool, "x" * 1_000_000)


@pytest.mark.parametrize("tool", [*sorted(COMPRESSIBLE_TOOLS), "a tool of mine"])
def test_results_of_other_tools_are_compressed_above_2000_tokens(tool: str) -> None:
    by_characters = ContextCompressor(CharCounter())
    assert not by_characters.should_compress(tool, "x" * 8000)
    assert by_characters.should_compress(tool, "x" * 8001)


class CountOfX:
    """A token for each letter x."""

    name = "x"

    def count(self, text: str) -> int:
        return text.count("x")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (f"x{'-' * 199_999}x{'-' * 199_998}x", 3),  # 400,000 characters: all of them are counted
        (f"{'-' * 200_000}x{'-' * 200_000}", 0),  # longer: the first and the last 100,000 are counted
        (f"{'-' * 100_000}{'x' * 200_001}{'-' * 100_000}", 0),
        (f"{'x' * 100_000}{'-' * 200_001}{'x' * 100_000}", 400_001),
        (f"{'x' * 100_000}{'-' * 900_000}", 500_000),
        (f"{'-' * 900_000}{'x' * 100_000}", 500_000),
    ],
    ids=["whole", "one in the middle", "middle", "both ends", "beginning", "end"],
)
def test_tokens_of_a_text_above_400000_characters_are_estimated_from_both_ends(
    text: str, tokens: int
) -> None:
    above, at = (
        ContextCompressor(CountOfX(), compression_threshold_tokens=threshold)
        for threshold in (tokens - 1, tokens)
    )
    assert above.should_compress("extract_text", text)
    assert not at.should_compress("extract_text", text)


def test_threshold_switch_and_lists_are_configurable() -> None:
    own = ContextCompressor(
        CharCounter(),
        compression_threshold_tokens=10,
        url_critical_tools=["my_search"],
        compressible_tools=["my_text", "search"],
    )
    assert own.should_compress("my_text", "x" * 41)
    assert not own.should_compress("my_search", "x" * 41)
    assert not own.should_compress("search", "x" * 41)  # critical goes before compressible
    assert "my_text" in own.compressible_tools
    off = ContextCompressor(enable_intelligent_compression=False)
    assert not off.should_compress("extract_text", "x" * 100_000)


@pytest.mark.parametrize(("tier", "share"), [(1, 0.60), (2, 0.30), (3, 0.12)])
@pytest.mark.parametrize("data", [PROSE, ROWS], ids=["prose", "rows"])
def test_each_tier_keeps_at_most_its_token_share(data: object, tier: int, share: float) -> None:
    assert TIER_TOKEN_SHARES[tier] == share
    done = compressor.compress(data, compression_tier=tier)
    assert done.tier == tier
    assert share / 2 * done.original_tokens < done.compressed_tokens <= share * done.original_tokens
    assert done.compressed_tokens == ContentAwareCounter().count(done.format_for_prompt())


def test_a_higher_tier_keeps_fewer_facts() -> None:
    one, two, three = (compressor.compress(PROSE, compression_tier=tier) for tier in (1, 2, 3))
    assert len(one.key_facts) > len(two.key_facts) > len(three.key_facts) > 0
    assert one.compression_confidence > two.compression_confidence > three.compression_confidence > 0


@pytest.mark.parametrize(("tier", "counts_as"), [(0, 1), (7, 3), ("x", 2), (None, 2)])
def test_an_unknown_tier_counts_as_the_nearest(tier: Any, counts_as: int) -> None:
    assert compressor.compress("text", compression_tier=tier).tier == counts_as


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_search_results_keep_all_urls_titles_and_snippets(tier: int) -> None:
    done = compressor.compress(RESULTS, compression_tier=tier)
    assert done.summary.startswith("20 search results: Lamp 1, Lamp 2")
    assert done.urls_mentioned == [result["url"] for result in RESULTS]
    assert done.navigation_targets == tuple(
        {"label": result["title"], "url": result["url"]} for result in RESULTS
    )
    assert len(done.key_facts) == 20
    assert done.key_facts[4].startswith("[5] A lamp for $5. A lamp for $5.")
    assert done.validate_url_preservation(20) == (True, "all 20 URLs preserved")
    text = done.format_for_prompt()
    assert all(
        f"{number}. Lamp {number}: https://shop.example/{number}\n" in f"{text}\n" for number in range(1, 21)
    )


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_page_states_keep_all_links_buttons_fields_and_selectors(tier: int) -> None:
    done = compressor.compress(PAGE, "page_state", tier)
    assert done.summary == 'Page "Lamps & more": 2 named links, 3 buttons, 2 fields'
    assert done.navigation_targets == (
        {"label": "Home", "url": "/"},
        {"label": "Lamps", "url": "/lamps?page=2&sort=price#top"},
    )
    assert {"button: Find #go", 'button: Cart div[data-testid="cart"]', "button: Send"} <= set(done.key_facts)
    assert done.form_fields == (
        {"name": "q", "type": "search", "selector": "#q"},
        {"name": "color", "type": "select", "selector": 'select[name="color"]'},
    )
    assert {"#find", "#q", "#go", 'select[name="color"]', 'div[data-testid="cart"]'} <= set(done.selectors)
    text = done.format_for_prompt()
    assert all(selector in text for selector in done.selectors)


def test_accessibility_trees_are_read_for_links_buttons_and_fields() -> None:
    done = compressor.compress(TREE)
    assert done.navigation_targets == (
        {"label": "[2] Home", "url": "/home"},
        {"label": "[ref=e5] About", "url": "about.html"},
    )
    assert done.form_fields == ({"name": "Search", "type": "textbox", "selector": "[4]"},)
    assert "button: Buy now [3]" in done.key_facts
    assert done.selectors == ("[2]", "[3]", "[4]", "[ref=e5]")


def test_a_page_state_as_data_keeps_its_elements() -> None:
    state = {
        "title": "Shop",
        "links": [{"text": "Cart", "href": "/cart"}],
        "buttons": [{"text": "Buy", "selector": ".buy-now"}],
        "inputs": [{"name": "q", "type": "search", "id": "q"}],
    }
    done = compressor.compress(json.dumps(state), compression_tier=3)
    assert done.content_type is CompressionContentType.PAGE_STATE
    assert done.navigation_targets == ({"label": "Cart", "url": "/cart"},)
    assert done.key_facts == ("button: Buy .buy-now",)
    assert done.form_fields == ({"name": "q", "type": "search", "selector": "#q"},)
    assert set(done.selectors) == {".buy-now", "#q"}


def test_texts_keep_key_facts_and_their_urls() -> None:
    text = f"{PROSE} The order 4711-AB costs $1,299.00, see https://a.b/terms?x=1. {PROSE}"
    done = compressor.compress(text, compression_tier=3)
    assert any("4711-AB costs $1,299.00" in line for line in (done.summary, *done.key_facts))
    assert done.urls_mentioned == ["https://a.b/terms?x=1"]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (
            TRACE,
            ("TimeoutError", "Timeout 30000ms exceeded waiting for the page", "wait for the page to load"),
        ),
        (
            {"error": {"type": "NotFound", "message": "no lamp", "hint": "Look elsewhere"}},
            ("NotFound", "no lamp", "Look elsewhere"),
        ),
        (
            {"success": False, "error": "HTTP 429 Too Many Requests"},
            ("HTTP 429", "HTTP 429 Too Many", "wait before"),
        ),
        ("Error: selector #buy not found", ("Error", "selector #buy not found", "read the page state again")),
        ("Error: no such flag. Did you mean --all?", ("Error", "no such flag", "Did you mean --all?")),
        ({"error": "it broke", "error_type": "Broken"}, ("Broken", "it broke", "change something")),
        (PermissionError("forbidden"), ("PermissionError", "forbidden", "check the permissions")),
    ],
)
@pytest.mark.parametrize("tier", [1, 3])
def test_errors_keep_type_message_and_recovery(data: object, error: tuple[str, str, str], tier: int) -> None:
    done = compressor.compress(data, compression_tier=tier)
    assert done.content_type is CompressionContentType.ERROR_INFO
    assert done.error is not None
    assert done.error.type == error[0]
    assert done.error.message.startswith(error[1])
    assert done.error.recovery.startswith(error[2])
    text = done.format_for_prompt()
    assert f"Error: {done.error.type}: {done.error.message}\nTry: {done.error.recovery}" in text


def test_structured_data_keeps_field_names_ids_and_values() -> None:
    done = compressor.compress({"total": 100, "items": ROWS}, compression_tier=2)
    assert done.summary == "100 records with the fields id, name, price"
    assert done.key_facts[0] == "fields: id, name, price"
    assert done.key_facts[1].startswith("id: 0, 1, 2")
    assert done.key_facts[2].endswith("98, 99")
    assert "total: 100" in done.key_facts
    assert "id=1; name=Item 1; price=1.5" in done.key_facts


def test_a_single_record_is_listed_by_path_and_value() -> None:
    done = compressor.compress(
        {"order": {"id": "A-1", "lines": [{"sku": 7}]}, "paid": True}, compression_tier=1
    )
    assert done.key_facts == ("order.id: A-1", "order.lines[0].sku: 7", "paid: True")


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_forms_keep_names_types_and_selectors(tier: int) -> None:
    done = compressor.compress(FORM, compression_tier=tier)
    assert done.summary == "Form with 2 fields: email, pw"
    assert done.form_fields == (
        {"name": "email", "type": "email", "selector": "#email"},
        {"name": "pw", "type": "password"},
    )
    assert "Form fields:\n- email (email) #email\n- pw (password)" in done.format_for_prompt()


def test_the_prompt_has_this_form() -> None:
    done = CompressedExtraction(
        summary="A page",
        key_facts=("It is red",),
        urls_mentioned=["/a", "/b"],
        navigation_targets=({"label": "A", "url": "/a"},),
        form_fields=({"name": "q", "type": "search", "selector": "#q"},),
        selectors=("#q", "#go"),
        content_type=CompressionContentType.PAGE_STATE,
    )
    assert done.format_for_prompt() == (
        "[Compressed page_state, tier 2]\nSummary: A page\nKey facts:\n- It is red\nLinks:\n1. A: /a\nURLs:\n- /b\n"
        "Form fields:\n- q (search) #q\nSelectors:\n- #go"
    )


@pytest.mark.parametrize("data", [RESULTS, PAGE, TRACE, ROWS, FORM, PROSE, TREE, None])
def test_a_result_survives_a_dictionary_round_trip(data: object) -> None:
    done = compressor.compress(data)
    assert CompressedExtraction.from_dict(json.loads(json.dumps(done.to_dict()))) == done
    assert CompressedExtraction.from_dict({"summary": "x", "unknown": 1}).summary == "x"
    assert (
        CompressedExtraction(summary="", error=ErrorDetails(type="A", message="b")).to_dict()["error"]["type"]
        == "A"
    )


def test_a_result_is_read_from_a_dictionary_with_keys_missing_or_null() -> None:
    empty = CompressedExtraction(summary="")
    assert CompressedExtraction.from_dict({}) == empty
    lists = "key_facts urls_mentioned navigation_targets form_fields selectors problems".split()
    assert CompressedExtraction.from_dict(dict.fromkeys([*lists, "error"])) == empty
    partial = {"error": {"type": "A", "message": "b"}, "content_type": "form_data", "tier": 3}
    assert CompressedExtraction.from_dict(partial) == CompressedExtraction(
        summary="",
        error=ErrorDetails(type="A", message="b", recovery=""),
        content_type=CompressionContentType.FORM_DATA,
        tier=3,
    )


async def test_compress_extraction_matches_compress() -> None:
    done = await compressor.compress_extraction(
        large_data=PROSE,
        content_type=CompressionContentType.TEXT_CONTENT,
        compression_tier=2,
        validate_urls=True,
    )
    assert done == compressor.compress(PROSE)


class Odd:
    def __str__(self) -> str:
        raise ValueError("no")


class OddMapping(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("no")


def cyclic() -> dict[str, Any]:
    data: dict[str, Any] = {"url": "https://a.b/c"}
    data["self"] = data
    data["twice"] = [data, data, [data]]
    return data


def deep() -> list[Any]:
    data: list[Any] = ["https://a.b/c"]
    for _ in range(5000):
        data = [data]
    return data


@pytest.mark.parametrize("data", [cyclic(), deep()], ids=["cyclic", "deep"])
def test_cyclic_or_very_deep_data_keeps_its_urls(data: object) -> None:
    assert compressor.compress(data).urls_mentioned == ["https://a.b/c"]


ODD: list[object] = [
    None,
    b"\xff\x00",
    object(),
    Odd(),
    {"a": Odd()},
    OddMapping(a=1),
    10**5000,
    {"n": 10**5000},
]
ODD += [float("nan"), {1, "a"}, {(1, 2): 3}, "[" * 5000, "\ud800", "<" * 999, 5, True, [], {}]


@pytest.mark.parametrize("data", ODD, ids=map(str, range(len(ODD))))
def test_no_input_raises(data: object) -> None:
    kinds: list[Any] = [None, *CompressionContentType, "unheard of"]
    for kind, tier in itertools.product(kinds, (1, 3)):
        done = compressor.compress(data, kind, tier)
        assert done.summary
        assert "\n" not in done.summary
    assert not compressor.should_compress("extract_text", data) or isinstance(data, str)


pieces = st.sampled_from(
    [
        "<a href=",
        "</a>",
        "<b",
        '"',
        "'",
        ">",
        "[x](",
        ")",
        "{",
        "}",
        "[",
        ":",
        "https://a.b/c",
        "\n",
        " ",
        "Error: ",
        "\\u00",
        "&amp;",
        "- link ",
        "<!--",
        "www.",
        "/x",
    ]
)


@given(text=st.one_of(st.text(), st.lists(pieces, max_size=30).map("".join)), tier=st.integers(1, 3))
def test_no_text_raises(text: str, tier: int) -> None:
    for kind in (None, "page_state", "structured_data", "error_info"):
        done = compressor.compress(text, kind, tier)
        assert 0 <= done.compression_confidence <= 1
        assert done.compressed_tokens == compressor.counter.count(done.format_for_prompt())
        assert set(done.urls_mentioned) == set(compressor._extract_all_urls(text))


@pytest.mark.parametrize("tag", ["script", "style", "noscript"])
def test_page_text_omits_skipped_tags(tag: str) -> None:
    page = read_page(f"<p>Hello <{tag}>var a;</{tag}> world</p>")
    assert " ".join(page.text).split() == ["Hello", "world"]


def test_selectors_contain_only_classes_that_need_no_escape_in_css() -> None:
    assert build_selector("a", {"class": "md:flex btn 2xl w-1/2 btn-primary"}) == "a.btn.btn-primary"
    assert build_selector("a", {"class": "md:flex"}) == ""


def test_data_nested_more_than_50_levels_deep_is_cut_off() -> None:
    data: object = "the end"
    for _ in range(50):
        data = [data]
    assert "the end" in to_output_content(data).text
    assert "the end" not in to_output_content([data]).text


def test_a_selector_in_a_url_is_listed_without_form_fields_too() -> None:
    extraction = CompressedExtraction(
        content_type=CompressionContentType.PAGE_STATE,
        summary="A page.",
        urls_mentioned=["#a"],
        selectors=("#a",),
    )
    assert extraction.format_for_prompt().splitlines()[-2:] == ["Selectors:", "- #a"]
