"""Content of the inspector pages in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.inspector.sample_memories import HOSTILE, LONG, LONG_NAME, STORY
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.inspector.inspector_page import InspectorPage

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("inspector")]
PAGES = ("overview", "sessions", "session", "search", "preview", "knowledge", "tasks", "task")
QUESTION = "Which provider replaces Stripe?"
PARAMETERS: dict[str, dict[str, object]] = {
    "session": {"s": "04-payment-switch", "q": QUESTION, "b": 3000},
    "search": {"q": QUESTION},
    "preview": {"s": "04-payment-switch", "q": QUESTION, "b": 3000},
    "task": {"t": "ferry"},
}


@pytest.mark.smoke
def test_the_overview_shows_counts_and_charts_the_optimizer_runs(
    open_page: Callable[..., InspectorPage],
) -> None:
    page = open_page().go_to("overview", STORY).page
    expect(page).to_have_title(re.compile("Overview.*tidepool/mara"))
    expect(page.locator(".tiles")).to_contain_text(re.compile(r"Messages(399|4\d\d)"))
    tiers = page.get_by_role("region", name="Tiers")
    expect(tiers.get_by_role("rowheader")).to_contain_text(["short term", "knowledge"])
    chart = page.get_by_role("img", name=re.compile("Tokens saved by each run: 7 values"))
    expect(chart.locator("rect")).to_have_count(7)
    expect(chart.locator("text.tick").first).to_have_text("0")
    run = page.get_by_role("button", name="Run it now, for a budget of 190,904 tokens")
    expect(run).to_be_enabled()


@pytest.mark.smoke
def test_a_session_shows_the_state_of_each_message_and_opens_its_original(
    open_page: Callable[..., InspectorPage],
) -> None:
    inspector = open_page().go_to("sessions", STORY)
    inspector.page.get_by_role("link", name="04-payment-switch").click()
    inspector.wait_until_settled()
    inspector.page.get_by_label("For the question").fill(QUESTION)
    inspector.page.get_by_label("Budget in tokens").fill("1000")
    inspector.page.get_by_role("button", name="Show", exact=True).click()
    inspector.wait_until_settled()
    assert "b=1000" in inspector.page.url
    states = {text[1:] for text in inspector.page.locator("article .mark").all_text_contents()}
    assert {"full", "dropped"} <= states <= {"full", "compressed", "recalled", "dropped"}
    row = inspector.rows().filter(has_text="I have to eat my words about Stripe")
    row.get_by_role("button", name="Original").click()
    dialog = inspector.page.get_by_role("dialog", name="Original")
    expect(dialog).to_contain_text("two settlement files")
    inspector.page.keyboard.press("Escape")
    expect(row.get_by_role("button", name="Original")).to_be_focused()


def test_a_tool_call_is_shown_with_its_arguments(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("session", STORY, s="01-kickoff")
    row = inspector.rows().filter(has_text="git log --oneline").first
    expect(row).to_contain_text('run_shell {"command": "cd /home/mara/src/tidepool && git log --oneline')
    row.get_by_role("button", name="Original").click()
    dialog = inspector.page.get_by_role("dialog", name="Original")
    expect(dialog.get_by_role("heading", name="Call of run_shell").first).to_be_visible()
    expect(dialog.get_by_role("region", name="Arguments").first).to_contain_text("cat README.md")


@pytest.mark.smoke
def test_search_shows_hits_with_a_bar_for_each_signal(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("search", STORY)
    expect(inspector.page.get_by_label("Search for")).to_be_focused()
    inspector.page.keyboard.type("Which provider replaces Stripe?")
    inspector.page.keyboard.press("Enter")
    inspector.wait_until_settled()
    expect(inspector.rows().filter(has_text="Fjordpay replaces Stripe").first).to_be_visible()
    signals = inspector.rows().first.locator(".signals")
    expect(signals.locator("dt").first).to_have_text("score")
    assert signals.locator("dt").count() >= 3
    expect(signals.locator("svg.bar")).to_have_count(signals.locator("dt").count())
    assert float(signals.locator(".whole .number").inner_text()) > 0


def test_search_without_hits_shows_a_notice(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("search", STORY, q="zyzzyva", strategy="words")
    expect(inspector.page.get_by_text("Nothing answers that")).to_be_visible()


@pytest.mark.parametrize(
    ("page", "parameters", "label"),
    [
        ("search", {"q": "   "}, "Search for"),
        ("preview", {"s": "04-payment-switch", "b": 5}, "Budget in tokens"),
    ],
)
def test_a_form_keeps_its_values_when_the_server_rejects_them(
    open_page: Callable[..., InspectorPage], page: str, parameters: dict[str, object], label: str
) -> None:
    inspector = open_page().go_to(page, STORY, **parameters)
    expect(inspector.page.get_by_role("alert")).to_be_visible()
    expect(inspector.page.get_by_label(label)).to_have_value(str(list(parameters.values())[-1]))


@pytest.mark.parametrize("page", ["constructor", "__proto__", "no-such-page"])
def test_an_unknown_page_name_shows_the_overview(open_page: Callable[..., InspectorPage], page: str) -> None:
    inspector = open_page().go_to(page, STORY)
    expect(inspector.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    expect(inspector.page.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")


def test_a_very_long_name_is_limited_to_a_few_lines(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page(width=360).go_to("sessions", HOSTILE)
    link = inspector.page.get_by_role("link", name=LONG_NAME)
    heights = [link.evaluate("e => e.offsetHeight")]
    inspector.go_to("session", HOSTILE, s=LONG_NAME)
    heading = inspector.page.get_by_role("heading", level=1)
    heights.append(heading.evaluate("e => e.offsetHeight"))
    expect(heading.locator("bdi")).to_have_attribute("title", LONG_NAME)
    inspector.rows().first.get_by_role("button", name="Original").click()
    name = inspector.page.get_by_role("dialog").locator(".facts dd").filter(has_text=LONG_NAME)
    heights.append(name.evaluate("e => e.offsetHeight"))
    assert max(heights) < 160


def test_the_preview_shows_reasons_for_included_and_excluded_memories(
    open_page: Callable[..., InspectorPage],
) -> None:
    inspector = open_page().go_to("preview", STORY, s="04-payment-switch", q=QUESTION, b=1000)
    used = inspector.page.locator(".usage strong").inner_text()
    used_tokens, budget = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+", used))
    assert 0 < used_tokens <= budget == 1000
    included = inspector.page.get_by_role("list", name="What the model sees").get_by_role("listitem")
    assert included.count() > 1
    assert included.locator(".mark").count() == included.count()
    excluded = inspector.page.get_by_role("list", name="What stays out").get_by_role("listitem")
    assert excluded.count() > 0
    assert all(excluded.locator(".reason").all_text_contents())
    for row in excluded.all():
        is_compressed = row.locator(".reason").inner_text().startswith("in few words")
        expect(row.locator(".mark")).to_contain_text("compressed" if is_compressed else "dropped")


def test_the_preview_of_a_long_session_counts_all_excluded_memories(
    open_page: Callable[..., InspectorPage],
) -> None:
    inspector = open_page().go_to("preview", LONG, s="all", q="Which remark?", b=500)
    heading = inspector.page.get_by_role(
        "heading", name=re.compile(r"Out: 2,9\d\d memories, 200 of them listed")
    )
    expect(heading).to_be_visible()
    excluded = int(re.findall(r"[\d,]+", heading.inner_text())[0].replace(",", ""))
    shown = inspector.page.get_by_role("list", name="What the model sees").locator("article.is-full").count()
    assert 0 < excluded <= 3_000 - shown


def test_knowledge_shows_its_confidence(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("knowledge", STORY)
    expect(inspector.rows().filter(has_text="payment provider")).to_contain_text("90 %")
    expect(inspector.rows().filter(has_text="spelling")).to_contain_text("45 %")
    inspector.page.get_by_label("Category").fill("user_preference")
    inspector.page.keyboard.press("Enter")
    inspector.wait_until_settled()
    expect(inspector.rows()).to_have_count(1)


def test_loops_in_a_task_are_marked(open_page: Callable[..., InspectorPage]) -> None:
    inspector = open_page().go_to("tasks", STORY)
    inspector.page.get_by_role("link", name="ferry").click()
    inspector.wait_until_settled()
    expect(inspector.rows()).to_have_count(6)
    looped = inspector.rows().filter(has=inspector.page.locator(".mark.is-loop"))
    assert 0 < looped.count() < 6
    expect(looped.first.locator(".reason")).to_contain_text("was done 3 times")
    expect(inspector.rows().first.locator(".mark")).to_have_text("✓ok")


def test_a_long_session_loads_page_by_page_and_keeps_the_document_small(
    open_page: Callable[..., InspectorPage],
) -> None:
    inspector = open_page().go_to("session", LONG, s="all")
    first = inspector.page.locator(".said").filter(has_text=re.compile("^remark number 0$"))
    expect(first).to_have_count(1)
    for pages in range(2, 9):
        inspector.page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        inspector.page.wait_for_function("n => document.querySelectorAll('.page').length >= n", arg=pages)
    wait_until(lambda: inspector.rows().count() <= 500, "rows far above are removed")
    inspector.page.evaluate("window.scrollTo(0, 0)")
    expect(first).to_be_visible()
    inspector.page.get_by_role("link", name="Newest first").click()
    inspector.wait_until_settled()
    expect(inspector.rows().first).to_contain_text("remark number 2999")


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_no_page_is_wider_than_the_window_in_either_scheme(
    open_page: Callable[..., InspectorPage], width: int, scheme: str
) -> None:
    inspector = open_page(width=width, scheme=scheme)
    widths = {name: inspector.go_to(name, STORY, **PARAMETERS.get(name, {})).width for name in PAGES}
    assert widths == dict.fromkeys(PAGES, width)
    background = inspector.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == (scheme == "dark")
