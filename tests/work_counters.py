"""Deterministic measures of work: function calls, SQL statements and steps of SQLite."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers import MemoryEngine

SQLITE_STEPS = 10


def count_function_calls(work: Callable[[], object]) -> int:
    """Return how many functions this thread calls during the work, in Python and in C."""
    count = 0

    def note(_frame: object, what: str, _about: object) -> None:
        nonlocal count
        count += what in {"call", "c_call"}

    before, was_enabled = sys.getprofile(), gc.isenabled()
    gc.disable()  # finalizers of other objects do not count
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        if was_enabled:
            gc.enable()
    return count


def count_statements(engine: MemoryEngine, work: Callable[[], object]) -> int:
    """Return how many SQL statements the engine executes during the work."""
    executed: list[str] = []

    def note(*about: Any) -> None:
        executed.append(about[2])

    event.listen(engine._database._engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(engine._database._engine, "before_cursor_execute", note)
    return len(executed)


def count_sqlite_steps(engine: MemoryEngine, work: Callable[[], object]) -> int:
    """Return how many instructions SQLite executes during the work, in tens. The engine must be in memory."""
    count = 0

    def note() -> int:
        nonlocal count
        count += 1
        return 0

    with engine._database.read() as connection:
        raw: Any = connection.connection.driver_connection
    raw.set_progress_handler(note, SQLITE_STEPS)
    try:
        work()
    finally:
        raw.set_progress_handler(None, 0)
    return count
