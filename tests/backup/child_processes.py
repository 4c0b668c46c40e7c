"""Child processes: one that writes until it is stopped, and some that never finish."""

from __future__ import annotations

import os
import resource
import sys
import threading
from typing import TYPE_CHECKING

from langmem_tiers import BackupError, MemoryEngine, MessageDraft

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from langmem_tiers.backup import BackupProgress

BATCH = 7


def write_batches(url: str, said: Connection) -> None:
    """Add batches to sessions in turn until the other end says something."""
    with MemoryEngine(url, embedder=None) as engine:
        number = 0
        while not said.poll():
            session = engine.session("acme", f"s{number % 3}")
            session.add_many(MessageDraft("user", f"batch {number}, {n}") for n in range(BATCH))
            engine.items.put(("acme", "items"), "newest", {"batch": number})
            number += 1
            if number == 3:
                said.send("begun")


def restore_and_hang(url: str, path: str, said: Connection) -> None:
    """Restore until half of it is written, then say so and wait to be killed."""

    def watch(progress: BackupProgress) -> None:
        if progress.stage == "writing" and progress.done >= progress.total / 2:
            said.send(progress.done)
            threading.Event().wait()

    MemoryEngine(url, embedder=None).restore(path, replace=True, progress=watch)


def backup_and_hang(url: str, path: str, said: Connection) -> None:
    """The same with a backup."""

    def watch(progress: BackupProgress) -> None:
        if progress.done >= progress.total / 2:
            said.send(progress.done)
            threading.Event().wait()

    MemoryEngine(url, embedder=None).backup(path, overwrite=True, progress=watch)


def backup_on_a_full_disk(url: str, path: str) -> None:
    """Back up where no file may grow beyond a few bytes."""
    with MemoryEngine(url, embedder=None) as engine:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        for verb in (engine.backup, engine.snapshot):
            try:
                verb(path, overwrite=True)
            except BackupError as error:
                print(f"{type(error).__name__}: {error}", flush=True)  # noqa: T201 - read by the test
        os._exit(0)


if __name__ == "__main__":
    backup_on_a_full_disk(*sys.argv[1:])
