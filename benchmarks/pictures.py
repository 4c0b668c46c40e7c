"""Draws the pictures of the documentation: the pages of the server on the bundled project.

Run it with ``make pictures``; the same code draws the same pictures.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode

from benchmarks.browsers import open_browser, serve_app
from langmem_tiers import (
    AgentAction,
    AgentMemory,
    EngineConfig,
    ExecutionOutcome,
    KnowledgeCategory,
    MemoryEngine,
    TokenBudget,
)
from langmem_tiers.cli.demo.conversation import StoryClock, load_chapters
from langmem_tiers.server import create_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
_TENANT = ("tidepool", "mara")
_BUDGET = 3000  # tokens for a prompt: less than any of the sessions takes
_RUN_EVERY = 20  # messages between two runs of the optimizer
_ASKED = {"s": "05-load-and-locks", "q": "Why did we drop Celery?", "b": "1500"}


@dataclass(frozen=True, slots=True)
class Picture:
    """A page at a size."""

    name: str
    page: str
    parameters: dict[str, str]
    scheme: Literal["light", "dark"] = "light"
    width: int = 1200
    height: int = 800
    first: str = "h1"
    """Selector of the element shown in the middle, unless it is at the top of the page."""


_PICTURES = (
    Picture("inspector-overview", "overview", {}, height=1100),
    Picture("inspector-session", "session", _ASKED, scheme="dark", height=700, first="article.is-full"),
    Picture("inspector-search", "search", {"q": "Which provider replaces Stripe?"}),
    Picture("inspector-preview", "preview", _ASKED, height=860),
    Picture(
        "inspector-phone",
        "task",
        {"t": "ferry"},
        scheme="dark",
        width=360,
        height=720,
        first="article.is-loop",
    ),
)


def main() -> None:
    """Draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where the pictures go")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    clock = StoryClock()
    with MemoryEngine(config=EngineConfig(budget=TokenBudget.of(_BUDGET)), clock=clock) as engine:
        _play(engine, clock)
        with serve_app(create_app(engine)) as address, open_browser() as browser:
            for picture in _PICTURES:
                path = folder / f"{picture.name}.png"
                _take_screenshot(browser, address, picture, path)
                print(f"{path.name}: {path.stat().st_size // 1000} kB")


def _play(engine: MemoryEngine, clock: StoryClock) -> None:
    tenant = engine.namespace(*_TENANT)
    for chapter in load_chapters():
        session = tenant.session(chapter.session)
        for number, message in enumerate(chapter.messages, start=1):
            session.add(message)
            clock.advance_to(message.created_at)
            session.build_context()
            if number % _RUN_EVERY == 0:
                engine.optimizer.run(_TENANT)
        session.learn()
    know = tenant.knowledge.store
    know(KnowledgeCategory.DOMAIN, "payment provider", "Fjordpay, since 26 March", confidence=0.9)
    know(KnowledgeCategory.USER_PREFERENCE, "answers", "short, with British spelling", confidence=0.8)
    _record_loop(AgentMemory(engine=engine, namespace=_TENANT, task="ferry"))


def _record_loop(memory: AgentMemory) -> None:
    memory.resume_or_start("Find the first ferry to Smögen on opening day")
    page = AgentAction("goto", {"url": "https://ferry.example/timetable"})
    memory.record_cycle("The timetable should tell.", page, "A form: from, to, day")
    day = AgentAction("type", {"selector": "#day", "text": "12 April"})
    memory.record_cycle("Fill in the day.", day, "The field shows 12 April")
    for _ in range(5):
        search = AgentAction("click", {"selector": "#search"})
        memory.record_cycle("Search.", search, "Nothing happened", ExecutionOutcome.FAILURE)


def _take_screenshot(browser: Browser, address: str, picture: Picture, path: Path) -> None:
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.scheme,
        reduced_motion="reduce",
        timezone_id="UTC",
    )
    page = context.new_page()
    page.goto(
        f"{address}/inspector/#/{picture.page}?{urlencode({'ns': '/'.join(_TENANT), **picture.parameters})}"
    )
    page.wait_for_load_state("networkidle")
    page.locator(picture.first).first.evaluate("at => at.scrollIntoView({block: 'center'})")
    page.wait_for_timeout(100)  # what came into view is drawn
    page.screenshot(path=path)
    context.close()


if __name__ == "__main__":
    main()
