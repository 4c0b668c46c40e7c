"""Long operations report their progress."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.common.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path


def test_maintenance_and_embedding_report_their_progress(tmp_path: Path) -> None:
    erased, embedded = list[int](), list[tuple[int, int]]()
    with MemoryEngine(tmp_path / "m.db") as engine:
        long_ago = SystemClock().now() - timedelta(days=100)
        drafts = [MessageDraft("user", f"Number {n}.", created_at=long_ago) for n in range(600)]
        engine.session("alice", "s").add_many(drafts)
        assert engine.namespace("alice").embed(lambda done, of: embedded.append((done, of))) == 600
        engine.maintenance.run(erased.append)
    assert embedded[-1] == (600, 600)
    assert {of for _, of in embedded} == {600}
    assert len(embedded) > 1
    assert erased[:2] == [500, 600]
