from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from langmem_tiers import MemoryEngine, MessageDraft, SchemaVersionError, StorageUnavailableError
from langmem_tiers.storage import migrations
from langmem_tiers.storage.migrations import MIGRATIONS, Migration
from langmem_tiers.storage.schema import SCHEMA_VERSION
from langmem_tiers.testing import FrozenClock
from langmem_tiers.testing.threads import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable

NEWER = SCHEMA_VERSION + 1
STATEMENTS = (
    "ALTER TABLE lmt_sessions ADD COLUMN mood TEXT",
    "UPDATE lmt_sessions SET mood = 'calm'",
    "CREATE INDEX lmt_sessions_by_mood ON lmt_sessions (mood)",
)
NEXT_STEP = Migration(NEWER, sqlite=STATEMENTS, postgresql=STATEMENTS)


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    with MemoryEngine(path) as engine:
        fill(engine)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    return path


@pytest.fixture
def next_release(old_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release with one more step than the one that wrote the old file."""
    install(monkeypatch, NEXT_STEP)


def install(monkeypatch: pytest.MonkeyPatch, step: Migration) -> None:
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, step))
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", step.version)


def fill(engine: MemoryEngine) -> None:
    engine.session("acme", "s").add(MessageDraft("user", "The walrus", payload={"x": 1}))
    engine.session("acme", "s").add("user", "found")


def schema_of(path: Path) -> set[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {(name, " ".join(sql.split())) for name, sql in rows}


def read(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    rows = connection.execute(query).fetchall()
    connection.close()
    return rows


def execute(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.usefixtures("next_release")
def test_an_older_file_gets_the_missing_steps_and_keeps_its_content(old_file: Path) -> None:
    with MemoryEngine(old_file) as engine:
        session = engine.session("acme", "s")
        assert [m.content for m in session.latest()] == ["The walrus", "found"]
        assert session.latest()[0].payload == {"x": 1}
        assert len(engine.namespace("acme").search("walrus")) == 1
        session.add("user", "new")
    assert read(old_file, "SELECT mood FROM lmt_sessions") == [("calm",)]
    assert read(old_file, "SELECT version FROM lmt_schema ORDER BY version") == [(SCHEMA_VERSION,), (NEWER,)]


@pytest.mark.usefixtures("next_release")
def test_a_backup_copy_is_created_first_and_opens_by_itself(old_file: Path) -> None:
    before = schema_of(old_file)
    MemoryEngine(old_file, clock=FrozenClock(datetime(2025, 6, 1, tzinfo=UTC))).close()
    copy = old_file.with_name(f"old.db.v{SCHEMA_VERSION}-20250601T000000Z.backup")
    assert schema_of(copy) == before
    assert [p.name for p in old_file.parent.glob("*partial*")] == []
    with MemoryEngine(copy) as engine:
        assert engine.session("acme", "s").count() == 2


@pytest.mark.usefixtures("next_release")
def test_opening_a_current_file_makes_no_copy(old_file: Path) -> None:
    for _ in range(3):
        MemoryEngine(old_file).close()
    assert len(list(old_file.parent.glob("*.backup"))) == 1


@pytest.mark.usefixtures("next_release")
def test_nothing_is_migrated_without_a_backup_copy(old_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(old_file)

    def no_room(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_room)
    with pytest.raises(StorageUnavailableError, match="cannot create the backup copy"):
        MemoryEngine(old_file)
    assert not list(old_file.parent.glob("*backup*"))
    assert schema_of(old_file) == schema
    assert read(old_file, "SELECT version FROM lmt_schema") == [(SCHEMA_VERSION,)]


@pytest.mark.usefixtures("next_release")
def test_a_backup_is_as_private_as_its_original(old_file: Path) -> None:
    old_file.chmod(0o600)
    MemoryEngine(old_file).close()
    (copy,) = old_file.parent.glob("*.backup")
    assert copy.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("next_release")
def test_a_file_named_by_a_uri_is_migrated_too(old_file: Path) -> None:
    with MemoryEngine(f"sqlite:///file:{old_file}?uri=true") as engine:
        assert engine.session("acme", "s").count() == 2
    assert len(list(old_file.parent.glob("*.backup"))) == 1
    assert not list(old_file.parent.glob("*.partial"))


@pytest.mark.usefixtures("next_release")
def test_concurrent_opens_migrate_an_older_file_once(old_file: Path) -> None:
    run_in_threads(8, lambda: MemoryEngine(old_file).close())
    assert len(list(old_file.parent.glob("*.backup"))) == 1


def test_a_failed_step_keeps_the_old_schema(old_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_of(old_file)
    install(monkeypatch, Migration(NEWER, sqlite=(*STATEMENTS, "SELECT no_such_thing"), postgresql=()))
    with pytest.raises(Exception, match="no_such_thing|failed"):
        MemoryEngine(old_file)
    assert schema_of(old_file) == before


def test_a_file_from_a_newer_release_is_refused_untouched(old_file: Path) -> None:
    execute(old_file, "INSERT INTO lmt_schema VALUES (99, '2025-01-15T10:30:00.000000Z')")
    before = old_file.read_bytes()
    with pytest.raises(
        SchemaVersionError, match=r"schema version 99, this release knows up to .*pip install -U"
    ):
        MemoryEngine(old_file)
    assert old_file.read_bytes() == before
    assert not list(old_file.parent.glob("*backup*"))


def test_a_file_from_before_the_first_release_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "ancient.db"
    execute(path, "CREATE TABLE lmt_schema_versions (version INTEGER PRIMARY KEY, applied_at TEXT)")
    before = path.read_bytes()
    with pytest.raises(SchemaVersionError, match=r"ancient\.db.*langmem-tiers export.*nothing was changed"):
        MemoryEngine(path)
    assert path.read_bytes() == before


def test_a_database_that_others_use_too_is_shared(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    execute(path, "CREATE TABLE messages (theirs TEXT)")
    with MemoryEngine(path) as engine:
        engine.session("acme", "s").add("user", "ours")
    assert ("messages", "CREATE TABLE messages (theirs TEXT)") in schema_of(path)


def test_an_older_postgresql_gets_the_missing_steps_and_keeps_its_content(
    new_postgres_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_postgres_database()
    with MemoryEngine(url) as engine:
        fill(engine)
    install(monkeypatch, NEXT_STEP)
    run_in_threads(4, lambda: MemoryEngine(url).close())
    with MemoryEngine(url) as engine:
        assert [m.content for m in engine.session("acme", "s").latest()] == ["The walrus", "found"]
    server = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with server.connect() as connection:
        moods = connection.exec_driver_sql("SELECT mood FROM lmt_sessions").scalars().all()
        versions = connection.exec_driver_sql("SELECT version FROM lmt_schema ORDER BY 1").scalars().all()
    server.dispose()
    assert (moods, versions) == (["calm"], [SCHEMA_VERSION, NEWER])


def test_concurrent_opens_create_an_empty_postgresql_once(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()

    def open_and_add() -> None:
        with MemoryEngine(url) as engine:
            engine.session("acme", "s").add("user", "x")

    run_in_threads(6, open_and_add)
    with MemoryEngine(url) as engine:
        assert engine.session("acme", "s").count() == 6


def test_the_newest_migration_is_the_schema_version() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(2, SCHEMA_VERSION + 1))
