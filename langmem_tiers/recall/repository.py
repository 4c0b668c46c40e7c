"""Words and places of messages on SQL, for recall."""

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
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.retry_read import retry_on_disconnect
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
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.storage.database import Database

_ROLE_NUMBERS = {role.value: number for number, role in enumerate(Role)}
# What was begun before this and is not committed yet may come later, with a smaller key.
_HORIZON: ColumnElement[int] = literal_column(
    "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
)
_COUNT_ACCESSES = text(  # an access is counted beside the message, which stays as it is
    """INSERT INTO lmt_accesses (message_pk, count, last_at)
        SELECT pk, :count, :now FROM lmt_messages WHERE pk = :key AND namespace_pk = :namespace
        ON CONFLICT (message_pk) DO UPDATE
        SET count = lmt_accesses.count + excluded.count, last_at = excluded.last_at"""
)
_HAS_KNOWLEDGE = exists().where(knowledge.c.namespace_pk == namespaces.c.pk).label("knows")
_NEWEST = select(func.max(messages.c.pk)).where(messages.c.namespace_pk == namespaces.c.pk).label("newest")
_TENANT_QUERY = select(namespaces.c.pk, namespaces.c.erased, _HAS_KNOWLEDGE).where(
    namespaces.c.path == bindparam("path")
)
ERASURE_EPOCH_QUERY = (
    select(namespaces.c.erased).where(namespaces.c.pk == bindparam("namespace")).with_for_update(read=True)
)
_MESSAGES_QUERY = (
    select(*MESSAGE_COLUMNS, *OVERRIDE_COLUMNS, sessions.c.name.label("session_name"))
    .add_columns(sessions.c.view_position, sessions.c.view_message)
    .select_from(
        messages.join(sessions, sessions.c.pk == messages.c.session_pk)
        .join(namespaces, namespaces.c.pk == messages.c.namespace_pk)
        .outerjoin(entries, entries.c.message_pk == messages.c.pk)
    )
    .where(namespaces.c.pk == bindparam("namespace"), namespaces.c.erased == bindparam("erased"))
)


def filter_by_keys(query: Select[*tuple[Any, ...]], is_sqlite: bool) -> Select[*tuple[Any, ...]]:  # noqa: FBT001
    """A query for messages with some keys, to be given as ``keys_of()`` has them."""
    if is_sqlite:
        return query.where(text("lmt_messages.pk IN (SELECT value FROM json_each(:keys))"))
    return query.where(text("lmt_messages.pk = ANY(CAST(:keys AS bigint[]))"))


def to_keys_parameter(keys: Sequence[int], is_sqlite: bool) -> object:  # noqa: FBT001 - which database
    """Keys as a query ``of_keys()`` takes them."""
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
            messages.c.asks,
            messages.c.importance,
            accesses.c.count,
            messages.c.speaker,
        )
        .select_from(messages.outerjoin(accesses, accesses.c.message_pk == messages.c.pk))
        # Whoever takes a message out of a list, or brings it back, counts it as erased: rows are read anew.
        .where(messages.c.namespace_pk == bindparam("namespace"), ~IS_REMOVED)
        .order_by(messages.c.pk)
    )
    if is_sqlite:
        return query.where(messages.c.pk > bindparam("mark"))
    return query.where(text("written_by >= CAST(CAST(:mark AS text) AS xid8)"))


def _to_microseconds(time: ColumnElement[datetime], is_sqlite: bool) -> ColumnElement[int]:  # noqa: FBT001
    if not is_sqlite:
        return cast(func.extract("epoch", time) * 1_000_000, BigInteger)
    stored = type_coerce(time, String)  # 2023-05-08T13:56:00.000000Z
    seconds = cast(func.strftime("%s", func.substr(stored, 1, 19)), Integer)
    return seconds * 1_000_000 + cast(func.substr(stored, 21, 6), Integer)


class SqlIndexStore:
    """Serves the ``IndexStore`` port."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._search = sqlite if database.is_sqlite else postgres
        # On SQLite what is newest, on PostgreSQL how far back to look the next time.
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
        """The rows that were written behind the mark."""
        statement = self._rows_with_terms_statement if with_terms else self._rows_statement
        with self._database.read_raw() as connection:
            # In this order, nothing that happens meanwhile is missed: it is seen now or the next time.
            tenant = self._tenant_statement.run(connection, {"path": build_namespace_key(namespace)})
            if tenant is None:
                return IndexChanges(None, _build_empty_rows(), 0)
            key, erased, knows, limit = tenant
            is_new = not self._database.is_sqlite or (limit or 0) > mark
            rows = statement.fetch_all(connection, {"namespace": key, "mark": mark}) if is_new else []
        if self._database.is_sqlite:
            limit = rows[-1][0] if rows else mark
        terms = {row[0]: self._unpack_terms(row[-1]) for row in rows} if with_terms else {}
        return IndexChanges(
            Tenant(key, erased),
            _build_index_rows(rows) if rows else _build_empty_rows(),
            limit,
            bool(knows),
            terms,
        )

    @retry_on_disconnect
    def find_postings(self, namespace: int, terms: Sequence[str]) -> Postings:
        """Where the terms are, in this namespace."""
        own = [f"{namespace}_{term}" for term in terms]
        with self._database.read_raw() as connection:
            found: Postings = self._search.find_postings(connection, own)
        bare = [term.partition("_")[2] for term in found.terms]
        return Postings(bare, found.term_numbers, found.keys, found.counts)

    @retry_on_disconnect
    def list_keys_in_tier(self, namespace: int, tier: Tier) -> NDArray[np.int64]:
        """The keys of the messages that were moved to a tier."""
        import numpy as np  # noqa: PLC0415 - not before something is recalled

        query = select(entries.c.message_pk).where(
            entries.c.namespace_pk == namespace, entries.c.tier == tier.value
        )
        with self._database.read() as connection:
            return np.array(connection.execute(query).scalars().all(), np.int64)

    @retry_on_disconnect
    def get_terms(self, keys: Sequence[int]) -> Mapping[int, Sequence[str]]:
        """The terms of some messages."""
        with self._database.read_raw() as connection:
            rows = self._terms_statement.fetch_all(
                connection, {"keys": to_keys_parameter(keys, self._database.is_sqlite)}
            )
        return {key: self._unpack_terms(stored) for key, stored in rows}

    def _unpack_terms(self, stored: str | None) -> list[str]:
        return [term.partition("_")[2] for term in self._search.unpack_terms(stored or "")]

    @retry_on_disconnect
    def get_messages(self, tenant: Tenant, keys: Sequence[int]) -> Mapping[int, RecalledMessage]:
        """The messages with these keys; those that are gone are left out."""
        wanted = to_keys_parameter(keys, self._database.is_sqlite)
        with self._database.read_raw() as connection:
            rows = self._messages_statement.fetch_named(
                connection, {"keys": wanted, "namespace": tenant.key, "erased": tenant.erasure_epoch}
            )
        shown = to_view_items(rows, self._database.label)
        return {
            item.key: RecalledMessage(item, unescape(row.session_name))
            for item, row in zip(shown, rows, strict=True)
        }

    def add_accesses(self, tenant: Tenant, accesses: Mapping[int, int], now: datetime) -> None:
        """Count that messages were recalled."""
        if not accesses:
            return
        when = now if not self._database.is_sqlite else now.replace(tzinfo=None).isoformat() + "Z"
        rows = [
            {"key": key, "count": count, "now": when, "namespace": tenant.key}
            for key, count in sorted(accesses.items())
        ]
        with self._database.write() as connection:
            if is_unchanged(connection, tenant):
                connection.execute(_COUNT_ACCESSES, rows)


def is_unchanged(connection: Connection, tenant: Tenant) -> bool:
    """Whether nothing of the namespace was erased since; until the transaction ends nothing will be."""
    return bool(
        connection.execute(ERASURE_EPOCH_QUERY, {"namespace": tenant.key}).scalar() == tenant.erasure_epoch
    )


@cache  # most often nothing is new
def _build_empty_rows() -> IndexRows:
    return _build_index_rows([])


def _build_index_rows(rows: Sequence[AnyRow]) -> IndexRows:
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    columns = list(zip(*rows, strict=True)) if rows else [()] * 10
    keys, session_keys, positions, times, roles, lengths, asks, importance, counts, speakers = columns[:10]
    return IndexRows(
        keys=np.array(keys, np.int64),
        sessions=np.array(session_keys, np.int64),
        positions=np.array(positions, np.int64),
        times=np.array(times, np.int64),
        roles=np.array([_ROLE_NUMBERS[role] for role in roles], np.uint8),
        lengths=np.array(lengths, np.float32),
        asks=np.array(asks, np.bool_),
        importance=np.array(importance, np.float64),
        accesses=np.array([count or 0 for count in counts], np.float32),
        speakers=speakers,
    )
