"""Context store in an SQL database, for contexts shared by several machines."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, select, update

from langmem_tiers.common.namespaces import build_namespace_key, check_name, escape, unescape
from langmem_tiers.context_files.file_store import build_conflict_error, to_checked_bytes
from langmem_tiers.context_files.models import Recovery
from langmem_tiers.context_files.serializer import context_from_bytes
from langmem_tiers.context_files.store_models import (
    ContextDeleteReport,
    ContextFilesConfig,
    ContextVersion,
    SaveReport,
)
from langmem_tiers.errors import InvalidInputError, StorageCorruptError
from langmem_tiers.sessions.repository import get_or_create_namespace
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.storage.schema import context_files, context_versions, namespaces

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any, TypeAlias

    from sqlalchemy import Connection
    from sqlalchemy import Select as AnySelect

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.context_files.models import ContextData
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database

    Select: TypeAlias = AnySelect[*tuple[Any, ...]]

_log = logging.getLogger("langmem_tiers")
_SELECT_FILE = select(context_files).join(namespaces)
_SELECT_CURRENT_VERSION = (
    select(context_versions)
    .join(context_files, context_files.c.pk == context_versions.c.file_pk)
    .join(namespaces)
    .where(context_versions.c.number == context_files.c.current)
)


class SqlContextStore:
    """`ContextStore` in a database.

    Args:
        database: The database.
        namespace: Namespace of the contexts. Contexts of other namespaces are not visible.
        config: Limits. Default: `ContextFilesConfig()`.
    """

    def __init__(
        self, database: Database, namespace: NamespacePath, config: ContextFilesConfig | None = None
    ) -> None:
        self._database = database
        self._namespace = namespace
        self._config = ContextFilesConfig() if config is None else config

    @retry_on_disconnect
    def load(self, session_id: str) -> ContextData | None:
        """Return the context, or the newest readable version if the context is damaged."""
        with self._database.read() as connection:
            row = connection.execute(self._filter_session(_SELECT_CURRENT_VERSION, session_id)).first()
        if row is None:
            return None
        try:
            return _to_context(row, session_id)
        except InvalidInputError:
            return self._repair(session_id)

    def save(self, context: ContextData, now: datetime, *, overwrite: bool = False) -> SaveReport:
        """Store the context as the next version."""
        body = to_checked_bytes(context, self._config.max_bytes).decode()

        def write() -> SaveReport:
            # If two processes save a new session at once, the row to lock does not exist yet, and one insert violates a
            # unique constraint. Its next attempt finds the row of the other process.
            with self._database.write() as connection:
                number = self._insert_version(connection, context, body, now, overwrite=overwrite)
                saved = replace(context, based_on=_compute_revision(number, body), recovery=None)
                return SaveReport(context=saved, version=number, size_bytes=len(body.encode()))

        return retry_on_conflict(
            write,
            f"session {context.session_id!r} is being modified concurrently: try again later; nothing was written",
        )

    def delete(self, session_id: str) -> ContextDeleteReport:
        """Delete the context with all its versions."""
        with self._database.write() as connection:
            file = connection.execute(
                self._filter_session(_SELECT_FILE, session_id).with_for_update(of=context_files)
            ).first()
            if file is None:
                return ContextDeleteReport(was_there=False, versions=0)
            rows = context_versions.c
            deleted = connection.execute(
                delete(context_versions).where(rows.file_pk == file.pk, rows.damage.is_(None))
            )
            damaged_count = connection.execute(
                select(func.count()).where(rows.file_pk == file.pk)
            ).scalar_one()
            is_file = context_files.c.pk == file.pk
            # Damaged versions are kept and need their parent row; ``current=0`` means that no context is left.
            if damaged_count:
                connection.execute(update(context_files).where(is_file).values(current=0))
            else:
                connection.execute(delete(context_files).where(is_file))
        return ContextDeleteReport(was_there=file.current > 0, versions=deleted.rowcount)

    @retry_on_disconnect
    def sessions(self) -> tuple[str, ...]:
        """Return the sorted ids of all sessions that have a context."""
        query = (
            select(context_files.c.session_id)
            .join(namespaces)
            .where(namespaces.c.path == build_namespace_key(self._namespace), context_files.c.current > 0)
        )
        with self._database.read() as connection:
            return tuple(sorted(unescape(name) for name in connection.execute(query).scalars()))

    @retry_on_disconnect
    def versions(self, session_id: str) -> tuple[ContextVersion, ...]:
        """Return the stored versions, newest first."""
        query = (
            self._filter_session(_select_versions(), session_id)
            .where(context_versions.c.damage.is_(None))
            .order_by(context_versions.c.number.desc())
        )
        with self._database.read() as connection:
            return tuple(_to_version(row) for row in connection.execute(query))

    @retry_on_disconnect
    def version(self, session_id: str, number: int) -> ContextData | None:
        """Return the context of a version, or None if the version is missing or damaged."""
        query = self._filter_session(_select_versions(), session_id).where(
            context_versions.c.number == number
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        with suppress(InvalidInputError):
            return None if row is None else _to_context(row, session_id)
        return None

    def close(self) -> None:
        """Do nothing; the owner of the database closes it."""

    def _filter_session(self, query: Select, session_id: str) -> Select:
        return query.where(
            namespaces.c.path == build_namespace_key(self._namespace),
            context_files.c.session_id == escape(check_name(session_id, "session id")),
        )

    def _insert_version(
        self, connection: Connection, context: ContextData, body: str, now: datetime, *, overwrite: bool
    ) -> int:
        session_id = context.session_id
        file = connection.execute(
            self._filter_session(_SELECT_FILE, session_id).with_for_update(of=context_files)
        ).first()
        row = (
            None
            if file is None
            else connection.execute(self._filter_session(_SELECT_CURRENT_VERSION, session_id)).first()
        )
        stored = "" if row is None else _compute_revision(row.number, row.body)
        if not overwrite and context.based_on != stored:
            raise build_conflict_error(context, stored)
        # If the current version is damaged, mark it before it is replaced: versions marked as damaged are kept and
        # not listed.
        if row is not None:
            _mark_as_damaged(
                connection, file_pk=row.file_pk, reasons=_find_good_version([row], session_id)[0]
            )
        if file is None:
            namespace_pk = get_or_create_namespace(connection, build_namespace_key(self._namespace), now)
            new = {"namespace_pk": namespace_pk, "session_id": escape(session_id), "current": 1, "last": 1}
            pk = connection.execute(
                insert(context_files).values(new).returning(context_files.c.pk)
            ).scalar_one()
            number = 1
        else:
            pk, number = file.pk, file.last + 1
            connection.execute(
                update(context_files).where(context_files.c.pk == pk).values(current=number, last=number)
            )
        connection.execute(
            insert(context_versions).values(file_pk=pk, number=number, body=body, saved_at=now)
        )
        self._prune_versions(connection, pk)
        return number

    def _prune_versions(self, connection: Connection, pk: int) -> None:
        # Damaged versions neither count nor are deleted. With fewer versions than allowed, the subquery is NULL, and
        # nothing is deleted.
        rows = context_versions.c
        oldest = (
            select(rows.number)
            .where(rows.file_pk == pk, rows.damage.is_(None))
            .order_by(rows.number.desc())
            .offset(self._config.keep_versions - 1)
            .limit(1)
            .scalar_subquery()
        )
        connection.execute(
            delete(context_versions).where(rows.file_pk == pk, rows.damage.is_(None), rows.number < oldest)
        )

    def _repair(self, session_id: str) -> ContextData | None:
        with self._database.write() as connection:
            # Lock the row, so that only one process repairs the session and no save interferes.
            file = connection.execute(
                self._filter_session(_SELECT_FILE, session_id).with_for_update(of=context_files)
            ).first()
            if file is None or not file.current:
                return None
            rows = connection.execute(
                self._filter_session(_select_versions(), session_id)
                .where(context_versions.c.damage.is_(None), context_versions.c.number <= file.current)
                .order_by(context_versions.c.number.desc())
            ).all()
            reasons, good = _find_good_version(rows, session_id)
            _mark_as_damaged(connection, file_pk=file.pk, reasons=reasons)
            connection.execute(
                update(context_files)
                .where(context_files.c.pk == file.pk)
                .values(current=0 if good is None else good[0])
            )
        return _build_recovered_context(session_id, reasons, good)


def _mark_as_damaged(connection: Connection, *, file_pk: int, reasons: dict[int, str]) -> None:
    for number, reason in reasons.items():
        connection.execute(
            update(context_versions)
            .where(context_versions.c.file_pk == file_pk, context_versions.c.number == number)
            .values(damage=reason)
        )


def _find_good_version(
    rows: Sequence[AnyRow], session_id: str
) -> tuple[dict[int, str], tuple[int, ContextData] | None]:
    # Returns the damaged versions before the first readable one with the reasons, and that readable version.
    reasons: dict[int, str] = {}
    for row in rows:
        try:
            return reasons, (row.number, _to_context(row, session_id))
        except InvalidInputError as error:
            reasons[row.number] = str(error)
    return reasons, None


def _build_recovered_context(
    session_id: str, reasons: dict[int, str], good: tuple[int, ContextData] | None
) -> ContextData:
    # Another process has already repaired the session.
    if good is not None and not reasons:
        return good[1]
    number, reason = next(iter(reasons.items()), (0, "no current version exists"))
    location = f"version {number} of {session_id!r} in {context_versions.name}"
    if good is None:
        raise StorageCorruptError(
            f"{location} could not be read ({reason}) and no readable version exists: it was marked as damaged; "
            "repair its body and clear its damage column, or load again to start with an empty context"
        )
    restored, context = good
    _log.warning("%s could not be read (%s): it was replaced by version %d", location, reason, restored)
    recovery = Recovery(reason=reason, set_aside=location, restored_version=restored)
    return replace(context, recovery=recovery)


def _select_versions() -> Select:
    return (
        select(context_versions, context_files.c.current)
        .join(context_files, context_files.c.pk == context_versions.c.file_pk)
        .join(namespaces)
    )


def _to_context(row: AnyRow, session_id: str) -> ContextData:
    context = context_from_bytes(row.body.encode("utf-8", "surrogatepass"), session_id)
    return replace(context, based_on=_compute_revision(row.number, row.body))


def _to_version(row: AnyRow) -> ContextVersion:
    return ContextVersion(
        number=row.number,
        saved_at=row.saved_at,
        size_bytes=len(row.body.encode()),
        revision=_compute_revision(row.number, row.body),
        is_current=row.number == row.current,
    )


def _compute_revision(number: int, body: str) -> str:
    return f"{number}-{hashlib.blake2b(body.encode(), digest_size=16).hexdigest()}"
