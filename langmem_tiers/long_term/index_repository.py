"""SQL queries of the entry index: revisions, terms and vectors. Implements ``ItemIndex``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sqlalchemy import and_, bindparam, insert, select

from langmem_tiers.common.namespaces import build_namespace_key
from langmem_tiers.items.repository import split_parameters
from langmem_tiers.recall.item_records import IndexedItem, ItemNamespaceState
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.schema import memories, memory_spaces, memory_vectors, namespaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.item_records import ItemTextKey
    from langmem_tiers.storage.database import Database

_SELECT_STATE = (
    select(
        memory_spaces.c.namespace_pk,
        memory_spaces.c.revision,
        # Chunks and episodes are deleted with their sessions, which only the namespace's counter records.
        (memory_spaces.c.erased + namespaces.c.erased).label("erased"),
    )
    .join(namespaces, namespaces.c.pk == memory_spaces.c.namespace_pk)
    .where(namespaces.c.path == bindparam("path"))
)


class LongTermIndexRepository:
    """Index rows of the entries of exactly one namespace. Each entry has one text."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._select_state = DriverStatement(_SELECT_STATE, database.dialect)

    @retry_on_disconnect
    def list_namespace_states(self, prefix: NamespacePath) -> tuple[ItemNamespaceState, ...]:
        """Return the state of the namespace, if it has any entries."""
        with self._database.read_raw() as connection:
            rows = self._select_state.fetch_all(connection, {"path": build_namespace_key(prefix)})
        return tuple(map(ItemNamespaceState._make, rows))

    @retry_on_disconnect
    def list_keys(self, namespaces: Sequence[int]) -> set[int]:
        """Return the row keys of all entries in the given namespaces."""
        found = set[int]()
        with self._database.read() as connection:
            for batch in split_parameters(namespaces):
                query = select(memories.c.pk).where(memories.c.namespace_pk.in_(batch))
                found.update(connection.execute(query).scalars())
        return found

    @retry_on_disconnect
    def load_items(self, namespaces: Sequence[int], after: int, model: int | None) -> list[IndexedItem]:
        """Return entries that were written after a revision, with their terms and vectors."""
        # The vectors are filtered in the join condition, not in WHERE: an entry without a vector still needs its row.
        of_model = and_(
            memory_vectors.c.memory_pk == memories.c.pk, memory_vectors.c.embedder_pk == (model or 0)
        )
        query = (
            select(memories.c.pk, memories.c.namespace_pk, memories.c.revision, memories.c.created_at)
            .add_columns(memories.c.terms, memory_vectors.c.vector)
            .outerjoin(memory_vectors, of_model)
            .where(memories.c.revision > after)
            .order_by(memories.c.pk)
        )
        found = list[IndexedItem]()
        with self._database.read() as connection:
            for batch in split_parameters(namespaces):
                rows = connection.execute(query.where(memories.c.namespace_pk.in_(batch)))
                found += [
                    IndexedItem(
                        row.pk, row.namespace_pk, row.revision, row.created_at, ((row.terms, row.vector),)
                    )
                    for row in rows
                ]
        return found

    @retry_on_disconnect
    def get_texts(
        self, places: Sequence[ItemTextKey], model: int
    ) -> Mapping[ItemTextKey, tuple[str, bytes | None]]:
        """Return texts that have not changed since their keys were read, each with its vector of the model or None."""
        of_model = and_(memory_vectors.c.memory_pk == memories.c.pk, memory_vectors.c.embedder_pk == model)
        query = select(memories.c.pk, memories.c.revision, memories.c.content, memory_vectors.c.vector)
        query = query.outerjoin(memory_vectors, of_model)
        keys = {(key.pk, key.revision): key for key in places}
        found: dict[ItemTextKey, tuple[str, bytes | None]] = {}
        with self._database.read() as connection:
            for batch in split_parameters(sorted({key.pk for key in places})):
                for row in connection.execute(query.where(memories.c.pk.in_(batch))):
                    key = keys.get((row.pk, row.revision))
                    if key is not None:
                        found[key] = row.content, row.vector
        return found

    def insert_vectors(self, vectors: Mapping[ItemTextKey, bytes], model: int) -> None:
        """Insert vectors of texts that have not changed since their keys were read."""
        # Another process may insert the same vectors first. They are equal, so a conflict is not an error.
        with suppress(ConcurrentWriteError), self._database.write() as connection:
            for batch in split_parameters(sorted(vectors, key=lambda key: key.pk)):
                keys = [key.pk for key in batch]
                query = select(memories.c.pk, memories.c.revision).where(memories.c.pk.in_(keys))
                # Skips rows that another transaction is changing: their texts are outdated anyway.
                query = query.order_by(memories.c.pk).with_for_update(skip_locked=True)
                unchanged = {(row.pk, row.revision) for row in connection.execute(query)}
                existing_query = select(memory_vectors.c.memory_pk).where(
                    memory_vectors.c.memory_pk.in_(keys), memory_vectors.c.embedder_pk == model
                )
                existing = set(connection.execute(existing_query).scalars())
                rows = [
                    {"memory_pk": key.pk, "embedder_pk": model, "vector": vectors[key]}
                    for key in batch
                    if (key.pk, key.revision) in unchanged and key.pk not in existing
                ]
                if rows:
                    connection.execute(insert(memory_vectors), rows)
