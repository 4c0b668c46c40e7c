"""Changes of items, inside a transaction that somebody else has opened.

Each begins with the rows of the namespaces, in the order of their paths: they are the locks, and
their revision says to whoever holds a part of them in memory that it has changed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import bindparam, delete, exists, insert, select, tuple_, update

from langmem_tiers.core.names import BESIDE, escape, namespace_key
from langmem_tiers.storage.schema import item_namespaces, item_texts, item_vectors, items
from langmem_tiers.storage.text import pack_json, storable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from langmem_tiers.core.items import ItemWrite
    from langmem_tiers.core.names import NamespacePath

T = TypeVar("T")
_PER_STATEMENT = 400  # well below every database's limit on parameters
_SWEPT_AT_ONCE = 1000

_NEXT = (
    update(item_namespaces)
    .where(item_namespaces.c.path == bindparam("of"))
    .values(revision=item_namespaces.c.revision + 1, erased=item_namespaces.c.erased + bindparam("erasing"))
    .returning(item_namespaces.c.pk, item_namespaces.c.revision)
)
_CHANGE = (
    update(items)
    .where(items.c.pk == bindparam("of"))
    .values(
        {
            name: bindparam(name)
            for name in ("value", "created_at", "updated_at", "expires_at", "ttl_seconds", "revision")
        }
    )
)


def write_all(connection: Connection, writes: Sequence[ItemWrite], now: datetime, model: int | None) -> int:
    """Put and delete; how many were deleted."""
    by_path: dict[str, list[ItemWrite]] = {}
    for write in writes:
        by_path.setdefault(namespace_key(write.namespace), []).append(write)
    deleted, touched, places = 0, list[int](), dict[str, tuple[int, int]]()
    for path in sorted(by_path):
        gone = [escape(write.key) for write in by_path[path] if write.value_json is None]
        taken = _take(connection, path, create=len(gone) < len(by_path[path]), erases=bool(gone))
        if taken is not None:  # or there is nothing to delete there
            places[path] = taken
            deleted += _delete(connection, taken[0], gone)
            touched += [taken[0]] if gone else []
    _put(connection, [write for write in writes if write.value_json is not None], places, now, model)
    _drop_empty(connection, touched)
    return deleted


def delete_beside(connection: Connection, namespace: NamespacePath, names: Sequence[str] | None) -> int:
    """Erase what is kept beside sessions of a namespace, by their names, or beside all; how many items that were."""
    deleted = 0
    for label in BESIDE if names is None or names else ():
        taken = _take(connection, namespace_key((label, *namespace)), create=False, erases=True)
        if taken is not None:
            deleted += _delete(
                connection, taken[0], None if names is None else [escape(one) for one in names]
            )
            _drop_empty(connection, [taken[0]])
    return deleted


def sweep_some(connection: Connection, now: datetime) -> int:
    """Erase some of what has expired; how many items that were."""
    has_expired = items.c.expires_at <= now
    oldest = select(items.c.pk).where(has_expired).order_by(items.c.expires_at).limit(_SWEPT_AT_ONCE)
    keys = list(connection.execute(oldest).scalars())
    found: dict[str, int] = {}
    for some in parts_of(keys):
        query = select(item_namespaces.c.path, item_namespaces.c.pk).join(items).where(items.c.pk.in_(some))
        found.update((row.path, row.pk) for row in connection.execute(query))
    for path in sorted(found):
        _take(connection, path, create=False, erases=True)
    swept = 0
    for some in parts_of(keys):  # what was read and lives longer meanwhile stays
        swept += connection.execute(delete(items).where(items.c.pk.in_(some), has_expired)).rowcount
    _drop_empty(connection, list(found.values()))
    return swept


def _take(connection: Connection, path: str, *, create: bool, erases: bool) -> tuple[int, int] | None:
    # The namespace's key and its next revision; its row is locked from here on.
    taken = connection.execute(_NEXT, {"of": path, "erasing": int(erases)}).first()
    if taken is None and create:
        new = insert(item_namespaces).values(path=path, revision=1, erased=0)
        taken = connection.execute(new.returning(item_namespaces.c.pk, item_namespaces.c.revision)).one()
    return None if taken is None else (taken.pk, taken.revision)


def _delete(connection: Connection, namespace: int, keys: Sequence[str] | None) -> int:
    if keys is None:
        return connection.execute(delete(items).where(items.c.namespace_pk == namespace)).rowcount
    deleted = 0
    for some in parts_of(keys):
        gone = delete(items).where(items.c.namespace_pk == namespace, items.c.key.in_(some))
        deleted += connection.execute(gone).rowcount
    return deleted


def _drop_empty(connection: Connection, namespaces: Sequence[int]) -> None:
    for some in parts_of(namespaces):
        is_empty = ~exists().where(items.c.namespace_pk == item_namespaces.c.pk)
        connection.execute(delete(item_namespaces).where(item_namespaces.c.pk.in_(some), is_empty))


def _put(
    connection: Connection,
    writes: Sequence[ItemWrite],
    places: Mapping[str, tuple[int, int]],
    now: datetime,
    model: int | None,
) -> None:
    if not writes:
        return
    rows = [_row(write, places[namespace_key(write.namespace)], now) for write in writes]
    names = [(row["namespace_pk"], row["key"]) for row in rows]
    there = _there(connection, names, now)
    new = [row for row, name in zip(rows, names, strict=True) if name not in there]
    changed = [
        {**row, "of": there[name][0], "created_at": there[name][1]}
        for row, name in zip(rows, names, strict=True)
        if name in there
    ]
    if changed:
        connection.execute(_CHANGE, changed)
        for some in parts_of([row["of"] for row in changed]):
            connection.execute(delete(item_texts).where(item_texts.c.item_pk.in_(some)))
    if new:
        connection.execute(insert(items), new)
        there = _there(connection, names, now)
    _put_texts(connection, {there[name][0]: write for name, write in zip(names, writes, strict=True)}, model)


def _there(
    connection: Connection, names: Sequence[tuple[int, str]], now: datetime
) -> dict[tuple[int, str], tuple[int, datetime]]:
    # Keys and times of creation; what has expired begins anew.
    found: dict[tuple[int, str], tuple[int, datetime]] = {}
    columns = items.c.namespace_pk, items.c.key, items.c.pk, items.c.created_at, items.c.expires_at
    for some in parts_of(names):
        query = select(*columns).where(tuple_(items.c.namespace_pk, items.c.key).in_(some))
        for row in connection.execute(query):
            has_expired = row.expires_at is not None and row.expires_at <= now
            found[row.namespace_pk, row.key] = row.pk, now if has_expired else row.created_at
    return found


def _put_texts(connection: Connection, writes: dict[int, ItemWrite], model: int | None) -> None:
    texts, vectors = list[dict[str, Any]](), list[dict[str, Any]]()
    for pk, write in writes.items():
        for number, text in enumerate(write.texts):
            place = {"item_pk": pk, "number": number}
            texts.append({**place, "text": storable(text.text), "terms": storable(text.terms)})
            if text.vector is not None and model is not None:
                vectors.append({**place, "embedder_pk": model, "vector": text.vector})
    if texts:
        connection.execute(insert(item_texts), texts)
    if vectors:
        connection.execute(insert(item_vectors), vectors)


def _row(write: ItemWrite, place: tuple[int, int], now: datetime) -> dict[str, Any]:
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


def parts_of(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values in parts that a statement takes as parameters."""
    return (values[start : start + _PER_STATEMENT] for start in range(0, len(values), _PER_STATEMENT))
