"""Versions of a session, by which external caches recognize whether their copy is current."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.schema import namespaces, sessions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.messages import Message
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database

_SELECT_VERSION = (
    select(
        sessions.c.revision,
        sessions.c.updated_at,
        sessions.c.created_at,
        sessions.c.name,
        namespaces.c.path,
    )
    .select_from(sessions.join(namespaces, namespaces.c.pk == sessions.c.namespace_pk))
    .where(sessions.c.pk == bindparam("key"))
)


@dataclass(frozen=True, slots=True)
class SessionVersion:
    """Identifies one state of a session.

    Within one database the revision would be enough. After restoring a backup or copying a database, another session
    state may have the same key and revision; time and identity tell them apart.
    """

    revision: int
    updated_at: datetime
    identity: str
    """Hash of the session's creation time, namespace and name."""

    def __str__(self) -> str:
        return f"{self.revision}.{to_microseconds(self.updated_at)}.{self.identity}"

    def advance(self, revision: int, now: datetime) -> SessionVersion:
        """Return the version after a write at this time."""
        return replace(self, revision=revision, updated_at=now)


@dataclass(frozen=True, slots=True)
class SessionWrite:
    """A write that led from one version of a session to the next."""

    key: int
    """Key of the session."""
    before: SessionVersion
    after: SessionVersion
    added: Sequence[Message]


class SessionVersionRepository:
    """Reads the versions of sessions; each read is one lookup by key."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statement = DriverStatement(_SELECT_VERSION, database.dialect)

    @retry_on_disconnect
    def get(self, key: int) -> SessionVersion | None:
        """Return the current version of a session, or None if the session does not exist."""
        with self._database.read_raw() as connection:
            rows = self._statement.fetch_named(connection, {"key": key})
        return to_session_version(rows[0]) if rows else None


def to_session_version(row: AnyRow) -> SessionVersion:
    """Return the version of a session's row; the row must include the path of the namespace."""
    source = f"{to_microseconds(row.created_at)}\0{row.path}\0{row.name}"
    identity = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
    return SessionVersion(row.revision, row.updated_at, identity)
