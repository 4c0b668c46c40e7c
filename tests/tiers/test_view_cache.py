"""What sessions show, held in memory: never older than the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers import CacheConfig, EngineConfig, MemoryEngine, MessageDraft

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from langmem_tiers.core.entries import Shown


def texts(engine: MemoryEngine) -> list[str]:
    return [message.content for message in engine.session("a", "s").build_context(recall=False).messages]


def test_what_another_process_writes_compresses_and_erases_is_seen_at_once(tmp_path: Path) -> None:
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


def test_a_turn_reads_what_is_new_and_not_the_whole_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from langmem_tiers.storage import entries

    read: list[int] = []
    whole = entries.shown_of

    def counted(rows: list[Any], label: str) -> list[Shown]:
        read.append(len(rows))
        return whole(rows, label)

    monkeypatch.setattr(entries, "shown_of", counted)
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
