"""Child processes whose threads add messages to shared sessions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from langmem_tiers import MemoryEngine, MessageDraft

if TYPE_CHECKING:
    from collections.abc import Callable


def write_in_threads(wait: Callable[[], object], url: str, process: str, threads: int, each: int) -> None:
    """Add messages from several threads; each thread writes to one of four sessions."""
    with MemoryEngine(url) as engine, ThreadPoolExecutor(threads) as pool:
        wait()

        def write(thread: int) -> None:
            session = engine.session("acme", f"s{thread % 4}")
            for number in range(each):
                name = f"{process}/{thread}/{number}"
                session.add(MessageDraft("user", name, id=name))

        list(pool.map(write, range(threads)))
