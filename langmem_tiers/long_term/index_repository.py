"""What searches over entries look at, on SQL: revisions, terms and vectors. Serves the ``ItemIndex`` port."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sqlalchemy import and_, bindparam, insert, select

from langmem_tiers.common.namespaces import build_namespace_key
from langmem_tiers.items.repository import split_parameters
from langmem_tiers.recall.item_records import IndexedItem, ItemNamespaceState
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.retry_read import retry_on_disconnect
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
        (memory_spaces.c.erased + namespaces.c.erased).label(
            "erased"
        ),  # chunks and episodes go with their sessions
    )
    .join(namespaces, namespaces.c.pk == memory_spaces.c.namespace_pk)
    .where(namespaces.c.path == bindparam("path"))
)


class SqlMemoryIndex:
    """Entries with one text each, of exactly one namespace."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._select_state = DriverStatement(_SELECT_STATE, database.dialect)

    @retry_on_disconnect
    def list_namespace_states(self, prefix: NamespacePath) -> tuple[ItemNamespaceState, ...]:
        """The namespace's state, if it has any memory."""
        with self._database.read_raw() as connection:
            rows = self._select_state.fetch_all(connection, {"path": build_namespace_key(prefix)})
        return tuple(map(ItemNamespaceState._make, rows))

    @retry_on_disconnect
    def list_keys(self, namespaces: Sequence[int]) -> set[int]:
        """The keys of all entries in some namespaces."""
        found = set[int]()
        with self._database.read() as connection:
            for some in split_parameters(namespaces):
                query = select(memories.c.pk).where(memories.c.namespace_pk.in_(some))
                found.update(connection.execute(query).scalars())
        return found

    @retry_on_disconnect
    def load_items(self, namespaces: Sequence[int], after: int, model: int | None) -> list[IndexedItem]:
        """The entries of some namespaces that were written behind a revision."""
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
            for some in split_parameters(namespaces):
                rows = connection.execute(query.where(memories.c.namespace_pk.in_(some)))
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
        """Texts that are still as they were, each with its vector of that model, if there is one by now."""
        of_model = and_(memory_vectors.c.memory_pk == memories.c.pk, memory_vectors.c.embedder_pk == model)
        query = select(memories.c.pk, memories.c.revision, memories.c.content, memory_vectors.c.vector)
        query = query.outerjoin(memory_vectors, of_model)
        wanted = {(place.pk, place.revision): place for place in places}
        found: dict[ItemTextKey, tuple[str, bytes | None]] = {}
        with self._database.read() as connection:
            for some in split_parameters(sorted({place.pk for place in places})):
                for row in connection.execute(query.where(memories.c.pk.in_(some))):
                    place = wanted.get((row.pk, row.revision))
                    if place is not None:
                        found[place] = row.content, row.vector
        return found

    def insert_vectors(self, vectors: Mapping[ItemTextKey, bytes], model: int) -> None:
        """Keep vectors of texts that are still as they were."""
        # Somebody else may fill in the same ones: theirs are as good.
        with suppress(ConcurrentWriteError), self._database.write() as connection:
            for some in split_parameters(sorted(vectors, key=lambda place: place.pk)):
                keys = [place.pk for place in some]
                query = select(memories.c.pk, memories.c.revision).where(memories.c.pk.in_(keys))
                query = query.order_by(memories.c.pk).with_for_update(skip_locked=True)
                unchanged = {(row.pk, row.revision) for row in connection.execute(query)}
                there = select(memory_vectors.c.memory_pk).where(
                    memory_vectors.c.memory_pk.in_(keys), memory_vectors.c.embedder_pk == model
                )
                held = set(connection.execute(there).scalars())
                rows = [
                    {"memory_pk": place.pk, "embedder_pk": model, "vector": vectors[place]}
                    for place in some
                    if (place.pk, place.revision) in unchanged and place.pk not in held
                ]
                if rows:
                    connection.execute(insert(memory_vectors), rows)
