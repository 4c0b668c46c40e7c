"""A memory with data in every table, and searches through all of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, inspect, text

from langmem_tiers import MemoryEngine, MessageDraft, MessageToolCall, Session
from langmem_tiers.config import EngineConfig, LearningConfig
from langmem_tiers.testing import FrozenClock, HashEmbedder, seeded_ids

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "zanzibarquux"
OTHER = "wombatplinth"
CONFIG = EngineConfig(learning=LearningConfig(chunk_messages=5, recent_messages=5))


def open_test_engine(url: str, clock: FrozenClock | None = None, **given: Any) -> MemoryEngine:
    """An engine whose embedder needs nothing, with small chunks."""
    config = given.pop("config", CONFIG)
    return MemoryEngine(
        url,
        config=config,
        clock=clock or FrozenClock(),
        ids=given.pop("ids", seeded_ids()),
        embedder=HashEmbedder(),
        **given,
    )


def add_conversation(
    session: Session, count: int = 30, *, secret_at: int = 7, word: str = SECRET
) -> list[str]:
    """A conversation in which one message tells a secret; the ids of all."""
    ids = []
    for number in range(count):
        said = f"We looked at part {number} of the kitchen and counted {number} tiles."
        if number == secret_at:
            said = f"We decided to use {word} for the billing service. I prefer {word} tea in the morning."
        if number == secret_at + 1:
            said = f"Our goal is to open office {number} in Lisbon in March."
        role = "assistant" if number % 2 else "user"
        ids.append(session.add(role, said).message.id)
    return ids


def fill(engine: MemoryEngine, tenant: str, session_name: str = "monday", word: str = SECRET) -> list[str]:
    """A session with everything that is made of it: chunks, facts, entries, episodes, a summary, vectors, marks."""
    session = engine.session(tenant, session_name)
    ids = add_conversation(session, word=word)
    session.learn(whole=True)
    session.compress(ids[20], f"They spoke of tiles, of {word} and of Lisbon.")
    session.compress(ids[25], f"Tiles, {word}, Lisbon; all counted.")
    session.promote(ids[7])
    engine.namespace(tenant).recall(f"what about {word}?")
    engine.namespace(tenant).embed()
    return ids


def dump(url: str, *, only: str | None = None) -> dict[str, list[str]]:
    """Every row of every table as text, those of full-text indexes too."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    found = {}
    with engine.connect() as connection:
        for table in inspect(connection).get_table_names():
            if table.startswith("lmt_"):
                rows = connection.execute(text(f"SELECT * FROM {table}"))
                found[table] = sorted(
                    str(tuple(row)) for row in rows if only is None or only in str(tuple(row))
                )
    engine.dispose()
    return found


def find_tables_with(url: str, word: str) -> list[str]:
    """The tables that hold a word."""
    stem = re.compile(word[:-1], re.IGNORECASE)
    return [
        table
        for table, rows in dump(url).items()
        if not table.endswith("_data") and any(map(stem.search, rows))
    ]


def find_files_with(folder: Path, *words: str) -> list[str]:
    """The files below a folder whose bytes hold one of the words."""
    wanted = [word[:-1].encode() for word in words]
    return [
        str(file.relative_to(folder))
        for file in sorted(folder.rglob("*"))
        if file.is_file() and any(word in file.read_bytes() for word in wanted)
    ]


def make_tool_call(number: int, **given: Any) -> list[MessageDraft]:
    """A tool call and its result."""
    return [
        MessageDraft(
            "assistant",
            f"I look up number {number}.",
            id=f"call-{number}",
            tool_calls=[MessageToolCall(f"c{number}", "look_up", f'{{"number": {number}}}')],
            **given,
        ),
        MessageDraft("tool", f"Found {number}.", id=f"result-{number}", tool_call_id=f"c{number}", **given),
    ]
