from __future__ import annotations

import gc
import sqlite3
import sys
import threading
import traceback
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text

from langmem_tiers import (
    EngineClosedError,
    EngineConfig,
    InvalidConfigError,
    LangmemTiersError,
    MemoryEngine,
    MessageDraft,
    MissingExtraError,
    PostgresConfig,
    StorageCorruptError,
    StorageError,
)
from langmem_tiers.config import Durability
from langmem_tiers.storage import connect
from langmem_tiers.storage.database import Database
from langmem_tiers.storage.search import postgres
from langmem_tiers.storage.urls import build_reopen_url, parse_url
from langmem_tiers.testing.threads import run_in_threads
from tests.faults.engine_starter import start_and_add
from tests.faults.parallel_children import run_at_once
from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def pragma(database: Database, name: str) -> object:
    with database.read() as connection:
        return connection.execute(text(f"PRAGMA {name}")).scalar()


def test_a_file_is_opened_durably_by_default(file_url: str) -> None:
    MemoryEngine(file_url).close()
    database = Database(file_url, EngineConfig(busy_timeout_seconds=7))
    assert pragma(database, "journal_mode") == "wal"
    assert pragma(database, "synchronous") == 2  # FULL
    assert pragma(database, "foreign_keys") == 1
    assert pragma(database, "busy_timeout") == 7000
    database.close()


def test_normal_durability_is_a_choice(file_url: str) -> None:
    database = Database(file_url, EngineConfig(durability=Durability.NORMAL))
    assert pragma(database, "synchronous") == 1
    database.close()


def test_durability_on_postgresql_overrides_the_server_setting(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    for default in ("on", "off"):
        for durability, expected in ((Durability.FULL, "on"), (Durability.NORMAL, "off")):
            with_default = f"{url}&options=-c%20synchronous_commit%3D{default}"
            database = Database(with_default, EngineConfig(durability=durability))
            with database.read() as connection:
                assert connection.execute(text("SHOW synchronous_commit")).scalar() == expected
            database.close()


def test_concurrent_adds_work_on_a_serializable_server(shared_postgres: str, tenant: str) -> None:
    url = f"{shared_postgres}&options=-c%20default_transaction_isolation%3Dserializable"
    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
        run_in_threads(4, lambda: [session.add("user", "x") for _ in range(25)])
        assert session.count() == 100


@pytest.mark.parametrize(
    "url", ["memory.db", "", "sqlite:///", "mysql://localhost/x", "postgresql+psycopg2://x/y", None, 7]
)
def test_an_unsupported_url_is_refused_with_its_value(url: str) -> None:
    with pytest.raises(InvalidConfigError, match="sqlite:///") as caught:
        MemoryEngine(url)
    assert repr(url) in str(caught.value) or str(url).split(":", maxsplit=1)[0] in str(caught.value)


@pytest.mark.parametrize(
    "parts",
    [
        {"config": {"pool_size": 3}},
        {"counter": len},
        {"counter": SimpleNamespace(count=len, name=None)},
        {"counter": SimpleNamespace(name="words")},
        {"scoring": {"importance": ()}},
        {"model": object()},
        {"model": SimpleNamespace(complete=len, acomplete=len, metadata=None)},  # as one of LlamaIndex
        {"embedder": SimpleNamespace(embed_query=len, identity="e")},
        {"embedder": SimpleNamespace(embed_documents=len, identity="e")},
        {"embedder": SimpleNamespace(embed_query=len, embed_documents=len)},
        {"metrics": object()},
        {"tracer": object()},
    ],
    ids=lambda parts: next(iter(parts)),
)
def test_components_of_another_type_are_refused_before_a_file_is_created(
    parts: dict[str, Any], tmp_path: Path
) -> None:
    (name,) = parts
    with pytest.raises(InvalidConfigError, match=f"^{name} must | for {name}, got "):
        MemoryEngine(tmp_path / "memory.db", **parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b.db", "a?b=c.db", "ö %41#.db", "file:x.db", ":memory:.db"])
def test_a_path_is_the_file_of_that_name_and_no_other(tmp_path: Path, name: str) -> None:
    with MemoryEngine(tmp_path / name) as engine:
        engine.session("acme", "s").add("user", "x")
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://mara:hunter2@127.0.0.1:1/none",
        "postgresql://mara@127.0.0.1:1/none?password=hunter2",
        "postgresql:/mara:hunter2@127.0.0.1/none",
        "postgresql://mara:hunter2@127.0.0.1:port/none",
        "postgresql://mara:hunter2",
        "postgresql://mara:x@hunter2@127.0.0.1/none",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    with pytest.raises(LangmemTiersError) as caught:
        MemoryEngine(url, config=EngineConfig(connect_timeout_seconds=2))
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url", ["sqlite:///a?b.db", "sqlite:///x.db?mode=memory", "sqlite://host/x.db", "sqlite:///a\0b"]
)
def test_a_sqlite_url_that_would_open_another_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfigError):
        MemoryEngine(url)


def test_errors_do_not_contain_message_text(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
        secret = "-".join(["wal", "rus"])  # not a literal: tracebacks quote source lines
        with engine._database.write() as connection:
            if engine._database.is_sqlite:
                refuse = (
                    "CREATE TRIGGER refuse BEFORE INSERT ON lmt_messages BEGIN SELECT RAISE(ABORT, 'no'); END"
                )
            else:
                refuse = (
                    "ALTER TABLE lmt_messages ADD CONSTRAINT refuse CHECK (content NOT LIKE 'my%') NOT VALID"
                )
            connection.execute(text(refuse))
        try:
            with pytest.raises(StorageError, match="failed") as caught:
                session.add("tool", f"my secret is {secret}")
            assert secret not in "".join(traceback.format_exception(caught.value))
            with pytest.raises(StorageError) as caught, engine._database.write() as connection:
                connection.execute(text("INSERT INTO lmt_messages (content) VALUES (:x)"), {"x": secret})
            assert secret not in "".join(traceback.format_exception(caught.value))
        finally:
            if not engine._database.is_sqlite:
                with engine._database.write() as connection:
                    connection.execute(text("ALTER TABLE lmt_messages DROP CONSTRAINT refuse"))


def test_a_closed_engine_raises_engine_closed(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    engine.close()
    engine.close()
    with pytest.raises(EngineClosedError, match="open a new MemoryEngine"):
        session.add("user", "x")
    with pytest.raises(EngineClosedError):
        session.latest()


def test_a_relative_path_stays_the_same_file_after_chdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with MemoryEngine("sqlite:///here.db") as engine:
        monkeypatch.chdir(tmp_path / "elsewhere")
        engine._database._engine.dispose()  # as if all connections had to be made anew
        engine.session("acme", "s").add("user", "x")
    assert sorted(p.name for p in tmp_path.rglob("*.db")) == ["here.db"]


def test_cascades_really_cascade(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        for session in ("a", "b"):
            engine.session(tenant, session).add("user", "the walrus")
        engine.session((tenant, "other"), "c").add("user", "the walrus")
        key = engine.session(tenant, "a").info().key
        with engine._database.write() as connection:  # below all of our own code
            connection.execute(text(f"DELETE FROM lmt_namespaces WHERE path = '{tenant}'"))
        with engine._database.read() as connection:
            left = connection.execute(
                text(f"SELECT count(*) FROM lmt_messages WHERE session_pk IN ({key}, {key + 1})")
            )
            assert left.scalar() == 0
        assert engine.namespace(tenant).search("walrus") == ()
        assert len(engine.namespace(tenant, "other").search("walrus")) == 1


def test_the_full_text_index_never_differs_from_the_table(file_url: str) -> None:
    with MemoryEngine(file_url) as engine:
        for n in range(5):
            engine.session("acme", f"s{n}").add("user", f"walrus {n}")
        engine.session("acme", "s1").delete()
        engine.session("acme", "s3").delete()
        with engine._database.write() as connection:  # raises if they differ
            connection.execute(
                text("INSERT INTO lmt_messages_terms(lmt_messages_terms, rank) VALUES ('integrity-check', 1)")
            )
        assert len(engine.namespace("acme").search("walrus")) == 3


def test_an_engine_closed_during_work_raises_engine_closed(url: str, tenant: str) -> None:
    engine = MemoryEngine(url)
    session = engine.session(tenant, "s")
    seen: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                session.add("user", "x")
                session.latest(5)
        except LangmemTiersError as error:
            seen.append(error)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    wait_until(lambda: session.count() > 6, "the threads write")
    engine.close()
    for worker in workers:
        worker.join(LIMIT_SECONDS)
    assert [type(error) for error in seen] == [EngineClosedError] * 6


def test_a_missing_postgresql_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'langmem-tiers\[postgres\]'"):
        MemoryEngine("postgresql://localhost/none")


def test_an_old_sqlite_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(InvalidConfigError, match=r"at least 3\.35"):
        MemoryEngine()


def test_a_failed_open_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="unable to open"):
        MemoryEngine(f"sqlite:///{tmp_path}/missing/memory.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault
@pytest.mark.smoke
def test_processes_that_create_one_file_at_once_all_succeed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    run_at_once(fork_server(), start_and_add, [(url, str(number)) for number in range(6)])
    with MemoryEngine(url) as engine:
        assert sorted(m.content for m in engine.session("acme", "s").latest()) == [str(n) for n in range(6)]


def test_a_database_name_with_special_characters_works(new_postgres_database: Callable[[], str]) -> None:
    url = new_postgres_database().replace("postgresql://", "postgres://")
    with MemoryEngine(url) as engine:
        engine.session("acme", "s").add("user", "x")


@pytest.mark.timeout(120)
def test_opening_a_file_read_by_others_respects_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(connect, "time", SimpleNamespace(sleep=pauses.append))
    path = tmp_path / "rollback.db"
    MemoryEngine(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN")
    other.execute("SELECT * FROM lmt_sessions").fetchall()
    with pytest.raises(StorageError, match="busy_timeout_seconds"):
        MemoryEngine(path, config=EngineConfig(busy_timeout_seconds=0.5))
    assert sum(pauses) == pytest.approx(0.5, abs=0.05)
    other.close()
    MemoryEngine(path).close()


def test_a_postgresql_without_utf8_is_refused(postgres_server: str) -> None:
    admin = create_engine(
        postgres_server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with admin.connect() as connection:
        connection.execute(text("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
    admin.dispose()
    with pytest.raises(InvalidConfigError, match="'LATIN1'"):
        MemoryEngine(postgres_server.replace("/postgres?", "/latin?"))


def test_the_search_of_postgresql_uses_its_index(new_postgres_database: Callable[[], str]) -> None:
    with MemoryEngine(new_postgres_database()) as engine:
        session = engine.session("acme", "s")
        session.add_many(MessageDraft("user", f"nothing of note {n}") for n in range(5000))
        session.add("user", "the walrus")
        with engine._database.write() as connection:
            connection.execute(text("ANALYZE"))
            places = postgres._POSTINGS_QUERY.format(of="messages")
            plan = connection.exec_driver_sql("EXPLAIN " + places, ("'1_walrus'", ["1_walrus"]))
            assert "lmt_messages_terms" in "\n".join(row[0] for row in plan)


def test_a_namespace_without_knowledge_costs_one_look_up() -> None:
    with MemoryEngine() as engine:
        engine.namespace("other").knowledge.store("domain", "walrus", "a walrus")
        engine.session("acme", "s")
        seen: list[str] = []
        with engine._database.read_raw() as raw:
            assert raw.driver_connection is not None
            raw.driver_connection.set_trace_callback(seen.append)
        assert engine.namespace("acme").knowledge.recall("walrus") == ()
        assert len(seen) == 1


def test_knowledge_of_other_namespaces_adds_no_search_cost() -> None:
    with MemoryEngine() as engine:
        own, other = engine.namespace("acme").knowledge, engine.namespace("other").knowledge
        steps: list[int] = []
        for n in range(20):
            own.store("domain", f"walrus {n}", "it swims")
        with engine._database.read_raw() as raw:
            assert raw.driver_connection is not None
            raw.driver_connection.set_progress_handler(lambda: steps.append(1), 1)
        alone = own.recall("walrus", use=False)
        cost = len(steps)
        for n in range(300):
            other.store("domain", f"walrus {n}", "walrus")
        steps.clear()
        assert own.recall("walrus", use=False) == alone
        assert len(steps) <= 1.1 * cost


def test_an_in_memory_database_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:shared?mode=memory&cache=shared"):
        with MemoryEngine(url) as engine:
            engine.session("acme", "s").add("user", "x")
            assert engine.session("acme", "s").count() == 1
            assert list(tmp_path.iterdir()) == []


def test_a_garbage_collected_engine_leaves_nothing_open(url: str, tenant: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        engine = MemoryEngine(url)
        engine.session(tenant, "s").add("user", "x")
        del engine
        gc.collect()
    assert [str(warning.message) for warning in seen] == []


def test_a_relative_uri_stays_the_same_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with MemoryEngine("sqlite:///file:rel.db?uri=true") as engine:
        engine.session("acme", "s").add("user", "x")
        monkeypatch.chdir(tmp_path / "elsewhere")
        engine._database._engine.dispose()
        assert engine.session("acme", "s").count() == 1
    assert [p.name for p in tmp_path.rglob("*.db")] == ["rel.db"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE lmt_messages SET extra = 'no json'",
        "UPDATE lmt_messages SET role = 'robot'",
        "UPDATE lmt_messages SET created_at = 'yesterday'",
        "UPDATE lmt_messages SET content = CAST(x'534543524554ff' AS TEXT)",
    ],
)
def test_a_damaged_message_is_reported_without_its_text(file_url: str, damage: str) -> None:
    with MemoryEngine(file_url) as engine:
        session = engine.session("acme", "s")
        session.add("user", "x")
        with engine._database.write() as connection:
            connection.execute(text("DROP TRIGGER lmt_messages_terms_add"))
            connection.execute(text(damage))
        with pytest.raises(StorageCorruptError) as caught:
            session.latest()
        assert "SECRET" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("sqlite:///file:x?mode=memory&uri=true", None),
        ("sqlite:////data/a b.db", "sqlite:////data/a b.db"),
        ("postgresql://mara:hunter2@db.example:5433/tide", "postgresql://mara@db.example:5433/tide"),
        (
            "postgresql+psycopg://mara@db.example/tide?sslmode=require",
            "postgresql://mara@db.example/tide?sslmode=require",
        ),
        ("postgresql://mara@db.example/tide?password=hunter2", None),
        ("postgresql://mara@db.example/tide?options=-csearch_path%3Dother", None),
        ("postgresql://mara:hunter2@/tide?host=/run/pg", "postgresql://mara@/tide?host=%2Frun%2Fpg"),
    ],
)
def test_the_reopen_url_contains_no_secret(given: str, told: str | None) -> None:
    assert build_reopen_url(parse_url(given)) == told
    if told is not None:
        assert build_reopen_url(parse_url(told)) == told


def test_a_file_is_reported_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with MemoryEngine("sqlite:///near.db") as engine:
        engine.session("a", "s").add("user", "x")
        url, states = engine.url, [engine.is_closed]
    states.append(engine.is_closed)
    assert states == [False, True]
    assert url == f"sqlite:///{tmp_path / 'near.db'}"
    monkeypatch.chdir("/")
    with MemoryEngine(url) as again:
        assert again.session("a", "s").count() == 1


def _interrupted(database: Database) -> None:
    with database.write_raw() as raw:
        raw.cursor().execute("INSERT INTO tried VALUES (1)")
        raise KeyboardInterrupt


def test_a_raw_write_is_atomic(url: str) -> None:
    database = Database(url, EngineConfig())
    try:
        with database.write_raw() as raw:
            raw.cursor().execute("CREATE TABLE tried (pk INTEGER)")
        with pytest.raises(KeyboardInterrupt):
            _interrupted(database)
        with database.write_raw() as raw:  # the lock is free again
            raw.cursor().execute("INSERT INTO tried VALUES (2)")
        with database.read() as connection:
            assert connection.exec_driver_sql("SELECT pk FROM tried").scalars().all() == [2]
    finally:
        with database.write() as connection:
            connection.exec_driver_sql("DROP TABLE tried")
        database.close()


def test_a_pool_is_exhausted_when_its_overflow_is_in_use_too(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EngineConfig(postgres=PostgresConfig(pool_size=2, max_overflow=1))
    database = Database("postgresql://nobody@localhost:1/none", config)  # connects when first used
    exhausted = []
    for used in range(4):
        monkeypatch.setattr(database._engine.pool, "checkedout", lambda used=used: used)
        exhausted.append(database.is_exhausted)
    monkeypatch.undo()
    database.close()
    assert exhausted == [False, False, False, True]
