"""Namespaces and sessions on SQL."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, insert, select, update

from langmem_tiers.common.namespaces import build_namespace_key, escape, parse_namespace_key, unescape
from langmem_tiers.errors import StorageBusyError
from langmem_tiers.items.repository import delete_session_items
from langmem_tiers.sessions.message_repository import build_session_not_found_error, split_by_query_limit
from langmem_tiers.sessions.models import DeleteReport, SessionInfo
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.retry_read import retry_on_disconnect
from langmem_tiers.storage.schema import namespaces, sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.storage.database import Database

_MAX_ATTEMPTS = 20  # far more than two racing writers need
_SELECT_SESSION = select(sessions, namespaces.c.path).join(namespaces)
_FIND_SESSION = _SELECT_SESSION.where(
    namespaces.c.path == bindparam("path"), sessions.c.name == bindparam("session")
)


class SqlSessionStore:
    """Serves the ``SessionStore`` port.

    Args:
        database: Where.
        erasing: Told of the keys of sessions as they are erased, before that is final: who keeps copies
            elsewhere has none any more when it is.
        found: Told of the row of each session that was looked up by its name.
    """

    def __init__(
        self,
        database: Database,
        erasing: Callable[[Sequence[int]], object] = lambda _keys: None,
        found: Callable[[AnyRow], object] = lambda _row: None,
    ) -> None:
        self._database = database
        self._on_erase = erasing
        self._on_found = found
        self._find_statement = DriverStatement(_FIND_SESSION, database.dialect)

    @retry_on_disconnect
    def get_or_create(self, namespace: NamespacePath, name: str, now: datetime) -> SessionInfo:
        """Get the session, or create it."""
        for _ in range(_MAX_ATTEMPTS):
            if (found := self.get(namespace, name)) is not None:
                return found
            # Somebody else may create or delete it between our look and our write.
            with suppress(ConcurrentWriteError), self._database.write() as connection:
                self._create(connection, build_namespace_key(namespace), escape(name), now)
        raise StorageBusyError(
            f"session {name!r} is created and deleted by others all the time: try again later"
        )

    @retry_on_disconnect
    def get(self, namespace: NamespacePath, name: str) -> SessionInfo | None:
        """The session, if there is one."""
        wanted = {"path": build_namespace_key(namespace), "session": escape(name)}
        with self._database.read_raw() as connection:
            rows = self._find_statement.fetch_named(connection, wanted)
        if not rows:
            return None
        self._on_found(rows[0])
        return _to_session_info(rows[0])

    @retry_on_disconnect
    def get_revision(self, key: int) -> int | None:
        """The session's revision; None if it is gone."""
        with self._database.read() as connection:
            return connection.execute(select(sessions.c.revision).where(sessions.c.pk == key)).scalar()

    @retry_on_disconnect
    def list_sessions(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[SessionInfo, ...]:
        """The namespace's sessions, newest first."""
        query = _SELECT_SESSION.where(namespaces.c.path == build_namespace_key(namespace))
        if before is not None:
            query = query.where(sessions.c.pk < before)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(sessions.c.pk.desc()).limit(limit)).all()
        return tuple(_to_session_info(row) for row in rows)

    @retry_on_disconnect
    def list_changed(
        self, namespace: NamespacePath, *, since: datetime | None, limit: int
    ) -> tuple[SessionInfo, ...]:
        """The sessions that changed at or after that time, latest change first."""
        query = _SELECT_SESSION.where(namespaces.c.path == build_namespace_key(namespace))
        if since is not None:
            query = query.where(sessions.c.updated_at >= since)
        query = query.order_by(sessions.c.updated_at.desc(), sessions.c.pk.desc()).limit(limit)
        with self._database.read() as connection:
            return tuple(_to_session_info(row) for row in connection.execute(query))

    @retry_on_disconnect
    def list_by_name(self, namespace: NamespacePath, names: Sequence[str]) -> tuple[SessionInfo, ...]:
        """Those of the sessions that are there."""
        found = list[SessionInfo]()
        query = _SELECT_SESSION.where(namespaces.c.path == build_namespace_key(namespace))
        with self._database.read() as connection:
            for some in split_by_query_limit([escape(name) for name in names]):
                rows = connection.execute(query.where(sessions.c.name.in_(some)))
                found += [_to_session_info(row) for row in rows]
        return tuple(found)

    @retry_on_disconnect
    def list_namespaces(
        self, prefix: NamespacePath, *, after: NamespacePath | None, limit: int
    ) -> tuple[NamespacePath, ...]:
        """Namespaces that begin with the prefix's whole labels."""
        path = namespaces.c.path
        query = select(path).where(is_user_namespace(path)).order_by(path).limit(limit)
        if prefix:
            key = build_namespace_key(prefix)
            # "0" follows "/" in every byte order: from the key to there lie the key, its children and
            # names that only begin like it, which the second condition leaves out.
            query = query.where(path >= key, path < f"{key}0", (path == key) | (path > f"{key}/"))
        if after is not None:
            query = query.where(path > build_namespace_key(after))
        with self._database.read() as connection:
            return tuple(parse_namespace_key(key) for key in connection.execute(query).scalars())

    def rename(self, key: int, name: str) -> bool:
        """Give the session another name, if nobody has it."""
        with suppress(ConcurrentWriteError), self._database.write() as connection:
            renamed = (
                update(sessions)
                .where(sessions.c.pk == key)
                .values(name=escape(name))
                .returning(sessions.c.pk)
            )
            if connection.execute(renamed).first() is None:
                raise build_session_not_found_error()
            return True
        return False

    def delete(self, key: int) -> DeleteReport:
        """Erase the session with its messages."""
        own = select(sessions.c.namespace_pk).where(sessions.c.pk == key).scalar_subquery()
        with self._database.write() as connection:
            # Locked first, as by all who write beside messages: two that lock in another order wait for ever.
            path = connection.execute(
                select(namespaces.c.path).where(namespaces.c.pk == own).with_for_update()
            ).scalar()
            name = connection.execute(select(sessions.c.name).where(sessions.c.pk == key)).scalar()
            report = delete_sessions(connection, [key])
            if report.sessions and path is not None and name is not None:
                delete_session_items(connection, parse_namespace_key(path), [unescape(name)])
                self._on_erase([key])
            return report

    def delete_namespace(self, namespace: NamespacePath) -> DeleteReport:
        """Erase exactly this namespace with its sessions."""
        with self._database.write() as connection:
            # Locked first, so that no session is made in it between the count and the end.
            key = connection.execute(
                select(namespaces.c.pk)
                .where(namespaces.c.path == build_namespace_key(namespace))
                .with_for_update()
            ).scalar()
            gone = list_session_keys(connection, key)
            report = delete_namespace(connection, key)
            delete_session_items(connection, namespace, None)
            if gone:
                self._on_erase(gone)
            return report

    @staticmethod
    def _create(connection: Connection, path: str, name: str, now: datetime) -> None:
        namespace_pk = get_or_create_namespace(connection, path, now)
        connection.execute(insert(sessions).values(build_session_row(namespace_pk, name, now)))


def is_user_namespace(path: ColumnElement[str]) -> ColumnElement[bool]:
    """What leaves out namespaces that begin with an empty label: they hold what was contributed to pools."""
    return (path < "/") | (path >= "0")


def build_session_row(namespace_pk: int, name: str, now: datetime) -> dict[str, object]:
    """The row of a session with nothing in it, by its stored name."""
    counts = ("revision", "last_position", "message_count", "token_count", "compressed_count")
    return {
        "namespace_pk": namespace_pk,
        "name": name,
        "created_at": now,
        "updated_at": now,
        **dict.fromkeys((*counts, "view_position", "view_message"), 0),
    }


def delete_sessions(connection: Connection, keys: Sequence[int]) -> DeleteReport:
    """Erase sessions in a transaction of the caller's, who has locked their namespace."""
    erased = list[int]()
    for key in keys:
        gone = connection.execute(
            delete(sessions)
            .where(sessions.c.pk == key)
            .returning(sessions.c.message_count, sessions.c.namespace_pk)
        ).first()
        if gone is not None:
            erased.append(gone.message_count)
            increment_erasure_count(connection, gone.namespace_pk)
    return DeleteReport(sessions=len(erased), messages=sum(erased))


def increment_erasure_count(connection: Connection, namespace_pk: int) -> None:
    """Let whoever holds parts of the namespace in memory see that some of them are gone."""
    own = update(namespaces).where(namespaces.c.pk == namespace_pk)
    connection.execute(own.values(erased=namespaces.c.erased + 1))


def list_session_keys(connection: Connection, key: int | None) -> list[int]:
    """The keys of all sessions of a namespace."""
    return list(connection.execute(select(sessions.c.pk).where(sessions.c.namespace_pk == key)).scalars())


def delete_namespace(connection: Connection, key: int | None) -> DeleteReport:
    """Erase a namespace with its sessions in a transaction of the caller's, who has locked it."""
    counts = connection.execute(
        delete(sessions).where(sessions.c.namespace_pk == key).returning(sessions.c.message_count)
    ).scalars()
    erased = list(counts)
    connection.execute(delete(namespaces).where(namespaces.c.pk == key))
    return DeleteReport(sessions=len(erased), messages=sum(erased))


def get_or_create_namespace(connection: Connection, path: str, now: datetime) -> int:
    """The key of the namespace with that stored form; it is created if need be."""
    found = connection.execute(select(namespaces.c.pk).where(namespaces.c.path == path)).scalar()
    if found is not None:
        return int(found)
    # A namespace that is made anew may get the key of the one before: by this number it is told apart.
    number = secrets.randbits(48)
    created = insert(namespaces).values(path=path, created_at=now, erased=number).returning(namespaces.c.pk)
    return int(connection.execute(created).scalar_one())


def _to_session_info(row: AnyRow) -> SessionInfo:
    return SessionInfo(
        namespace=parse_namespace_key(row.path),
        name=unescape(row.name),
        created_at=row.created_at,
        updated_at=row.updated_at,
        message_count=row.message_count,
        token_count=row.token_count,
        compressed_count=row.compressed_count,
        key=row.pk,
        revision=row.revision,
    )
