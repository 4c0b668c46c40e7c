"""SQL store for namespaces and sessions."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, insert, select, update

from langmem_tiers.common.namespaces import build_namespace_key, escape, parse_namespace_key, unescape
from langmem_tiers.items.repository import delete_session_items
from langmem_tiers.sessions.message_repository import build_session_not_found_error, split_by_query_limit
from langmem_tiers.sessions.models import DeleteReport, SessionInfo
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.storage.schema import namespaces, sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database

_SELECT_SESSION = select(sessions, namespaces.c.path).join(namespaces)
_FIND_SESSION = _SELECT_SESSION.where(
    namespaces.c.path == bindparam("path"), sessions.c.name == bindparam("session")
)


class SessionRepository:
    """Namespaces and their sessions.

    Args:
        database: The database.
        on_erase: Called with the keys of erased sessions before the transaction commits, so that caches are cleared
            by the time the sessions are gone.
        on_found: Called with the row of each session that was looked up by name.
    """

    def __init__(
        self,
        database: Database,
        on_erase: Callable[[Sequence[int]], object] = lambda _keys: None,
        on_found: Callable[[AnyRow], object] = lambda _row: None,
    ) -> None:
        self._database = database
        self._on_erase = on_erase
        self._on_found = on_found
        self._find_statement = DriverStatement(_FIND_SESSION, database.dialect)

    @retry_on_disconnect
    def get_or_create(self, namespace: NamespacePath, name: str, now: datetime) -> SessionInfo:
        """Return the session; create it if it does not exist. Safe under concurrent calls."""

        def find_or_create() -> SessionInfo | None:
            if (info := self.get(namespace, name)) is not None:
                return info
            # Another process may create or delete the session between the lookup and the insert: look again.
            with self._database.write() as connection:
                self._create(connection, build_namespace_key(namespace), escape(name), now)
            return None

        return retry_on_conflict(
            find_or_create, f"session {name!r} is being created and deleted concurrently; try again later"
        )

    @retry_on_disconnect
    def get(self, namespace: NamespacePath, name: str) -> SessionInfo | None:
        """Return the session, or None if it does not exist."""
        parameters = {"path": build_namespace_key(namespace), "session": escape(name)}
        with self._database.read_raw() as connection:
            rows = self._find_statement.fetch_named(connection, parameters)
        if not rows:
            return None
        self._on_found(rows[0])
        return _to_session_info(rows[0])

    @retry_on_disconnect
    def get_revision(self, key: int) -> int | None:
        """Return the session's revision, or None if it does not exist. Costs one look-up by key."""
        with self._database.read() as connection:
            return connection.execute(select(sessions.c.revision).where(sessions.c.pk == key)).scalar()

    @retry_on_disconnect
    def list_sessions(
        self, namespace: NamespacePath, *, before: int | None, limit: int
    ) -> tuple[SessionInfo, ...]:
        """Return the namespace's sessions, newest first, starting before the session key ``before``."""
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
        """List the sessions that changed at or after a time, latest change first."""
        query = _SELECT_SESSION.where(namespaces.c.path == build_namespace_key(namespace))
        if since is not None:
            query = query.where(sessions.c.updated_at >= since)
        query = query.order_by(sessions.c.updated_at.desc(), sessions.c.pk.desc()).limit(limit)
        with self._database.read() as connection:
            return tuple(_to_session_info(row) for row in connection.execute(query))

    @retry_on_disconnect
    def list_by_name(self, namespace: NamespacePath, names: Sequence[str]) -> tuple[SessionInfo, ...]:
        """Return the sessions of these names that exist, in any order."""
        infos = list[SessionInfo]()
        query = _SELECT_SESSION.where(namespaces.c.path == build_namespace_key(namespace))
        with self._database.read() as connection:
            for chunk in split_by_query_limit([escape(name) for name in names]):
                rows = connection.execute(query.where(sessions.c.name.in_(chunk)))
                infos += [_to_session_info(row) for row in rows]
        return tuple(infos)

    @retry_on_disconnect
    def list_namespaces(
        self, prefix: NamespacePath, *, after: NamespacePath | None, limit: int
    ) -> tuple[NamespacePath, ...]:
        """Return the namespaces that start with the whole labels of ``prefix``, in a stable order."""
        path = namespaces.c.path
        query = select(path).where(is_user_namespace(path)).order_by(path).limit(limit)
        if prefix:
            key = build_namespace_key(prefix)
            # "0" follows "/" in every byte order. The range from the key to there contains the key, its children,
            # and namespaces that only begin with the same characters. The last condition excludes those.
            query = query.where(path >= key, path < f"{key}0", (path == key) | (path > f"{key}/"))
        if after is not None:
            query = query.where(path > build_namespace_key(after))
        with self._database.read() as connection:
            return tuple(parse_namespace_key(key) for key in connection.execute(query).scalars())

    def rename(self, key: int, name: str) -> bool:
        """Rename the session. Return False, with nothing written, if the name is taken.

        Raises:
            SessionNotFoundError: The session does not exist.
        """
        # The unique index on the name rejects a name that is taken.
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
        """Delete the session with its messages."""
        own = select(sessions.c.namespace_pk).where(sessions.c.pk == key).scalar_subquery()
        with self._database.write() as connection:
            # Lock the namespace first, like all code that writes more than messages: transactions that lock in
            # different orders would deadlock.
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
        """Delete exactly this namespace with its sessions; namespaces below it are not deleted."""
        with self._database.write() as connection:
            # Lock the namespace first, so that no session is created in it between listing and deleting.
            key = connection.execute(
                select(namespaces.c.pk)
                .where(namespaces.c.path == build_namespace_key(namespace))
                .with_for_update()
            ).scalar()
            erased_keys = list_session_keys(connection, key)
            report = delete_namespace(connection, key)
            delete_session_items(connection, namespace, None)
            if erased_keys:
                self._on_erase(erased_keys)
            return report

    @staticmethod
    def _create(connection: Connection, path: str, name: str, now: datetime) -> None:
        namespace_pk = get_or_create_namespace(connection, path, now)
        connection.execute(insert(sessions).values(build_session_row(namespace_pk, name, now)))


def is_user_namespace(path: ColumnElement[str]) -> ColumnElement[bool]:
    """Build the condition that excludes internal namespaces, which contain pool contributions.

    Their keys begin with an empty label, that is with "/". "0" is the next character after "/".
    """
    return (path < "/") | (path >= "0")


def build_session_row(namespace_pk: int, name: str, now: datetime) -> dict[str, object]:
    """Build the row of an empty session; ``name`` is the stored form of the name."""
    counts = ("revision", "last_position", "message_count", "token_count", "compressed_count")
    return {
        "namespace_pk": namespace_pk,
        "name": name,
        "created_at": now,
        "updated_at": now,
        **dict.fromkeys((*counts, "view_position", "view_message"), 0),
    }


def delete_sessions(connection: Connection, keys: Sequence[int]) -> DeleteReport:
    """Erase sessions in the transaction of the caller, who has locked their namespace."""
    message_counts = list[int]()
    for key in keys:
        deleted = connection.execute(
            delete(sessions)
            .where(sessions.c.pk == key)
            .returning(sessions.c.message_count, sessions.c.namespace_pk)
        ).first()
        if deleted is not None:
            message_counts.append(deleted.message_count)
            increment_erasure_count(connection, deleted.namespace_pk)
    return DeleteReport(sessions=len(message_counts), messages=sum(message_counts))


def increment_erasure_count(connection: Connection, namespace_pk: int) -> None:
    """Increment the number by which other processes notice that their caches of the namespace are outdated."""
    own = update(namespaces).where(namespaces.c.pk == namespace_pk)
    connection.execute(own.values(erasure_epoch=namespaces.c.erasure_epoch + 1))


def list_session_keys(connection: Connection, key: int | None) -> list[int]:
    """List the keys of all sessions of a namespace."""
    return list(connection.execute(select(sessions.c.pk).where(sessions.c.namespace_pk == key)).scalars())


def delete_namespace(connection: Connection, key: int | None) -> DeleteReport:
    """Erase a namespace and its sessions in the transaction of the caller, who has locked it."""
    deleted = connection.execute(
        delete(sessions).where(sessions.c.namespace_pk == key).returning(sessions.c.message_count)
    ).scalars()
    message_counts = list(deleted)
    connection.execute(delete(namespaces).where(namespaces.c.pk == key))
    return DeleteReport(sessions=len(message_counts), messages=sum(message_counts))


def get_or_create_namespace(connection: Connection, path: str, now: datetime) -> int:
    """Return the key of the namespace with this stored path; create it if needed."""
    key = connection.execute(select(namespaces.c.pk).where(namespaces.c.path == path)).scalar()
    if key is not None:
        return int(key)
    # A new namespace may get the key of one that was deleted. The erasure count starts at a random number, so that
    # caches of the former namespace are recognized as outdated.
    number = secrets.randbits(48)
    created = (
        insert(namespaces).values(path=path, created_at=now, erasure_epoch=number).returning(namespaces.c.pk)
    )
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
