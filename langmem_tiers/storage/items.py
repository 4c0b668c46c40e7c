"""Items on SQL: values by namespace and key."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, exists, select, update

from langmem_tiers.core.errors import StorageBusyError
from langmem_tiers.core.items import Item, KeptItem
from langmem_tiers.core.names import escape, namespace_from_key, namespace_key, unescape
from langmem_tiers.storage.faults import OutrunError
from langmem_tiers.storage.item_values import LATEST_FIRST, ItemValues, begins_with, lives
from langmem_tiers.storage.item_writes import parts_of, sweep_some, write_all
from langmem_tiers.storage.repeatable import repeatable
from langmem_tiers.storage.schema import item_namespaces, items
from langmem_tiers.storage.text import unpack_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Select

    from langmem_tiers.core.items import ItemWrite, KeptValue, ScanMark
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.storage.database import Database
    from langmem_tiers.storage.rows import AnyRow

_TRIES = 20  # far more than two racing writers need
_LATER = update(items).where(items.c.pk == bindparam("of")).values(expires_at=bindparam("until"))
_ITEM = select(items, item_namespaces.c.path).join(item_namespaces)


class SqlItemStore:
    """Serves the ``ItemStore`` port."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._values = ItemValues(database)

    def write(self, writes: Sequence[ItemWrite], now: datetime, *, model: int | None) -> int:
        """Do all of it in one transaction, or nothing."""
        for _ in range(_TRIES):
            # Two who write to a new namespace at once: one of them looks again and finds it.
            with suppress(OutrunError), self._database.write() as connection:
                return write_all(connection, writes, now, model)
        raise StorageBusyError(f"others change the same {len(writes)} items all the time: try again later")

    def get(
        self, names: Sequence[tuple[NamespacePath, str]], now: datetime
    ) -> Mapping[tuple[NamespacePath, str], KeptItem]:
        """Those of them that are there."""
        by_namespace: dict[NamespacePath, set[str]] = {}
        for namespace, key in names:
            by_namespace.setdefault(namespace, set()).add(escape(key))
        found: dict[tuple[NamespacePath, str], KeptItem] = {}
        for namespace, stored in by_namespace.items():
            keys, path = sorted(stored), namespace_key(namespace)
            for some in parts_of(keys):
                of_them = item_namespaces.c.path == path, items.c.key.in_(some)
                for kept in self._read(_ITEM.where(*of_them, lives(now))):
                    found[namespace, kept.item.key] = kept
        return found

    def page(self, prefix: NamespacePath, now: datetime, *, skip: int, limit: int) -> tuple[KeptItem, ...]:
        """Items in namespaces that begin with the prefix's whole labels, last updated first."""
        query = _ITEM.where(*begins_with(prefix), lives(now))
        return self._read(query.order_by(*LATEST_FIRST).offset(skip).limit(limit))

    def scan(
        self, prefix: NamespacePath, now: datetime, *, after: ScanMark | None, limit: int
    ) -> tuple[list[KeptValue], ScanMark | None]:
        """As ``page``, behind a mark; the next mark, or None at the end."""
        return self._values.scan(prefix, now, after=after, limit=limit)

    def values(self, keys: Sequence[int], now: datetime) -> Mapping[int, KeptValue]:
        """The values of those of some items that are still there, by their own keys."""
        return self._values.of(keys, now)

    def fetch(self, keys: Sequence[int], now: datetime) -> Mapping[int, KeptItem]:
        """Those of some items that are still there, by their own keys."""
        found: dict[int, KeptItem] = {}
        for some in parts_of(keys):
            found.update(
                (kept.pk, kept) for kept in self._read(_ITEM.where(items.c.pk.in_(some), lives(now)))
            )
        return found

    def refresh(self, kept: Sequence[KeptItem], now: datetime) -> None:
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
            for some in parts_of(sorted(until)):
                keys = list(connection.execute(free, {"keys": some}).scalars())
                if keys:
                    connection.execute(_LATER, [{"of": key, "until": until[key]} for key in keys])

    @repeatable
    def namespaces(self, prefix: NamespacePath, now: datetime) -> tuple[NamespacePath, ...]:
        """Namespaces that hold items and begin with the prefix's whole labels."""
        holds = exists().where(items.c.namespace_pk == item_namespaces.c.pk, lives(now))
        query = select(item_namespaces.c.path).where(*begins_with(prefix), holds)
        with self._database.read() as connection:
            return tuple(namespace_from_key(path) for path in connection.execute(query).scalars())

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
                swept += sweep_some(connection, now)

    @repeatable
    def _read(self, query: Select[*tuple[Any, ...]]) -> tuple[KeptItem, ...]:
        with self._database.read() as connection:
            return tuple(map(_kept, connection.execute(query)))


def _kept(row: AnyRow) -> KeptItem:
    return KeptItem(
        pk=row.pk,
        revision=row.revision,
        ttl_seconds=row.ttl_seconds,
        item=Item(
            namespace=namespace_from_key(row.path),
            key=unescape(row.key),
            value=json.loads(unpack_json(row.value)),
            created_at=row.created_at,
            updated_at=row.updated_at,
            expires_at=row.expires_at,
        ),
    )
