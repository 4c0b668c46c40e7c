"""SQL storage of items: values by namespace and key."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Text, and_, bindparam, delete, exists, insert, or_, select, text, tuple_, update

from langmem_tiers.common.namespaces import (
    SESSION_ITEM_LABELS,
    build_namespace_key,
    escape,
    parse_namespace_key,
    unescape,
)
from langmem_tiers.items.models import Item, ScanPosition, StoredItem, StoredItemValue
from langmem_tiers.storage.column_types import UtcDateTime, pack_json, to_storable_text, unpack_json
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.storage.schema import item_namespaces, item_texts, item_vectors, items

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import BindParameter, ColumnElement, Connection, Select

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.items.models import ItemWrite
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database


LATEST_FIRST = (items.c.updated_at.desc(), items.c.pk.desc())
# A scan without a position starts here, which is later than every item.
_END_OF_TIME = datetime(9999, 12, 31, tzinfo=UTC)


def build_prefix_conditions(prefix: NamespacePath) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that restrict a query to a namespace prefix. An empty prefix has none."""
    return _build_range_conditions(**build_prefix_bounds(prefix)) if prefix else ()


def build_prefix_bounds(prefix: NamespacePath) -> dict[str, str]:
    """Return the stored key of a prefix and the bounds of its children's keys."""
    key = build_namespace_key(prefix)
    # "0" is the character after "/" in every byte order. The range from key to end therefore contains the key and its
    # children, but also names such as "acme-corp" for "acme"; _build_range_conditions excludes those.
    return {"self": key, "children": f"{key}/", "end": f"{key}0"} if prefix else {}


def build_bound_prefix_conditions(prefix: bool) -> tuple[ColumnElement[bool], ...]:  # noqa: FBT001 - whether there is one
    """Return the conditions of ``build_prefix_conditions`` with bind parameters for ``build_prefix_bounds``."""
    bound = {name: bindparam(name, type_=Text()) for name in ("self", "children", "end")}
    return _build_range_conditions(**bound) if prefix else ()


def build_unexpired_condition(now: datetime | BindParameter[datetime]) -> ColumnElement[bool]:
    """Return the condition on items that have not expired."""
    return or_(items.c.expires_at.is_(None), items.c.expires_at > now)


class ItemValueReader:
    """Reads values with statements that run on the driver: SQLAlchemy's overhead exceeds the cost of a small value.

    Args:
        database: Database to read from.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        value = select(items.c.pk, items.c.revision, items.c.value).where(
            build_unexpired_condition(bindparam("now", type_=UtcDateTime))
        )
        has_key = (
            "lmt_items.pk IN (SELECT value FROM json_each(:keys))"
            if database.is_sqlite
            else "lmt_items.pk = ANY(CAST(:keys AS bigint[]))"
        )
        self._select_values = DriverStatement(value.where(text(has_key)), database.dialect)
        updated_at, at = items.c.updated_at, bindparam("at", type_=UtcDateTime)
        # Keyset pagination: (updated_at, pk) of the last row read, both descending. Unlike an
        # offset, the position stays valid when items are added or deleted between two pages.
        is_after_position = or_(updated_at < at, and_(updated_at == at, items.c.pk < bindparam("last")))
        page = (
            value.add_columns(updated_at)
            .join(item_namespaces)
            .where(is_after_position)
            .order_by(*LATEST_FIRST)
        )
        page = page.limit(bindparam("most"))
        self._scan_statements = {
            has_prefix: DriverStatement(
                page.where(*build_bound_prefix_conditions(has_prefix)), database.dialect
            )
            for has_prefix in (True, False)
        }

    @retry_on_disconnect
    def get(self, keys: Sequence[int], now: datetime) -> Mapping[int, StoredItemValue]:
        """Return the values of existing items by row key."""
        key_parameter: Any = json.dumps(list(keys)) if self._database.is_sqlite else list(keys)
        with self._database.read_raw() as connection:
            rows = self._select_values.fetch_all(connection, {"keys": key_parameter, "now": now})
        return {row[0]: _to_stored_value(row) for row in rows}

    @retry_on_disconnect
    def scan(
        self, prefix: NamespacePath, now: datetime, *, after: ScanPosition | None, limit: int
    ) -> tuple[list[StoredItemValue], ScanPosition | None]:
        """Return a page of values, latest first, and the position to continue from, or None at the end."""
        at, last = after or (_END_OF_TIME, 0)
        values = {**build_prefix_bounds(prefix), "now": now, "at": at, "last": last, "most": limit}
        with self._database.read_raw() as connection:
            rows = self._scan_statements[bool(prefix)].fetch_all(connection, values)
        if len(rows) < limit:
            return [_to_stored_value(row) for row in rows], None
        updated_at = UtcDateTime().process_result_value(rows[-1][3], self._database.dialect)
        return [_to_stored_value(row) for row in rows], ScanPosition(updated_at or _END_OF_TIME, rows[-1][0])


def _to_stored_value(row: Sequence[Any]) -> StoredItemValue:
    return StoredItemValue(row[0], row[1], json.loads(unpack_json(row[2])))


def _build_range_conditions(
    self: str | BindParameter[str], children: str | BindParameter[str], end: str | BindParameter[str]
) -> tuple[ColumnElement[bool], ...]:
    path = item_namespaces.c.path
    return path >= self, path < end, or_(path == self, path > children)


T = TypeVar("T")
_MAX_PARAMETERS_PER_STATEMENT = 400  # well below every database's limit on parameters
_SWEEP_BATCH_SIZE = 1000

_ADVANCE_REVISION = (
    update(item_namespaces)
    .where(item_namespaces.c.path == bindparam("of"))
    .values(
        revision=item_namespaces.c.revision + 1,
        erasure_epoch=item_namespaces.c.erasure_epoch + bindparam("erasing"),
    )
    .returning(item_namespaces.c.pk, item_namespaces.c.revision)
)
_UPDATE_ITEM = (
    update(items)
    .where(items.c.pk == bindparam("of"))
    .values(
        {
            name: bindparam(name)
            for name in ("value", "created_at", "updated_at", "expires_at", "ttl_seconds", "revision")
        }
    )
)


def apply_item_writes(
    connection: Connection, writes: Sequence[ItemWrite], now: datetime, model: int | None
) -> int:
    """Write and delete items; return how many were deleted."""
    by_path: dict[str, list[ItemWrite]] = {}
    for write in writes:
        by_path.setdefault(build_namespace_key(write.namespace), []).append(write)
    # Namespaces are locked in sorted order, so that two concurrent writers cannot deadlock.
    deleted, touched, revisions = 0, list[int](), dict[str, tuple[int, int]]()
    for path in sorted(by_path):
        deleted_keys = [escape(write.key) for write in by_path[path] if write.value_json is None]
        namespace = _advance_revision(
            connection, path, create=len(deleted_keys) < len(by_path[path]), erases=bool(deleted_keys)
        )
        if namespace is not None:  # None: a deletion in a namespace that does not exist
            revisions[path] = namespace
            deleted += _delete_items(connection, namespace[0], deleted_keys)
            touched += [namespace[0]] if deleted_keys else []
    _upsert_items(
        connection, [write for write in writes if write.value_json is not None], revisions, now, model
    )
    _delete_empty_namespaces(connection, touched)
    return deleted


def delete_session_items(
    connection: Connection, namespace: NamespacePath, names: Sequence[str] | None
) -> int:
    """Delete items that belong to sessions and return their number.

    Args:
        connection: Connection of an open transaction.
        namespace: Namespace of the sessions.
        names: Session names. None means all sessions of the namespace.
    """
    deleted = 0
    for label in SESSION_ITEM_LABELS if names is None or names else ():
        item_namespace = _advance_revision(
            connection, build_namespace_key((label, *namespace)), create=False, erases=True
        )
        if item_namespace is not None:
            deleted += _delete_items(
                connection, item_namespace[0], None if names is None else [escape(name) for name in names]
            )
            _delete_empty_namespaces(connection, [item_namespace[0]])
    return deleted


def sweep_batch(connection: Connection, now: datetime) -> int:
    """Delete a batch of expired items and return their number."""
    has_expired = items.c.expires_at <= now
    oldest = select(items.c.pk).where(has_expired).order_by(items.c.expires_at).limit(_SWEEP_BATCH_SIZE)
    keys = list(connection.execute(oldest).scalars())
    found: dict[str, int] = {}
    for batch in split_parameters(keys):
        query = select(item_namespaces.c.path, item_namespaces.c.pk).join(items).where(items.c.pk.in_(batch))
        found.update((row.path, row.pk) for row in connection.execute(query))
    # The revision changes first: it locks the namespaces and tells readers that their item index is out of date.
    for path in sorted(found):
        _advance_revision(connection, path, create=False, erases=True)
    swept = 0
    # The condition is repeated: an item that was refreshed since it was read is kept.
    for batch in split_parameters(keys):
        swept += connection.execute(delete(items).where(items.c.pk.in_(batch), has_expired)).rowcount
    _delete_empty_namespaces(connection, list(found.values()))
    return swept


def _advance_revision(
    connection: Connection, path: str, *, create: bool, erases: bool
) -> tuple[int, int] | None:
    # Return the namespace's key and its new revision. Its row stays locked until the transaction ends.
    row = connection.execute(_ADVANCE_REVISION, {"of": path, "erasing": int(erases)}).first()
    if row is None and create:
        new = insert(item_namespaces).values(path=path, revision=1, erasure_epoch=0)
        row = connection.execute(new.returning(item_namespaces.c.pk, item_namespaces.c.revision)).one()
    return None if row is None else (row.pk, row.revision)


def _delete_items(connection: Connection, namespace: int, keys: Sequence[str] | None) -> int:
    if keys is None:
        return connection.execute(delete(items).where(items.c.namespace_pk == namespace)).rowcount
    deleted = 0
    for batch in split_parameters(keys):
        statement = delete(items).where(items.c.namespace_pk == namespace, items.c.key.in_(batch))
        deleted += connection.execute(statement).rowcount
    return deleted


def _delete_empty_namespaces(connection: Connection, namespaces: Sequence[int]) -> None:
    for batch in split_parameters(namespaces):
        is_empty = ~exists().where(items.c.namespace_pk == item_namespaces.c.pk)
        connection.execute(delete(item_namespaces).where(item_namespaces.c.pk.in_(batch), is_empty))


def _upsert_items(
    connection: Connection,
    writes: Sequence[ItemWrite],
    revisions: Mapping[str, tuple[int, int]],
    now: datetime,
    model: int | None,
) -> None:
    if not writes:
        return
    rows = [_to_row(write, revisions[build_namespace_key(write.namespace)], now) for write in writes]
    names = [(row["namespace_pk"], row["key"]) for row in rows]
    existing = _find_existing(connection, names, now)
    new = [row for row, name in zip(rows, names, strict=True) if name not in existing]
    changed = [
        {**row, "of": existing[name][0], "created_at": existing[name][1]}
        for row, name in zip(rows, names, strict=True)
        if name in existing
    ]
    if changed:
        connection.execute(_UPDATE_ITEM, changed)
        for batch in split_parameters([row["of"] for row in changed]):
            # Texts are replaced as a whole: a new value may have fewer of them.
            connection.execute(delete(item_texts).where(item_texts.c.item_pk.in_(batch)))
    if new:
        connection.execute(insert(items), new)
        # Read again: the new rows have keys only now, and the texts below refer to them.
        existing = _find_existing(connection, names, now)
    _insert_texts(
        connection, {existing[name][0]: write for name, write in zip(names, writes, strict=True)}, model
    )


def _find_existing(
    connection: Connection, names: Sequence[tuple[int, str]], now: datetime
) -> dict[tuple[int, str], tuple[int, datetime]]:
    # Row keys and creation times. A write to an expired key starts a new item, created now.
    found: dict[tuple[int, str], tuple[int, datetime]] = {}
    columns = items.c.namespace_pk, items.c.key, items.c.pk, items.c.created_at, items.c.expires_at
    for batch in split_parameters(names):
        query = select(*columns).where(tuple_(items.c.namespace_pk, items.c.key).in_(batch))
        for row in connection.execute(query):
            has_expired = row.expires_at is not None and row.expires_at <= now
            found[row.namespace_pk, row.key] = row.pk, now if has_expired else row.created_at
    return found


def _insert_texts(connection: Connection, writes: dict[int, ItemWrite], model: int | None) -> None:
    texts, vectors = list[dict[str, Any]](), list[dict[str, Any]]()
    for pk, write in writes.items():
        for number, item_text in enumerate(write.texts):
            text_key = {"item_pk": pk, "number": number}
            texts.append(
                {
                    **text_key,
                    "text": to_storable_text(item_text.text),
                    "terms": to_storable_text(item_text.terms),
                }
            )
            if item_text.vector is not None and model is not None:
                vectors.append({**text_key, "embedder_pk": model, "vector": item_text.vector})
    if texts:
        connection.execute(insert(item_texts), texts)
    if vectors:
        connection.execute(insert(item_vectors), vectors)


def _to_row(write: ItemWrite, namespace: tuple[int, int], now: datetime) -> dict[str, Any]:
    ttl = write.ttl_seconds
    return {
        "namespace_pk": namespace[0],
        "key": escape(write.key),
        "value": pack_json(write.value_json or ""),
        "created_at": now,
        "updated_at": now,
        "expires_at": None if ttl is None else now + timedelta(seconds=ttl),
        "ttl_seconds": ttl,
        "revision": namespace[1],
    }


def split_parameters(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split values into batches that fit into one statement as parameters."""
    return (
        values[start : start + _MAX_PARAMETERS_PER_STATEMENT]
        for start in range(0, len(values), _MAX_PARAMETERS_PER_STATEMENT)
    )


_EXTEND_EXPIRY = update(items).where(items.c.pk == bindparam("of")).values(expires_at=bindparam("until"))
_SELECT_ITEMS = select(items, item_namespaces.c.path).join(item_namespaces)


class ItemRepository:
    """JSON values by namespace and key. Expired items are never returned, swept or not."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._value_reader = ItemValueReader(database)

    def write(self, writes: Sequence[ItemWrite], now: datetime, *, model: int | None) -> int:
        """Apply all writes in one transaction, or none of them.

        Args:
            writes: At most one for each namespace and key.
            now: Time of the write.
            model: Key of the embedding model that produced the vectors, or None.

        Returns:
            Number of deleted items.
        """

        def write() -> int:
            # Two processes that write to a new namespace at once: one insert fails, and its retry finds the row.
            with self._database.write() as connection:
                return apply_item_writes(connection, writes, now, model)

        return retry_on_conflict(
            write, f"concurrent changes to the same {len(writes)} items: try again later"
        )

    def get(
        self, names: Sequence[tuple[NamespacePath, str]], now: datetime
    ) -> Mapping[tuple[NamespacePath, str], StoredItem]:
        """Return the existing items by namespace and key."""
        by_namespace: dict[NamespacePath, set[str]] = {}
        for namespace, key in names:
            by_namespace.setdefault(namespace, set()).add(escape(key))
        found: dict[tuple[NamespacePath, str], StoredItem] = {}
        for namespace, stored_keys in by_namespace.items():
            keys, path = sorted(stored_keys), build_namespace_key(namespace)
            for batch in split_parameters(keys):
                conditions = item_namespaces.c.path == path, items.c.key.in_(batch)
                for stored in self._read(_SELECT_ITEMS.where(*conditions, build_unexpired_condition(now))):
                    found[namespace, stored.item.key] = stored
        return found

    def list_items(
        self, prefix: NamespacePath, now: datetime, *, skip: int, limit: int
    ) -> tuple[StoredItem, ...]:
        """Return items below a namespace prefix, most recently updated first.

        Args:
            prefix: Leading labels. An empty prefix means all namespaces.
            now: Current time, for expiry.
            skip: Number of items to skip.
            limit: Maximum number of items.
        """
        query = _SELECT_ITEMS.where(*build_prefix_conditions(prefix), build_unexpired_condition(now))
        return self._read(query.order_by(*LATEST_FIRST).offset(skip).limit(limit))

    def scan(
        self, prefix: NamespacePath, now: datetime, *, after: ScanPosition | None, limit: int
    ) -> tuple[list[StoredItemValue], ScanPosition | None]:
        """Return a page of values in the order of ``list_items``, and the position to continue from.

        Args:
            prefix: Leading labels. An empty prefix means all namespaces.
            now: Current time, for expiry.
            after: Position returned by the page before. None starts with the newest item.
            limit: Maximum number of values.

        Returns:
            The values, and the next position or None at the end.
        """
        return self._value_reader.scan(prefix, now, after=after, limit=limit)

    def get_values(self, keys: Sequence[int], now: datetime) -> Mapping[int, StoredItemValue]:
        """Return the values of existing items by row key."""
        return self._value_reader.get(keys, now)

    def get_by_keys(self, keys: Sequence[int], now: datetime) -> Mapping[int, StoredItem]:
        """Return the existing items by row key."""
        found: dict[int, StoredItem] = {}
        for batch in split_parameters(keys):
            found.update(
                (stored.pk, stored)
                for stored in self._read(
                    _SELECT_ITEMS.where(items.c.pk.in_(batch), build_unexpired_condition(now))
                )
            )
        return found

    def refresh(self, kept: Sequence[StoredItem], now: datetime) -> None:
        """Restart the lifetime of items that have not expired."""
        until = {
            stored.pk: now + timedelta(seconds=stored.ttl_seconds)
            for stored in kept
            if stored.ttl_seconds is not None
        }
        if not until:
            return
        with self._database.write() as connection:
            # A locked row is being written, deleted or refreshed by another transaction, which makes this refresh
            # unnecessary. Skipping it also avoids deadlocks.
            free = select(items.c.pk).where(items.c.pk.in_(bindparam("keys", expanding=True)))
            free = free.where(items.c.expires_at > now).with_for_update(skip_locked=True)
            for batch in split_parameters(sorted(until)):
                keys = list(connection.execute(free, {"keys": batch}).scalars())
                if keys:
                    connection.execute(_EXTEND_EXPIRY, [{"of": key, "until": until[key]} for key in keys])

    @retry_on_disconnect
    def list_namespaces(self, prefix: NamespacePath, now: datetime) -> tuple[NamespacePath, ...]:
        """Return namespaces below the prefix that contain unexpired items."""
        has_items = exists().where(
            items.c.namespace_pk == item_namespaces.c.pk, build_unexpired_condition(now)
        )
        query = select(item_namespaces.c.path).where(*build_prefix_conditions(prefix), has_items)
        with self._database.read() as connection:
            return tuple(parse_namespace_key(path) for path in connection.execute(query).scalars())

    def sweep(self, now: datetime) -> int:
        """Delete expired items and return their number. Batches let other writers proceed in between."""
        swept = 0
        while True:
            with self._database.read() as connection:
                if (
                    connection.execute(select(items.c.pk).where(items.c.expires_at <= now).limit(1)).first()
                    is None
                ):
                    return swept
            with self._database.write() as connection:
                swept += sweep_batch(connection, now)

    @retry_on_disconnect
    def _read(self, query: Select[*tuple[Any, ...]]) -> tuple[StoredItem, ...]:
        with self._database.read() as connection:
            return tuple(map(_to_stored_item, connection.execute(query)))


def _to_stored_item(row: AnyRow) -> StoredItem:
    return StoredItem(
        pk=row.pk,
        revision=row.revision,
        ttl_seconds=row.ttl_seconds,
        item=Item(
            namespace=parse_namespace_key(row.path),
            key=unescape(row.key),
            value=json.loads(unpack_json(row.value)),
            created_at=row.created_at,
            updated_at=row.updated_at,
            expires_at=row.expires_at,
        ),
    )
