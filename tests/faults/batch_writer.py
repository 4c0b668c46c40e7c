"""A child process whose threads share a writer until it is killed and report acknowledged messages."""

from __future__ import annotations

import os
import threading
from typing import Literal

from langmem_tiers import MemoryEngine, MessageDraft

THREADS = 4


def write_until_killed(
    url: str, tenant: str, name: str, acknowledged: str, acknowledge: Literal["stored", "queued"], report: str
) -> None:
    """Add from several threads, noting each message once the writer has acknowledged it."""
    notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    engine = MemoryEngine(url)
    writer = engine.writer(
        acknowledge=acknowledge,
        max_wait_ms=20,
        max_messages=50,
        max_pending=500,
        report_path=report if acknowledge == "queued" else None,
    )

    def write(thread: int) -> None:
        number = 0
        while True:
            size = 1 if number % 3 else 3
            drafts = [
                make_batch_draft(f"{name}-{thread}-{number}-{index}-of-{size}") for index in range(size)
            ]
            writer.add(tenant, f"s{thread % 2}", *drafts)
            os.write(notes, "".join(f"{draft.id}\n" for draft in drafts).encode())
            number += 1

    for thread in range(THREADS):
        threading.Thread(target=write, args=(thread,)).start()


def make_batch_draft(message_id: str) -> MessageDraft:
    """The message that has this id, always the same."""
    number = int(message_id.split("-")[2])
    return MessageDraft("user", f"{message_id} " + "word " * (number % 50), id=message_id)
