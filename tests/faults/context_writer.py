"""Child processes that save contexts until they are killed."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime

from langmem_tiers.context_files.models import ContextData
from langmem_tiers.context_files.service import ContextFiles
from langmem_tiers.context_files.store_models import ContextFilesConfig

SESSION = "user:agent:123"
CONFIG = ContextFilesConfig(keep_versions=3)


def mark_context(context: ContextData, number: int) -> ContextData:
    """The context with the number in every field, so that two versions that were mixed would be seen."""
    empty = ContextData(
        session_id=context.session_id,
        system_state={"number": number},
        long_term_summary=f"{number} " * (number % 700),
        based_on=context.based_on,
    )
    return (
        empty.with_message("user", f"{number}", at=number, token_count=number)
        .with_fact(*(f"{number}-{n}" for n in range(number % 50)), f"{number}")
        .with_task(f"{number}", f"{number}", at=number)
        .with_environment(f"{number}", {"number": number}, at=number)
    )


def read_number(context: ContextData) -> int:
    """The number that the whole context is of."""
    number = context.system_state.get("number", 0)
    assert isinstance(number, int)
    assert context == mark_context(context, number) or context == ContextData(session_id=context.session_id)
    return number


def save_until_killed(folder: str, acknowledged: str) -> None:
    """Save one version after the other, noting each number once it was acknowledged."""
    notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    files = ContextFiles(folder, config=CONFIG, embedder=None)
    context = files.load(SESSION)
    number = read_number(context)
    while True:
        number += 1
        context = files.save(mark_context(context, number)).context
        os.write(notes, f"{number}\n".encode())


def save_until_step(folder: str, step: int) -> None:
    """Save once, and be killed before the given step that changes the disk."""
    files = ContextFiles(folder, config=CONFIG, embedder=None)
    context = files.load(SESSION)
    steps = 0

    def look(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal steps
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_WRONLY
        if writes or event in {
            "os.rename",
            "os.remove",
            "os.link",
            "os.mkdir",
            "os.rmdir",
            "os.utime",
            "os.chmod",
        }:
            steps += 1
            if steps == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    files.save(mark_context(context, read_number(context) + 1))
    os._exit(0)


def count_up(folder: str, name: str, times: int) -> None:
    """Add to one session so many times, as others do at the same time."""
    files = ContextFiles(folder, config=CONFIG, embedder=None)
    for number in range(times):
        files.update(
            SESSION,
            lambda context, number=number: (  # type: ignore[misc] # bound now
                context.with_fact(f"{name}-{number}")
                .with_tool_call(name)
                .with_message(name, f"{number}", at=datetime(2025, 1, 1, tzinfo=UTC))
            ),
        )


def save_blindly(folder: str, name: str, times: int) -> None:
    """Save whole versions of one's own over those of others."""
    files = ContextFiles(folder, config=CONFIG, embedder=None)
    for number in range(times):
        files.save(
            mark_context(ContextData(session_id=SESSION), int(name) * 1000 + number), on_conflict="overwrite"
        )
