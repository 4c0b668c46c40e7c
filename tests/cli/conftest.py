"""A memory to call commands on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine, MessageDraft, MessageToolCall

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    with MemoryEngine(path) as engine:
        monday = engine.session(("acme", "a/b"), "monday")
        monday.add("user", "My train to Malmö leaves at 9:40 from platform 3.")
        monday.add_many(
            [
                MessageDraft("assistant", "", tool_calls=[MessageToolCall("c1", "look", '{"at": 1}')]),
                MessageDraft("tool", "9:40", tool_call_id="c1", payload={"raw": [1, None]}),
            ]
        )
        engine.session("bob", "tuesday").add("user", "Bob likes [bold]tea[/bold].")
    return path


@pytest.fixture
def new_postgres_url(new_postgres_database: Callable[[], str]) -> str:
    """An empty database on a server."""
    return new_postgres_database()
