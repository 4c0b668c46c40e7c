"""Dialogs of the inspector: closing, leaving, and disabled buttons."""

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


def test_escape_does_not_close_the_token_dialog(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page(secret=None)
    inspector.page.goto(inspector.address)
    field = inspector.page.get_by_role("textbox", name="Token")
    expect(field).to_be_focused()
    for _ in range(3):
        inspector.page.keyboard.press("Escape")
    expect(field).to_be_focused()
    inspector.page.evaluate("location.hash = '#/tasks'")  # another page asks for it as well
    field.fill(f"  {SECRET} \t")
    inspector.page.keyboard.press("Enter")
    expect(inspector.page.get_by_role("heading", name="Tasks")).to_be_visible()


def test_a_dialog_is_closed_with_its_page(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("overview", UNTOUCHED)
    inspector.page.get_by_role("link", name="Sessions").click()
    inspector.wait_until_settled().page.get_by_role("button", name="Forget the session").first.click()
    expect(inspector.page.get_by_role("button", name="Erase for good")).to_be_visible()
    inspector.page.go_back()
    expect(inspector.wait_until_settled().page.get_by_role("dialog")).to_have_count(0)
    inspector.go_to("session", UNTOUCHED, s="kept").rows().first.get_by_role(
        "button", name="Original"
    ).click()
    inspector.go_to("overview", LONG)
    expect(inspector.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("leaves", [False, True])
def test_after_leaving_during_erasure_the_remaining_sessions_are_shown(
    open_page: Callable[..., InspectorPage], *, leaves: bool
) -> None:
    inspector = open_page().go_to("sessions", UNTOUCHED)
    held_routes: list[Route] = []
    confirms = re.compile('"confirm": ?true')

    def hold_confirmed(route: Route) -> None:
        if confirms.search(route.request.post_data or ""):
            held_routes.append(route)
        else:
            route.continue_()

    inspector.page.route("**/forget", hold_confirmed)
    session = f"left {leaves}"
    inspector.page.get_by_role("button", name=f"Forget the session {session}").click()
    dialog = inspector.page.get_by_role("dialog")
    with inspector.page.expect_request(lambda request: bool(confirms.search(request.post_data or ""))):
        inspector.page.get_by_role("button", name="Erase for good").click()
    expect(dialog.get_by_role("button", name="Close")).to_be_disabled()
    inspector.page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    if leaves:
        dialog.evaluate("dialog => dialog.close()")  # as browsers do when Escape is pressed again
    held_routes[0].continue_()
    if not leaves:
        receipt = inspector.page.get_by_role("dialog", name="Receipt")
        expect(receipt).to_contain_text(re.compile(r"sessions\s*1"))
        receipt.get_by_role("button", name="Close").click()
    expect(inspector.page.get_by_role("link", name=session)).to_have_count(0)
    expect(inspector.page.get_by_role("link", name="kept")).to_be_visible()


def test_forgetting_a_memory_sends_the_id_that_was_requested(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("session", UNTOUCHED, s="kept")

    def change_id(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | {"id": "another"})

    inspector.page.route("**/entries/**", change_id)
    with inspector.page.expect_request("**/entries/**") as request:
        inspector.rows().first.get_by_role("button", name="Original").click()
    entry_id = request.value.url.split("/entries/")[1].split("?")[0]
    inspector.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    with inspector.page.expect_request("**/forget") as sent:
        inspector.page.get_by_role("button", name="Erase for good").click()
    assert json.loads(sent.value.post_data or "")["entry"] == entry_id


def test_a_name_with_an_override_character_does_not_reverse_the_role(
    open_page: Callable[..., InspectorPage],
) -> None:
    inspector = open_page().go_to("session", HOSTILE, s=HOSTILE_SESSION)
    inspector.rows().filter(has_text="backwards").get_by_role("button", name="Original").click()
    role = inspector.page.get_by_role("dialog").locator(".facts div").filter(has_text="Role").locator("dd")
    expect(role).to_have_text(f"user ({OVERRIDING})")
    assert role.locator("bdi").all_text_contents() == ["user", OVERRIDING]


def test_a_disabled_button_looks_disabled(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("overview", STORY)
    inspector.page.get_by_role("button", name="Forget this namespace").click()
    confirm = inspector.page.get_by_role("button", name="Erase for good")
    colours = "e => [getComputedStyle(e).color, getComputedStyle(e).borderColor]"
    disabled = confirm.evaluate(colours)
    plain = inspector.page.evaluate(
        "() => { const b = document.createElement('button'); b.disabled = true; document.body.append(b);"
        f"const found = ({colours})(b); b.remove(); return found; }}"
    )
    assert disabled == plain
