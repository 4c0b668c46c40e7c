"""SQL queries of the item index: revisions, terms and vectors."""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from sqlalchemy import and_, insert, select

from langmem_tiers.items.repository import (
    build_bound_prefix_conditions,
    build_prefix_bounds,
    split_parameters,
)
from langmem_tiers.recall.item_records import IndexedItem, ItemNamespaceState
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.schema import item_namespaces, item_texts, item_vectors, items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.item_records import ItemTextKey
    from langmem_tiers.storage.database import Database

_SELECT_STATE = select(item_namespaces.c.pk, item_namespaces.c.revision, item_namespaces.c.erasure_epoch)


class ItemIndexRepository:
    """Search texts and vectors of items. Implements ``ItemIndex``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._states = {
            has_prefix: DriverStatement(
                _SELECT_STATE.where(*build_bound_prefix_conditions(has_prefix)), database.dialect
            )
            for has_prefix in (True, False)
        }

    @retry_on_disconnect
    def list_namespace_states(self, prefix: NamespacePath) -> tuple[ItemNamespaceState, ...]:
        """Return the revisions of all namespaces below a prefix."""
        with self._database.read_raw() as connection:
            rows = self._states[bool(prefix)].fetch_all(connection, build_prefix_bounds(prefix))
        return tuple(map(ItemNamespaceState._make, rows))

    @retry_on_disconnect
    def list_keys(self, namespaces: Sequence[int]) -> set[int]:
        """Return the row keys of all items in the given namespaces."""
        found = set[int]()
        with self._database.read() as connection:
            for batch in split_parameters(namespaces):
                query = select(items.c.pk).where(items.c.namespace_pk.in_(batch))
                found.update(connection.execute(query).scalars())
        return found

    @retry_on_disconnect
    def load_items(self, namespaces: Sequence[int], after: int, model: int | None) -> list[IndexedItem]:
        """Return items that were written after a revision, with their terms and vectors."""
        # The vectors are filtered in the join condition, not in WHERE: a text without a vector still needs its row.
        number, same_text = item_texts.c.number, item_vectors.c.number == item_texts.c.number
        of_model = and_(
            item_vectors.c.item_pk == items.c.pk, same_text, item_vectors.c.embedder_pk == (model or 0)
        )
        query = (
            select(items.c.pk, items.c.namespace_pk, items.c.revision, items.c.updated_at)
            .add_columns(number, item_texts.c.terms, item_vectors.c.vector)
            .outerjoin(item_texts, item_texts.c.item_pk == items.c.pk)
            .outerjoin(item_vectors, of_model)
            .where(items.c.revision > after)
            .order_by(items.c.pk, number)
        )
        found = list[IndexedItem]()
        with self._database.read() as connection:
            for batch in split_parameters(namespaces):
                rows = connection.execute(query.where(items.c.namespace_pk.in_(batch)))
                for _, item_rows in groupby(rows, lambda row: row.pk):
                    texts_of_item = list(item_rows)
                    texts = tuple((row.terms, row.vector) for row in texts_of_item if row.number is not None)
                    first = texts_of_item[0]
                    found.append(
                        IndexedItem(first.pk, first.namespace_pk, first.revision, first.updated_at, texts)
                    )
        return found

    @retry_on_disconnect
    def get_texts(
        self, text_keys: Sequence[ItemTextKey], model: int
    ) -> Mapping[ItemTextKey, tuple[str, bytes | None]]:
        """Return texts that have not changed since their keys were read, each with its vector of the model or None."""
        same = and_(
            item_vectors.c.item_pk == item_texts.c.item_pk, item_vectors.c.number == item_texts.c.number
        )
        query = (
            select(item_texts.c.item_pk, item_texts.c.number, items.c.revision)
            .add_columns(item_texts.c.text, item_vectors.c.vector)
            .join(items)
            .outerjoin(item_vectors, and_(same, item_vectors.c.embedder_pk == model))
        )
        keys = {(key.pk, key.number, key.revision): key for key in text_keys}
        found: dict[ItemTextKey, tuple[str, bytes | None]] = {}
        with self._database.read() as connection:
            for batch in split_parameters(sorted({key.pk for key in text_keys})):
                for row in connection.execute(query.where(item_texts.c.item_pk.in_(batch))):
                    key = keys.get((row.item_pk, row.number, row.revision))
                    if key is not None:
                        found[key] = row.text, row.vector
        return found

    def insert_vectors(self, vectors: Mapping[ItemTextKey, bytes], model: int) -> None:
        """Insert vectors of texts that have not changed since their keys were read."""
        # Another process may insert the same vectors first. They are equal, so a conflict is not an error.
        with suppress(ConcurrentWriteError), self._database.write() as connection:
            for batch in split_parameters(sorted({key.pk for key in vectors})):
                unchanged = _lock_items(connection, batch)
                existing = _find_existing_vectors(connection, batch, model)
                rows = [
                    {"item_pk": key.pk, "number": key.number, "embedder_pk": model, "vector": vector}
                    for key, vector in vectors.items()
                    if unchanged.get(key.pk) == key.revision and (key.pk, key.number) not in existing
                ]
                if rows:
                    connection.execute(insert(item_vectors), rows)


def _lock_items(connection: Connection, pks: Sequence[int]) -> dict[int, int]:
    # Skips rows that another transaction is changing: their texts are outdated anyway. The locks on the other
    # rows keep their texts unchanged until the vectors are inserted.
    query = select(items.c.pk, items.c.revision).where(items.c.pk.in_(pks)).order_by(items.c.pk)
    return {row.pk: row.revision for row in connection.execute(query.with_for_update(skip_locked=True))}


def _find_existing_vectors(connection: Connection, pks: Sequence[int], model: int) -> set[tuple[int, int]]:
    query = select(item_vectors.c.item_pk, item_vectors.c.number).where(
        item_vectors.c.item_pk.in_(pks), item_vectors.c.embedder_pk == model
    )
    return {(row.item_pk, row.number) for row in connection.execute(query)}
