"""Injected memory is never stored as a new message."""

from __future__ import annotations

import json

import pytest

from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft, MessageToolCall, TokenBudget
from langmem_tiers.common.prompt_fences import FENCE_OPENING, wrap_in_fence

INJECTED = wrap_in_fence(
    ["user: Error: password of bob@evil.example is ACC-998877, we decided to use PostgreSQL."]
)
OF_INJECTED = ("ACC-998877", "bob@evil", "PostgreSQL")


def holds_injected(text: str) -> bool:
    return any(piece in text for piece in OF_INJECTED)


def test_a_summary_omits_text_quoted_from_memory() -> None:
    with MemoryEngine(embedder=None, config=EngineConfig(budget=TokenBudget.of(3000))) as engine:
        session = engine.session("a", "s")
        for number in range(60):
            session.add(
                "user", f"{INJECTED}\nThanks, go on with part {number} " + "and some more of it " * 10
            )
        session.build_context()
        summaries = [message for message in session.messages() if message.is_summary]
        assert summaries
        assert "go on with part" in summaries[-1].content
        assert not any(holds_injected(summary.content) for summary in summaries)


def test_a_compressed_message_omits_text_quoted_from_memory() -> None:
    with MemoryEngine(embedder=None) as engine:
        session = engine.session("a", "s")
        for number in range(40):
            session.add("user", f"{INJECTED}\nPart {number}: " + f"it goes on {number} times " * 20)
        context = session.build_context(budget=TokenBudget.of(4000), recall=False)
        short = [message for message in context.messages if INJECTED not in message.content]
        assert len(short) > 3
        assert all("goes on" in message.content for message in short)
        assert not any(holds_injected(message.content) for message in short)


def test_a_manually_promoted_message_is_summarized_without_its_quote_of_memory() -> None:
    with MemoryEngine(embedder=None, config=EngineConfig(budget=TokenBudget.of(2000))) as engine:
        session = engine.session("a", "s")
        kept = session.add("user", f"{INJECTED}\nThe harbour opens at nine.").message
        session.promote(kept.id)
        for number in range(60):
            session.add("user", f"Part {number}: " + f"it goes on {number} times " * 8)
        session.build_context()
        (*_, summary) = [message for message in session.messages() if message.is_summary]
        assert "The harbour opens at nine." in summary.content
        assert not holds_injected(summary.content)


@pytest.mark.parametrize(("text", "promoted"), [("The API key is in the safe.", True), ("Thanks.", False)])
def test_facts_inside_a_quote_of_memory_promote_nothing(text: str, promoted: bool) -> None:  # noqa: FBT001
    with MemoryEngine(embedder=None) as engine:
        session = engine.session("a", "s")
        session.add("user", f"{INJECTED}\nImportant, remember this, critical: {text}")
        kinds = [action.kind for action in session.analyze().actions]
        assert ("promote" in kinds) is promoted


def test_a_tool_call_is_not_found_by_text_quoted_from_memory() -> None:
    with MemoryEngine(embedder=None) as engine:
        call = MessageToolCall(
            id="1", name="note", arguments=json.dumps({"text": INJECTED, "place": "harbour"})
        )
        session = engine.session("a", "s")
        session.add_many(
            [
                MessageDraft("assistant", "", tool_calls=[call]),
                MessageDraft("tool", "done", tool_call_id="1"),
            ]
        )
        found = engine.namespace("a").search("harbour")
        assert [hit.message.tool_calls for hit in found if hit.message] == [(call,)]
        assert engine.namespace("a").search("PostgreSQL") == ()


@pytest.mark.parametrize("line_end", ["\n", "\r\n", " ", "\n\n"])
def test_a_quote_is_recognized_with_any_line_endings(line_end: str) -> None:
    with MemoryEngine(embedder=None) as engine:
        report = engine.session("a", "s").add("user", INJECTED.replace("\n", line_end))
        assert (report.stored, len(report.echoes)) == ((), 1)


def test_a_message_with_an_unclosed_fence_is_stored_unchanged_and_found() -> None:
    text = f"{FENCE_OPENING} why does your prompt say zebra?"
    with MemoryEngine(embedder=None) as engine:
        report = engine.session("a", "s").add("user", text)
        assert ([message.content for message in report.stored], report.echoes) == ([text], ())
        assert [hit.entry.content for hit in engine.namespace("a").search("zebra")] == [text]
