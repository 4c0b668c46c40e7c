"""Frames contain the same data as their source."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from langmem_tiers import (
    AgentAction,
    AgentMemory,
    Entry,
    ExecutionOutcome,
    Hit,
    InvalidInputError,
    Knowledge,
    MemoryEngine,
    Message,
    MissingExtraError,
    RecallFilters,
    Thought,
    TokenBudget,
)
from langmem_tiers.display.frames import COLUMNS, frame
from langmem_tiers.tasks import Observation
from langmem_tiers.tuning import TuningSnapshot

if TYPE_CHECKING:
    from pathlib import Path

    from tests.display.html_page import Memory

pytestmark = pytest.mark.xdist_group("notebook")  # they share one memory
UTC_TIMES = "datetime64[us, UTC]"


def test_a_recall_becomes_a_frame_with_a_column_for_each_signal(memory: Memory) -> None:
    recall = memory.namespace.recall("What is my dog called?", limit=8)
    made = frame(recall)
    assert list(made["score"]) == [hit.score for hit in recall]
    assert list(made["content"]) == [hit.entry.content for hit in recall]
    assert list(made["created_at"]) == [hit.entry.created_at for hit in recall]
    for name in {name for hit in recall for name in hit.signals}:
        expected = [hit.signals.get(name) for hit in recall]
        assert [None if pd.isna(value) else value for value in made[f"signal_{name}"]] == expected
    assert made["created_at"].dtype == UTC_TIMES
    assert made["score"].dtype == "float64"
    assert made.equals(frame(recall.hits))
    assert made.equals(frame(iter(recall)))


def test_a_context_has_a_row_for_each_included_and_omitted_message(memory: Memory) -> None:
    context = memory.session.build_context(budget=TokenBudget.of(500))
    made = frame(context).set_index("id")
    assert context.dropped or context.compressed
    assert list(made.index) == list(context.states)
    assert dict(made["state"]) == context.states
    shown = made.loc[[message.id for message in context.messages]]
    assert list(shown["content"]) == [message.content for message in context.messages]
    assert list(shown["token_count"]) == [message.token_count for message in context.messages]
    for name in context.dropped:
        assert made["content"].isna()[name]
        assert made.loc[name, "reason"] == context.reasons[name]


def test_pages_sessions_and_entries_become_frames(memory: Memory) -> None:
    page = memory.session.page(limit=5)
    assert list(frame(page)["content"]) == [message.content for message in page.messages]
    sessions = frame(memory.namespace.sessions())
    assert dict(zip(sessions["name"], sessions["message_count"], strict=True)) == {
        info.name: info.message_count for info in memory.namespace.sessions().sessions
    }
    assert set(sessions["namespace"]) == {"alice"}
    entries = memory.session.entries()
    made = frame(entries)
    assert list(made["relevance"]) == [entry.relevance for entry in entries]
    assert list(made["tier"]) == [entry.tier.value for entry in entries]
    assert made["valid_until"].isna().all()
    stored = frame(memory.namespace.long_term)  # whatever can be gone through
    assert set(stored["id"]) >= {entry.id for entry in memory.entries}


def test_the_optimizers_history_becomes_a_frame(memory: Memory) -> None:
    history = memory.engine.optimizer.history("alice")
    made = frame(history)
    assert list(made["tokens_saved"]) == [run.tokens_saved for run in history]
    assert list(made["full_message_window"]) == [run.parameters.full_message_window for run in history]
    assert made["is_reverted"].dtype == "bool"
    assert made["created_at"].dtype == UTC_TIMES


def test_knowledge_relations_stories_and_sites_become_frames(memory: Memory) -> None:
    known = frame(memory.namespace.knowledge)
    assert known[["category", "key", "value"]].to_numpy().tolist() == [["domain", "payments", "Fjordpay"]]
    assert frame(memory.namespace.knowledge.recall("payments", use=False)).loc[0, "value"] == "Fjordpay"
    related = frame(memory.namespace.long_term.related(memory.entries[0].id, depth=2))
    assert list(related["depth"]) == [1, 2]
    arc = memory.session.arc()
    frame_of_arc = frame(arc)
    assert frame_of_arc["part"].value_counts().to_dict() == {
        name: len(getattr(arc, name)) for name in ("beginning", "middle", "end") if getattr(arc, name)
    }
    assert list(frame(memory.session.chunks())["number"]) == [
        chunk.number for chunk in memory.session.chunks()
    ]
    site = frame(memory.site)
    assert list(site["url"]) == [page.url for page in memory.site.pages()]
    assert site["visited_at"].notna().sum() == 1
    assert len(frame(memory.namespace.facts)) == len(list(memory.namespace.facts))
    assert frame(memory.engine.statistics())["name"].is_unique


def test_cycles_of_an_agent_become_a_frame() -> None:
    with AgentMemory() as agent:
        agent.start_task("Buy a lamp.")
        action = AgentAction("click", {"selector": "#buy"})
        agent.record_cycle(Thought("Buy it."), action, Observation("Bought."), ExecutionOutcome.SUCCESS)
        agent.record_cycle(Thought(""), AgentAction("wait"), None, ExecutionOutcome.FAILURE)
        made = frame(agent.short_term.entries)
    assert list(made["tool"]) == ["click", "wait"]
    assert list(made["outcome"]) == ["success", "failure"]
    assert made.loc[0, "parameters"] == '{"selector": "#buy"}'
    assert made.loc[0, "observation"] == "Bought."
    assert made["time"].dtype == UTC_TIMES


def test_a_report_becomes_one_row(memory: Memory) -> None:
    figures = memory.engine.figures()
    made = frame(figures)
    assert made.shape[0] == 1
    assert made.loc[0, "messages"] == figures.messages


@pytest.mark.parametrize("kind", [Hit, Message, Entry, Knowledge, TuningSnapshot])
def test_an_empty_frame_has_its_columns(kind: type) -> None:
    made = frame((), of=kind)
    assert len(made) == 0
    assert list(made.columns) == [column.name for column in COLUMNS[kind]]
    assert frame([]).shape == (0, 0)


def test_an_empty_recall_has_the_types_of_a_full_one(memory: Memory) -> None:
    nothing = frame(memory.namespace.recall("dog", filters=RecallFilters(sessions={"nowhere"})))
    full = frame(memory.namespace.recall("dog"))
    assert len(nothing) == 0
    assert dict(nothing.dtypes) == {name: kind for name, kind in full.dtypes.items() if name in nothing}


def test_texts_are_complete_in_a_frame(tmp_path: Path) -> None:
    texts = ["", "\x00", "中文 שלום 😀", "x" * 100_000, "a\nb", "\ud800"]
    with MemoryEngine(tmp_path / "m.db", embedder=None) as engine:
        session = engine.session("alice", "s")
        for text in texts:
            session.add("user", text)
        assert list(frame(session.page())["content"]) == texts


@pytest.mark.parametrize("wrong", [None, 3, "text", b"bytes", {"a": 1}, [1, 2], object()])
def test_an_unsupported_object_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="does not support"):
        frame(wrong)


def test_two_kinds_give_two_frames(memory: Memory) -> None:
    with pytest.raises(InvalidInputError, match="among Entry"):
        frame([memory.entries[0], memory.session.latest(1)[0]])


def test_without_pandas_the_error_names_the_extra(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'langmem-tiers\[notebook\]'"):
        frame(memory.entries)


@pytest.mark.soak
def test_optional_packages_are_imported_lazily() -> None:
    look = (
        "import sys\n"
        "import langmem_tiers.display.frames, langmem_tiers.display.plots, langmem_tiers.display.progress\n"
        "print({'matplotlib', 'pandas', 'tqdm', 'IPython'} & set(sys.modules))\n"
    )
    child = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert child.stdout == "set()\n"
