from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from langmem_tiers import MemoryEngine, MessageDraft, SchemaVersionError, StorageUnavailableError
from langmem_tiers.sessions.models import Listing
from langmem_tiers.storage import migrations
from langmem_tiers.storage.migration import Migration
from langmem_tiers.storage.migration_steps import MIGRATIONS
from langmem_tiers.storage.schema import SCHEMA_VERSION
from langmem_tiers.testing import FrozenClock
from langmem_tiers.testing.threads import in_threads
from tests.storage import schema_v1

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = "2025-01-15T10:30:00.000000Z"
ROWS = (
    f"INSERT INTO lmt_namespaces VALUES (1, 'acme', '{NOW}')",
    f"INSERT INTO lmt_sessions VALUES (1, 1, 's', '{NOW}', '{NOW}', 2, 4, 2, 6, 0, 0, 0)",
    f"INSERT INTO lmt_messages VALUES (1, 1, 2, 'a', 'user', 'The walrus', '{NOW}', 3, 'content1', NULL, NULL)",
    f"INSERT INTO lmt_messages VALUES (2, 1, 4, 'b', 'tool', 'found', '{NOW}', 3, 'content1', NULL, '{{\"x\":1}}')",
    f"INSERT INTO lmt_schema_versions VALUES (1, '{NOW}')",
)
_KNOWN = (
    "INSERT INTO lmt_knowledge VALUES ({}, 1, 'domain', '{}', '{}', '{}', NULL, 0.5, "
    f"'{NOW}', '{NOW}', '{NOW}', NULL, 0, 1, NULL)"
)
KNOWN_IN_VERSION_3 = (
    _KNOWN.format(1, "keys", "keys", "in the 100% drawer"),
    _KNOWN.format(2, "a%25b", "a%b", "红色的船"),
    f"INSERT INTO lmt_schema_versions VALUES (3, '{NOW}')",
)

BACK_TO_VERSION_5 = (
    "DROP TABLE lmt_trials",
    "ALTER TABLE lmt_knowledge_history DROP COLUMN source",
    "DROP TABLE lmt_origins",
    "DROP TABLE lmt_pool_members",
    "DROP TABLE lmt_pools",
    "DROP TABLE lmt_learned_sessions",
    "DROP TABLE lmt_extracted_facts",
    "DROP TABLE lmt_relations",
    "DROP TABLE lmt_memory_vectors",
    "DROP TABLE lmt_memory_tags",
    "DROP TABLE lmt_memories",
    "DROP TABLE lmt_memory_spaces",
    "DROP TABLE lmt_database",
    "DROP TABLE lmt_context_versions",
    "DROP TABLE lmt_context_files",
    "DROP TABLE lmt_listings",
    "UPDATE lmt_schema_versions SET version = 5",
)
ON_POSTGRESQL = (
    "DROP INDEX lmt_messages_by_time",
    "DROP INDEX lmt_messages_important",
    "DROP INDEX lmt_messages_by_age",
)


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as connection:
        for statement in schema_v1.SQLITE + ROWS:
            connection.execute(statement)
    connection.close()
    return path


def schema_of(path: Path) -> set[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {(name, " ".join(sql.split())) for name, sql in rows}


def execute(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


def test_a_file_of_the_first_version_opens_with_all_it_holds(old_file: Path) -> None:
    with MemoryEngine(f"sqlite:///{old_file}") as engine:
        session = engine.session("acme", "s")
        assert [m.content for m in session.latest()] == ["The walrus", "found"]
        assert session.get("b").payload == {"x": 1}
        assert len(engine.namespace("acme").search("walrus")) == 1
        session.add("user", "new")


def test_what_was_known_before_knowledge_had_terms_is_found(old_file: Path) -> None:
    for statement in (*MIGRATIONS[0].sqlite, *MIGRATIONS[1].sqlite, *KNOWN_IN_VERSION_3):
        execute(old_file, statement)
    with MemoryEngine(old_file) as engine:
        _finds_what_was_known(engine)
    execute(old_file, "INSERT INTO lmt_knowledge_terms(lmt_knowledge_terms) VALUES ('integrity-check')")


def test_a_file_of_version_4_keeps_all_it_holds_and_takes_items(old_file: Path, tmp_path: Path) -> None:
    for step in MIGRATIONS[:3]:
        for statement in step.sqlite:
            execute(old_file, statement)
    execute(old_file, f"INSERT INTO lmt_schema_versions VALUES (4, '{NOW}')")
    written = "namespace_pk = 1, term_count = 1, asks = 0, importance = 0.875, terms = 'walrus'"
    execute(old_file, f"UPDATE lmt_messages SET {written}")
    with MemoryEngine(old_file) as engine:
        assert engine.session("acme", "s").count() == 2
        found = engine.namespace("acme").recall("", strategy="importance")
        assert [hit.entry.importance for hit in found] == [0.875, 0.875]  # as it was written
        engine.items.put("acme", "k", {"text": "a boat"})
        assert [hit.item.key for hit in engine.items.search("acme", "boats")] == ["k"]
    assert len(list(old_file.parent.glob("*.v4-*.backup"))) == 1
    MemoryEngine(tmp_path / "new.db").close()
    assert schema_of(old_file) == schema_of(tmp_path / "new.db")


def test_a_file_of_version_5_opens_with_all_it_holds_and_takes_lists(old_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "five.db"
    with MemoryEngine(path) as engine:
        held = _fill(engine)
    for statement in BACK_TO_VERSION_5:
        execute(path, statement)
    for step in MIGRATIONS[:4]:
        for statement in step.sqlite:
            execute(old_file, statement)
    assert schema_of(path) == schema_of(old_file)  # or it is no file of that version
    with MemoryEngine(path) as engine:
        assert _held(engine) == held
        _takes_lists(engine)
    assert len(list(path.parent.glob("five.db.v5-*.backup"))) == 1
    MemoryEngine(tmp_path / "new.db").close()
    assert schema_of(path) == schema_of(tmp_path / "new.db")


def test_a_postgresql_of_version_5_opens_with_all_it_holds_and_takes_lists(
    new_postgres_database: Callable[[], str],
) -> None:
    url, new = new_postgres_database(), new_postgres_database()
    with MemoryEngine(url) as engine:
        held = _fill(engine)
    server = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with server.begin() as connection:
        for statement in (*BACK_TO_VERSION_5, *ON_POSTGRESQL):
            connection.exec_driver_sql(statement)
    server.dispose()
    with MemoryEngine(url) as engine:
        assert _held(engine) == held
        _takes_lists(engine)
    MemoryEngine(new).close()
    assert _postgres_schema(url) == _postgres_schema(new)


def _fill(engine: MemoryEngine) -> object:
    session = engine.session("acme", "s")
    ids = [session.add("user", f"walrus {number}").message.id for number in range(5)]
    session.promote(ids[3])
    session.compress(older_than=ids[2], summary="two of them")
    engine.namespace("acme").knowledge.store("domain", "keys", "in the drawer")
    engine.items.put("acme", "k", {"text": "a boat"})
    return _held(engine)


def _held(engine: MemoryEngine) -> object:
    session, namespace = engine.session("acme", "s"), engine.namespace("acme")
    item = engine.items.get("acme", "k")
    assert item is not None
    return (
        session.info(),
        tuple(session.messages()),
        session.view(),
        [entry.id for entry in namespace.long_term],
        {hit.entry.id for hit in namespace.search("walrus", limit=9)},
        [hit.knowledge.value for hit in namespace.knowledge.recall("drawer", use=False)],
        item.value,
    )


def _takes_lists(engine: MemoryEngine) -> None:
    session = engine.session("acme", "s")
    texts = [f"walrus {number}" for number in range(5)]
    assert [m.content for m in session.transcript.messages()] == texts
    session.transcript.replace([MessageDraft("user", text) for text in [*texts[:4], "new"]])
    session.transcript.move_oldest(1, Listing.ARCHIVED)
    session.transcript.move([session.transcript.messages()[3].id], Listing.REMOVED)
    assert [m.content for m in session.transcript.messages()] == [*texts[:3], "new"]
    assert [m.content for m in session.transcript.messages([Listing.ARCHIVED])] == texts[:1]
    assert [m.content for m in session.view()[1:]] == [texts[2], "new"]
    found = {hit.entry.content for hit in engine.namespace("acme").search("walrus", limit=9)}
    assert found == {*texts} - {texts[3]}


def _finds_what_was_known(engine: MemoryEngine) -> None:
    known = engine.namespace("acme").knowledge
    assert [hit.knowledge.value for hit in known.recall("drawers", use=False)] == ["in the 100% drawer"]
    assert [hit.knowledge.key for hit in known.recall("船", use=False)] == ["a%b"]
    known.store("domain", "a%b", "red")
    assert known.recall("船") == ()
    assert [hit.knowledge.value for hit in known.recall("red")] == ["red"]
    assert known.remove("domain", "keys")
    assert known.recall("drawer") == ()


def test_a_migrated_file_has_the_schema_of_a_new_one(old_file: Path, tmp_path: Path) -> None:
    MemoryEngine(f"sqlite:///{old_file}").close()
    MemoryEngine(f"sqlite:///{tmp_path / 'new.db'}").close()
    assert schema_of(old_file) == schema_of(tmp_path / "new.db")


def test_a_backup_copy_is_made_first_and_opens_by_itself(old_file: Path) -> None:
    before = schema_of(old_file)
    MemoryEngine(f"sqlite:///{old_file}", clock=FrozenClock(datetime(2025, 6, 1, tzinfo=UTC))).close()
    copy = old_file.with_name("old.db.v1-20250601T000000Z.backup")
    assert schema_of(copy) == before
    assert [p.name for p in old_file.parent.glob("*partial*")] == []
    with MemoryEngine(f"sqlite:///{copy}") as engine:
        assert engine.session("acme", "s").count() == 2


def test_opening_a_current_file_makes_no_copy(old_file: Path) -> None:
    for _ in range(3):
        MemoryEngine(f"sqlite:///{old_file}").close()
    assert len(list(old_file.parent.glob("*.backup"))) == 1


def test_when_no_copy_can_be_made_nothing_is_migrated(
    old_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, schema = old_file.read_bytes(), schema_of(old_file)

    def no_room(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_room)
    with pytest.raises(StorageUnavailableError, match="no backup copy"):
        MemoryEngine(f"sqlite:///{old_file}")
    assert not list(old_file.parent.glob("*backup*"))
    assert schema_of(old_file) == schema
    assert old_file.read_bytes() == before


def test_a_backup_is_as_private_as_its_original(old_file: Path) -> None:
    old_file.chmod(0o600)
    MemoryEngine(old_file).close()
    (copy,) = old_file.parent.glob("*.backup")
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_file_named_by_a_uri_is_migrated_too(old_file: Path) -> None:
    with MemoryEngine(f"sqlite:///file:{old_file}?uri=true") as engine:
        assert engine.session("acme", "s").count() == 2
    assert len(list(old_file.parent.glob("*.backup"))) == 1
    assert not list(old_file.parent.glob("*.partial"))


def test_a_step_that_fails_leaves_the_old_schema(old_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_of(old_file)
    broken = Migration(2, sqlite=(*MIGRATIONS[0].sqlite, "SELECT no_such_thing"), postgresql=())
    monkeypatch.setattr(migrations, "MIGRATIONS", (broken,))
    with pytest.raises(Exception, match="no_such_thing|failed"):
        MemoryEngine(f"sqlite:///{old_file}")
    assert schema_of(old_file) == before


def test_a_file_from_a_newer_release_is_refused_untouched(old_file: Path) -> None:
    execute(old_file, f"INSERT INTO lmt_schema_versions VALUES (99, '{NOW}')")
    before = old_file.read_bytes()
    with pytest.raises(
        SchemaVersionError, match=r"schema version 99, this release knows up to .*pip install -U"
    ):
        MemoryEngine(f"sqlite:///{old_file}")
    assert old_file.read_bytes() == before
    assert not list(old_file.parent.glob("*backup*"))


def test_a_database_that_others_use_too_is_shared(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    execute(path, "CREATE TABLE messages (theirs TEXT)")
    with MemoryEngine(f"sqlite:///{path}") as engine:
        engine.session("acme", "s").add("user", "ours")
    assert ("messages", "CREATE TABLE messages (theirs TEXT)") in schema_of(path)


def test_many_who_open_an_old_file_at_once_migrate_it_once(old_file: Path) -> None:
    in_threads(8, lambda: MemoryEngine(old_file).close())
    assert len(list(old_file.parent.glob("*.backup"))) == 1


def test_postgresql_is_migrated_to_the_schema_of_a_new_one(new_postgres_database: Callable[[], str]) -> None:
    old, new = new_postgres_database(), new_postgres_database()
    server = create_engine(old.replace("postgresql://", "postgresql+psycopg://"))
    with server.begin() as connection:
        for statement in (*schema_v1.POSTGRESQL, *ROWS):
            connection.execute(text(statement.replace(":1}", r"\:1}")))
    server.dispose()
    MemoryEngine(new).close()
    with MemoryEngine(old) as engine:
        assert engine.session("acme", "s").get("b").payload == {"x": 1}
        assert len(engine.namespace("acme").search("walrus")) == 1
    assert _postgres_schema(old) == _postgres_schema(new)


def test_what_was_known_on_postgresql_before_knowledge_had_terms_is_found(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    server = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    before = (*MIGRATIONS[0].postgresql, *MIGRATIONS[1].postgresql, *KNOWN_IN_VERSION_3)
    with server.begin() as connection:
        for statement in (*schema_v1.POSTGRESQL, *ROWS, *before):
            connection.exec_driver_sql(statement.replace("%", "%%"))
    server.dispose()
    with MemoryEngine(url) as engine:
        _finds_what_was_known(engine)


def test_many_who_open_an_empty_postgresql_at_once_create_it_once(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()

    def open_and_add() -> None:
        with MemoryEngine(url) as engine:
            engine.session("acme", "s").add("user", "x")

    in_threads(6, open_and_add)
    with MemoryEngine(url) as engine:
        assert engine.session("acme", "s").count() == 6


def test_the_newest_migration_is_the_schema_version() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(2, SCHEMA_VERSION + 1))


def _postgres_schema(url: str) -> object:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    columns = "table_name, column_name, data_type, collation_name, is_nullable, generation_expression"
    is_ours = "CAST(CAST(conrelid AS regclass) AS text) LIKE 'lmt%'"
    looks = (
        f"SELECT {columns} FROM information_schema.columns WHERE table_name LIKE 'lmt%'",
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename LIKE 'lmt%'",
        f"SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE {is_ours}",
    )
    with engine.connect() as connection:
        found = [sorted(map(repr, connection.execute(text(look)))) for look in looks]
    engine.dispose()
    return found
