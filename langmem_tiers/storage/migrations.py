"""Brings a database to the newest schema, whoever else is opening it at the same time."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, insert, inspect, select, text

from langmem_tiers.core.errors import SchemaVersionError, StorageUnavailableError
from langmem_tiers.storage.schema import SCHEMA_VERSION, metadata, schema_versions
from langmem_tiers.storage.search import postgres, sqlite

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.storage.database import Database

_ADVISORY_LOCK = 0x6C6D7469  # "lmti": one number for all who migrate this database


@dataclass(frozen=True, slots=True)
class Migration:
    """One step, from ``version - 1`` to ``version``, as SQL for each database."""

    version: int
    sqlite: tuple[str, ...]
    postgresql: tuple[str, ...]


MIGRATIONS = (
    # 1 was the first schema: namespaces, sessions, messages.
    Migration(2, sqlite=sqlite.DDL + sqlite.FILL, postgresql=postgres.DDL + postgres.FILL),
)


def migrate(database: Database, now: datetime) -> None:
    """Create what is missing, or bring an older schema up to date after a backup copy.

    Raises:
        SchemaVersionError: The database is newer than this release; it is left untouched.
    """
    with database.read() as connection:
        version = _version(connection)
    _refuse_newer(database, version)
    if version == SCHEMA_VERSION:
        return
    with database.write() as connection:
        if not database.is_sqlite:
            connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        version = _version(connection)  # another process may have been faster
        _refuse_newer(database, version)
        if version == 0:
            _create(connection)
        elif version < SCHEMA_VERSION:
            _back_up(database, version, now)
            _apply(connection, version)
        if version < SCHEMA_VERSION:
            connection.execute(insert(schema_versions).values(version=SCHEMA_VERSION, applied_at=now))


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(schema_versions.name):
        return 0
    return connection.execute(select(func.max(schema_versions.c.version))).scalar() or 0


def _refuse_newer(database: Database, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"{database.label!r} has schema version {version}, this release knows up to {SCHEMA_VERSION}: "
            "upgrade with pip install -U langmem-tiers; the database was left untouched"
        )


def _create(connection: Connection) -> None:
    metadata.create_all(connection, checkfirst=False)
    for statement in (sqlite if connection.dialect.name == "sqlite" else postgres).DDL:
        connection.execute(text(statement))


def _apply(connection: Connection, version: int) -> None:
    for step in MIGRATIONS:
        if step.version > version:
            for statement in step.sqlite if connection.dialect.name == "sqlite" else step.postgresql:
                connection.execute(text(statement))


def _back_up(database: Database, version: int, now: datetime) -> None:
    # We hold the write lock, so nobody writes while the copy is made; it is whole once it has its name.
    if database.file is None:
        return
    source = Path(database.file)
    copy = source.with_name(f"{source.name}.v{version}-{now:%Y%m%dT%H%M%SZ}.backup")
    partial = copy.with_name(copy.name + ".partial")
    try:
        with sqlite3.connect(source) as reader, sqlite3.connect(partial) as writer:
            reader.backup(writer)
        reader.close()
        writer.close()
        partial.replace(copy)
    except (OSError, sqlite3.Error) as error:
        partial.unlink(missing_ok=True)
        raise StorageUnavailableError(
            f"no backup copy {str(copy)!r} could be made before migrating ({error}): "
            "make room beside the database; it was left untouched"
        ) from error
