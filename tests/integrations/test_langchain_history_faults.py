"""The chat history with a failing store: turns continue and no message is lost."""

from __future__ import annotations

import gc
import logging
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langmem_tiers import EngineConfig, MemoryEngine, StorageBusyError, TokenBudget
from langmem_tiers.integration_kit.retry_queue import get_retry_queue
from langmem_tiers_langchain import TieredChatMessageHistory
from tests.integrations.recording_chat_model import create_answering_model
from tests.integrations.test_langchain_history import SHAPES, build_input, build_runnable, run, texts
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def engine(path: Path) -> Iterator[MemoryEngine]:
    with MemoryEngine(path, config=EngineConfig(busy_timeout_seconds=0.05), embedder=None) as opened:
        opened.session("t", "s")
        yield opened


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the database against writes."""
    other = sqlite3.connect(path, isolation_level=None, timeout=LIMIT_SECONDS)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def create_history(engine: MemoryEngine) -> TieredChatMessageHistory:
    return TieredChatMessageHistory(engine, "s", namespace="t")


def test_unsaved_messages_are_shown_and_stored_with_the_next_message(
    engine: MemoryEngine, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_history(engine).add_user_message("one")
    with locked(path), caplog.at_level(logging.WARNING, "langmem_tiers"):
        create_history(engine).add_messages([HumanMessage("two"), AIMessage("three", id="run-3")])
        assert texts(create_history(engine).messages) == ["one", "two", "three"]
        assert texts(create_history(engine).unsaved) == ["two", "three"]
    assert "could not store 2 messages and will retry: StorageBusyError" in caplog.text
    assert "two" not in caplog.text
    assert engine.session("t", "s").count() == 1
    create_history(engine).add_user_message("four")
    assert texts(create_history(engine).messages) == ["one", "two", "three", "four"]
    assert engine.session("t", "s").count() == 4
    assert (create_history(engine).unsaved, create_history(engine).failures) == ([], 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_chain_continues_while_the_store_fails_and_loses_no_turn(
    engine: MemoryEngine, path: Path, shape: str
) -> None:
    model = create_answering_model()
    chain = build_runnable(
        model, shape, lambda session: TieredChatMessageHistory(engine, session, namespace="t")
    )
    run(chain, "invoke", build_input(shape, "one"))
    with locked(path):
        run(chain, "invoke", build_input(shape, "two"))
        run(chain, "ainvoke", build_input(shape, "three"))
        assert texts(model.seen[-1]) == ["one", "answer 1", "two", "answer 2", "three"]
    run(chain, "stream", build_input(shape, "four"))
    expected = ["one", "answer 1", "two", "answer 2", "three", "answer 3", "four", "answer 4"]
    assert texts(create_history(engine).messages) == expected
    assert engine.session("t", "s").count() == 8
    assert create_history(engine).failures == 2


def test_an_unreadable_store_shows_the_messages_seen_so_far_and_the_unsaved_ones(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MemoryEngine(path) as engine:
        history = create_history(engine)
        history.add_user_message("one")
        assert texts(history.messages) == ["one"]
    with caplog.at_level(logging.WARNING, "langmem_tiers"):
        history.add_user_message("two")
        assert texts(history.messages) == texts(history.context()) == ["one", "two"]
        assert texts(create_history(engine).messages) == ["two"]
    assert "could not be read" in caplog.text


def test_a_read_only_store_gives_a_view_within_the_budget(path: Path) -> None:
    config = EngineConfig(busy_timeout_seconds=0.05, budget=TokenBudget.of(300))
    with MemoryEngine(path, config=config) as engine:
        create_history(engine).add_messages([HumanMessage(f"{n}: {'the garden ' * 20}") for n in range(30)])
        with locked(path):
            shown = TieredChatMessageHistory(engine, "s", namespace="t", view="budget").messages
        assert engine.session("t", "s").info().compressed_count == 0
    assert 0 < len(shown) < 30
    assert shown[-1].text.startswith("29:")


def test_clearing_a_locked_store_raises_and_keeps_the_messages(engine: MemoryEngine, path: Path) -> None:
    create_history(engine).add_user_message("one")
    with locked(path):
        with pytest.raises(StorageBusyError):
            create_history(engine).clear()
        create_history(engine).add_user_message("two")
    assert texts(create_history(engine).messages) == ["one", "two"]
    create_history(engine).clear()
    assert create_history(engine).messages == []


def test_unsaved_messages_belong_to_one_session_of_one_engine(engine: MemoryEngine, path: Path) -> None:
    with locked(path):
        create_history(engine).add_user_message("mine")
    assert TieredChatMessageHistory(engine, "other", namespace="t").messages == []
    assert TieredChatMessageHistory(engine, "s", namespace="u").messages == []
    with MemoryEngine(path) as another:
        assert create_history(another).messages == []


@pytest.mark.soak
def test_the_retry_queue_is_released_with_its_engine() -> None:
    engine = MemoryEngine()
    queue = get_retry_queue(engine)
    assert get_retry_queue(engine) is queue
    engine.close()
    before = len(gc.get_referrers(queue))
    del engine
    gc.collect()
    assert len(gc.get_referrers(queue)) < before


def test_parallel_writers_lose_nothing_while_the_store_fails_intermittently(
    engine: MemoryEngine, path: Path
) -> None:
    def write(name: str) -> None:
        for n in range(10):
            create_history(engine).add_user_message(f"{name} {n}")

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        with locked(path):
            threads[0].join(0.1)
    for thread in threads:
        thread.join()
    create_history(engine).add_user_message("last")
    assert sorted(texts(create_history(engine).messages)) == sorted(
        ["last", *(f"w{n} {count}" for n in range(3) for count in range(10))]
    )
