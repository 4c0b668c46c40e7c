"""Child processes that open a database at the same moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Callable


def start_and_add(wait: Callable[[], object], url: str, text: str) -> None:
    """Open it when the others do, and say something."""
    wait()
    with MemoryEngine(url, embedder=None) as engine:
        engine.session("acme", "s").add("user", text)
