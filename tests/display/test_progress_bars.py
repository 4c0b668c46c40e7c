"""A bar follows real work."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine, MessageDraft, MissingExtraError
from langmem_tiers.common.clock import SystemClock
from langmem_tiers.display.progress import bar

if TYPE_CHECKING:
    from pathlib import Path


def test_a_bar_follows_embedding_backups_and_maintenance(tmp_path: Path) -> None:
    long_ago = SystemClock().now() - timedelta(days=100)
    out = {name: io.StringIO() for name in ("embed", "backup", "restore", "maintain")}
    with MemoryEngine(tmp_path / "m.db") as engine, MemoryEngine(tmp_path / "n.db") as other:
        engine.session("alice", "s").add_many(
            MessageDraft("user", f"Number {n}.", created_at=long_ago) for n in range(300)
        )
        with bar("embedding", unit="messages", file=out["embed"], mininterval=0) as progress:
            assert engine.namespace("alice").embed(progress) == 300
        with bar("backing up", file=out["backup"], mininterval=0) as progress:
            engine.backup(tmp_path / "b", progress=progress)
        with bar("restoring", file=out["restore"], mininterval=0) as progress:
            other.restore(tmp_path / "b", progress=progress)
        with bar("erasing", file=out["maintain"], mininterval=0) as progress:
            engine.maintenance.run(progress)
    outputs = {name: stream.getvalue() for name, stream in out.items()}
    assert "300/300" in outputs["embed"]
    assert "embedding: 100%" in outputs["embed"]
    assert "backing up, writing: 100%" in outputs["backup"]
    assert "restoring, checking: 100%" in outputs["restore"]
    assert "restoring, writing: 100%" in outputs["restore"]
    assert "erasing: 300it" in outputs["maintain"]


def test_a_bar_is_closed_with_its_block_even_if_the_work_fails() -> None:
    out = io.StringIO()
    with suppress(RuntimeError), bar("moving", file=out) as progress:
        progress(1, 4)
        raise RuntimeError("lost")
    assert out.getvalue().endswith("\n")
    assert "1/4" in out.getvalue()


def test_a_disabled_bar_accepts_all_updates() -> None:
    with bar("moving", disable=True) as progress:
        progress(1, 4)
        progress(2)


def test_without_tqdm_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'langmem-tiers\[notebook\]'"):
        bar("moving")
