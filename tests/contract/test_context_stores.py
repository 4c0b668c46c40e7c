"""The context stores pass the contract suite: files, SQLite and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import update

from langmem_tiers.config import EngineConfig
from langmem_tiers.context_files.file_store import FileContextStore, to_file_stem
from langmem_tiers.context_files.models import ContextData
from langmem_tiers.context_files.sql_store import SqlContextStore
from langmem_tiers.context_files.store_models import ContextFilesConfig
from langmem_tiers.storage.database import Database
from langmem_tiers.storage.schema import context_files, context_versions
from tests.context_tables import create_context_tables
from tests.contract.storage import NOW
from tests.contract.storage.context_files import KEPT, ContextStoreConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIG = ContextFilesConfig(keep_versions=KEPT, max_bytes=100_000)


class TestFileContextStore(ContextStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FileContextStore:
        return FileContextStore(tmp_path / "data" / "context", CONFIG)

    @pytest.fixture
    def damage(self, store: FileContextStore) -> Callable[[str, bytes], None]:
        def put(session_id: str, data: bytes) -> None:
            (store.folder / f"{to_file_stem(session_id)}.json").write_bytes(data)

        return put


class TestSqlContextStore(ContextStoreConformance):
    @pytest.fixture
    def database(self, url: str) -> Iterator[Database]:
        database = Database(url, EngineConfig())
        create_context_tables(database)
        yield database
        database.close()

    @pytest.fixture
    def store(self, database: Database, tenant: str) -> SqlContextStore:
        return SqlContextStore(database, (tenant,), CONFIG)

    @pytest.fixture
    def damage(self, database: Database, store: SqlContextStore) -> Callable[[str, bytes], None]:
        def put(session_id: str, data: bytes) -> None:
            with database.write() as connection:
                row = connection.execute(
                    context_files.select().where(context_files.c.session_id == session_id)
                ).one()
                connection.execute(
                    update(context_versions)
                    .where(context_versions.c.file_pk == row.pk, context_versions.c.number == row.current)
                    .values(body=data.decode())
                )

        return put

    def test_two_namespaces_are_isolated(
        self, database: Database, store: SqlContextStore, tenant: str
    ) -> None:
        other = SqlContextStore(database, (tenant, "other"), CONFIG)
        store.save(ContextData(session_id="s"), NOW)
        assert other.load("s") is None
        assert other.sessions() == ()
        assert not other.delete("s").was_there
        assert store.sessions() == ("s",)

    def test_damaged_contexts_are_kept_despite_saves_and_deletions(
        self,
        database: Database,
        store: SqlContextStore,
        damage: Callable[[str, bytes], None],
        session_id: str,
    ) -> None:
        store.save(store.save(ContextData(session_id=session_id), NOW).context, NOW)
        damage(session_id, b"{")
        context = store.load(session_id)
        assert context is not None
        for _ in range(2 * KEPT):
            context = store.save(context, NOW).context
        damage(session_id, b"[")
        store.save(context, NOW, overwrite=True)
        store.delete(session_id)
        assert store.load(session_id) is None
        with database.read() as connection:
            rows = connection.execute(
                context_versions.select()
                .join(context_files, context_files.c.pk == context_versions.c.file_pk)
                .where(context_files.c.session_id == session_id)
                .order_by(context_versions.c.number)
            ).all()
        assert [row.body for row in rows] == ["{", "["]
        assert all(row.damage for row in rows)
