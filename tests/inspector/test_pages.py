"""What each page shows, in a real browser on a real server."""

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
WHERE: dict[str, dict[str, object]] = {
    "session": {"s": "04-payment-switch", "q": QUESTION, "b": 3000},
    "search": {"q": QUESTION},
    "preview": {"s": "04-payment-switch", "q": QUESTION, "b": 3000},
    "task": {"t": "ferry"},
}


@pytest.mark.smoke
def test_the_overview_tells_what_there_is_and_charts_what_the_optimizer_did(
    looking: Callable[..., InspectorPage],
) -> None:
    page = looking().go_to("overview", STORY).page
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
def test_a_session_is_a_timeline_of_states_with_the_original_one_click_away(
    looking: Callable[..., InspectorPage],
) -> None:
    look = looking().go_to("sessions", STORY)
    look.page.get_by_role("link", name="04-payment-switch").click()
    look.wait_until_settled()
    look.page.get_by_label("For the question").fill(QUESTION)
    look.page.get_by_label("Budget in tokens").fill("1000")
    look.page.get_by_role("button", name="Show", exact=True).click()
    look.wait_until_settled()
    assert "b=1000" in look.page.url
    states = {text[1:] for text in look.page.locator("article .mark").all_text_contents()}
    assert {"full", "dropped"} <= states <= {"full", "compressed", "recalled", "dropped"}
    row = look.rows().filter(has_text="I have to eat my words about Stripe")
    row.get_by_role("button", name="Original").click()
    dialog = look.page.get_by_role("dialog", name="Original")
    expect(dialog).to_contain_text("two settlement files")
    look.page.keyboard.press("Escape")
    expect(row.get_by_role("button", name="Original")).to_be_focused()


def test_a_call_of_a_tool_is_shown_with_its_arguments(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("session", STORY, s="01-kickoff")
    row = look.rows().filter(has_text="git log --oneline").first
    expect(row).to_contain_text('run_shell {"command": "cd /home/mara/src/tidepool && git log --oneline')
    row.get_by_role("button", name="Original").click()
    dialog = look.page.get_by_role("dialog", name="Original")
    expect(dialog.get_by_role("heading", name="Call of run_shell").first).to_be_visible()
    expect(dialog.get_by_role("region", name="Arguments").first).to_contain_text("cat README.md")


@pytest.mark.smoke
def test_search_shows_hits_with_a_bar_for_each_signal(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("search", STORY)
    expect(look.page.get_by_label("Search for")).to_be_focused()
    look.page.keyboard.type("Which provider replaces Stripe?")
    look.page.keyboard.press("Enter")
    look.wait_until_settled()
    expect(look.rows().filter(has_text="Fjordpay replaces Stripe").first).to_be_visible()
    signals = look.rows().first.locator(".signals")
    expect(signals.locator("dt").first).to_have_text("score")
    assert signals.locator("dt").count() >= 3
    expect(signals.locator("svg.bar")).to_have_count(signals.locator("dt").count())
    assert float(signals.locator(".whole .number").inner_text()) > 0


def test_search_says_when_nothing_answers(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("search", STORY, q="zyzzyva", strategy="words")
    expect(look.page.get_by_text("Nothing answers that")).to_be_visible()


@pytest.mark.parametrize(
    ("page", "asked", "label"),
    [
        ("search", {"q": "   "}, "Search for"),
        ("preview", {"s": "04-payment-switch", "b": 5}, "Budget in tokens"),
    ],
)
def test_a_form_stays_when_the_server_refuses_what_it_asked(
    looking: Callable[..., InspectorPage], page: str, asked: dict[str, object], label: str
) -> None:
    look = looking().go_to(page, STORY, **asked)
    expect(look.page.get_by_role("alert")).to_be_visible()
    expect(look.page.get_by_label(label)).to_have_value(str(list(asked.values())[-1]))


@pytest.mark.parametrize("page", ["constructor", "__proto__", "no-such-page"])
def test_an_address_that_names_no_page_shows_the_overview(
    looking: Callable[..., InspectorPage], page: str
) -> None:
    look = looking().go_to(page, STORY)
    expect(look.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    expect(look.page.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")


def test_a_very_long_name_takes_a_few_lines(looking: Callable[..., InspectorPage]) -> None:
    look = looking(width=360).go_to("sessions", HOSTILE)
    link = look.page.get_by_role("link", name=LONG_NAME)
    heights = [link.evaluate("e => e.offsetHeight")]
    look.go_to("session", HOSTILE, s=LONG_NAME)
    heading = look.page.get_by_role("heading", level=1)
    heights.append(heading.evaluate("e => e.offsetHeight"))
    expect(heading.locator("bdi")).to_have_attribute("title", LONG_NAME)
    look.rows().first.get_by_role("button", name="Original").click()
    name = look.page.get_by_role("dialog").locator(".facts dd").filter(has_text=LONG_NAME)
    heights.append(name.evaluate("e => e.offsetHeight"))
    assert max(heights) < 160


def test_the_preview_gives_reasons_for_in_and_out_within_the_budget(
    looking: Callable[..., InspectorPage],
) -> None:
    look = looking().go_to("preview", STORY, s="04-payment-switch", q=QUESTION, b=1000)
    used = look.page.locator(".usage strong").inner_text()
    taken, budget = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+", used))
    assert 0 < taken <= budget == 1000
    inside = look.page.get_by_role("list", name="What the model sees").get_by_role("listitem")
    assert inside.count() > 1
    assert inside.locator(".mark").count() == inside.count()
    outside = look.page.get_by_role("list", name="What stays out").get_by_role("listitem")
    assert outside.count() > 0
    assert all(outside.locator(".reason").all_text_contents())
    for row in outside.all():
        is_told = row.locator(".reason").inner_text().startswith("summarized")
        expect(row.locator(".mark")).to_contain_text("compressed" if is_told else "dropped")


def test_the_preview_of_a_long_session_counts_all_that_is_out(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("preview", LONG, s="all", q="Which remark?", b=500)
    heading = look.page.get_by_role("heading", name=re.compile(r"Out: 2,9\d\d memories, 200 of them listed"))
    expect(heading).to_be_visible()
    out = int(re.findall(r"[\d,]+", heading.inner_text())[0].replace(",", ""))
    shown = look.page.get_by_role("list", name="What the model sees").locator("article.is-full").count()
    assert 0 < out <= 3_000 - shown


def test_knowledge_shows_how_sure_it_is(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("knowledge", STORY)
    expect(look.rows().filter(has_text="payment provider")).to_contain_text("90 %")
    expect(look.rows().filter(has_text="spelling")).to_contain_text("45 %")
    look.page.get_by_label("Category").fill("user_preference")
    look.page.keyboard.press("Enter")
    look.wait_until_settled()
    expect(look.rows()).to_have_count(1)


def test_a_run_of_an_agent_has_its_loops_marked(looking: Callable[..., InspectorPage]) -> None:
    look = looking().go_to("tasks", STORY)
    look.page.get_by_role("link", name="ferry").click()
    look.wait_until_settled()
    expect(look.rows()).to_have_count(6)
    looped = look.rows().filter(has=look.page.locator(".mark.is-loop"))
    assert 0 < looped.count() < 6
    expect(looped.first.locator(".reason")).to_contain_text("occurred 3 times")
    expect(look.rows().first.locator(".mark")).to_have_text("✓ok")


def test_a_long_session_loads_page_by_page_and_keeps_the_document_small(
    looking: Callable[..., InspectorPage],
) -> None:
    look = looking().go_to("session", LONG, s="all")
    first = look.page.locator(".said").filter(has_text=re.compile("^remark number 0$"))
    expect(first).to_have_count(1)
    for pages in range(2, 9):
        look.page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        look.page.wait_for_function("n => document.querySelectorAll('.page').length >= n", arg=pages)
    wait_until(lambda: look.rows().count() <= 500, "rows far above are removed")
    look.page.evaluate("window.scrollTo(0, 0)")
    expect(first).to_be_visible()
    look.page.get_by_role("link", name="Newest first").click()
    look.wait_until_settled()
    expect(look.rows().first).to_contain_text("remark number 2999")


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_no_page_is_wider_than_the_window_in_either_scheme(
    looking: Callable[..., InspectorPage], width: int, scheme: str
) -> None:
    look = looking(width=width, scheme=scheme)
    widths = {name: look.go_to(name, STORY, **WHERE.get(name, {})).width for name in PAGES}
    assert widths == dict.fromkeys(PAGES, width)
    ground = look.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (scheme == "dark")
