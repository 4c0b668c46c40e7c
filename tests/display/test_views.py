"""The notebook view of each kind of value."""

from __future__ import annotations

import importlib
from dataclasses import fields, is_dataclass
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.formatters import DisplayFormatter

import langmem_tiers
from langmem_tiers import EngineConfig, Hit, MemoryContext, MemoryEngine, MessageDraft, TokenBudget
from langmem_tiers.display.displayable import DisplayableTuple, NotebookDisplayable
from langmem_tiers.tasks import SitemapGraph
from tests.display.html_page import Memory, page_of
from tests.work_counters import count_statements

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("notebook")  # they share one memory
VALUES: dict[str, Callable[[Memory], Any]] = {
    "engine": lambda m: m.engine,
    "namespace": lambda m: m.namespace,
    "session": lambda m: m.session,
    "optimizer": lambda m: m.engine.optimizer,
    "recall": lambda m: m.namespace.recall("What is my dog called?"),
    "hit": lambda m: m.namespace.recall("What is my dog called?")[0],
    "hits": lambda m: m.namespace.search("dog"),
    "context": lambda m: m.session.build_context(budget=TokenBudget.of(700)),
    "context of a namespace": lambda m: m.namespace.build_context("the dog", budget=TokenBudget.of(300)),
    "sitemap": lambda m: m.site,
    "page of the site": lambda m: m.site.pages()[0],
    "arc": lambda m: m.session.arc(),
    "messages": lambda m: m.session.latest(3),
    "page": lambda m: m.session.page(limit=3),
    "sessions": lambda m: m.namespace.sessions(),
    "session info": lambda m: m.namespace.sessions().sessions[0],
    "entries": lambda m: m.session.entries(),
    "history": lambda m: m.engine.optimizer.history("alice"),
    "snapshot": lambda m: m.engine.optimizer.history("alice")[0],
    "efficiency": lambda m: m.engine.optimizer.report("alice"),
    "parameters": lambda m: m.engine.optimizer.parameters("alice"),
    "plan": lambda m: m.session.analyze(),
    "statistics": lambda m: m.engine.statistics(),
    "figures": lambda m: m.engine.figures(),
    "budget": lambda m: m.engine.config.budget,
    "long term": lambda m: m.namespace.long_term,
    "entry": lambda m: m.entries[0],
    "related": lambda m: m.namespace.long_term.related(m.entries[0].id, depth=2),
    "knowledge base": lambda m: m.namespace.knowledge,
    "known": lambda m: m.namespace.knowledge.recall("payments", use=False),
    "episodes": lambda m: m.namespace.episodes,
    "chunks": lambda m: m.session.chunks(),
    "message": lambda m: m.session.latest(1)[0],
}
TELLING = {
    "engine": "messages",
    "namespace": "aside",
    "session": "What is my dog called?",
    "optimizer": "not running",
    "recall": "neighbors",
    "hit": "signal",
    "hits": "Toby",
    "context": "of 700 tokens",
    "sitemap": "https://shop.example/c",
    "arc": "decision made",
    "history": "trigger",
    "related": "supports",
    "known": "Fjordpay",
}


@pytest.mark.parametrize("kind", VALUES)
def test_each_kind_is_displayed_as_valid_html_and_as_text(memory: Memory, kind: str) -> None:
    value = VALUES[kind](memory)
    page, plain = page_of(value), render(value, "text/plain")
    for told in (page.text, plain):
        assert TELLING.get(kind, "") in told
        assert "cannot be shown" not in told
    assert len(plain.splitlines()) <= 60
    assert len(value._repr_html_()) < 40_000


@pytest.mark.parametrize("kind", VALUES)
def test_a_view_sets_no_background_and_no_text_color(memory: Memory, kind: str) -> None:
    html = VALUES[kind](memory)._repr_html_()
    page = page_of(VALUES[kind](memory))
    grounds = [style for style in page.styles if "background" in style or "color:" in style]
    # The parts of a bar, and the squares that say which is which.
    assert all(style.startswith(("width:", "color:#")) for style in grounds)
    assert "<style" not in html
    assert "class=" not in html


def render(value: object, kind: str) -> str:
    """What IPython shows of a value."""
    data, _ = DisplayFormatter().format(value)  # type: ignore[no-untyped-call]  # it has no types
    return str(data[kind])


def test_ipython_uses_the_html_and_text_forms(memory: Memory) -> None:
    recall = memory.namespace.recall("dog")
    assert render(recall, "text/html") == recall._repr_html_()
    assert render(recall, "text/plain") == str(recall)
    assert render(memory.namespace.search("dog"), "text/html").startswith("<div")


def test_str_is_short_and_repr_stays_complete(memory: Memory) -> None:
    hit = memory.namespace.recall("dog")[0]
    assert str(hit).startswith("Hit: ")
    assert repr(hit).startswith("Hit(entry=Entry(id=")
    assert str(memory.session) == repr(memory.session) == "Session('alice', 'project')"  # asks for nothing


def test_a_recall_shows_the_rows_that_it_has(memory: Memory) -> None:
    recall = memory.namespace.recall("What is my dog called?", limit=7)
    page = page_of(recall)
    assert page.column("text") == [
        hit.entry.content if hit.knowledge is None else hit.knowledge.text for hit in recall
    ]
    assert page.column("found by") == [hit.found_by for hit in recall]
    assert [float(score) for score in page.column("score")] == pytest.approx(
        [hit.score for hit in recall], abs=0.001
    )


def test_a_context_has_the_state_of_each_message(memory: Memory) -> None:
    context = memory.session.build_context(budget=TokenBudget.of(700))
    states = context.states
    assert list(states)[: len(context.messages)] == [message.id for message in context.messages]
    assert {name for name, state in states.items() if state == "full"} == set(context.full)
    assert {name for name, state in states.items() if state == "compressed"} == set(context.compressed)
    assert {name for name, state in states.items() if state == "dropped"} == set(context.dropped)
    page = page_of(context)
    assert f"{context.token_count:,} of 700 tokens" in page.text
    assert set(page.column("state")) <= {"summary", "full", "compressed", "recalled"} | {""}
    for name, tokens in context.sections.items():
        assert not tokens or f"{name} {tokens:,}" in page.text


def test_long_lists_are_truncated_and_counted(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db", embedder=None) as engine:
        session = engine.session("alice", "long")
        session.add_many(MessageDraft("user", f"Remark {n}.") for n in range(50))
        page = page_of(session.latest(50))
        assert page.column("text") == [f"Remark {n}." for n in range(20)]
        assert "and 30 more" in page.text
        assert page_of(session.latest(50)[:20]).column("text") == page.column(
            "text"
        )  # a slice is one as well
        assert "more" not in page_of(session.latest(20)).text
        context = page_of(session.build_context(recall=False))
        assert "and 30 more" in context.text
        assert (
            context.text.index("Remark 2.")
            < context.text.index("and 30 more")
            < context.text.index("Remark 49.")
        )


def test_long_texts_are_truncated_and_counted(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db", embedder=None) as engine:
        report = engine.session("alice", "s").add("user", "x" * 5000)
    assert "(+4,840 characters)" in page_of(report).text
    assert len(report._repr_html_()) < 2500
    assert "(+4,600 characters)" in page_of(report.message).text  # by itself it has more room


def test_an_empty_memory_is_displayed(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db") as engine:
        namespace = engine.namespace("alice")
        assert "messages 0" in page_of(engine).text
        assert "none" in page_of(namespace).text
        session = namespace.session("s")
        for value in (
            session,
            namespace.recall("x"),
            namespace.search("x"),
            session.build_context(),
            session.arc(),
            namespace.long_term,
            namespace.knowledge,
            namespace.episodes,
            session.page(),
            engine.optimizer.history("alice"),
            SitemapGraph("https://a.example/"),
        ):
            assert page_of(value).text
            assert "cannot be shown" not in page_of(value).text


def test_a_closed_engine_is_displayed_without_raising(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db", embedder=None) as engine:
        namespace = engine.namespace("alice")
        session = namespace.session("s")
    assert repr(engine).endswith(", closed)")
    assert page_of(engine).text == repr(engine)
    for value in (namespace, session, namespace.long_term, namespace.knowledge, namespace.episodes):
        assert "EngineClosedError" in page_of(value).text
        assert "EngineClosedError" in render(value, "text/plain")
    assert "not running" in page_of(engine.optimizer).text


def test_a_deleted_session_is_displayed_as_missing(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db") as engine:
        session = engine.session("alice", "s")
        session.delete()
        assert "does not exist" in page_of(session).text
        engine.session("alice", "s").add("user", "another")  # of the same name
        assert "does not exist" in page_of(session).text


def test_a_view_runs_few_queries_for_any_size(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db", embedder=None) as engine:
        counts = []
        for sessions in (3, 60):
            for n in range(sessions):
                engine.session("alice", f"s{n}").add_many(
                    MessageDraft("user", f"Remark {k}.") for k in range(5)
                )
                engine.session(f"tenant {n}", "s").add("user", "Hello.")
            session = engine.session("alice", "s0")
            shown_values: list[Any] = [
                engine,
                engine.namespace("alice"),
                session,
                engine.namespace("alice").long_term,
            ]
            counts.append([count_statements(engine, value._repr_html_) for value in shown_values])
    assert counts[0] == counts[1]
    assert max(counts[1]) <= 8


def test_displaying_a_value_changes_nothing(memory: Memory) -> None:
    before = [item.use_count for item in memory.namespace.knowledge], memory.session.count()
    for make in VALUES.values():
        make(memory)._repr_html_()
    assert ([item.use_count for item in memory.namespace.knowledge], memory.session.count()) == before


def test_every_public_report_is_displayable() -> None:
    packages = [module.name for module in iter_modules(langmem_tiers.__path__) if module.ispkg]
    modules = [importlib.import_module(f"langmem_tiers.{name}") for name in packages]
    public = {getattr(module, name) for module in modules for name in getattr(module, "__all__", ())}
    reports = [
        exported
        for exported in public
        if isinstance(exported, type) and is_dataclass(exported) and is_result(exported.__name__)
    ]
    assert len(reports) > 30
    assert [report.__name__ for report in reports if not issubclass(report, NotebookDisplayable)] == []


def is_result(name: str) -> bool:
    ends = (
        "Report",
        "Receipt",
        "Diff",
        "Status",
        "Statistics",
        "Advice",
        "Page",
        "Info",
        "Hit",
        "ErasedIds",
        "Result",
    )
    return name.endswith(ends) and name != "Summary"


def test_a_displayable_tuple_behaves_like_a_tuple() -> None:
    listed: DisplayableTuple[int] = DisplayableTuple([3, 1, 2])
    assert listed == (3, 1, 2)
    assert hash(listed) == hash((3, 1, 2))
    assert (listed[0], listed[-1], sorted(listed)) == (3, 2, [1, 2, 3])
    assert repr(listed) == "(3, 1, 2)"
    assert "value" in page_of(listed).text


def test_values_that_fail_to_render_show_the_error() -> None:
    class Broken(NotebookDisplayable):
        def __repr__(self) -> str:
            raise ValueError("no")

        def _to_display(self) -> Any:
            raise RuntimeError("<b>lost</b>")

    assert page_of(Broken()).text.strip() == "Brokencannot be shown RuntimeError: <b>lost</b>"


def test_a_value_with_empty_fields_is_displayed() -> None:
    context = MemoryContext(messages=(), token_count=0, token_budget=1)
    assert "0 of 1 tokens" in page_of(context).text
    assert "MemoryEngine" in page_of(MemoryEngine(config=EngineConfig())).text
    assert {field.name for field in fields(Hit)} >= {"score", "signals"}
