"""The step that adds the tables of memories leads to the same tables as making them anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from langmem_tiers import MemoryEngine
from langmem_tiers.common.entries import Tier
from langmem_tiers.storage.memory_tables import metadata
from langmem_tiers.storage.migration_to_memories import TO_MEMORIES
from langmem_tiers.storage.pool_tables import metadata as pool_metadata
from tests.backends import POSTGRES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TABLES = tuple(table.name for table in metadata.tables.values())
POOLS = tuple(f"DROP TABLE IF EXISTS {table.name}" for table in reversed(pool_metadata.sorted_tables))
DROP = (*POOLS, *(f"DROP TABLE {table.name}" for table in reversed(metadata.sorted_tables)))
SOURCES = "ALTER TABLE lmt_knowledge_history DROP COLUMN source"
ON_POSTGRESQL = tuple(f"DROP INDEX lmt_messages_{name}" for name in ("by_time", "important", "by_age"))
NAMED = ", ".join(f"'{name}'" for name in TABLES)
SQLITE_SCHEMA = f"SELECT name, sql FROM sqlite_master WHERE tbl_name IN ({NAMED}) ORDER BY name"
POSTGRES_SCHEMA = f"""
    SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default
    FROM information_schema.columns WHERE table_name IN ({NAMED})
    UNION ALL SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), NULL, NULL, NULL
    FROM pg_constraint WHERE conrelid::regclass::text IN ({NAMED}) AND contype <> 'n'
    UNION ALL SELECT tablename, indexname, indexdef, NULL, NULL, NULL FROM pg_indexes WHERE tablename IN ({NAMED})
    ORDER BY 1, 2, 3
"""


def driver_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def both_ways(url: str, query: str, steps: tuple[str, ...]) -> list[list[tuple[str, ...]]]:
    engine = create_engine(driver_url(url))
    found = []
    for migrates in (False, True):
        with engine.begin() as connection:
            for statement in DROP:
                connection.exec_driver_sql(statement)
            if migrates:
                for statement in steps:
                    connection.exec_driver_sql(statement)
            else:
                metadata.create_all(connection)
            rows = [tuple(row) for row in connection.execute(text(query))]
            found.append([tuple(" ".join(str(one).split()) for one in row) for row in rows])
    engine.dispose()
    return found


def back_to_version_8(url: str) -> None:
    engine = create_engine(driver_url(url))
    with engine.begin() as connection:
        more = ON_POSTGRESQL if url.startswith("postgresql") else ()
        for statement in (
            *DROP,
            *more,
            "DROP TABLE lmt_trials",
            SOURCES,
            "UPDATE lmt_schema_versions SET version = 8",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()


def test_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    MemoryEngine(url).close()
    new, migrated = both_ways(url, SQLITE_SCHEMA, TO_MEMORIES.sqlite)
    assert new == migrated
    assert {row[0] for row in new} >= {*TABLES, "lmt_memories_by_age", "lmt_extracted_facts_by_state"}


def test_on_postgresql(new_postgres_database: Callable[[], str]) -> None:
    url = new_postgres_database()
    MemoryEngine(url).close()
    new, migrated = both_ways(url, POSTGRES_SCHEMA, TO_MEMORIES.postgresql)
    assert new == migrated
    assert {row[0] for row in new} == set(TABLES)


@pytest.mark.parametrize("kind", ["sqlite", POSTGRES])
def test_a_database_of_version_8_keeps_all_it_holds_and_takes_entries(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    if kind == "postgresql":
        url = request.getfixturevalue("new_postgres_database")()
    with MemoryEngine(url) as engine:
        session = engine.session("acme", "s")
        session.add("user", "We decided to keep the walrus in the red house.")
        promoted = session.add("user", "The boat is green.").message
        session.promote(promoted.id)
        engine.namespace("acme").knowledge.store("domain", "keys", "in the drawer")
        told = tuple(session.messages())
    back_to_version_8(url)
    with MemoryEngine(url) as engine:
        session, namespace = engine.session("acme", "s"), engine.namespace("acme")
        assert tuple(session.messages()) == told
        assert [hit.knowledge.value for hit in namespace.knowledge.recall("drawer")] == ["in the drawer"]
        assert [entry.id for entry in namespace.long_term] == [promoted.id]
        stored = namespace.long_term.store("Alice lives in Berlin.")
        assert stored.entry is not None
        assert namespace.long_term.get(stored.entry.id) == stored.entry
        report = session.learn()
        assert report.messages == 2  # what was said before counts too
        assert [fact.content for fact in report.facts][:1] == [told[0].content]
        assert engine.parts.lasting.store.count(("acme",), Tier.LONG_TERM) >= 2
    assert len(list(tmp_path.glob("memory.db.v8-*.backup"))) == (1 if kind == "sqlite" else 0)
