"""Dialogs: closing, repeated key presses, and leaving the page that opened them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.inspector.conftest import SECRET
from tests.inspector.sample_memories import HOSTILE, HOSTILE_SESSION, LONG, OVERRIDING, STORY, UNTOUCHED

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Route

    from tests.inspector.inspector_page import InspectorPage

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("inspector")]


def test_escape_does_not_close_the_token_prompt(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector(secret=None)
    inspector.page.goto(inspector.address)
    field = inspector.page.get_by_role("textbox", name="Token")
    expect(field).to_be_focused()
    for _ in range(3):
        inspector.page.keyboard.press("Escape")
    expect(field).to_be_focused()
    inspector.page.evaluate("location.hash = '#/tasks'")  # this page needs the token too
    field.fill(f"  {SECRET} \t")
    inspector.page.keyboard.press("Enter")
    expect(inspector.page.get_by_role("heading", name="Tasks")).to_be_visible()


def test_dialog_closes_when_its_page_is_left(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("overview", UNTOUCHED)
    inspector.page.get_by_role("link", name="Sessions").click()
    inspector.wait_until_settled().page.get_by_role("button", name="Forget session").first.click()
    expect(inspector.page.get_by_role("button", name="Erase permanently")).to_be_visible()
    inspector.page.go_back()
    expect(inspector.wait_until_settled().page.get_by_role("dialog")).to_have_count(0)
    inspector.go_to("session", UNTOUCHED, s="kept").rows().first.get_by_role(
        "button", name="Original"
    ).click()
    inspector.go_to("overview", LONG)
    expect(inspector.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("closes_early", [False, True])
def test_session_list_is_current_after_closing_a_dialog_during_erasure(
    open_inspector: Callable[..., InspectorPage], *, closes_early: bool
) -> None:
    inspector = open_inspector().go_to("sessions", UNTOUCHED)
    delayed: list[Route] = []
    confirms = re.compile('"confirm": ?true')

    def delay(route: Route) -> None:
        if confirms.search(route.request.post_data or ""):
            delayed.append(route)
        else:
            route.continue_()

    inspector.page.route("**/forget", delay)
    session = f"left {closes_early}"
    inspector.page.get_by_role("button", name=f"Forget session {session}").click()
    dialog = inspector.page.get_by_role("dialog")
    with inspector.page.expect_request(lambda request: bool(confirms.search(request.post_data or ""))):
        inspector.page.get_by_role("button", name="Erase permanently").click()
    expect(dialog.get_by_role("button", name="Close")).to_be_disabled()
    inspector.page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    if closes_early:
        dialog.evaluate("dialog => dialog.close()")  # as browsers do on the second Escape
    delayed[0].continue_()
    if not closes_early:
        receipt = inspector.page.get_by_role("dialog", name="Receipt")
        expect(receipt).to_contain_text(re.compile(r"sessions\s*1"))
        receipt.get_by_role("button", name="Close").click()
    expect(inspector.page.get_by_role("link", name=session)).to_have_count(0)
    expect(inspector.page.get_by_role("link", name="kept")).to_be_visible()


def test_actions_use_the_id_that_opened_the_dialog(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("session", UNTOUCHED, s="kept")

    def change_id(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | {"id": "another"})

    inspector.page.route("**/entries/**", change_id)
    with inspector.page.expect_request("**/entries/**") as opened:
        inspector.rows().first.get_by_role("button", name="Original").click()
    expected = opened.value.url.split("/entries/")[1].split("?")[0]
    inspector.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    with inspector.page.expect_request("**/forget") as sent:
        inspector.page.get_by_role("button", name="Erase permanently").click()
    assert json.loads(sent.value.post_data or "")["entry"] == expected


def test_writing_direction_of_a_name_does_not_affect_the_role(
    open_inspector: Callable[..., InspectorPage],
) -> None:
    inspector = open_inspector().go_to("session", HOSTILE, s=HOSTILE_SESSION)
    inspector.rows().filter(has_text="backwards").get_by_role("button", name="Original").click()
    role = (
        inspector.page.get_by_role("dialog").locator(".properties div").filter(has_text="Role").locator("dd")
    )
    expect(role).to_have_text(f"user ({OVERRIDING})")
    assert role.locator("bdi").all_text_contents() == ["user", OVERRIDING]


def test_disabled_danger_button_looks_like_other_disabled_buttons(
    open_inspector: Callable[..., InspectorPage],
) -> None:
    inspector = open_inspector().go_to("overview", STORY)
    inspector.page.get_by_role("button", name="Forget this namespace").click()
    confirm = inspector.page.get_by_role("button", name="Erase permanently")
    colors = "e => [getComputedStyle(e).color, getComputedStyle(e).borderColor]"
    disabled = confirm.evaluate(colors)
    plain = inspector.page.evaluate(
        "() => { const b = document.createElement('button'); b.disabled = true; document.body.append(b);"
        f"const result = ({colors})(b); b.remove(); return result; }}"
    )
    assert disabled == plain
