"""A parser for the HTML of notebooks, and a memory to display."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft, TokenBudget
from langmem_tiers.tasks import SitemapGraph
from langmem_tiers.testing import FrozenClock, seeded_ids

if TYPE_CHECKING:
    from pathlib import Path

    from langmem_tiers import Entry, Namespace, Session

TAGS = {"div", "strong", "bdi", "span", "table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"style", "scope", "colspan", "dir", "title"}
SAID = (
    "We decided to use PostgreSQL for the bookings because Stripe needs it.",
    "The build fails with error E{n} in /srv/app/{n}.py",
    "Fixed: the deploy works now, see https://app.example/{n}",
    "I prefer short answers.",
    "We finally finished the release of version 1.{n}.",
)


class Page(HTMLParser):
    """One view, read as a browser reads it. Fails on what is not closed, or is none of our elements."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.styles: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        assert {name for name, _ in attrs} <= ATTRIBUTES, attrs
        self.styles += [value or "" for name, value in attrs if name == "style"]
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    @property
    def text(self) -> str:
        """All of its words."""
        return "".join(self.words)

    def column(self, name: str) -> list[str]:
        """What stands under a heading, of the table that has it."""
        start = next(number for number, row in enumerate(self.rows) if name in row)
        place, width = self.rows[start].index(name), len(self.rows[start])
        below = self.rows[start + 1 :]
        end = next((number for number, row in enumerate(below) if len(row) != width), len(below))
        return [row[place] for row in below[:end]]


def page_of(value: Any) -> Page:
    """What a notebook shows of a value."""
    return Page(value._repr_html_())


@dataclass(frozen=True)
class Memory:
    """A memory in which something of each kind is."""

    engine: MemoryEngine
    namespace: Namespace
    session: Session
    clock: FrozenClock
    entries: tuple[Entry, ...]
    site: SitemapGraph


def small_memory(folder: Path, tenant: str = "alice", aside: str = "My dog is called Toby.") -> Memory:
    """A conversation of 120 messages, tuned, learned from and recalled."""
    clock = FrozenClock()
    config = EngineConfig(budget=TokenBudget.of(1500))
    engine = MemoryEngine(folder / "memory.db", config=config, clock=clock, ids=seeded_ids())
    namespace = engine.namespace(tenant)
    session = namespace.session("project")
    for start in range(0, 120, 40):
        session.add_many(draft(n, clock) for n in range(start, start + 40))
        engine.optimizer.run(tenant)
    session.learn()
    namespace.session("aside").add_many([MessageDraft("user", aside), MessageDraft("assistant", "Noted.")])
    stored = [
        namespace.long_term.store(text).entry
        for text in ("Fjordpay takes payments.", "Toby is three months old.", "Nora lives in Malmö.")
    ]
    entries = tuple(entry for entry in stored if entry is not None)
    namespace.long_term.relate(entries[0].id, entries[1].id, "supports", strength=0.5)
    namespace.long_term.relate(entries[1].id, entries[2].id, "part_of", strength=0.8)
    namespace.knowledge.store("domain", "payments", "Fjordpay")
    session.add("user", "What is my dog called?")
    return Memory(engine, namespace, session, clock, entries, small_site())


def draft(n: int, clock: FrozenClock) -> MessageDraft:
    """One thing that is said, seven minutes after the one before."""
    said = f"{n}: {SAID[n % 5].format(n=n)}"
    return MessageDraft("user" if n % 2 == 0 else "assistant", said, created_at=clock.advance(minutes=7))


def small_site() -> SitemapGraph:
    """Four pages, one of them seen and one of them gone."""
    site = SitemapGraph("https://shop.example/")
    site.add_links("https://shop.example/", ["/a", "/b", "/c"])
    site.mark_visited("https://shop.example/", title="Home", at=1.0)
    site.mark_failed("https://shop.example/b", "404")
    return site
