"""The step that adds pools leads to the same schema as making it anew, and its indexes are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from langmem_tiers import MemoryEngine
from langmem_tiers.storage.pool_tables import metadata
from langmem_tiers.storage.schema import SCHEMA_VERSION
from tests.backends import POSTGRES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INDEXES = ("lmt_messages_by_time", "lmt_messages_important", "lmt_messages_by_age")
DROP = tuple(f"DROP TABLE {table.name}" for table in reversed(metadata.sorted_tables))
BACK = (
    *DROP,
    "DROP TABLE lmt_trials",
    "ALTER TABLE lmt_knowledge_history DROP COLUMN source",
    "DELETE FROM lmt_schema_versions",
    "INSERT INTO lmt_schema_versions VALUES (9, '2025-01-15')",
)
SQLITE_SCHEMA = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
POSTGRES_SCHEMA = """
    SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default
    FROM information_schema.columns WHERE table_name LIKE 'lmt%'
    UNION ALL SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), NULL, NULL, NULL
    FROM pg_constraint WHERE conrelid::regclass::text LIKE 'lmt%' AND contype <> 'n'
    UNION ALL SELECT tablename, indexname, indexdef, NULL, NULL, NULL FROM pg_indexes WHERE tablename LIKE 'lmt%'
"""


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'memory.db'}"
    return str(request.getfixturevalue("new_postgres_database")())


def execute(url: str, *statements: str) -> list[tuple[str, ...]]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    rows: list[tuple[str, ...]] = []
    with engine.begin() as connection:
        for statement in statements:
            found = connection.execute(text(statement))
            if found.returns_rows:
                rows += [tuple(" ".join(str(one).split()) for one in row) for row in found]
    engine.dispose()
    return rows


def test_a_database_of_version_9_becomes_one_of_today_with_all_it_holds(url: str) -> None:
    is_sqlite = url.startswith("sqlite")
    look = SQLITE_SCHEMA if is_sqlite else POSTGRES_SCHEMA
    with MemoryEngine(url, embedder=None) as engine:
        engine.session("acme", "s").add("user", "The walrus lives here.")
        stored = engine.namespace("acme").long_term.store("Alice lives in Berlin.").entry
        assert stored is not None
    new = execute(url, look)
    execute(url, *BACK, *(() if is_sqlite else [f"DROP INDEX {name}" for name in INDEXES]))
    assert execute(url, look) != new
    with MemoryEngine(url, embedder=None) as engine:
        assert engine.session("acme", "s").count() == 1
        pool = engine.pools.create("docs", members=["acme", "other"])
        pool.contribute_entry("acme", stored.id)
        assert [hit.entry.content for hit in pool.query("other", "Alice")] == [stored.content]
    assert sorted(execute(url, look)) == sorted(new)
    assert execute(url, "SELECT max(version) FROM lmt_schema_versions") == [(str(SCHEMA_VERSION),)]


QUESTIONS = {
    "lmt_messages_by_time": """SELECT count(*), sum(token_count) FROM lmt_messages
        WHERE namespace_pk = 1 AND created_at < now() - interval '90 days'""",
    "lmt_messages_important": """SELECT pk FROM lmt_messages
        WHERE namespace_pk = 1 AND importance > 0.7 ORDER BY created_at DESC LIMIT 20""",
    "lmt_messages_by_age": "SELECT pk FROM lmt_messages WHERE created_at < now() - interval '90 days'",
}


def test_postgresql_answers_what_is_asked_by_time_from_its_indexes(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    with MemoryEngine(url, embedder=None) as engine:
        engine.session("acme", "s")
    execute(
        url,
        """INSERT INTO lmt_messages (session_pk, position, id, role, content, created_at, token_count,
               token_counter, namespace_pk, term_count, asks, importance)
           SELECT 1, n * 2, n, 'user', repeat('x', 200), now() - (20000 - n) * interval '10 minutes', 5, 'c',
               n % 4, 1, 0, (n % 10) / 10.0 FROM generate_series(1, 20000) AS n""",
    )
    server = create_engine(
        url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with server.connect() as connection:
        connection.execute(text("VACUUM ANALYZE lmt_messages"))
        for index, question in QUESTIONS.items():
            plan = "\n".join(connection.execute(text(f"EXPLAIN {question}")).scalars())
            assert index in plan, plan
            assert (index != "lmt_messages_by_time") or "Index Only Scan" in plan
    server.dispose()


def test_a_message_longer_than_an_index_row_is_stored(new_postgres_database: Callable[[], str]) -> None:
    with MemoryEngine(new_postgres_database()) as engine:
        session = engine.session("acme", "s")
        session.add("user", "Remember that my name is " + "".join(chr(0x4E00 + n) for n in range(9000)))
        assert session.count() == 1
