"""Cached session views are never older than the database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import CacheConfig, EngineConfig, MemoryEngine, MessageDraft, MessageToolCall, TokenBudget

if TYPE_CHECKING:
    from pathlib import Path

    from langmem_tiers import Message
    from langmem_tiers.common.entries import ViewItem


def texts(engine: MemoryEngine) -> list[str]:
    return [message.content for message in engine.session("a", "s").build_context(recall=False).messages]


def test_changes_of_another_engine_are_visible_immediately(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db") as one, MemoryEngine(tmp_path / "m.db") as other:
        session = one.session("a", "s")
        session.add_many(MessageDraft("user", f"number {n}") for n in range(4))
        assert texts(other) == texts(one)
        session.add("user", "number 4")
        assert texts(other) == [f"number {n}" for n in range(5)]
        session.compress(session.latest()[3].id, "three numbers")
        assert texts(other) == texts(one) == ["[CONTEXT SUMMARY]\nthree numbers", "number 3", "number 4"]
        session.delete()
        assert texts(other) == texts(one) == []


def test_a_turn_reads_only_new_messages_of_the_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from langmem_tiers.sessions import override_repository

    read: list[int] = []
    whole = override_repository.to_view_items

    def counted(rows: list[Any], label: str) -> list[ViewItem]:
        read.append(len(rows))
        return whole(rows, label)

    monkeypatch.setattr(override_repository, "to_view_items", counted)
    with MemoryEngine(tmp_path / "m.db") as engine:
        session = engine.session("a", "s")
        session.add_many(MessageDraft("user", f"number {n}") for n in range(50))
        texts(engine)
        session.add("user", "one more")
        assert len(texts(engine)) == 51
    assert read == [50, 1]


def test_without_a_cache_the_view_is_the_same(tmp_path: Path) -> None:
    config = EngineConfig(cache=CacheConfig(max_characters=0))
    with MemoryEngine(tmp_path / "m.db", config=config) as engine:
        session = engine.session("a", "s")
        for number in range(3):
            session.add("user", f"number {number}")
            assert len(texts(engine)) == number + 1


@pytest.mark.parametrize("tokens", [300, 600, 1000, 4000])
def test_a_late_result_makes_the_same_context_as_in_a_fresh_engine(tmp_path: Path, tokens: int) -> None:
    budget = replace(TokenBudget.of(tokens), full_message_window=3)

    def context(engine: MemoryEngine) -> tuple[Message, ...]:
        return engine.session("a", "s").build_context(budget=budget, recall=False).messages

    with MemoryEngine(tmp_path / "m.db") as engine:
        session = engine.session("a", "s")
        session.add_many(MessageDraft("user", f"Before {n}. " * 9) for n in range(5))
        session.add(MessageDraft("assistant", "", tool_calls=(MessageToolCall("c", "look", "{}"),)))
        for turn in range(8):
            session.add("user", f"Meanwhile {turn}. " * 9)
            context(engine)
        session.add(MessageDraft("tool", "Found at last.", tool_call_id="c"))
        session.add_many(MessageDraft("user", f"After {n}. " * 9) for n in range(6))
        with MemoryEngine(tmp_path / "m.db") as fresh:
            assert context(engine) == context(fresh)
        for turn in range(3):
            session.add("user", f"Later {turn}. " * 9)
            with MemoryEngine(tmp_path / "m.db") as fresh:
                assert context(engine) == context(fresh)
