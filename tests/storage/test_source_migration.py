"""The step by which past knowledge says where it comes from leads to the same schema, and past values stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine
from tests.backends import POSTGRES
from tests.storage.test_pool_migration import POSTGRES_SCHEMA, SQLITE_SCHEMA, execute

if TYPE_CHECKING:
    from pathlib import Path


BACK = (
    "DROP TABLE lmt_trials",
    "ALTER TABLE lmt_knowledge_history DROP COLUMN source",
    "UPDATE lmt_schema_versions SET version = 10",
)


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'memory.db'}"
    return str(request.getfixturevalue("new_postgres_database")())


def test_a_database_of_version_10_becomes_one_of_today_with_all_it_holds(url: str, tmp_path: Path) -> None:
    look = SQLITE_SCHEMA if url.startswith("sqlite") else POSTGRES_SCHEMA
    with MemoryEngine(url, embedder=None) as engine:
        for value in ("Oslo \0", "Rome"):
            engine.namespace("acme").knowledge.store("domain", "city", value, source="session s")
    new = execute(url, look)
    execute(url, *BACK)
    assert execute(url, look) != new
    with MemoryEngine(url, embedder=None) as engine:
        knowledge = engine.namespace("acme").knowledge
        assert [one.value for one in knowledge.history("domain", "city")] == ["Oslo \0"]
        knowledge.store("domain", "city", "Paris")
        assert knowledge.history("domain", "city")[-1].source == "session s"
        engine.backup(tmp_path / "b.gz")
        engine.restore(tmp_path / "b.gz", replace=True)
        assert knowledge.history("domain", "city")[-1].source == "session s"
    assert sorted(execute(url, look)) == sorted(new)
