"""Create the schema of a new database, or bring an older one up to date."""

from __future__ import annotations

import functools
import os
import secrets
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, create_mock_engine, func, insert, inspect, select

from langmem_tiers.errors import InvalidConfigError, SchemaVersionError, StorageUnavailableError
from langmem_tiers.storage.schema import ALL_METADATA, SCHEMA_VERSION, databases, schema_versions
from langmem_tiers.storage.search import postgres, sqlite

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.schema import ExecutableDDLElement

    from langmem_tiers.storage.database import Database

OLDEST_POSTGRES = 130_000
"""First version with ``xid8``, which recall needs to see writes of other processes."""
_ADVISORY_LOCK = 0x6C6D7469  # "lmti": serializes processes that migrate the same database
_UNRELEASED_TABLE = "lmt_schema_versions"  # only databases of development versions have it


@dataclass(frozen=True, slots=True)
class Migration:
    """SQL statements per database that migrate from ``version - 1`` to ``version``."""

    version: int
    sqlite: tuple[str, ...]
    postgresql: tuple[str, ...]


MIGRATIONS: tuple[Migration, ...] = ()
"""Migration steps after schema 1. Never change a released step: it is written as SQL, not derived from the tables."""


def migrate(database: Database, now: datetime) -> None:
    """Create missing tables, or bring an older schema up to date after a backup copy.

    Raises:
        SchemaVersionError: The database is newer than this release, or older than the first one. It is unchanged.
    """
    with database.read() as connection:
        _refuse_server(database, connection)
        _refuse_unreleased(database, connection)
        version = _version(connection)
    _refuse_newer(database, version)
    if version < SCHEMA_VERSION:
        _upgrade(database, now)
    database.prepare()


def get_database_id(database: Database) -> str:
    """Return the id of a database, which is the same for every process and for copies of the database."""
    with database.read() as connection:
        return str(connection.execute(select(databases.c.id)).scalar_one())


def _upgrade(database: Database, now: datetime) -> None:
    with database.write() as connection:
        if not database.is_sqlite:
            # SQLite's write lock already excludes other processes; PostgreSQL needs an explicit lock.
            connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        version = _version(connection)  # read again: another process may have migrated meanwhile
        _refuse_newer(database, version)
        if version == SCHEMA_VERSION:
            return
        if version == 0:
            _create(connection)
        else:
            _back_up(database, connection, version, now)
            _apply(connection, version)
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


def _refuse_unreleased(database: Database, connection: Connection) -> None:
    if inspect(connection).has_table(_UNRELEASED_TABLE):
        raise SchemaVersionError(
            f"{database.label!r} was written by a development version from before the first release: export its "
            "sessions with that version (langmem-tiers export) and import them into a new database; "
            "nothing was changed"
        )


def _refuse_server(database: Database, connection: Connection) -> None:
    if database.is_sqlite:
        return
    server = connection.exec_driver_sql(
        """SELECT current_setting('server_encoding') AS encoding, current_setting('server_version') AS version,
            CAST(current_setting('server_version_num') AS integer) AS number"""
    ).one()
    if server.number < OLDEST_POSTGRES:
        raise InvalidConfigError(
            f"{database.label!r} is a PostgreSQL {server.version}: upgrade the server to "
            f"{OLDEST_POSTGRES // 10_000} or later, or use another one; the database was left untouched"
        )
    if server.encoding != "UTF8":
        raise InvalidConfigError(
            f"{database.label!r} has the encoding {server.encoding!r}, which cannot store every text: "
            "create the database with ENCODING 'UTF8'"
        )


def _create(connection: Connection) -> None:
    for statement in _create_statements(connection.dialect.name):
        connection.exec_driver_sql(statement)
    connection.execute(insert(databases).values(id=secrets.token_hex(16)))


@functools.cache
def _create_statements(dialect: str) -> tuple[str, ...]:
    """Compile the tables once per process, because compiling takes longer than executing the statements."""
    statements: list[str] = []

    def collect(ddl: ExecutableDDLElement, *_: object) -> None:
        statements.append(str(ddl.compile(dialect=compiler.dialect)))

    compiler = create_mock_engine("sqlite://" if dialect == "sqlite" else "postgresql+psycopg://", collect)
    for tables in ALL_METADATA:
        tables.create_all(compiler, checkfirst=False)
    return (*statements, *(sqlite if dialect == "sqlite" else postgres).DDL)


def _apply(connection: Connection, version: int) -> None:
    for step in MIGRATIONS:
        if step.version > version:
            for statement in step.sqlite if connection.dialect.name == "sqlite" else step.postgresql:
                connection.exec_driver_sql(statement)


def _back_up(database: Database, connection: Connection, version: int, now: datetime) -> None:
    # The caller holds the write lock, so the copy is consistent. It is renamed only once it is complete.
    if not database.is_sqlite or database.is_memory:
        return
    # Filtered by name, because a connection that looked for a missing table also has a "temp" database.
    source = Path(
        connection.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one()
    )
    copy = source.with_name(f"{source.name}.v{version}-{now:%Y%m%dT%H%M%SZ}.backup")
    partial = copy.with_name(f"{copy.name}.partial")
    try:
        # The copy must not be readable by users who cannot read the original.
        os.close(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
        partial.chmod(source.stat().st_mode & 0o777)
        with closing(sqlite3.connect(source)) as reader, closing(sqlite3.connect(partial)) as writer:
            reader.backup(writer)
        partial.replace(copy)
    except (OSError, sqlite3.Error) as error:
        partial.unlink(missing_ok=True)
        raise StorageUnavailableError(
            f"cannot create the backup copy {str(copy)!r} before migrating ({error}): "
            "free some space next to the database; it was left untouched"
        ) from error
