"""Security of the inspector: scripts in memories, confirmation before erasure, and tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.inspector.conftest import SECRET
from tests.inspector.sample_memories import (
    FORGETTABLE,
    HOSTILE,
    HOSTILE_SESSION,
    LONG_LINE,
    LONG_RESULT,
    LONG_SESSION,
    LONG_TASK,
    LONG_THOUGHT,
    LONG_VALUE,
    RIGHT_TO_LEFT,
    SCRIPT,
    STORY,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.inspector.inspector_page import InspectorPage

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("inspector")]


@pytest.mark.parametrize("width", [pytest.param(360, marks=pytest.mark.smoke), 1200])
def test_hostile_texts_are_shown_unchanged_and_not_executed(
    open_page: Callable[..., InspectorPage], width: int
) -> None:
    inspector = open_page(width=width).go_to("session", HOSTILE, s=HOSTILE_SESSION)
    script = inspector.rows().filter(has_text=SCRIPT)
    expect(script.locator(".said")).to_have_text(SCRIPT)
    backwards = inspector.rows().filter(has_text=RIGHT_TO_LEFT).locator(".said")
    assert backwards.evaluate("e => getComputedStyle(e).direction") == "rtl"
    assert inspector.width == width
    script.get_by_role("button", name="Original").click()
    expect(inspector.page.get_by_role("dialog").locator(".whole")).to_have_text(SCRIPT)
    for page, parameters in {"search": {"q": "script alert ran"}, "knowledge": {}, "sessions": {}}.items():
        inspector.go_to(page, HOSTILE, **parameters)
        assert inspector.width == width
    inspector.go_to("preview", HOSTILE, s=HOSTILE_SESSION, b=100_000)
    assert inspector.width == width
    assert inspector.page.evaluate("window.ran") is None
    assert inspector.page.locator("main script, main img, main b, main i").count() == 0


def test_a_line_of_a_megabyte_is_truncated_until_requested(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page(width=360).go_to("session", HOSTILE, s=LONG_SESSION)
    inspector.rows().get_by_role("button", name="Original").click()
    whole = inspector.page.get_by_role("dialog").locator(".whole")
    expect(whole).to_have_text("x" * 20_000)
    inspector.page.get_by_role("button", name="Show the other 980,000 characters").click()
    assert len(whole.evaluate("e => e.textContent")) == len(LONG_LINE)
    assert inspector.width == 360


@pytest.mark.parametrize(
    ("page", "parameters", "whole"),
    [
        ("knowledge", {"category": "domain"}, {"Text": LONG_VALUE}),
        ("task", {"t": LONG_TASK}, {"Text": LONG_THOUGHT, "Result": LONG_RESULT}),
    ],
)
def test_a_long_text_is_complete_in_its_original(
    open_page: Callable[..., InspectorPage], page: str, parameters: dict[str, str], whole: dict[str, str]
) -> None:
    inspector = open_page(width=360).go_to(page, HOSTILE, **parameters)
    assert len(inspector.rows().locator(".said").first.inner_text()) <= len("… ") + 2_000
    inspector.rows().get_by_role("button", name="Original").click()
    for name, text in whole.items():
        shown = inspector.page.get_by_role("dialog").get_by_role("region", name=name)
        expect(shown).to_contain_text(text)
    assert inspector.width == 360


def test_a_conflict_without_a_missing_confirmation_shows_no_question(
    open_page: Callable[..., InspectorPage],
) -> None:
    inspector = open_page().go_to("sessions", STORY)
    response = {"error": {"kind": "conflict", "message": "somebody else is at it"}}
    inspector.page.route("**/forget", lambda route: route.fulfill(status=409, json=response))
    inspector.page.get_by_role("button", name=re.compile("Forget the session")).first.click()
    dialog = inspector.page.get_by_role("dialog", name="Forget this session?")
    expect(dialog).to_contain_text("omebody else is at it")
    expect(dialog.get_by_role("button", name="Erase for good")).to_have_count(0)


@pytest.mark.smoke
def test_forgetting_asks_first_and_shows_the_receipt(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("sessions", FORGETTABLE)
    button = inspector.page.get_by_role("button", name="Forget the session session 1")
    button.click()
    dialog = inspector.page.get_by_role("dialog", name="Forget this session?")
    expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    inspector.page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    inspector.page.reload()
    button.click()
    dialog.get_by_role("button", name="Erase for good").click()
    receipt = inspector.page.get_by_role("dialog", name="Receipt")
    expect(receipt).to_contain_text(re.compile(r"sessions\s*1"))
    expect(receipt).to_contain_text(re.compile(r"Receipt \S+"))
    receipt.get_by_role("button", name="Close").click()
    expect(inspector.page.get_by_role("link", name="session 2")).to_be_visible()
    expect(inspector.page.get_by_role("link", name="session 1")).to_have_count(0)


def test_a_message_can_be_forgotten_from_its_original(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("session", FORGETTABLE, s="session 2")
    row = inspector.rows().first
    words = row.locator(".said").inner_text()
    row.get_by_role("button", name="Original").click()
    inspector.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    inspector.page.get_by_role("button", name="Erase for good").click()
    expect(inspector.page.get_by_role("dialog", name="Receipt")).to_contain_text(re.compile(r"messages\s*1"))
    inspector.page.keyboard.press("Escape")
    inspector.wait_until_settled()
    expect(inspector.rows().first.locator(".said")).not_to_have_text(words)


def test_forgetting_a_namespace_requires_typing_its_name(
    open_page: Callable[..., InspectorPage],
) -> None:
    inspector = open_page().go_to("overview", STORY)
    inspector.page.get_by_role("button", name="Forget this namespace").click()
    confirm = inspector.page.get_by_role("button", name="Erase for good")
    expect(confirm).to_be_disabled()
    inspector.page.keyboard.type("tidepool/mar")
    expect(confirm).to_be_disabled()
    inspector.page.keyboard.type("a")
    expect(confirm).to_be_enabled()
    inspector.page.keyboard.press("Escape")
    expect(inspector.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.smoke
def test_the_page_asks_for_a_token_and_keeps_it_for_the_tab(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page(secret=None)
    inspector.page.goto(inspector.address)
    dialog = inspector.page.get_by_role("dialog", name="Token")
    inspector.page.get_by_role("textbox", name="Token").fill("wrong")
    inspector.page.keyboard.press("Enter")
    expect(dialog).to_contain_text("did not take that token")
    inspector.page.get_by_role("textbox", name="Token").fill(SECRET)
    inspector.page.keyboard.press("Enter")
    expect(inspector.page.get_by_role("heading", name="Overview")).to_be_visible()
    inspector.page.reload()
    expect(inspector.page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(dialog).to_have_count(0)
    assert inspector.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


def test_a_rejected_request_shows_the_reason(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("session", STORY, s="never heard of")
    alert = inspector.page.get_by_role("alert")
    expect(alert).to_contain_text("Not there.")
    expect(alert).to_contain_text("never heard of")


def test_an_unreachable_server_shows_a_notice(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("overview", STORY)
    inspector.page.route("**/sessions?**", lambda route: route.abort("connectionrefused"))
    inspector.page.get_by_role("link", name="Sessions").click()
    expect(inspector.page.get_by_role("alert")).to_contain_text("The server does not answer")
    inspector.page.unroute("**/sessions?**")
    inspector.page.get_by_role("button", name="Try again").click()
    expect(inspector.page.get_by_role("link", name="01-kickoff")).to_be_visible()
    inspector.problems = [text for text in inspector.problems if "ERR_CONNECTION_REFUSED" not in text]
