"""Unsuitable servers: a clear error with advice, no partial changes, no password shown."""

from __future__ import annotations

import logging
import traceback
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from benchmarks.servers import TemporaryPostgres
from langmem_tiers import (
    EngineConfig,
    InvalidConfigError,
    LangmemTiersError,
    MemoryEngine,
    PostgresConfig,
    StorageBusyError,
    StorageReadOnlyError,
    StorageUnavailableError,
    Strategy,
)
from langmem_tiers.config import VectorScan
from langmem_tiers.storage import migrations
from tests.shared_servers import new_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "-".join(["hunter", "2"])  # not a literal: tracebacks quote source lines


@pytest.fixture(scope="module")
def server() -> Iterator[TemporaryPostgres]:
    """One that asks for passwords of everybody but its owner."""
    folder = new_folder() / "pg"
    with TemporaryPostgres(folder) as own:
        rules = folder / "pg_hba.conf"
        rules.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        for role in ("owner", "reader"):
            own.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
        own.execute("SELECT pg_reload_conf()")
        yield own


def as_role(url: str, role: str, password: str = PASSWORD) -> str:
    return url.replace("postgres:@", f"{role}:{password}@")


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def format_error(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def database_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def test_a_wrong_password_is_an_error_at_once_that_does_not_show_it(server: TemporaryPostgres) -> None:
    url = as_role(server.new_database(), "owner", f"not-{PASSWORD}")
    with pytest.raises(
        StorageUnavailableError, match=r"password authentication failed.*this user has access"
    ) as caught:
        MemoryEngine(url)
    assert PASSWORD not in format_error(caught.value)


def test_a_missing_role_or_database_is_named_without_the_password(
    server: TemporaryPostgres,
) -> None:
    url = as_role(server.new_database(), "nobody")
    for wrong in (url, as_role(url, "owner").replace(database_of(url), "nowhere")):
        with pytest.raises(StorageUnavailableError) as caught:
            MemoryEngine(wrong)
        assert PASSWORD not in format_error(caught.value)


def test_a_read_only_role_can_read_and_is_refused_writes(server: TemporaryPostgres) -> None:
    url = server.new_database()
    with MemoryEngine(url) as engine:
        engine.session("acme", "s").add("user", "the walrus")
    run(
        url, "GRANT USAGE ON SCHEMA public TO reader", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"
    )
    with MemoryEngine(as_role(url, "reader")) as engine:
        session = engine.session("acme", "s")
        assert session.count() == 1
        assert len(engine.namespace("acme").recall("walrus").hits) == 1
        with pytest.raises(StorageReadOnlyError, match="check permissions"):
            session.add("user", "x")
    with MemoryEngine(url) as engine:
        assert engine.session("acme", "s").count() == 1


def test_an_empty_database_without_create_permission_is_left_empty(server: TemporaryPostgres) -> None:
    url = server.new_database()
    with pytest.raises(StorageReadOnlyError, match="permission denied"):
        MemoryEngine(as_role(url, "reader"))
    assert _tables(url) == 0


def test_an_older_server_is_refused_with_its_version_and_unchanged(
    server: TemporaryPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.new_database()
    monkeypatch.setattr(migrations, "OLDEST_POSTGRES", 990_000)
    with pytest.raises(InvalidConfigError, match=r"PostgreSQL 18.*upgrade the server to 99 or later"):
        MemoryEngine(url)
    assert _tables(url) == 0


@pytest.mark.soak
def test_a_server_two_years_older_is_supported() -> None:
    with (
        TemporaryPostgres(new_folder() / "pg", version=16) as older,
        MemoryEngine(older.new_database()) as engine,
    ):
        engine.session("acme", "s").add("user", "the walrus")
        found = engine.namespace("acme").recall("walrus", strategy=Strategy.SIMILARITY)
        assert [hit.entry.content for hit in found.hits] == ["the walrus"]
        assert engine.services.retriever.embedding is not None
        assert engine.services.retriever.embedding.store._is_native == {1: True}


@pytest.mark.parametrize("why", ["may not", "is not there", "too old"])
def test_without_pgvector_vectors_are_compared_in_the_process(
    server: TemporaryPostgres, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    url, role = server.new_database(), "postgres"
    if why == "may not":
        run(url, f"ALTER DATABASE {database_of(url)} OWNER TO owner")
        role = "owner"
    elif why == "is not there":
        run(url, f"ALTER DATABASE {database_of(url)} SET extension_control_path = '/nowhere'")
    else:
        run(
            url,
            "CREATE EXTENSION vector",
            "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'",
        )
    with (
        caplog.at_level(logging.WARNING, "langmem_tiers"),
        MemoryEngine(url if role == "postgres" else as_role(url, role)) as engine,
    ):
        engine.session("acme", "s").add("user", "The cat sat on the mat")
        found = engine.namespace("acme").recall("kitten", strategy=Strategy.SIMILARITY)
    assert [hit.entry.content for hit in found.hits] == ["The cat sat on the mat"]
    assert found.problems == ()
    assert "compared in this process" in caplog.text


def test_a_connection_pool_respects_its_size(shared_postgres: str) -> None:
    postgres = PostgresConfig(pool_size=2, max_overflow=1, pool_timeout_seconds=0.1)
    with MemoryEngine(shared_postgres, config=EngineConfig(postgres=postgres)) as engine, ExitStack() as held:
        for _ in range(3):
            held.enter_context(engine._database.read())
        with pytest.raises(StorageBusyError, match="no connection became free"):
            engine.namespaces()


def test_the_settings_of_pgvector_are_those_of_the_configuration(shared_postgres: str) -> None:
    postgres = PostgresConfig(ef_search=77, vector_scan=VectorScan.STRICT, max_scan_tuples=1234)
    with (
        MemoryEngine(shared_postgres, config=EngineConfig(postgres=postgres)) as engine,
        engine._database.read() as connection,
    ):
        connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector")
        connection.exec_driver_sql("SELECT '[1]'::vector")
        shown = [
            connection.exec_driver_sql(f"SHOW hnsw.{name}").scalar()
            for name in ("ef_search", "iterative_scan", "max_scan_tuples")
        ]
    assert shown == ["77", "strict_order", "1234"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"pool_size": 0},
        {"max_overflow": -1},
        {"pool_timeout_seconds": 0},
        {"reconnect_seconds": -1},
        {"reconnect_seconds": False},
        {"ping_after_seconds": 0},
        {"ef_search": 1001},
        {"vector_scan": "off"},
        {"max_scan_tuples": 0},
        {"exact_numbers": -1},
    ],
)
def test_an_invalid_setting_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError, match=next(iter(wrong))):
        PostgresConfig(**wrong)


def test_a_component_of_another_type_is_refused() -> None:
    with pytest.raises(LangmemTiersError, match="postgres must be a PostgresConfig"):
        EngineConfig(postgres={"pool_size": 3})  # type: ignore[arg-type]


def _tables(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'lmt%'").fetchone()
    assert row is not None
    return int(row[0])
