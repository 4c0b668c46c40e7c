"""What dialogs do when they are left, pressed twice, or asked of a page that is gone."""

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


def test_escape_does_not_get_past_the_token(looking: Callable[..., InspectorPage]) -> None:
    look = looking(secret=None)
    look.page.goto(look.address)
    field = look.page.get_by_role("textbox", name="Token")
    expect(field).to_be_focused()
    for _ in range(3):
        look.page.keyboard.press("Escape")
    expect(field).to_be_focused()
    look.page.evaluate("location.hash = '#/tasks'")  # another page asks for it as well
    field.fill(f"  {SECRET} \t")
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_role("heading", name="Tasks")).to_be_visible()


def test_a_dialog_goes_with_its_page(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("overview", UNTOUCHED)
    look.page.get_by_role("link", name="Sessions").click()
    look.wait_until_settled().page.get_by_role("button", name="Forget the session").first.click()
    expect(look.page.get_by_role("button", name="Erase for good")).to_be_visible()
    look.page.go_back()
    expect(look.wait_until_settled().page.get_by_role("dialog")).to_have_count(0)
    look.go_to("session", UNTOUCHED, s="kept").rows().first.get_by_role("button", name="Original").click()
    look.go_to("overview", LONG)
    expect(look.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("leaves", [False, True])
def test_who_leaves_while_it_erases_sees_what_is_left(
    looking: Callable[..., InspectorPage], *, leaves: bool
) -> None:
    look = looking().go_to("sessions", UNTOUCHED)
    held: list[Route] = []
    confirms = re.compile('"confirm": ?true')

    def hold(route: Route) -> None:
        if confirms.search(route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    look.page.route("**/forget", hold)
    session = f"left {leaves}"
    look.page.get_by_role("button", name=f"Forget the session {session}").click()
    dialog = look.page.get_by_role("dialog")
    with look.page.expect_request(lambda one: bool(confirms.search(one.post_data or ""))):
        look.page.get_by_role("button", name="Erase for good").click()
    expect(dialog.get_by_role("button", name="Close")).to_be_disabled()
    look.page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    if leaves:
        dialog.evaluate("dialog => dialog.close()")  # as browsers do when Escape is pressed again
    held[0].continue_()
    if not leaves:
        receipt = look.page.get_by_role("dialog", name="Receipt")
        expect(receipt).to_contain_text(re.compile(r"sessions\s*1"))
        receipt.get_by_role("button", name="Close").click()
    expect(look.page.get_by_role("link", name=session)).to_have_count(0)
    expect(look.page.get_by_role("link", name="kept")).to_be_visible()


def test_what_is_done_to_a_memory_names_it_as_it_was_asked_for(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("session", UNTOUCHED, s="kept")

    def otherwise(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | {"id": "another"})

    look.page.route("**/entries/**", otherwise)
    with look.page.expect_request("**/entries/**") as asked:
        look.rows().first.get_by_role("button", name="Original").click()
    wanted = asked.value.url.split("/entries/")[1].split("?")[0]
    look.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    with look.page.expect_request("**/forget") as sent:
        look.page.get_by_role("button", name="Erase for good").click()
    assert json.loads(sent.value.post_data or "")["entry"] == wanted


def test_a_name_does_not_turn_the_role_around(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("session", HOSTILE, s=HOSTILE_SESSION)
    look.rows().filter(has_text="backwards").get_by_role("button", name="Original").click()
    role = look.page.get_by_role("dialog").locator(".facts div").filter(has_text="Role").locator("dd")
    expect(role).to_have_text(f"user ({OVERRIDING})")
    assert role.locator("bdi").all_text_contents() == ["user", OVERRIDING]


def test_what_cannot_be_pressed_looks_so(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("overview", STORY)
    look.page.get_by_role("button", name="Forget this namespace").click()
    sure = look.page.get_by_role("button", name="Erase for good")
    colours = "e => [getComputedStyle(e).color, getComputedStyle(e).borderColor]"
    disabled = sure.evaluate(colours)
    plain = look.page.evaluate(
        "() => { const b = document.createElement('button'); b.disabled = true; document.body.append(b);"
        f"const found = ({colours})(b); b.remove(); return found; }}"
    )
    assert disabled == plain
