from __future__ import annotations

import json

import pytest

from langmem_tiers.compression.tool_output.detection import detect_content_type
from langmem_tiers.compression.tool_output.models import CompressionContentType
from tests.compression.tool_results import FORM, PAGE, PROSE, RESULTS, ROWS, TRACE, TREE


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (RESULTS, "search_results"),
        (json.dumps({"query": "lamp", "results": RESULTS}), "search_results"),
        (
            "1. One\nhttps://a.b\nabout it\n\n2. Two\nhttps://c.d\nabout it\n\n3. Three\nhttps://e.f",
            "search_results",
        ),
        (PAGE.replace('<select name="color"></select>', ""), "page_state"),
        ({"url": "https://a.b", "links": [{"text": "A", "href": "/a"}]}, "page_state"),
        ([{"text": "Home", "href": "/"}, {"text": "Shop", "href": "/shop"}], "page_state"),
        ({"role": "WebArea", "name": "Shop", "children": [{"role": "link", "name": "Home"}]}, "page_state"),
        (TREE, "page_state"),
        (PROSE, "text_content"),
        ("# Title\n\nSome *words* and a [link](https://a.b).\n\n- one\n- two", "text_content"),
        ("<p>Only</p><p>words</p>", "text_content"),
        ({"text": PROSE, "length": 5}, "text_content"),
        (TRACE, "error_info"),
        ("Error: element not found", "error_info"),
        ("HTTP 503 Service Unavailable", "error_info"),
        ({"success": False, "message": "no"}, "error_info"),
        ({"error": {"code": 404, "message": "Not Found"}}, "error_info"),
        (ValueError("x"), "text_content"),
        (ROWS, "structured_data"),
        (json.dumps(ROWS), "structured_data"),
        ({"a": 1, "error": None}, "structured_data"),
        ([1, 2, 3], "structured_data"),
        (FORM, "form_data"),
        ({"fields": FORM, "action": "/login"}, "form_data"),
        (
            '<form action="/in"><input name=a><input name=b type=password><button>Go</button></form>',
            "form_data",
        ),
        (None, "text_content"),
        ("", "text_content"),
        (b"plain", "text_content"),
    ],
)
def test_the_content_type_is_detected_by_the_shape_of_a_result(data: object, kind: str) -> None:
    if isinstance(data, BaseException):
        kind = "error_info"
    assert detect_content_type(data) is CompressionContentType(kind)


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        ("search_api", "search_results"),
        ("get_page_state", "page_state"),
        ("read_form", "form_data"),
        ("platform", "text_content"),
        ("", "text_content"),
    ],
)
def test_the_tool_name_decides_for_ambiguous_shapes(tool: str, kind: str) -> None:
    assert detect_content_type("some words", tool) == kind
    assert detect_content_type(TRACE, tool) == "error_info"
