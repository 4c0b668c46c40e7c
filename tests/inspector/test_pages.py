"""Content of each page, in a real browser with a real server."""

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
def test_overview_shows_usage_and_optimizer_runs(
    open_inspector: Callable[..., InspectorPage],
) -> None:
    page = open_inspector().go_to("overview", STORY).page
    expect(page).to_have_title(re.compile("Overview.*tidepool/mara"))
    expect(page.locator(".tiles")).to_contain_text(re.compile(r"Messages(399|4\d\d)"))
    tiers = page.get_by_role("region", name="Tiers")
    expect(tiers.get_by_role("rowheader")).to_contain_text(["short term", "knowledge"])
    chart = page.get_by_role("img", name=re.compile("Tokens saved per run: 7 values"))
    expect(chart.locator("rect")).to_have_count(7)
    expect(chart.locator("text.axis-label").first).to_have_text("0")
    run = page.get_by_role("button", name="Run now with a budget of 190,904 tokens")
    expect(run).to_be_enabled()


@pytest.mark.smoke
def test_session_timeline_shows_states_and_originals(
    open_inspector: Callable[..., InspectorPage],
) -> None:
    inspector = open_inspector().go_to("sessions", STORY)
    inspector.page.get_by_role("link", name="04-payment-switch").click()
    inspector.wait_until_settled()
    inspector.page.get_by_label("Question").fill(QUESTION)
    inspector.page.get_by_label("Budget in tokens").fill("1000")
    inspector.page.get_by_role("button", name="Show", exact=True).click()
    inspector.wait_until_settled()
    assert "b=1000" in inspector.page.url
    states = {text[1:] for text in inspector.page.locator("article .state").all_text_contents()}
    assert {"full", "dropped"} <= states <= {"full", "compressed", "recalled", "dropped"}
    row = inspector.rows().filter(has_text="I have to eat my words about Stripe")
    row.get_by_role("button", name="Original").click()
    dialog = inspector.page.get_by_role("dialog", name="Original")
    expect(dialog).to_contain_text("two settlement files")
    inspector.page.keyboard.press("Escape")
    expect(row.get_by_role("button", name="Original")).to_be_focused()


def test_tool_call_shows_its_arguments(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("session", STORY, s="01-kickoff")
    row = inspector.rows().filter(has_text="git log --oneline").first
    expect(row).to_contain_text('run_shell {"command": "cd /home/mara/src/tidepool && git log --oneline')
    row.get_by_role("button", name="Original").click()
    dialog = inspector.page.get_by_role("dialog", name="Original")
    expect(dialog.get_by_role("heading", name="Tool call: run_shell").first).to_be_visible()
    expect(dialog.get_by_role("region", name="Arguments").first).to_contain_text("cat README.md")


@pytest.mark.smoke
def test_search_shows_a_bar_for_each_signal(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("search", STORY)
    expect(inspector.page.get_by_label("Search for")).to_be_focused()
    inspector.page.keyboard.type("Which provider replaces Stripe?")
    inspector.page.keyboard.press("Enter")
    inspector.wait_until_settled()
    expect(inspector.rows().filter(has_text="Fjordpay replaces Stripe").first).to_be_visible()
    signals = inspector.rows().first.locator(".signals")
    expect(signals.locator("dt").first).to_have_text("score")
    assert signals.locator("dt").count() >= 3
    expect(signals.locator("svg.bar")).to_have_count(signals.locator("dt").count())
    assert float(signals.locator(".total .number").inner_text()) > 0


def test_search_without_hits_shows_a_notice(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("search", STORY, q="zyzzyva", strategy="words")
    expect(inspector.page.get_by_text("No hits.")).to_be_visible()


@pytest.mark.parametrize(
    ("page", "parameters", "label"),
    [
        ("search", {"q": "   "}, "Search for"),
        ("preview", {"s": "04-payment-switch", "b": 5}, "Budget in tokens"),
    ],
)
def test_form_keeps_its_values_when_the_server_rejects_the_request(
    open_inspector: Callable[..., InspectorPage], page: str, parameters: dict[str, object], label: str
) -> None:
    inspector = open_inspector().go_to(page, STORY, **parameters)
    expect(inspector.page.get_by_role("alert")).to_be_visible()
    expect(inspector.page.get_by_label(label)).to_have_value(str(list(parameters.values())[-1]))


@pytest.mark.parametrize("page", ["constructor", "__proto__", "no-such-page"])
def test_unknown_page_shows_the_overview(open_inspector: Callable[..., InspectorPage], page: str) -> None:
    inspector = open_inspector().go_to(page, STORY)
    expect(inspector.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    expect(inspector.page.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")


def test_long_name_is_limited_to_a_few_lines(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector(width=360).go_to("sessions", HOSTILE)
    link = inspector.page.get_by_role("link", name=LONG_NAME)
    heights = [link.evaluate("e => e.offsetHeight")]
    inspector.go_to("session", HOSTILE, s=LONG_NAME)
    heading = inspector.page.get_by_role("heading", level=1)
    heights.append(heading.evaluate("e => e.offsetHeight"))
    expect(heading.locator("bdi")).to_have_attribute("title", LONG_NAME)
    inspector.rows().first.get_by_role("button", name="Original").click()
    name = inspector.page.get_by_role("dialog").locator(".properties dd").filter(has_text=LONG_NAME)
    heights.append(name.evaluate("e => e.offsetHeight"))
    assert max(heights) < 160


def test_preview_gives_reasons_and_respects_the_budget(
    open_inspector: Callable[..., InspectorPage],
) -> None:
    inspector = open_inspector().go_to("preview", STORY, s="04-payment-switch", q=QUESTION, b=1000)
    usage = inspector.page.locator(".usage strong").inner_text()
    used, budget = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+", usage))
    assert 0 < used <= budget == 1000
    included = inspector.page.get_by_role("list", name="Included").get_by_role("listitem")
    assert included.count() > 1
    assert included.locator(".state").count() == included.count()
    left_out = inspector.page.get_by_role("list", name="Left out").get_by_role("listitem")
    assert left_out.count() > 0
    assert all(left_out.locator(".reason").all_text_contents())
    for row in left_out.all():
        is_summarized = row.locator(".reason").inner_text().startswith("summarized")
        expect(row.locator(".state")).to_contain_text("compressed" if is_summarized else "dropped")


def test_preview_counts_all_memories_left_out_of_a_long_session(
    open_inspector: Callable[..., InspectorPage],
) -> None:
    inspector = open_inspector().go_to("preview", LONG, s="all", q="Which remark?", b=500)
    heading = inspector.page.get_by_role(
        "heading", name=re.compile(r"Left out: 2,9\d\d memories, 200 listed")
    )
    expect(heading).to_be_visible()
    left_out = int(re.findall(r"[\d,]+", heading.inner_text())[0].replace(",", ""))
    included = inspector.page.get_by_role("list", name="Included").locator("article.is-full").count()
    assert 0 < left_out <= 3_000 - included


def test_knowledge_shows_its_confidence(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("knowledge", STORY)
    expect(inspector.rows().filter(has_text="payment provider")).to_contain_text("90 %")
    expect(inspector.rows().filter(has_text="spelling")).to_contain_text("45 %")
    inspector.page.get_by_label("Category").fill("user_preference")
    inspector.page.keyboard.press("Enter")
    inspector.wait_until_settled()
    expect(inspector.rows()).to_have_count(1)


def test_task_marks_loops(open_inspector: Callable[..., InspectorPage]) -> None:
    inspector = open_inspector().go_to("tasks", STORY)
    inspector.page.get_by_role("link", name="ferry").click()
    inspector.wait_until_settled()
    expect(inspector.rows()).to_have_count(6)
    looped = inspector.rows().filter(has=inspector.page.locator(".state.is-loop"))
    assert 0 < looped.count() < 6
    expect(looped.first.locator(".reason")).to_contain_text("occurred 3 times")
    expect(inspector.rows().first.locator(".state")).to_have_text("✓ok")


def test_long_session_loads_by_page_and_unloads_distant_rows(
    open_inspector: Callable[..., InspectorPage],
) -> None:
    inspector = open_inspector().go_to("session", LONG, s="all")
    first = inspector.page.locator(".text-block").filter(has_text=re.compile("^remark number 0$"))
    expect(first).to_have_count(1)
    for pages in range(2, 9):
        inspector.page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        inspector.page.wait_for_function("n => document.querySelectorAll('.page').length >= n", arg=pages)
    wait_until(lambda: inspector.rows().count() <= 500, "distant rows are removed")
    inspector.page.evaluate("window.scrollTo(0, 0)")
    expect(first).to_be_visible()
    inspector.page.get_by_role("link", name="Newest first").click()
    inspector.wait_until_settled()
    expect(inspector.rows().first).to_contain_text("remark number 2999")


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_pages_fit_the_window_in_both_color_schemes(
    open_inspector: Callable[..., InspectorPage], width: int, scheme: str
) -> None:
    inspector = open_inspector(width=width, scheme=scheme)
    widths = {name: inspector.go_to(name, STORY, **PARAMETERS.get(name, {})).width for name in PAGES}
    assert widths == dict.fromkeys(PAGES, width)
    background = inspector.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == (scheme == "dark")
