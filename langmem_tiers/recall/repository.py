"""Terms and positions of messages in SQL, for recall."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Integer,
    String,
    bindparam,
    cast,
    exists,
    func,
    literal_column,
    select,
    text,
    type_coerce,
)

from langmem_tiers.common.messages import Role
from langmem_tiers.common.namespaces import build_namespace_key, unescape
from langmem_tiers.recall.records import IndexChanges, IndexRows, RecalledMessage, Tenant
from langmem_tiers.sessions.message_sql import IS_REMOVED, OVERRIDE_COLUMNS
from langmem_tiers.sessions.override_repository import to_view_items
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.schema import (
    MESSAGE_COLUMNS,
    accesses,
    entries,
    knowledge,
    messages,
    namespaces,
    sessions,
)
from langmem_tiers.storage.search import postgres, sqlite
from langmem_tiers.storage.search.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import ColumnElement, Connection, Select

    from langmem_tiers.common.entries import Tier
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database

_ROLE_NUMBERS = {role.value: number for number, role in enumerate(Role)}
# The oldest transaction that is still running. Such a transaction may commit rows later, with lower keys than rows that
# are visible now. Therefore PostgreSQL readers continue from this transaction id, not from the highest key.
_HORIZON: ColumnElement[int] = literal_column(
    "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
)
# Accesses have their own table, so that counting does not rewrite messages.
_COUNT_ACCESSES = text(
    """INSERT INTO lmt_accesses (message_pk, count, last_at)
        SELECT pk, :count, :now FROM lmt_messages WHERE pk = :key AND namespace_pk = :namespace
        ON CONFLICT (message_pk) DO UPDATE
        SET count = lmt_accesses.count + excluded.count, last_at = excluded.last_at"""
)
_HAS_KNOWLEDGE = exists().where(knowledge.c.namespace_pk == namespaces.c.pk).label("knows")
_NEWEST = select(func.max(messages.c.pk)).where(messages.c.namespace_pk == namespaces.c.pk).label("newest")
_TENANT_QUERY = select(namespaces.c.pk, namespaces.c.erasure_epoch, _HAS_KNOWLEDGE).where(
    namespaces.c.path == bindparam("path")
)
ERASURE_EPOCH_QUERY = (
    select(namespaces.c.erasure_epoch)
    .where(namespaces.c.pk == bindparam("namespace"))
    .with_for_update(read=True)
)
_MESSAGES_QUERY = (
    select(*MESSAGE_COLUMNS, *OVERRIDE_COLUMNS, sessions.c.name.label("session_name"))
    .add_columns(sessions.c.view_position, sessions.c.view_message)
    .select_from(
        messages.join(sessions, sessions.c.pk == messages.c.session_pk)
        .join(namespaces, namespaces.c.pk == messages.c.namespace_pk)
        .outerjoin(entries, entries.c.message_pk == messages.c.pk)
    )
    .where(
        namespaces.c.pk == bindparam("namespace"), namespaces.c.erasure_epoch == bindparam("erasure_epoch")
    )
)


def filter_by_keys(query: Select[*tuple[Any, ...]], is_sqlite: bool) -> Select[*tuple[Any, ...]]:  # noqa: FBT001
    """Restrict a query to messages with the keys in the parameter ``keys``, from ``to_keys_parameter()``."""
    # One parameter for all keys: the statement is the same for any number of keys, and their number is not limited.
    if is_sqlite:
        return query.where(text("lmt_messages.pk IN (SELECT value FROM json_each(:keys))"))
    return query.where(text("lmt_messages.pk = ANY(CAST(:keys AS bigint[]))"))


def to_keys_parameter(keys: Sequence[int], is_sqlite: bool) -> object:  # noqa: FBT001 - which database
    """Convert keys to the parameter of a query by ``filter_by_keys()``."""
    return str(list(keys)) if is_sqlite else list(keys)


def _build_rows_query(is_sqlite: bool) -> Select[*tuple[Any, ...]]:  # noqa: FBT001 - which database
    query = (
        select(
            messages.c.pk,
            messages.c.session_pk,
            messages.c.position,
            _to_microseconds(messages.c.created_at, is_sqlite).label("microseconds"),
            messages.c.role,
            messages.c.term_count,
            messages.c.is_question,
            messages.c.importance,
            accesses.c.count,
            messages.c.speaker,
        )
        .select_from(messages.outerjoin(accesses, accesses.c.message_pk == messages.c.pk))
        # Removing a message from a list, or restoring it, increments the erasure counter, so that readers load all rows
        # again. Otherwise they would never notice a change to a row that they have passed.
        .where(messages.c.namespace_pk == bindparam("namespace"), ~IS_REMOVED)
        .order_by(messages.c.pk)
    )
    if is_sqlite:
        return query.where(messages.c.pk > bindparam("mark"))
    return query.where(text("written_by >= CAST(CAST(:mark AS text) AS xid8)"))


def _to_microseconds(time: ColumnElement[datetime], is_sqlite: bool) -> ColumnElement[int]:  # noqa: FBT001
    if not is_sqlite:
        return cast(func.extract("epoch", time) * 1_000_000, BigInteger)
    # SQLite stores "2023-05-08T13:56:00.000000Z". strftime has no microseconds, so they are read separately.
    stored = type_coerce(time, String)
    seconds = cast(func.strftime("%s", func.substr(stored, 1, 19)), Integer)
    return seconds * 1_000_000 + cast(func.substr(stored, 21, 6), Integer)


class RecallIndexRepository:
    """Terms and positions of messages, written in the same transaction as the messages."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._search = sqlite if database.is_sqlite else postgres
        # Besides the namespace, read the newest key on SQLite, which has one writer at a time, so keys are committed in
        # order. On PostgreSQL read the horizon, from which the next call continues.
        self._tenant_statement = DriverStatement(
            _TENANT_QUERY.add_columns(_NEWEST if database.is_sqlite else _HORIZON), database.dialect
        )
        self._messages_statement = DriverStatement(
            filter_by_keys(_MESSAGES_QUERY, database.is_sqlite), database.dialect
        )
        self._terms_statement = DriverStatement(
            filter_by_keys(select(messages.c.pk, messages.c.terms), database.is_sqlite), database.dialect
        )
        rows = _build_rows_query(database.is_sqlite)
        self._rows_statement = DriverStatement(rows, database.dialect)
        self._rows_with_terms_statement = DriverStatement(
            rows.add_columns(messages.c.terms), database.dialect
        )

    @retry_on_disconnect
    def load_changes(self, namespace: NamespacePath, mark: int, *, with_terms: bool = False) -> IndexChanges:
        """Return the rows that were written after a watermark.

        Args:
            namespace: The namespace to read.
            mark: Watermark of the last read. 0 reads everything.
            with_terms: True to include the terms, which saves a second query if few rows are new. Default: False.
        """
        statement = self._rows_with_terms_statement if with_terms else self._rows_statement
        with self._database.read_raw() as connection:
            # The horizon is read before the rows: a row that is committed in between is returned now or next time, and
            # never missed. Rows may be returned twice, which MessagePositions.extend() accepts.
            tenant = self._tenant_statement.run(connection, {"path": build_namespace_key(namespace)})
            if tenant is None:
                return IndexChanges(None, _build_empty_rows(), 0)
            key, erasure_epoch, has_knowledge, watermark = tenant
            # SQLite: the newest key shows whether the second query is needed at all.
            has_changes = not self._database.is_sqlite or (watermark or 0) > mark
            rows = statement.fetch_all(connection, {"namespace": key, "mark": mark}) if has_changes else []
        if self._database.is_sqlite:
            watermark = rows[-1][0] if rows else mark
        terms = {row[0]: self._unpack_terms(row[-1]) for row in rows} if with_terms else {}
        return IndexChanges(
            Tenant(key, erasure_epoch),
            _build_index_rows(rows) if rows else _build_empty_rows(),
            watermark,
            bool(has_knowledge),
            terms,
        )

    @retry_on_disconnect
    def find_postings(self, namespace: int, terms: Sequence[str]) -> Postings:
        """Return the postings of the terms in a namespace."""
        # Terms are indexed with the namespace's key as a prefix, so that one namespace never reads the postings of
        # another.
        prefixed = [f"{namespace}_{term}" for term in terms]
        with self._database.read_raw() as connection:
            found: Postings = self._search.find_postings(connection, prefixed)
        plain = [term.partition("_")[2] for term in found.terms]
        return Postings(plain, found.term_numbers, found.keys, found.counts)

    @retry_on_disconnect
    def list_keys_in_tier(self, namespace: int, tier: Tier) -> NDArray[np.int64]:
        """Return the keys of the messages that were moved to a tier."""
        import numpy as np  # noqa: PLC0415 - slow to import, only needed to recall

        query = select(entries.c.message_pk).where(
            entries.c.namespace_pk == namespace, entries.c.tier == tier.value
        )
        with self._database.read() as connection:
            return np.array(connection.execute(query).scalars().all(), np.int64)

    @retry_on_disconnect
    def get_terms(self, keys: Sequence[int]) -> Mapping[int, Sequence[str]]:
        """Return the terms of messages by key."""
        with self._database.read_raw() as connection:
            rows = self._terms_statement.fetch_all(
                connection, {"keys": to_keys_parameter(keys, self._database.is_sqlite)}
            )
        return {key: self._unpack_terms(stored) for key, stored in rows}

    def _unpack_terms(self, stored: str | None) -> list[str]:
        return [term.partition("_")[2] for term in self._search.unpack_terms(stored or "")]

    @retry_on_disconnect
    def get_messages(self, tenant: Tenant, keys: Sequence[int]) -> Mapping[int, RecalledMessage]:
        """Return messages by key, without deleted ones.

        Nothing is returned if anything was erased from the namespace since ``tenant`` was read.
        """
        keys_parameter = to_keys_parameter(keys, self._database.is_sqlite)
        with self._database.read_raw() as connection:
            rows = self._messages_statement.fetch_named(
                connection,
                {"keys": keys_parameter, "namespace": tenant.key, "erasure_epoch": tenant.erasure_epoch},
            )
        items = to_view_items(rows, self._database.label)
        return {
            item.key: RecalledMessage(item, unescape(row.session_name))
            for item, row in zip(items, rows, strict=True)
        }

    def add_accesses(self, tenant: Tenant, accesses: Mapping[int, int], now: datetime) -> None:
        """Add to the access counts of messages.

        Nothing is counted if anything was erased from the namespace since ``tenant`` was read.
        """
        if not accesses:
            return
        # The statement is text, so SQLAlchemy does not convert the time for SQLite.
        timestamp = now if not self._database.is_sqlite else now.replace(tzinfo=None).isoformat() + "Z"
        rows = [
            {"key": key, "count": count, "now": timestamp, "namespace": tenant.key}
            # Sorted, so that concurrent processes lock the rows in the same order.
            for key, count in sorted(accesses.items())
        ]
        with self._database.write() as connection:
            if is_unchanged(connection, tenant):
                connection.execute(_COUNT_ACCESSES, rows)


def is_unchanged(connection: Connection, tenant: Tenant) -> bool:
    """Return True if nothing was erased from the namespace since ``tenant`` was read.

    Nothing can be erased until the transaction ends: PostgreSQL locks the row, and SQLite has one writer at a time.
    """
    return bool(
        connection.execute(ERASURE_EPOCH_QUERY, {"namespace": tenant.key}).scalar() == tenant.erasure_epoch
    )


# Most calls find no new rows.
@cache
def _build_empty_rows() -> IndexRows:
    return _build_index_rows([])


def _build_index_rows(rows: Sequence[AnyRow]) -> IndexRows:
    import numpy as np  # noqa: PLC0415 - slow to import, only needed to recall

    columns = list(zip(*rows, strict=True)) if rows else [()] * 10
    keys, session_keys, positions, times, roles, lengths, is_question, importance, counts, speakers = columns[
        :10
    ]
    return IndexRows(
        keys=np.array(keys, np.int64),
        sessions=np.array(session_keys, np.int64),
        positions=np.array(positions, np.int64),
        times=np.array(times, np.int64),
        roles=np.array([_ROLE_NUMBERS[role] for role in roles], np.uint8),
        lengths=np.array(lengths, np.float32),
        is_question=np.array(is_question, np.bool_),
        importance=np.array(importance, np.float64),
        accesses=np.array([count or 0 for count in counts], np.float32),
        speakers=speakers,
    )
