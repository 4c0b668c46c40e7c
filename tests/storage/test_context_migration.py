"""The step that adds the tables of contexts leads to the same tables as making them anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import create_engine, text

from langmem_tiers import MemoryEngine
from langmem_tiers.storage.context_tables import metadata
from langmem_tiers.storage.migration_to_context_files import TO_CONTEXT_FILES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DROP = "DROP TABLE IF EXISTS lmt_context_versions", "DROP TABLE IF EXISTS lmt_context_files"
SQLITE = "SELECT name, sql FROM sqlite_master WHERE name LIKE 'lmt_context_%' ORDER BY name"
POSTGRES = """
    SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default
    FROM information_schema.columns WHERE table_name LIKE 'lmt_context_%'
    UNION ALL SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), NULL, NULL, NULL
    FROM pg_constraint WHERE conrelid::regclass::text LIKE 'lmt_context_%' AND contype <> 'n'
    ORDER BY 1, 2, 3
"""


def _both_ways(url: str, query: str, steps: tuple[str, ...]) -> list[list[tuple[str, ...]]]:
    engine = create_engine(url)
    found = []
    for migrates in (False, True):
        with engine.begin() as connection:
            for statement in DROP:
                connection.execute(text(statement))
            if migrates:
                for statement in steps:
                    connection.exec_driver_sql(statement)
            else:
                metadata.create_all(connection)
            rows = [tuple(row) for row in connection.execute(text(query))]
            found.append([tuple(" ".join(str(one).split()) for one in row) for row in rows])
    engine.dispose()
    return found


def test_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    MemoryEngine(url).close()
    new, migrated = _both_ways(url, SQLITE, TO_CONTEXT_FILES.sqlite)
    assert new == migrated
    assert len(new) >= 2


def test_on_postgresql(new_postgres_database: Callable[[], str]) -> None:
    url = new_postgres_database()
    MemoryEngine(url).close()
    driver_url = url.replace("postgresql://", "postgresql+psycopg://")
    new, migrated = _both_ways(driver_url, POSTGRES, TO_CONTEXT_FILES.postgresql)
    assert new == migrated
    assert len(new) >= 10
