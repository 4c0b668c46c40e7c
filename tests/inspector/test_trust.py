"""Security: hostile content, confirmation before erasure, access tokens and error messages."""

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
def test_hostile_content_is_shown_as_text(open_inspector: Callable[..., InspectorPage], width: int) -> None:
    inspector = open_inspector(width=width).go_to("session", HOSTILE, s=HOSTILE_SESSION)
    script = inspector.rows().filter(has_text=SCRIPT)
    expect(script.locator(".text-block")).to_have_text(SCRIPT)
    backwards = inspector.rows().filter(has_text=RIGHT_TO_LEFT).locator(".text-block")
    assert backwards.evaluate("e => getComputedStyle(e).direction") == "rtl"
    assert inspector.width == width
    script.get_by_role("button", name="Original").click()
    expect(inspector.page.get_by_role("dialog").locator(".text-block.full")).to_have_text(SCRIPT)
    for page, parameters in {"search": {"q": "script alert ran"}, "knowledge": {}, "sessions": {}}.items():
        inspector.go_to(page, HOSTILE, **parameters)
        assert inspector.width == width
    inspector.go_to("preview", HOSTILE, s=HOSTILE_SESSION, b=100_000)
    assert inspector.width == width
    assert inspector.page.evaluate("window.ran") is None
    assert inspector.page.locator("main script, main img, main b, main i").count() == 0


def test_line_of_a_megabyte_is_expanded_on_request(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector(width=360).go_to("session", HOSTILE, s=LONG_SESSION)
    inspector.rows().get_by_role("button", name="Original").click()
    text = inspector.page.get_by_role("dialog").locator(".text-block.full")
    expect(text).to_have_text("x" * 20_000)
    inspector.page.get_by_role("button", name="Show the remaining 980,000 characters").click()
    assert len(text.evaluate("e => e.textContent")) == len(LONG_LINE)
    assert inspector.width == 360


@pytest.mark.parametrize(
    ("page", "parameters", "texts"),
    [
        ("knowledge", {"category": "domain"}, {"Text": LONG_VALUE}),
        ("task", {"t": LONG_TASK}, {"Text": LONG_THOUGHT, "Result": LONG_RESULT}),
    ],
)
def test_original_shows_the_complete_text(
    open_inspector: Callable[..., InspectorPage], page: str, parameters: dict[str, str], texts: dict[str, str]
) -> None:
    inspector = open_inspector(width=360).go_to(page, HOSTILE, **parameters)
    assert len(inspector.rows().locator(".text-block").first.inner_text()) <= len("… ") + 2_000
    inspector.rows().get_by_role("button", name="Original").click()
    for name, text in texts.items():
        shown = inspector.page.get_by_role("dialog").get_by_role("region", name=name)
        expect(shown).to_contain_text(text)
    assert inspector.width == 360


def test_other_conflicts_do_not_ask_for_confirmation(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("sessions", STORY)
    error = {"error": {"kind": "conflict", "message": "another process is erasing it"}}
    inspector.page.route("**/forget", lambda route: route.fulfill(status=409, json=error))
    inspector.page.get_by_role("button", name=re.compile("Forget session")).first.click()
    dialog = inspector.page.get_by_role("dialog", name="Forget this session?")
    expect(dialog).to_contain_text("nother process is erasing it")
    expect(dialog.get_by_role("button", name="Erase permanently")).to_have_count(0)


@pytest.mark.smoke
def test_forgetting_requires_confirmation_and_shows_the_receipt(
    open_inspector: Callable[..., InspectorPage],
) -> None:
    inspector = open_inspector().go_to("sessions", FORGETTABLE)
    button = inspector.page.get_by_role("button", name="Forget session session 1")
    button.click()
    dialog = inspector.page.get_by_role("dialog", name="Forget this session?")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    inspector.page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    inspector.page.reload()
    button.click()
    dialog.get_by_role("button", name="Erase permanently").click()
    receipt = inspector.page.get_by_role("dialog", name="Receipt")
    expect(receipt).to_contain_text(re.compile(r"sessions\s*1"))
    expect(receipt).to_contain_text(re.compile(r"Receipt \S+"))
    receipt.get_by_role("button", name="Close").click()
    expect(inspector.page.get_by_role("link", name="session 2")).to_be_visible()
    expect(inspector.page.get_by_role("link", name="session 1")).to_have_count(0)


def test_message_can_be_forgotten_from_its_original(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("session", FORGETTABLE, s="session 2")
    row = inspector.rows().first
    text = row.locator(".text-block").inner_text()
    row.get_by_role("button", name="Original").click()
    inspector.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    inspector.page.get_by_role("button", name="Erase permanently").click()
    expect(inspector.page.get_by_role("dialog", name="Receipt")).to_contain_text(re.compile(r"messages\s*1"))
    inspector.page.keyboard.press("Escape")
    inspector.wait_until_settled()
    expect(inspector.rows().first.locator(".text-block")).not_to_have_text(text)


def test_forgetting_a_namespace_requires_its_name(
    open_inspector: Callable[..., InspectorPage],
) -> None:
    inspector = open_inspector().go_to("overview", STORY)
    inspector.page.get_by_role("button", name="Forget this namespace").click()
    confirm = inspector.page.get_by_role("button", name="Erase permanently")
    expect(confirm).to_be_disabled()
    inspector.page.keyboard.type("tidepool/mar")
    expect(confirm).to_be_disabled()
    inspector.page.keyboard.type("a")
    expect(confirm).to_be_enabled()
    inspector.page.keyboard.press("Escape")
    expect(inspector.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.smoke
def test_token_is_requested_once_per_tab(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector(secret=None)
    inspector.page.goto(inspector.address)
    dialog = inspector.page.get_by_role("dialog", name="Token")
    inspector.page.get_by_role("textbox", name="Token").fill("wrong")
    inspector.page.keyboard.press("Enter")
    expect(dialog).to_contain_text("rejected the token")
    inspector.page.get_by_role("textbox", name="Token").fill(SECRET)
    inspector.page.keyboard.press("Enter")
    expect(inspector.page.get_by_role("heading", name="Overview")).to_be_visible()
    inspector.page.reload()
    expect(inspector.page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(dialog).to_have_count(0)
    assert inspector.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


def test_error_response_shows_its_message(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("session", STORY, s="never heard of")
    alert = inspector.page.get_by_role("alert")
    expect(alert).to_contain_text("Not found.")
    expect(alert).to_contain_text("never heard of")


def test_lost_connection_shows_a_message(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("overview", STORY)
    inspector.page.route("**/sessions?**", lambda route: route.abort("connectionrefused"))
    inspector.page.get_by_role("link", name="Sessions").click()
    expect(inspector.page.get_by_role("alert")).to_contain_text("The server is not responding")
    inspector.page.unroute("**/sessions?**")
    inspector.page.get_by_role("button", name="Try again").click()
    expect(inspector.page.get_by_role("link", name="01-kickoff")).to_be_visible()
    inspector.problems = [text for text in inspector.problems if "ERR_CONNECTION_REFUSED" not in text]
