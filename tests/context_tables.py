"""Databases with the tables of contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.storage.migrations import migrate
from langmem_tiers.storage.schema import metadata
from tests.messages import NOW

if TYPE_CHECKING:
    from langmem_tiers.storage.database import Database


def create_context_tables(database: Database) -> None:
    """Bring a database to the schema of today, and add the tables of contexts if that has none."""
    migrate(database, NOW)
    with database.write() as connection:
        metadata.create_all(connection, checkfirst=True)
