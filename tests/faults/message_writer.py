"""A child process that adds messages until it is killed and reports acknowledged ones."""

from __future__ import annotations

import os

from langmem_tiers import MemoryEngine, MessageDraft, MessageToolCall


def write_until_killed(url: str, tenant: str, name: str, acknowledged: str) -> None:
    """Add single messages and batches, noting each id once the engine has acknowledged it."""
    notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    engine = MemoryEngine(url)
    session = engine.session(tenant, "s")
    number = 0
    while True:
        size = 1 if number % 3 else 4
        drafts = [make_draft(f"{name}-{number}-{index}-of-{size}") for index in range(size)]
        report = session.add_many(drafts)
        os.write(notes, "".join(f"{message.id}\n" for message in report.stored).encode())
        number += 1


def make_draft(message_id: str) -> MessageDraft:
    """The message that has this id, always the same."""
    number = int(message_id.split("-")[1])
    return MessageDraft(
        "assistant",
        f"{message_id} " + "word " * (number % 500),
        id=message_id,
        tool_calls=[MessageToolCall("c", "tool", "x" * (number % 1000))],
        payload={"id": message_id, "pad": "y" * (number % 2000)},
    )
