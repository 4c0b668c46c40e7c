"""Views on every database, from other threads, and after pickling."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import MemoryEngine, TokenBudget
from tests.display.html_page import page_of

if TYPE_CHECKING:
    from pathlib import Path


def test_engine_namespace_and_session_are_displayed_on_each_database(
    engine: MemoryEngine, tenant: str
) -> None:
    session = engine.session(tenant, "monday")
    session.add("user", "My cat is called Tom.")
    page = page_of(session)
    assert page.column("text") == ["My cat is called Tom."]
    assert "messages 1" in page.text
    assert page_of(engine.namespace(tenant)).column("session") == ["monday"]
    assert "tokens for memory 190,904" in page_of(engine).text
    assert "password" not in page_of(engine).text


@pytest.mark.soak
def test_views_can_be_rendered_during_concurrent_writes(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db", embedder=None) as engine, ThreadPoolExecutor(4) as pool:
        session = engine.session("alice", "s")
        writes = [pool.submit(session.add, "user", f"Remark {n}.") for n in range(60)]
        views = [
            pool.submit(displayable._repr_html_)
            for displayable in (engine, engine.namespace("alice"), session) * 10
        ]
        assert all("cannot be shown" not in view.result() for view in views)
        assert all(write.result().tokens for write in writes)


def test_displayable_values_can_be_pickled_and_compared(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db", embedder=None) as engine:
        session = engine.session("alice", "s")
        report = session.add("user", "My cat is called Tom.")
        values: list[Any] = [
            report,
            session.build_context(budget=TokenBudget.of(100)),
            engine.namespace("alice").recall("cat"),
            engine.namespace("alice").search("cat"),
            session.latest(),
        ]
    for value in values:
        again = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own
        assert again == value
        assert type(again) is type(value)
        assert again._repr_html_() == value._repr_html_()
