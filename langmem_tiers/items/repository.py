"""Items on SQL: values by namespace and key."""

from __future__ import annotations

import json
from contextlib import suppress
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
from langmem_tiers.errors import StorageBusyError
from langmem_tiers.items.models import Item, ScanPosition, StoredItem, StoredItemValue
from langmem_tiers.storage.column_types import UtcDateTime, pack_json, to_storable_text, unpack_json
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.retry_read import retry_on_disconnect
from langmem_tiers.storage.schema import item_namespaces, item_texts, item_vectors, items

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import BindParameter, ColumnElement, Connection, Select

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.items.models import ItemWrite
    from langmem_tiers.sessions.message_rows import AnyRow
    from langmem_tiers.storage.database import Database


LATEST_FIRST = (items.c.updated_at.desc(), items.c.pk.desc())
_END_OF_TIME = datetime(9999, 12, 31, tzinfo=UTC)


def build_prefix_conditions(prefix: NamespacePath) -> tuple[ColumnElement[bool], ...]:
    """The conditions on namespaces whose first labels are the prefix's."""
    return _build_range_conditions(**build_prefix_bounds(prefix)) if prefix else ()


def build_prefix_bounds(prefix: NamespacePath) -> dict[str, str]:
    """The stored form of a prefix, and what its children lie between."""
    key = build_namespace_key(prefix)
    # "0" follows "/" in every byte order: from the key to there lie the key, its children and
    # names that only begin like it.
    return {"self": key, "children": f"{key}/", "end": f"{key}0"} if prefix else {}


def build_bound_prefix_conditions(prefix: bool) -> tuple[ColumnElement[bool], ...]:  # noqa: FBT001 - whether there is one
    """As ``begins_with``, for a statement that takes ``bounds`` as its values."""
    bound = {name: bindparam(name, type_=Text()) for name in ("self", "children", "end")}
    return _build_range_conditions(**bound) if prefix else ()


def build_unexpired_condition(now: datetime | BindParameter[datetime]) -> ColumnElement[bool]:
    """The condition on items that have not expired."""
    return or_(items.c.expires_at.is_(None), items.c.expires_at > now)


class ItemValueReader:
    """Statements that run on the driver itself: SQLAlchemy's part costs more than a small value.

    Args:
        database: Where.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        value = select(items.c.pk, items.c.revision, items.c.value).where(
            build_unexpired_condition(bindparam("now", type_=UtcDateTime))
        )
        among = (
            "lmt_items.pk IN (SELECT value FROM json_each(:keys))"
            if database.is_sqlite
            else "lmt_items.pk = ANY(CAST(:keys AS bigint[]))"
        )
        self._select_values = DriverStatement(value.where(text(among)), database.dialect)
        changed, at = items.c.updated_at, bindparam("at", type_=UtcDateTime)
        behind = or_(changed < at, and_(changed == at, items.c.pk < bindparam("last")))
        page = value.add_columns(changed).join(item_namespaces).where(behind).order_by(*LATEST_FIRST)
        page = page.limit(bindparam("most"))
        self._scan_statements = {
            has_prefix: DriverStatement(
                page.where(*build_bound_prefix_conditions(has_prefix)), database.dialect
            )
            for has_prefix in (True, False)
        }

    @retry_on_disconnect
    def get(self, keys: Sequence[int], now: datetime) -> Mapping[int, StoredItemValue]:
        """The values of those of some items that are still there."""
        some: Any = json.dumps(list(keys)) if self._database.is_sqlite else list(keys)
        with self._database.read_raw() as connection:
            rows = self._select_values.fetch_all(connection, {"keys": some, "now": now})
        return {row[0]: _to_stored_value(row) for row in rows}

    @retry_on_disconnect
    def scan(
        self, prefix: NamespacePath, now: datetime, *, after: ScanPosition | None, limit: int
    ) -> tuple[list[StoredItemValue], ScanPosition | None]:
        """Values in the order of a page, behind a mark; the next mark, or None at the end."""
        at, last = after or (_END_OF_TIME, 0)
        values = {**build_prefix_bounds(prefix), "now": now, "at": at, "last": last, "most": limit}
        with self._database.read_raw() as connection:
            rows = self._scan_statements[bool(prefix)].fetch_all(connection, values)
        if len(rows) < limit:
            return [_to_stored_value(row) for row in rows], None
        changed = UtcDateTime().process_result_value(rows[-1][3], self._database.dialect)
        return [_to_stored_value(row) for row in rows], ScanPosition(changed or _END_OF_TIME, rows[-1][0])


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
    .values(revision=item_namespaces.c.revision + 1, erased=item_namespaces.c.erased + bindparam("erasing"))
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
    """Put and delete; how many were deleted."""
    by_path: dict[str, list[ItemWrite]] = {}
    for write in writes:
        by_path.setdefault(build_namespace_key(write.namespace), []).append(write)
    deleted, touched, places = 0, list[int](), dict[str, tuple[int, int]]()
    for path in sorted(by_path):
        gone = [escape(write.key) for write in by_path[path] if write.value_json is None]
        taken = _advance_revision(connection, path, create=len(gone) < len(by_path[path]), erases=bool(gone))
        if taken is not None:  # or there is nothing to delete there
            places[path] = taken
            deleted += _delete_items(connection, taken[0], gone)
            touched += [taken[0]] if gone else []
    _upsert_items(connection, [write for write in writes if write.value_json is not None], places, now, model)
    _delete_empty_namespaces(connection, touched)
    return deleted


def delete_session_items(
    connection: Connection, namespace: NamespacePath, names: Sequence[str] | None
) -> int:
    """Erase what is kept beside sessions of a namespace, by their names, or beside all; how many items that were."""
    deleted = 0
    for label in SESSION_ITEM_LABELS if names is None or names else ():
        taken = _advance_revision(
            connection, build_namespace_key((label, *namespace)), create=False, erases=True
        )
        if taken is not None:
            deleted += _delete_items(
                connection, taken[0], None if names is None else [escape(one) for one in names]
            )
            _delete_empty_namespaces(connection, [taken[0]])
    return deleted


def sweep_batch(connection: Connection, now: datetime) -> int:
    """Erase some of what has expired; how many items that were."""
    has_expired = items.c.expires_at <= now
    oldest = select(items.c.pk).where(has_expired).order_by(items.c.expires_at).limit(_SWEEP_BATCH_SIZE)
    keys = list(connection.execute(oldest).scalars())
    found: dict[str, int] = {}
    for some in split_parameters(keys):
        query = select(item_namespaces.c.path, item_namespaces.c.pk).join(items).where(items.c.pk.in_(some))
        found.update((row.path, row.pk) for row in connection.execute(query))
    for path in sorted(found):
        _advance_revision(connection, path, create=False, erases=True)
    swept = 0
    for some in split_parameters(keys):  # what was read and lives longer meanwhile stays
        swept += connection.execute(delete(items).where(items.c.pk.in_(some), has_expired)).rowcount
    _delete_empty_namespaces(connection, list(found.values()))
    return swept


def _advance_revision(
    connection: Connection, path: str, *, create: bool, erases: bool
) -> tuple[int, int] | None:
    # The namespace's key and its next revision; its row is locked from here on.
    taken = connection.execute(_ADVANCE_REVISION, {"of": path, "erasing": int(erases)}).first()
    if taken is None and create:
        new = insert(item_namespaces).values(path=path, revision=1, erased=0)
        taken = connection.execute(new.returning(item_namespaces.c.pk, item_namespaces.c.revision)).one()
    return None if taken is None else (taken.pk, taken.revision)


def _delete_items(connection: Connection, namespace: int, keys: Sequence[str] | None) -> int:
    if keys is None:
        return connection.execute(delete(items).where(items.c.namespace_pk == namespace)).rowcount
    deleted = 0
    for some in split_parameters(keys):
        gone = delete(items).where(items.c.namespace_pk == namespace, items.c.key.in_(some))
        deleted += connection.execute(gone).rowcount
    return deleted


def _delete_empty_namespaces(connection: Connection, namespaces: Sequence[int]) -> None:
    for some in split_parameters(namespaces):
        is_empty = ~exists().where(items.c.namespace_pk == item_namespaces.c.pk)
        connection.execute(delete(item_namespaces).where(item_namespaces.c.pk.in_(some), is_empty))


def _upsert_items(
    connection: Connection,
    writes: Sequence[ItemWrite],
    places: Mapping[str, tuple[int, int]],
    now: datetime,
    model: int | None,
) -> None:
    if not writes:
        return
    rows = [_to_row(write, places[build_namespace_key(write.namespace)], now) for write in writes]
    names = [(row["namespace_pk"], row["key"]) for row in rows]
    there = _find_existing(connection, names, now)
    new = [row for row, name in zip(rows, names, strict=True) if name not in there]
    changed = [
        {**row, "of": there[name][0], "created_at": there[name][1]}
        for row, name in zip(rows, names, strict=True)
        if name in there
    ]
    if changed:
        connection.execute(_UPDATE_ITEM, changed)
        for some in split_parameters([row["of"] for row in changed]):
            connection.execute(delete(item_texts).where(item_texts.c.item_pk.in_(some)))
    if new:
        connection.execute(insert(items), new)
        there = _find_existing(connection, names, now)
    _insert_texts(
        connection, {there[name][0]: write for name, write in zip(names, writes, strict=True)}, model
    )


def _find_existing(
    connection: Connection, names: Sequence[tuple[int, str]], now: datetime
) -> dict[tuple[int, str], tuple[int, datetime]]:
    # Keys and times of creation; what has expired begins anew.
    found: dict[tuple[int, str], tuple[int, datetime]] = {}
    columns = items.c.namespace_pk, items.c.key, items.c.pk, items.c.created_at, items.c.expires_at
    for some in split_parameters(names):
        query = select(*columns).where(tuple_(items.c.namespace_pk, items.c.key).in_(some))
        for row in connection.execute(query):
            has_expired = row.expires_at is not None and row.expires_at <= now
            found[row.namespace_pk, row.key] = row.pk, now if has_expired else row.created_at
    return found


def _insert_texts(connection: Connection, writes: dict[int, ItemWrite], model: int | None) -> None:
    texts, vectors = list[dict[str, Any]](), list[dict[str, Any]]()
    for pk, write in writes.items():
        for number, item_text in enumerate(write.texts):
            place = {"item_pk": pk, "number": number}
            texts.append(
                {
                    **place,
                    "text": to_storable_text(item_text.text),
                    "terms": to_storable_text(item_text.terms),
                }
            )
            if item_text.vector is not None and model is not None:
                vectors.append({**place, "embedder_pk": model, "vector": item_text.vector})
    if texts:
        connection.execute(insert(item_texts), texts)
    if vectors:
        connection.execute(insert(item_vectors), vectors)


def _to_row(write: ItemWrite, place: tuple[int, int], now: datetime) -> dict[str, Any]:
    ttl = write.ttl_seconds
    return {
        "namespace_pk": place[0],
        "key": escape(write.key),
        "value": pack_json(write.value_json or ""),
        "created_at": now,
        "updated_at": now,
        "expires_at": None if ttl is None else now + timedelta(seconds=ttl),
        "ttl_seconds": ttl,
        "revision": place[1],
    }


def split_parameters(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values in parts that a statement takes as parameters."""
    return (
        values[start : start + _MAX_PARAMETERS_PER_STATEMENT]
        for start in range(0, len(values), _MAX_PARAMETERS_PER_STATEMENT)
    )


_MAX_ATTEMPTS = 20  # far more than two racing writers need
_EXTEND_EXPIRY = update(items).where(items.c.pk == bindparam("of")).values(expires_at=bindparam("until"))
_SELECT_ITEMS = select(items, item_namespaces.c.path).join(item_namespaces)


class SqlItemStore:
    """Serves the ``ItemStore`` port."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._value_reader = ItemValueReader(database)

    def write(self, writes: Sequence[ItemWrite], now: datetime, *, model: int | None) -> int:
        """Do all of it in one transaction, or nothing."""
        for _ in range(_MAX_ATTEMPTS):
            # Two who write to a new namespace at once: one of them looks again and finds it.
            with suppress(ConcurrentWriteError), self._database.write() as connection:
                return apply_item_writes(connection, writes, now, model)
        raise StorageBusyError(f"others change the same {len(writes)} items all the time: try again later")

    def get(
        self, names: Sequence[tuple[NamespacePath, str]], now: datetime
    ) -> Mapping[tuple[NamespacePath, str], StoredItem]:
        """Those of them that are there."""
        by_namespace: dict[NamespacePath, set[str]] = {}
        for namespace, key in names:
            by_namespace.setdefault(namespace, set()).add(escape(key))
        found: dict[tuple[NamespacePath, str], StoredItem] = {}
        for namespace, stored in by_namespace.items():
            keys, path = sorted(stored), build_namespace_key(namespace)
            for some in split_parameters(keys):
                of_them = item_namespaces.c.path == path, items.c.key.in_(some)
                for kept in self._read(_SELECT_ITEMS.where(*of_them, build_unexpired_condition(now))):
                    found[namespace, kept.item.key] = kept
        return found

    def list_items(
        self, prefix: NamespacePath, now: datetime, *, skip: int, limit: int
    ) -> tuple[StoredItem, ...]:
        """Items in namespaces that begin with the prefix's whole labels, last updated first."""
        query = _SELECT_ITEMS.where(*build_prefix_conditions(prefix), build_unexpired_condition(now))
        return self._read(query.order_by(*LATEST_FIRST).offset(skip).limit(limit))

    def scan(
        self, prefix: NamespacePath, now: datetime, *, after: ScanPosition | None, limit: int
    ) -> tuple[list[StoredItemValue], ScanPosition | None]:
        """As ``page``, behind a mark; the next mark, or None at the end."""
        return self._value_reader.scan(prefix, now, after=after, limit=limit)

    def get_values(self, keys: Sequence[int], now: datetime) -> Mapping[int, StoredItemValue]:
        """The values of those of some items that are still there, by their own keys."""
        return self._value_reader.get(keys, now)

    def get_by_keys(self, keys: Sequence[int], now: datetime) -> Mapping[int, StoredItem]:
        """Those of some items that are still there, by their own keys."""
        found: dict[int, StoredItem] = {}
        for some in split_parameters(keys):
            found.update(
                (kept.pk, kept)
                for kept in self._read(
                    _SELECT_ITEMS.where(items.c.pk.in_(some), build_unexpired_condition(now))
                )
            )
        return found

    def refresh(self, kept: Sequence[StoredItem], now: datetime) -> None:
        """Let them live for their whole time again, if they have not expired."""
        until = {
            each.pk: now + timedelta(seconds=each.ttl_seconds)
            for each in kept
            if each.ttl_seconds is not None
        }
        if not until:
            return
        with self._database.write() as connection:
            # Whoever holds one of them at this moment writes, erases or refreshes it: nothing to wait for.
            free = select(items.c.pk).where(items.c.pk.in_(bindparam("keys", expanding=True)))
            free = free.where(items.c.expires_at > now).with_for_update(skip_locked=True)
            for some in split_parameters(sorted(until)):
                keys = list(connection.execute(free, {"keys": some}).scalars())
                if keys:
                    connection.execute(_EXTEND_EXPIRY, [{"of": key, "until": until[key]} for key in keys])

    @retry_on_disconnect
    def list_namespaces(self, prefix: NamespacePath, now: datetime) -> tuple[NamespacePath, ...]:
        """Namespaces that hold items and begin with the prefix's whole labels."""
        holds = exists().where(items.c.namespace_pk == item_namespaces.c.pk, build_unexpired_condition(now))
        query = select(item_namespaces.c.path).where(*build_prefix_conditions(prefix), holds)
        with self._database.read() as connection:
            return tuple(parse_namespace_key(path) for path in connection.execute(query).scalars())

    def sweep(self, now: datetime) -> int:
        """Erase what has expired, some at a time, so that others can write in between."""
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
