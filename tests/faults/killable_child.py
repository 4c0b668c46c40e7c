"""Child processes that are killed after a given progress.

Each child appends one line to a notes file for every write that was acknowledged. A kill waits for a number of such
lines, so the number of writes that a test checks does not depend on the speed of the machine.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

_LONGEST_PAUSE_SECONDS = 0.006


@dataclass(frozen=True)
class Child:
    """A process that works until it is killed, and the file with its notes."""

    process: ForkServerProcess
    notes: Path

    def list_acknowledged(self) -> list[str]:
        """Return all complete lines of the notes."""
        return self.notes.read_text().split("\n")[:-1] if self.notes.exists() else []

    def has(self, lines: int) -> bool:
        """Return whether the notes have at least this many lines."""
        found = len(self.list_acknowledged()) >= lines
        assert found or self.process.is_alive(), f"the child ended by itself: {self.process.exitcode}"
        return found

    def wait_for(self, lines: int) -> None:
        """Wait until the notes have at least this many lines."""
        wait_until(lambda: self.has(lines), f"a child acknowledges {lines} writes")

    def kill(self) -> None:
        """Send SIGKILL and wait for the end of the process."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.join_killed()

    def join_killed(self) -> None:
        """Wait for the end of the process, which must have been a kill."""
        self.process.join(LIMIT_SECONDS)
        assert self.process.exitcode == -signal.SIGKILL
        self.process.close()


def start(work: Callable[..., None], arguments: tuple[Any, ...], notes: Path) -> Child:
    """Start a process that runs the work with these arguments."""
    process = fork_server().Process(target=work, args=arguments, daemon=True)
    process.start()
    return Child(process, notes)


def wait_for_next(running: Sequence[tuple[Child, int]]) -> tuple[Child, int]:
    """Wait for the first of some children whose notes have its number of lines."""
    ready: list[tuple[Child, int]] = []

    def is_one_ready() -> bool:
        ready.extend(pair for pair in running if pair[0].has(pair[1]))
        return bool(ready)

    wait_until(is_one_ready, "one of the children acknowledges its number of writes")
    return ready[0]


def pause(chance: random.Random) -> None:
    """Let a child go on for a random moment, so that kills hit different points inside an operation."""
    time.sleep(chance.random() * _LONGEST_PAUSE_SECONDS)
