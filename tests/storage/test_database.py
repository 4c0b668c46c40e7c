from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from langmem_tiers import (
    Durability,
    EngineClosedError,
    EngineConfig,
    InvalidConfigError,
    MemoryEngine,
    MissingExtraError,
)
from langmem_tiers.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def pragma(database: Database, name: str) -> object:
    with database.read() as connection:
        return connection.execute(text(f"PRAGMA {name}")).scalar()


def test_a_file_is_opened_durably_by_default(file_url: str) -> None:
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


def test_normal_durability_on_postgresql_does_not_wait_for_the_disk(shared_postgres: str) -> None:
    for durability, expected in ((Durability.FULL, "on"), (Durability.NORMAL, "off")):
        database = Database(shared_postgres, EngineConfig(durability=durability))
        with database.read() as connection:
            assert connection.execute(text("SHOW synchronous_commit")).scalar() == expected
        database.close()


@pytest.mark.parametrize(
    "url", ["memory.db", "", "sqlite:///", "mysql://localhost/x", "postgresql+psycopg2://x/y", None, 7]
)
def test_a_url_that_is_none_of_ours_is_refused_by_its_value(url: str) -> None:
    with pytest.raises(InvalidConfigError, match="sqlite:///") as caught:
        MemoryEngine(url)
    assert repr(url) in str(caught.value) or str(url).split(":", maxsplit=1)[0] in str(caught.value)


@pytest.mark.parametrize("parts", [{"config": {"pool_size": 3}}, {"counter": len}, {"counter": object()}])
def test_parts_of_another_kind_are_refused_when_the_engine_is_built(parts: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError, match=next(iter(parts))):
        MemoryEngine(**parts)


@pytest.mark.parametrize("name", ["a b.db", "a?b=c.db", "ö %41#.db", "file:x.db", ":memory:.db"])
def test_a_path_is_the_file_of_that_name_and_no_other(tmp_path: Path, name: str) -> None:
    with MemoryEngine(tmp_path / name) as engine:
        engine.session("acme", "s").add("user", "x")
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_password_is_never_shown() -> None:
    url = "postgresql://mara:hunter2@127.0.0.1:1/none"
    database = Database(url, EngineConfig())
    assert "hunter2" not in database.label
    with pytest.raises(Exception, match="none") as caught, database.read():
        pass
    assert "hunter2" not in str(caught.value)
    database.close()


def test_what_people_said_stays_out_of_errors(file_url: str) -> None:
    with MemoryEngine(file_url) as engine:
        session = engine.session("acme", "s")
        with engine._database.write() as connection:
            connection.execute(text("DROP TABLE lmt_messages"))
        with pytest.raises(Exception, match="failed") as caught:
            session.add("user", "my secret is walrus")
        chain: BaseException | None = caught.value
        while chain is not None:
            assert "walrus" not in str(chain)
            chain = chain.__cause__ or chain.__context__


def test_a_closed_engine_says_so(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    engine.close()
    engine.close()
    with pytest.raises(EngineClosedError, match="open a new MemoryEngine"):
        session.add("user", "x")
    with pytest.raises(EngineClosedError):
        session.latest()


def test_a_relative_path_stays_the_same_file_when_the_program_changes_its_folder(
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
                text("INSERT INTO lmt_messages_text(lmt_messages_text, rank) VALUES ('integrity-check', 1)")
            )
        assert len(engine.namespace("acme").search("walrus")) == 3


@pytest.mark.parametrize("backend", ["sqlite-file", "postgresql"])  # memory is copied by a fork, not shared
def test_a_forked_child_uses_connections_of_its_own(url: str, tenant: str) -> None:
    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
        session.add("user", "parent")
        if (child := os.fork()) == 0:
            try:
                session.add("user", "child")
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the exit code tells
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        session.add("user", "parent again")
        assert [m.content for m in session.latest()] == ["parent", "child", "parent again"]


def test_a_missing_postgresql_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'langmem-tiers\[postgres\]'"):
        MemoryEngine("postgresql://localhost/none")


def test_an_old_sqlite_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(InvalidConfigError, match=r"at least 3\.35"):
        MemoryEngine()


def test_opening_leaves_no_file_behind_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="unable to open"):
        MemoryEngine(f"sqlite:///{tmp_path}/missing/memory.db")
    assert list(tmp_path.iterdir()) == []


def test_processes_that_create_one_file_at_once_all_succeed(tmp_path: Path) -> None:
    program = (
        "import sys; from langmem_tiers import MemoryEngine\n"
        "with MemoryEngine(sys.argv[1]) as engine: engine.session('acme', 's').add('user', sys.argv[2])"
    )
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    children = [subprocess.Popen([sys.executable, "-c", program, url, str(n)]) for n in range(6)]
    assert [child.wait() for child in children] == [0] * 6
    with MemoryEngine(url) as engine:
        assert sorted(m.content for m in engine.session("acme", "s").latest()) == [str(n) for n in range(6)]


def test_a_database_name_with_marks_is_reached(new_postgres_database: Callable[[], str]) -> None:
    url = new_postgres_database().replace("postgresql://", "postgres://")
    with MemoryEngine(url) as engine:
        engine.session("acme", "s").add("user", "x")
