"""Accessibility of the inspector: keyboard, focus and contrast."""

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


def tab_to(inspector: InspectorPage, name: str, limit: int = 60) -> None:
    """Press Tab until the element of that name has the focus."""
    for _ in range(limit):
        inspector.page.keyboard.press("Tab")
        focused = inspector.page.evaluate(
            "document.activeElement.ariaLabel ?? document.activeElement.textContent.trim()"
        )
        if focused == name:
            return
    pytest.fail(f"{name!r} is out of reach of the Tab key")


def test_all_functions_work_with_the_keyboard(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("overview", STORY)
    inspector.page.keyboard.press("Tab")
    expect(inspector.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    tab_to(inspector, "Sessions")
    inspector.page.keyboard.press("Enter")
    inspector.wait_until_settled()
    expect(inspector.page.get_by_role("heading", name="Sessions", level=1)).to_be_focused()
    tab_to(inspector, "05-load-and-locks")
    inspector.page.keyboard.press("Enter")
    inspector.wait_until_settled()
    expect(inspector.page.get_by_role("heading", name="05-load-and-locks", level=1)).to_be_focused()
    tab_to(inspector, "Original")
    inspector.page.keyboard.press("j")
    expect(inspector.rows().nth(1)).to_be_focused()
    inspector.page.keyboard.press("Tab")
    inspector.page.keyboard.press("Enter")
    dialog = inspector.page.get_by_role("dialog", name="Original")
    expect(dialog.locator(".whole").first).to_be_visible()
    tab_to(inspector, "Forget …")
    inspector.page.keyboard.press("Enter")
    question = inspector.page.get_by_role("dialog", name="Forget this message?")
    expect(question.get_by_role("button", name="Keep it")).to_be_focused()
    inspector.page.keyboard.press("Escape")
    expect(inspector.page.get_by_role("dialog")).to_have_count(0)


def test_the_focused_element_shows_a_ring(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("search", STORY, q="Stripe")
    tab_to(inspector, "Original")
    ring = inspector.page.evaluate(
        "(s => [s.outlineStyle, s.outlineWidth])(getComputedStyle(document.activeElement))"
    )
    assert ring == ["solid", "2px"]


def test_the_skip_link_leads_to_the_content_and_keeps_the_page(
    open_page: Callable[..., InspectorPage],
) -> None:
    inspector = open_page().go_to("tasks", STORY)
    inspector.page.keyboard.press("Tab")
    inspector.page.keyboard.press("Enter")
    expect(inspector.page.get_by_role("main")).to_be_focused()
    expect(inspector.page.get_by_role("heading", name="Tasks", level=1)).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(open_page: Callable[..., InspectorPage], scheme: str) -> None:
    inspector = open_page(scheme=scheme)
    parameters = {"s": "04-payment-switch", "q": "Stripe", "b": 1000, "t": "ferry"}
    for page in ("overview", "session", "search", "preview", "knowledge", "tasks", "task"):
        assert inspector.go_to(page, STORY, **parameters).page.evaluate(CONTRASTS) == []
    inspector.page.get_by_role("link", name="Sessions").click()
    inspector.page.get_by_role("button", name=re.compile("Forget the session")).first.click()
    expect(inspector.page.get_by_role("button", name="Erase for good")).to_be_visible()
    assert inspector.page.evaluate(CONTRASTS) == []


def test_each_page_has_its_title_and_can_be_linked(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("search", STORY, q="ferry or kiosk")
    expect(inspector.page).to_have_title(re.compile("^Search: ferry or kiosk"))
    inspector.page.get_by_role("link", name="Knowledge").click()
    expect(inspector.page).to_have_title(re.compile("^Knowledge"))
    inspector.page.go_back()
    expect(inspector.page.get_by_label("Search for")).to_have_value("ferry or kiosk")
