"""What tells one state of a session from every other, for who keeps copies of it elsewhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.retry_read import retry_on_disconnect
from langmem_tiers.storage.schema import namespaces, sessions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.messages import Message
    from langmem_tiers.sessions.message_rows import AnyRow
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
    """One state of a session.

    The revision alone would do for one database. Its time and whose session it is tell apart what a restored backup
    or a copy of a database has made of the same key and the same revision.
    """

    revision: int
    updated_at: datetime
    identity: str
    """Of the session: when it was made, its namespace and its name."""

    def __str__(self) -> str:
        return f"{self.revision}.{to_microseconds(self.updated_at)}.{self.identity}"

    def advance(self, revision: int, now: datetime) -> SessionVersion:
        """The state that a write at that time has led to."""
        return replace(self, revision=revision, updated_at=now)


@dataclass(frozen=True, slots=True)
class SessionWrite:
    """What led from one state of a session to the next."""

    key: int
    """The session's."""
    before: SessionVersion
    after: SessionVersion
    added: Sequence[Message]


class SqlSessionVersions:
    """Reads stamps; each costs one look-up by key."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statement = DriverStatement(_SELECT_VERSION, database.dialect)

    @retry_on_disconnect
    def get(self, key: int) -> SessionVersion | None:
        """The state of a session now; None if it is gone."""
        with self._database.read_raw() as connection:
            rows = self._statement.fetch_named(connection, {"key": key})
        return to_session_version(rows[0]) if rows else None


def to_session_version(row: AnyRow) -> SessionVersion:
    """The state that a session's row shows; needs the path of its namespace as well."""
    whose = f"{to_microseconds(row.created_at)}\0{row.path}\0{row.name}"
    identity = hashlib.blake2b(whose.encode(), digest_size=8).hexdigest()
    return SessionVersion(row.revision, row.updated_at, identity)
