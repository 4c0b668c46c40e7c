"""After forget() no database file contains erased bytes."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import NullPool, create_engine, text

from benchmarks.servers import TemporaryPostgres, TemporaryRedis
from langmem_tiers import EngineConfig, MemoryEngine, RedisConfig
from langmem_tiers.context_files.models import ContextData
from langmem_tiers.context_files.sql_store import SqlContextStore
from langmem_tiers.erasure.models import ErasedCounts
from langmem_tiers.erasure.scrub import PendingScrub
from langmem_tiers.maintenance import repository
from langmem_tiers.testing import FrozenClock
from tests.erasure_helpers import (
    OTHER,
    SECRET,
    dump,
    fill,
    find_files_with,
    find_tables_with,
    open_test_engine,
)
from tests.shared_servers import new_folder
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.engine.interfaces import IsolationLevel

KNOWN, ITEM, FILE, ENTRY = "quokkabrindle", "axolotlvermin", "narwhalcosine", "pangolinember"
WORDS = (SECRET, KNOWN, ITEM, FILE, ENTRY)


def fill_all(engine: MemoryEngine, tenant: str) -> list[str]:
    """Unique words in messages, marks, summaries, chunks, facts, episodes, entries, knowledge, items and contexts."""
    ids = fill(engine, tenant)
    namespace = engine.namespace(tenant)
    for value in (KNOWN, f"{KNOWN} green"):
        namespace.knowledge.store("domain", KNOWN, value, source="session monday")
    namespace.knowledge.recall(KNOWN)
    namespace.long_term.store(f"The {ENTRY} is red.", session="monday", tags={ENTRY})
    namespace.long_term.store(f"The {ENTRY} is blue.", session="monday")
    engine.items.put((tenant, "store"), ITEM, {"text": f"An {ITEM} swims."})
    engine.items.search((tenant,), query=ITEM)
    contexts = SqlContextStore(engine._database, (tenant,))
    contexts.save(ContextData(session_id="monday", facts=(FILE,)), engine.services.now())
    engine.session((tenant, "other"), "tuesday").add("user", f"Keep {OTHER}.")
    return ids


def test_no_byte_of_a_user_is_left_in_a_sqlite_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with open_test_engine(url) as engine:
        fill_all(engine, "alice")
        engine.maintenance.run()
        fill(engine, "alice", "friday")
        engine.session("bob", "s").add("user", f"Keep {OTHER}.")
        assert find_files_with(tmp_path, *WORDS)
        receipt = engine.forget(user="alice")
        assert find_files_with(tmp_path, *WORDS) == []  # while the engine still has it open, its log too
        assert receipt.is_scrubbed
        assert receipt.left == receipt.notes == ()
        assert OTHER in str(list(engine.session("bob", "s").messages()))
    assert find_files_with(tmp_path, *WORDS) == []
    assert find_files_with(tmp_path, OTHER) == ["memory.db"]
    with sqlite3.connect(tmp_path / "memory.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for table in ("lmt_messages_terms", "lmt_knowledge_terms"):
            connection.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
    connection.close()


@pytest.mark.sample(1)
@pytest.mark.parametrize("what", ["message", "session"])
def test_no_byte_of_a_message_or_a_session_is_left_in_a_sqlite_file(tmp_path: Path, what: str) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with open_test_engine(url) as engine, open_test_engine(url) as other:
        ids = fill_all(engine, "alice")
        other.namespace("alice").recall(SECRET)  # it holds the log, and what it read
        message = ids[7] if what == "message" else None
        receipt = engine.forget(namespace="alice", session="monday", message=message)
        assert receipt.is_scrubbed
        erased = (SECRET,) if what == "message" else (SECRET, KNOWN, ENTRY, FILE)
        assert find_files_with(tmp_path, *erased) == []
        assert [find_tables_with(url, word) for word in erased] == [[]] * len(erased)
        assert find_files_with(tmp_path, ITEM) == ["memory.db"]


@pytest.mark.soak
def test_a_log_held_by_others_is_reported_and_emptied_the_next_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with open_test_engine(url, config=EngineConfig(busy_timeout_seconds=0.2)) as engine:
        engine.session("alice", "monday").add("user", SECRET)
        reader = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM lmt_messages").fetchall()
        receipt = engine.forget(namespace="alice")
        assert receipt.counts.messages == 1
        assert not receipt.is_scrubbed
        assert "forget the same data again" in receipt.left[0]
        reader.close()
        assert engine.forget(namespace="alice").is_scrubbed
        assert find_files_with(tmp_path, SECRET) == []


def test_backup_copies_of_a_migration_are_reported(tmp_path: Path) -> None:
    (tmp_path / "memory.db.v3-20250101T000000Z.backup").write_text(SECRET)
    with open_test_engine(f"sqlite:///{tmp_path / 'memory.db'}") as engine:
        engine.session("alice", "monday").add("user", SECRET)
        receipt = engine.forget(namespace="alice")
    assert "memory.db.v3-20250101T000000Z.backup" in receipt.notes[0]


def _server(url: str, isolation: IsolationLevel = "AUTOCOMMIT") -> Engine:
    """Return an engine that closes each connection after its use."""
    return create_engine(
        url.replace("postgresql://", "postgresql+psycopg://"), isolation_level=isolation, poolclass=NullPool
    )


def _relations(server: Engine) -> Path:
    """Where the files of its tables lie."""
    with server.connect() as connection:
        root = Path(connection.execute(text("SHOW data_directory")).scalar_one())
        name = "SELECT oid FROM pg_database WHERE datname = current_database()"
        return root / "base" / str(connection.execute(text(name)).scalar_one())


@pytest.mark.backend
def test_no_byte_of_a_user_is_left_in_the_relations_of_postgresql(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    server = _server(url)
    folder = _relations(server)
    with open_test_engine(url) as engine:
        fill_all(engine, "alice")
        engine.session("bob", "s").add("user", f"Keep {OTHER}.")
        engine.maintenance.run()  # the planner has samples of the texts now
        with server.connect() as connection:
            connection.execute(text("CHECKPOINT"))
        assert find_files_with(folder, *WORDS)
        ids = fill(engine, "alice", "friday")
        message = engine.forget(namespace="alice", session="friday", message=ids[7])
        assert message.is_scrubbed
        receipt = engine.forget(user="alice")
        assert receipt.is_scrubbed
        assert receipt.left == receipt.notes == ()
        assert find_files_with(folder, *WORDS) == []
        assert find_files_with(folder, OTHER)
        assert [find_tables_with(url, word) for word in WORDS] == [[]] * len(WORDS)
        for statement in (
            repository._CLEAR_STATISTICS,
            repository._DELETE_STATISTICS,
        ):  # the second is what older servers have
            with server.connect() as connection:
                connection.execute(text("ANALYZE lmt_messages"))
                count = text("SELECT count(*) FROM pg_stats WHERE tablename = 'lmt_messages'")
                assert connection.execute(count).scalar_one()
                connection.execute(statement, {"tables": ["lmt_messages"]})
                assert not connection.execute(count).scalar_one()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[TemporaryPostgres]:
    """A server whose files belong to this module's tests alone."""
    with TemporaryPostgres(new_folder() / "server") as server:
        yield server


@pytest.mark.backend
@pytest.mark.parametrize("recycles", ["on", "off"])
def test_no_byte_of_a_user_is_left_in_any_file_of_postgresql_and_redis(
    own_postgres: TemporaryPostgres, recycles: str
) -> None:
    own_postgres.execute(f"ALTER SYSTEM SET wal_recycle = '{recycles}'")
    own_postgres.execute("SELECT pg_reload_conf()")
    with (
        TemporaryRedis("--appendonly", "yes", "--appendfsync", "always") as redis,
        redis.client as client,
    ):
        client.config_set("save", "3600 1")
        folder, url = own_postgres.folder, own_postgres.new_database()
        config = EngineConfig(redis=RedisConfig(url=redis.url, timeout_seconds=LIMIT_SECONDS))
        with open_test_engine(url, config=config) as engine:
            fill_all(engine, "alice")
            engine.session("bob", "s").add("user", f"Keep {OTHER}.")
            engine.maintenance.run()
            client.save()
            assert [name for name in find_files_with(folder, *WORDS) if "pg_wal" in name]
            assert {"dump.rdb", "appendonly.aof"} <= set(find_files_with(redis.folder, SECRET))
            server_of = _server(url)
            for _ in range(3):  # segments with what is to be erased lie ahead, to be written over
                with server_of.connect() as connection:
                    connection.execute(text("SELECT pg_switch_wal()"))
                    connection.execute(text("CHECKPOINT"))
                engine.session("bob", "s").add("user", "Go on.")
            assert [name for name in find_files_with(folder, *WORDS) if "pg_wal" in name] or recycles == "off"
            receipt = engine.forget(user="alice")
            assert receipt.left == receipt.notes == ()
            assert receipt.is_scrubbed
            assert find_files_with(folder, *WORDS) == []
            assert find_files_with(redis.folder, *WORDS) == []
            assert find_files_with(folder, OTHER)
            assert find_files_with(redis.folder, OTHER)


def test_a_redis_that_refuses_to_rewrite_its_files_is_reported(tmp_path: Path) -> None:
    with TemporaryRedis("--appendonly", "yes") as redis, redis.client as client:
        client.execute_command("ACL", "SETUSER", "default", "-bgrewriteaof")
        config = EngineConfig(redis=RedisConfig(url=redis.url, timeout_seconds=LIMIT_SECONDS))
        with open_test_engine(f"sqlite:///{tmp_path / 'memory.db'}", config=config) as engine:
            engine.session("alice", "monday").add("user", SECRET)
            receipt = engine.forget(user="alice")
            assert not receipt.is_scrubbed
            assert "run BGREWRITEAOF on the server" in receipt.left[0]


@pytest.mark.backend
def test_no_byte_of_erased_pool_entries_is_left_in_the_relations_of_postgresql(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    server = _server(url)
    folder = _relations(server)
    giver, reader = f"giver{KNOWN}", "reader"
    with open_test_engine(url) as engine:
        pool = engine.pools.create("docs", members=[reader, giver])
        engine.namespace(giver).knowledge.store("domain", "code", ENTRY)
        for known in engine.namespace(giver).knowledge:
            pool.contribute(giver, known)
        pool.sync_to(reader)
        engine.maintenance.run()  # the planner has samples of the texts now
        with server.connect() as connection:
            connection.execute(text("CHECKPOINT"))
        assert find_files_with(folder, KNOWN, ENTRY)
        assert engine.forget(namespace=giver).is_scrubbed
        assert find_files_with(folder, KNOWN, ENTRY) == []
        assert {"lmt_pools", "lmt_pool_members", "lmt_origins"} <= {
            table.name for table in engine.statistics().tables
        }


@pytest.mark.backend
def test_a_transaction_that_can_still_see_erased_rows_is_reported(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    server = _server(url, "REPEATABLE READ")
    with open_test_engine(url, config=EngineConfig(busy_timeout_seconds=0.3)) as engine:
        engine.session("alice", "monday").add("user", SECRET)
        with server.connect() as connection:
            connection.execute(text("SELECT 1"))
            receipt = engine.forget(namespace="alice")
            assert "end it and forget the same data again" in receipt.left[0]
        assert engine.forget(namespace="alice").left == ()


@pytest.mark.backend
def test_a_role_that_owns_only_its_tables_gets_the_remaining_steps_for_the_owner(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    server = _server(url)
    with server.connect() as connection:
        role = f"plain_{connection.execute(text('SELECT current_database()')).scalar_one()}"
        connection.execute(text("CREATE EXTENSION vector"))
        connection.execute(text(f"CREATE ROLE {role} LOGIN"))
        connection.execute(text(f"GRANT CREATE, USAGE ON SCHEMA public TO {role}"))
    with open_test_engine(url.replace("postgres:", f"{role}:").replace("postgres@", f"{role}@")) as engine:
        engine.session("alice", "monday").add("user", SECRET)
        receipt = engine.forget(namespace="alice")
        assert receipt.counts.messages == 1
        assert "VACUUM FULL pg_statistic" in receipt.left[0]
        assert [note for note in receipt.notes if note.startswith("this role may not switch the server's")]
        assert not receipt.is_scrubbed


def test_without_scrubbing_rows_are_deleted_and_bytes_scrubbed_on_request(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with open_test_engine(url) as engine:
        fill_all(engine, "alice")
        assert not engine.forget(user="alice", scrub=False).is_scrubbed
        assert find_tables_with(url, SECRET) == []
        assert engine.maintenance.scrub().left == ()
        assert find_files_with(tmp_path, *WORDS) == []


def test_an_interrupted_erasure_leaves_a_pending_scrub_that_others_keep(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with open_test_engine(url) as engine:
        fill_all(engine, "alice")
        engine.session("bob", "s").add("user", "Something of Bob's.")
        PendingScrub(
            engine.services.tuning, engine.services.now
        ).begin()  # somebody is about to forget Alice ...
        assert engine.forget(namespace="bob").is_scrubbed  # ... when another comes and is done ...
        for path in (("alice",), ("alice", "other"), ("alice", "store")):
            engine.services.erasure.delete_namespace(path)  # ... and is killed before the bytes are wiped
        assert find_files_with(tmp_path, SECRET)
        assert engine.forget(user="alice").is_scrubbed
        assert find_files_with(tmp_path, *WORDS) == []


def test_a_pending_scrub_is_kept_until_everything_is_scrubbed(tmp_path: Path) -> None:
    clock = FrozenClock()
    with MemoryEngine(tmp_path / "memory.db", embedder=None, clock=clock) as engine:
        notes = partial(engine.services.tuning.list_leases, "scrub ")
        assert engine.forget(namespace="typo", scrub=False).counts.total == 0
        assert notes() == {}  # nothing went, so nothing is owed
        PendingScrub(engine.services.tuning, engine.services.now).begin()
        engine.forget(namespace="typo")
        assert len(notes()) == 1  # it may be at work
        clock.advance(hours=2)
        engine.maintenance.scrub()
        assert notes() == {}
        engine.session("bob", "s").add("user", "Something.")
        engine.forget(namespace="bob", scrub=False)
        assert len(notes()) == 1
        engine.forget(namespace="typo")
        assert notes() == {}


@pytest.mark.backend
def test_forgetting_unknown_data_rewrites_no_table(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    server = _server(url)
    node = text("SELECT pg_relation_filenode('lmt_messages')")
    with open_test_engine(url) as engine, server.connect() as connection:
        engine.session("bob", "s").add("user", f"Keep {OTHER}.")
        before = connection.execute(node).scalar_one()
        assert engine.forget(namespace="typo").is_scrubbed
        assert engine.forget(namespace="typo", entry="nothing").is_complete
        assert connection.execute(node).scalar_one() == before
        engine.forget(namespace="bob", scrub=False)  # now it is owed
        assert engine.forget(namespace="typo").is_scrubbed
        assert connection.execute(node).scalar_one() != before


@pytest.mark.backend
def test_only_tables_that_lost_rows_are_rewritten(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    server = _server(url)
    nodes = text(
        "SELECT relname, pg_relation_filenode(oid) FROM pg_class WHERE relname IN ('lmt_items', 'lmt_knowledge')"
    )
    with open_test_engine(url) as engine, server.connect() as connection:
        engine.namespace("alice").knowledge.store("domain", "tea", KNOWN)
        before = {row.relname: row.pg_relation_filenode for row in connection.execute(nodes)}
        engine.services.maintenance_store.scrub(ErasedCounts(knowledge=1), from_pools=False)
        after = {row.relname: row.pg_relation_filenode for row in connection.execute(nodes)}
    assert before["lmt_items"] == after["lmt_items"]
    assert before["lmt_knowledge"] != after["lmt_knowledge"]
    assert dump(url)["lmt_knowledge"]
