"""What must not happen: scripts from a memory, erasing unasked, pages for those who may not."""

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
def test_hostile_words_are_shown_as_they_are_and_do_nothing(
    looking: Callable[..., InspectorPage], width: int
) -> None:
    look = looking(width=width).go_to("session", HOSTILE, s=HOSTILE_SESSION)
    script = look.rows().filter(has_text=SCRIPT)
    expect(script.locator(".said")).to_have_text(SCRIPT)
    backwards = look.rows().filter(has_text=RIGHT_TO_LEFT).locator(".said")
    assert backwards.evaluate("e => getComputedStyle(e).direction") == "rtl"
    assert look.width == width
    script.get_by_role("button", name="Original").click()
    expect(look.page.get_by_role("dialog").locator(".whole")).to_have_text(SCRIPT)
    for page, parameters in {"search": {"q": "script alert ran"}, "knowledge": {}, "sessions": {}}.items():
        look.go_to(page, HOSTILE, **parameters)
        assert look.width == width
    look.go_to("preview", HOSTILE, s=HOSTILE_SESSION, b=100_000)
    assert look.width == width
    assert look.page.evaluate("window.ran") is None
    assert look.page.locator("main script, main img, main b, main i").count() == 0


def test_a_line_of_a_megabyte_is_cut_until_somebody_asks(looking: Callable[..., InspectorPage]) -> None:
    look = looking(width=360).go_to("session", HOSTILE, s=LONG_SESSION)
    look.rows().get_by_role("button", name="Original").click()
    whole = look.page.get_by_role("dialog").locator(".whole")
    expect(whole).to_have_text("x" * 20_000)
    look.page.get_by_role("button", name="Show the other 980,000 characters").click()
    assert len(whole.evaluate("e => e.textContent")) == len(LONG_LINE)
    assert look.width == 360


@pytest.mark.parametrize(
    ("page", "parameters", "whole"),
    [
        ("knowledge", {"category": "domain"}, {"Text": LONG_VALUE}),
        ("task", {"t": LONG_TASK}, {"Text": LONG_THOUGHT, "Result": LONG_RESULT}),
    ],
)
def test_what_is_long_is_whole_in_its_original(
    looking: Callable[..., InspectorPage], page: str, parameters: dict[str, str], whole: dict[str, str]
) -> None:
    look = looking(width=360).go_to(page, HOSTILE, **parameters)
    assert len(look.rows().locator(".said").first.inner_text()) <= len("… ") + 2_000
    look.rows().get_by_role("button", name="Original").click()
    for name, text in whole.items():
        shown = look.page.get_by_role("dialog").get_by_role("region", name=name)
        expect(shown).to_contain_text(text)
    assert look.width == 360


def test_another_conflict_than_a_missing_word_is_no_question(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("sessions", STORY)
    told = {"error": {"kind": "conflict", "message": "somebody else is at it"}}
    look.page.route("**/forget", lambda route: route.fulfill(status=409, json=told))
    look.page.get_by_role("button", name=re.compile("Forget the session")).first.click()
    dialog = look.page.get_by_role("dialog", name="Forget this session?")
    expect(dialog).to_contain_text("omebody else is at it")
    expect(dialog.get_by_role("button", name="Erase for good")).to_have_count(0)


@pytest.mark.smoke
def test_forgetting_asks_first_and_shows_the_receipt(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("sessions", FORGETTABLE)
    button = look.page.get_by_role("button", name="Forget the session session 1")
    button.click()
    dialog = look.page.get_by_role("dialog", name="Forget this session?")
    expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    look.page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    look.page.reload()
    button.click()
    dialog.get_by_role("button", name="Erase for good").click()
    receipt = look.page.get_by_role("dialog", name="Receipt")
    expect(receipt).to_contain_text(re.compile(r"sessions\s*1"))
    expect(receipt).to_contain_text(re.compile(r"Receipt \S+"))
    receipt.get_by_role("button", name="Close").click()
    expect(look.page.get_by_role("link", name="session 2")).to_be_visible()
    expect(look.page.get_by_role("link", name="session 1")).to_have_count(0)


def test_a_message_can_be_forgotten_from_its_original(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("session", FORGETTABLE, s="session 2")
    row = look.rows().first
    words = row.locator(".said").inner_text()
    row.get_by_role("button", name="Original").click()
    look.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    look.page.get_by_role("button", name="Erase for good").click()
    expect(look.page.get_by_role("dialog", name="Receipt")).to_contain_text(re.compile(r"messages\s*1"))
    look.page.keyboard.press("Escape")
    look.wait_until_settled()
    expect(look.rows().first.locator(".said")).not_to_have_text(words)


def test_a_namespace_is_only_forgotten_by_those_who_type_its_name(
    looking: Callable[..., InspectorPage],
) -> None:
    look = looking().go_to("overview", STORY)
    look.page.get_by_role("button", name="Forget this namespace").click()
    sure = look.page.get_by_role("button", name="Erase for good")
    expect(sure).to_be_disabled()
    look.page.keyboard.type("tidepool/mar")
    expect(sure).to_be_disabled()
    look.page.keyboard.type("a")
    expect(sure).to_be_enabled()
    look.page.keyboard.press("Escape")
    expect(look.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.smoke
def test_the_page_asks_for_a_token_and_keeps_it_for_the_tab(looking: Callable[..., InspectorPage]) -> None:
    look = looking(secret=None)
    look.page.goto(look.address)
    dialog = look.page.get_by_role("dialog", name="Token")
    look.page.get_by_role("textbox", name="Token").fill("wrong")
    look.page.keyboard.press("Enter")
    expect(dialog).to_contain_text("did not take that token")
    look.page.get_by_role("textbox", name="Token").fill(SECRET)
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_role("heading", name="Overview")).to_be_visible()
    look.page.reload()
    expect(look.page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(dialog).to_have_count(0)
    assert look.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


def test_what_the_server_refuses_is_told_in_words(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("session", STORY, s="never heard of")
    alert = look.page.get_by_role("alert")
    expect(alert).to_contain_text("Not there.")
    expect(alert).to_contain_text("never heard of")


def test_a_server_that_is_gone_is_told_in_words(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("overview", STORY)
    look.page.route("**/sessions?**", lambda route: route.abort("connectionrefused"))
    look.page.get_by_role("link", name="Sessions").click()
    expect(look.page.get_by_role("alert")).to_contain_text("The server does not answer")
    look.page.unroute("**/sessions?**")
    look.page.get_by_role("button", name="Try again").click()
    expect(look.page.get_by_role("link", name="01-kickoff")).to_be_visible()
    look.problems = [text for text in look.problems if "ERR_CONNECTION_REFUSED" not in text]
