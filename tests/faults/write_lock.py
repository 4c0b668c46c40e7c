"""Holds the write lock of a database like another process."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import NullPool, create_engine, text

from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def hold_write_lock(url: str) -> Iterator[None]:
    """Nobody can write until the block ends."""
    if url.startswith("sqlite"):
        with closing(
            sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=LIMIT_SECONDS)
        ) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")
        return
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE lmt_messages IN EXCLUSIVE MODE"))
        yield
