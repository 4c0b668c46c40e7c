"""The pages without a mouse, and for eyes that need contrast."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.inspector.sample_memories import STORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.inspector.inspector_page import InspectorPage

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("inspector")]

# The ground of a text is that of the nearest element around it that has one.
CONTRASTS = r"""() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parts = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = parts(colour).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (parts(colour)[3] === 255) return colour;
    }
    return "white";
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!hasText || !element.checkVisibility() || element.closest("noscript, option, :disabled")) continue;
    const style = getComputedStyle(element);
    const [one, other] = [light(element instanceof SVGElement ? style.fill : style.color), light(ground(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) poor.push(`${element.tagName}.${element.getAttribute("class")} ${contrast.toFixed(2)}`);
  }
  return [...new Set(poor)];
}"""


def tab_to(look: InspectorPage, name: str, limit: int = 60) -> None:
    """Press Tab until something of that name has the focus."""
    for _ in range(limit):
        look.page.keyboard.press("Tab")
        at = look.page.evaluate(
            "document.activeElement.ariaLabel ?? document.activeElement.textContent.trim()"
        )
        if at == name:
            return
    pytest.fail(f"{name!r} is out of reach of the Tab key")


def test_all_can_be_done_with_the_keyboard(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("overview", STORY)
    look.page.keyboard.press("Tab")
    expect(look.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    tab_to(look, "Sessions")
    look.page.keyboard.press("Enter")
    look.wait_until_settled()
    expect(look.page.get_by_role("heading", name="Sessions", level=1)).to_be_focused()
    tab_to(look, "05-load-and-locks")
    look.page.keyboard.press("Enter")
    look.wait_until_settled()
    expect(look.page.get_by_role("heading", name="05-load-and-locks", level=1)).to_be_focused()
    tab_to(look, "Original")
    look.page.keyboard.press("j")
    expect(look.rows().nth(1)).to_be_focused()
    look.page.keyboard.press("Tab")
    look.page.keyboard.press("Enter")
    dialog = look.page.get_by_role("dialog", name="Original")
    expect(dialog.locator(".whole").first).to_be_visible()
    tab_to(look, "Forget …")
    look.page.keyboard.press("Enter")
    question = look.page.get_by_role("dialog", name="Forget this message?")
    expect(question.get_by_role("button", name="Keep it")).to_be_focused()
    look.page.keyboard.press("Escape")
    expect(look.page.get_by_role("dialog")).to_have_count(0)


def test_what_has_the_focus_shows_a_ring(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("search", STORY, q="Stripe")
    tab_to(look, "Original")
    ring = look.page.evaluate(
        "(s => [s.outlineStyle, s.outlineWidth])(getComputedStyle(document.activeElement))"
    )
    assert ring == ["solid", "2px"]


def test_the_skip_link_leads_to_the_content_and_keeps_the_page(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("tasks", STORY)
    look.page.keyboard.press("Tab")
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_role("main")).to_be_focused()
    expect(look.page.get_by_role("heading", name="Tasks", level=1)).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(looking: Callable[..., InspectorPage], scheme: str) -> None:
    look = looking(scheme=scheme)
    asked = {"s": "04-payment-switch", "q": "Stripe", "b": 1000, "t": "ferry"}
    for page in ("overview", "session", "search", "preview", "knowledge", "tasks", "task"):
        assert look.go_to(page, STORY, **asked).page.evaluate(CONTRASTS) == []
    look.page.get_by_role("link", name="Sessions").click()
    look.page.get_by_role("button", name=re.compile("Forget the session")).first.click()
    expect(look.page.get_by_role("button", name="Erase for good")).to_be_visible()
    assert look.page.evaluate(CONTRASTS) == []


def test_each_page_has_its_title_and_can_be_linked(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("search", STORY, q="ferry or kiosk")
    expect(look.page).to_have_title(re.compile("^Search: ferry or kiosk"))
    look.page.get_by_role("link", name="Knowledge").click()
    expect(look.page).to_have_title(re.compile("^Knowledge"))
    look.page.go_back()
    expect(look.page.get_by_label("Search for")).to_have_value("ferry or kiosk")
