"""Message text is never interpreted as markup."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_tiers import (
    AddReport,
    Entry,
    Hit,
    Knowledge,
    MemoryContext,
    MemoryEngine,
    Message,
    Recall,
    Role,
    Strategy,
    Tier,
)
from langmem_tiers.display.displayable import DisplayableTuple
from langmem_tiers.episodes import Episode, EpisodeKind, NarrativeArc
from langmem_tiers.knowledge import KnowledgeReport
from langmem_tiers.long_term import Relation
from langmem_tiers.sessions import MessagePage
from langmem_tiers.tasks import SitemapGraph
from langmem_tiers.tuning import TuningParameters, TuningSnapshot
from tests.display.html_page import Page, page_of
from tests.hypothesis_settings import examples

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2025, 1, 15, tzinfo=UTC)
ATTACKS = (
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    "\"><b onmouseover='x'>&lt;i&gt;&amp;",
    "<!-- -->]]><style>*{display:none}</style>",
    "&#60;script&#62; &copy &notanentity;",
    "\u202e abc \u2066 def",
    "שלום <b> עולם",
    "\x00\x1b[31m\x07\r\n\t\ud800",
    "javascript:alert(1)",
    "",
)
hostile = st.one_of(
    st.sampled_from(ATTACKS), st.text(max_size=300), st.text("<>&\"'/! abc\x00\u202e", max_size=40)
)


def values(text: str) -> list[Any]:
    """The text wherever somebody else's words can stand."""
    message = Message(
        id=text or "m", role=Role.USER, content=text, created_at=NOW, token_count=1, token_counter=text
    )
    entry = Entry(id="e", namespace=(text,), tier=Tier.LONG_TERM, kind=text, content=text, created_at=NOW)
    known = Knowledge(
        category=text, key=text, value=text, confidence=0.5, created_at=NOW, updated_at=NOW, fresh_at=NOW
    )
    hit = Hit(entry=entry, score=0.5, signals={text: 0.5}, found_by=text, message=message, knowledge=known)
    episode = Episode(
        kind=EpisodeKind.PIVOT, title=text.strip() or "t", summary=text.strip() or "s", first_turn=1, last_turn=2,
        id="x", namespace=(text,), session=text, created_at=NOW,
    )  # fmt: skip
    snapshot = TuningSnapshot(
        created_at=NOW, tokens_before=2, tokens_after=1, entries_compressed=0, entries_dropped=0, entries_promoted=0,
        usage_before=0.5, usage_after=0.4, parameters=TuningParameters(), reason=text,
    )  # fmt: skip
    context = MemoryContext(
        messages=(message,), token_count=1, token_budget=2, sections={text: 1}, problems=(text,), recalled=(hit,),
        reasons={text: text}, missing=(text,),
    )  # fmt: skip
    arc = NarrativeArc(session=text, turns=2, beginning=(episode,), middle=(), end=(), key_moments=(episode,))
    return [
        message, entry, known, hit, episode, snapshot, context, arc,
        Recall(query=text, hits=(hit,), strategy=Strategy.BEST, candidates=1, embedder=text, problems=(text,)),
        DisplayableTuple([hit, hit]), MessagePage(messages=(message,), next_after=text),
        AddReport(stored=(message,), duplicates=(), echoes=(message,)),
        KnowledgeReport(knowledge=known, is_new=True),
        DisplayableTuple(
            [Relation(source="a", target="b", kind=text.strip() or "k", created_at=NOW)] if is_name(text) else []
        ),
    ]  # fmt: skip


def is_name(text: str) -> bool:
    return bool(text.strip()) and text.isprintable() and text.isascii() and len(text) < 100


@examples(60)
@given(hostile)
@example(ATTACKS[0])
@example(ATTACKS[1])
@example(ATTACKS[7])
@example("x" * 100_000)
def test_hostile_text_is_displayed_and_never_interpreted(text: str) -> None:
    for value in values(text):
        html = value._repr_html_()
        page = Page(html)  # fails on any element or attribute that is none of ours
        html.encode()  # as a notebook is written
        assert "cannot be shown" not in page.text
        assert safe(page.text)
        plain = str(value) if not isinstance(value, DisplayableTuple) else ""
        plain.encode()
        assert safe(plain)


def safe(text: str) -> bool:
    """Without what turns lines, ends them or drives a terminal."""
    turning = {"\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"}
    controls = {character for character in text if unicodedata.category(character) == "Cc"} - {
        "\n",
        "\r",
        "\t",
    }
    return not controls and not turning & set(text)


@pytest.mark.parametrize("text", ATTACKS[:5])
def test_message_text_is_displayed_literally(text: str) -> None:
    message = values(text)[0]
    assert page_of(DisplayableTuple([message])).column("text") == [text]


@pytest.mark.parametrize("text", ["<b>&", "a'\"><script>", "שלום<i>"])
def test_hostile_namespace_and_session_names_are_displayed_literally(tmp_path: Path, text: str) -> None:
    with MemoryEngine(tmp_path / "m.db", embedder=None) as engine:
        session = engine.session((text, "x"), text)
        session.add("user", text)
        engine.namespace(text, "x").knowledge.store(text, text, text)
        for value in (engine, engine.namespace(text, "x"), session, engine.namespace(text, "x").knowledge):
            assert text in page_of(value).text


def test_pages_of_a_site_are_words_too() -> None:
    site = SitemapGraph("https://a.example/")
    site.add_links("https://a.example/", [{"url": "/x?<script>", "text": "<img src=x>"}])
    site.mark_failed("https://a.example/x?<script>", "<b>gone</b>")
    assert page_of(site).column("title")[1] == "<img src=x>"
    assert page_of(site).column("failure")[1] == "<b>gone</b>"


def test_text_of_any_direction_is_isolated() -> None:
    html = values("שלום")[0]._repr_html_()
    assert '<bdi dir="auto">שלום</bdi>' in html
