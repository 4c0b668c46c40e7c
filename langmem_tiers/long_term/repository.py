"""SQL storage of long-term entries, episodes and chunks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, case, delete, exists, func, insert, or_, select, update

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.namespaces import build_namespace_key, escape, unescape
from langmem_tiers.items.repository import split_parameters
from langmem_tiers.long_term.fact_repository import FactRepository
from langmem_tiers.long_term.models import Relation
from langmem_tiers.long_term.records import DecayCandidate
from langmem_tiers.long_term.rows import SELECT_ENTRIES, pack_body, to_stored_entry, unpack_body
from langmem_tiers.long_term.writes import apply_memory_write, archive_entries, run_memory_write
from langmem_tiers.recall.item_records import IndexedItem, ItemNamespaceState
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.schema import (
    memories,
    memory_namespaces,
    memory_tags,
    memory_vectors,
    namespaces,
    relations,
    sessions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, ScalarSelect, Select

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.models import EntryFilters
    from langmem_tiers.long_term.records import Access, MemoryWrite, StoredEntry
    from langmem_tiers.recall.item_records import ItemTextKey
    from langmem_tiers.storage.database import Database


_last_access_at = bindparam("last_at", type_=memories.c.last_access_at.type)
_RECORD_ACCESS = (
    update(memories)
    .where(memories.c.pk == bindparam("of"))
    .values(
        access_count=memories.c.access_count + bindparam("more"),
        last_access_at=_last_access_at,
    )
)


class LongTermRepository(FactRepository):
    """Long-term entries, episodes, chunks and extracted facts by namespace."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database

    def commit(self, namespace: NamespacePath, write: MemoryWrite, now: datetime) -> bool:
        """Apply all changes in one transaction.

        Returns:
            False, with nothing changed, if another process changed the data first: the revision, a cursor or the
                state of a fact is not the expected one.

        Raises:
            EntryNotFoundError: A changed entry does not exist; nothing was changed.
            SessionNotFoundError: The session of an entry does not exist; nothing was changed.
            InvalidInputError: An entry would end before its start, or supersede an entry that supersedes it;
                nothing was changed.
        """
        return run_memory_write(
            self._database, lambda connection: apply_memory_write(connection, namespace, write, now)
        )

    @retry_on_disconnect
    def get_revision(self, namespace: NamespacePath) -> int:
        """Return the number of the last commit, or 0."""
        query = select(memory_namespaces.c.revision).where(
            memory_namespaces.c.namespace_pk == _select_namespace_pk(namespace)
        )
        with self._database.read() as connection:
            return int(connection.execute(query).scalar() or 0)

    @retry_on_disconnect
    def get_change_stamp(self, namespace: NamespacePath) -> tuple[int, ...]:
        """Return numbers that differ after any change, also of archived states and access counts."""
        own = _select_namespace_pk(namespace)
        space = select(memory_namespaces.c.revision, memory_namespaces.c.erasure_epoch).where(
            memory_namespaces.c.namespace_pk == own
        )
        # Sums of the keys and of their squares detect that one entry was archived and another restored, which
        # leaves the number of archived entries as it was.
        archived = case((memories.c.archived_at.is_not(None), memories.c.pk), else_=0)
        counts = select(
            func.count(memories.c.archived_at),
            func.coalesce(func.sum(archived), 0),
            func.coalesce(func.sum(archived * archived), 0),
            func.coalesce(func.sum(memories.c.access_count), 0),
        ).where(memories.c.namespace_pk == own)
        with self._database.read() as connection:
            numbers = (*(connection.execute(space).first() or (0, 0)), *connection.execute(counts).one())
        return tuple(int(number) for number in numbers)

    @retry_on_disconnect
    def get(self, namespace: NamespacePath, ids: Sequence[str]) -> Mapping[str, StoredEntry]:
        """Return the existing entries by id, of any tier, archived or not."""
        found: dict[str, StoredEntry] = {}
        with self._database.read() as connection:
            for batch in split_parameters([escape(name) for name in ids]):
                query = SELECT_ENTRIES.where(
                    memories.c.namespace_pk == _select_namespace_pk(namespace), memories.c.id.in_(batch)
                )
                entries = (to_stored_entry(row, namespace) for row in connection.execute(query))
                found.update((stored.entry.id, stored) for stored in entries)
        return found

    @retry_on_disconnect
    def get_by_keys(
        self, namespace: NamespacePath, keys: Sequence[int], tiers: frozenset[Tier], filters: EntryFilters
    ) -> Mapping[int, StoredEntry]:
        """Return the existing entries that match the tiers and filters, by row key."""
        found: dict[int, StoredEntry] = {}
        conditions = (
            memories.c.namespace_pk == _select_namespace_pk(namespace),
            memories.c.tier.in_([tier.value for tier in tiers]),
        )
        query = SELECT_ENTRIES.where(*conditions, *_build_conditions(filters))
        with self._database.read() as connection:
            for batch in split_parameters(keys):
                rows = connection.execute(query.where(memories.c.pk.in_(batch)))
                found.update((row.pk, to_stored_entry(row, namespace)) for row in rows)
        return found

    @retry_on_disconnect
    def list_entries(
        self,
        namespace: NamespacePath,
        tier: Tier,
        filters: EntryFilters,
        *,
        before: int | None = None,
        limit: int,
    ) -> tuple[StoredEntry, ...]:
        """Return entries of a tier, newest first.

        Args:
            namespace: Namespace of the entries.
            tier: Tier of the entries.
            filters: Restrictions on the entries.
            before: Row key of the last entry of the previous page.
            limit: Maximum number of entries.
        """
        query = _filter_by_tier(SELECT_ENTRIES, namespace, tier).where(*_build_conditions(filters))
        if before is not None:
            query = query.where(memories.c.pk < before)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(memories.c.pk.desc()).limit(limit)).all()
        return tuple(to_stored_entry(row, namespace) for row in rows)

    @retry_on_disconnect
    def list_session_entries(
        self, namespace: NamespacePath, session_key: int, tier: Tier, *, limit: int
    ) -> tuple[StoredEntry, ...]:
        """Return the newest visible entries of a session and tier, sorted by turn."""
        query = (
            _filter_by_tier(SELECT_ENTRIES, namespace, tier)
            .where(memories.c.session_pk == session_key, memories.c.archived_at.is_(None))
            .order_by(memories.c.turn.desc(), memories.c.pk.desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        # The newest entries were selected; they are returned in the order of the conversation.
        return tuple(to_stored_entry(row, namespace) for row in reversed(rows))

    @retry_on_disconnect
    def count(self, namespace: NamespacePath, tier: Tier) -> int:
        """Return the number of entries of a tier that are not archived."""
        query = _filter_by_tier(select(func.count()), namespace, tier).where(memories.c.archived_at.is_(None))
        with self._database.read() as connection:
            return int(connection.execute(query).scalar_one())

    @retry_on_disconnect
    def list_relations(self, namespace: NamespacePath, ids: Sequence[str]) -> tuple[Relation, ...]:
        """Return the relations that start or end at the given entries, oldest first."""
        source, target = memories.alias("source"), memories.alias("target")
        query = (
            select(source.c.id.label("source"), target.c.id.label("target"))
            .add_columns(relations.c.kind, relations.c.strength, relations.c.created_at)
            .join(source, source.c.pk == relations.c.source_pk)
            .join(target, target.c.pk == relations.c.target_pk)
        )
        own = _select_namespace_pk(namespace)
        found: dict[tuple[str, str, str], Relation] = {}
        with self._database.read() as connection:
            for batch in split_parameters([escape(name) for name in ids]):
                # Two indexed queries instead of one with OR. A relation found from both ends is kept once, by its
                # names.
                for end in (source, target):
                    of_batch = query.where(end.c.namespace_pk == own, end.c.id.in_(batch))
                    for row in connection.execute(of_batch):
                        relation = Relation(
                            source=unescape(row.source),
                            target=unescape(row.target),
                            kind=unescape(row.kind),
                            strength=row.strength,
                            created_at=row.created_at,
                        )
                        found[relation.source, relation.target, relation.kind] = relation
        return tuple(
            sorted(
                found.values(),
                key=lambda relation: (relation.created_at, relation.source, relation.target, relation.kind),
            )
        )

    @retry_on_disconnect
    def list_connected(self, namespace: NamespacePath, entry_id: str, kind: str) -> tuple[StoredEntry, ...]:
        """Return an entry and all entries connected to it by relations of a kind, in either direction."""
        own = (memories.c.namespace_pk == _select_namespace_pk(namespace), memories.c.id == escape(entry_id))
        reached = select(memories.c.pk).where(*own).cte(recursive=True)
        is_source = relations.c.source_pk == reached.c.pk
        step = (
            select(case((is_source, relations.c.target_pk), else_=relations.c.source_pk))
            .join(reached, or_(is_source, relations.c.target_pk == reached.c.pk))
            .where(relations.c.kind == escape(kind))
        )
        # UNION removes duplicates, so the recursion ends even if the relations form a cycle.
        reached = reached.union(step)
        with self._database.read() as connection:
            rows = connection.execute(SELECT_ENTRIES.where(memories.c.pk.in_(select(reached.c.pk)))).all()
        return tuple(to_stored_entry(row, namespace) for row in rows)

    def touch(self, namespace: NamespacePath, accesses: Mapping[int, Access]) -> None:
        """Add uses to the access counts of entries, by row key. Entries that do not exist are ignored."""
        own = select(memories.c.pk, memories.c.last_access_at).where(
            memories.c.namespace_pk == _select_namespace_pk(namespace)
        )
        with self._database.write() as connection:
            _lock_namespace(connection, namespace)
            for batch in split_parameters(sorted(accesses)):
                of_batch = own.where(memories.c.pk.in_(batch)).order_by(memories.c.pk)
                rows = [
                    {
                        "of": row.pk,
                        "more": accesses[row.pk].count,
                        # A delayed write must not set the time back.
                        "last_at": max(row.last_access_at, accesses[row.pk].last_at),
                    }
                    for row in connection.execute(of_batch)
                ]
                if rows:
                    connection.execute(_RECORD_ACCESS, rows)

    def restore(self, namespace: NamespacePath, entry_id: str) -> bool:
        """Make an archived entry visible again. Return True if it was archived."""
        restoration = (
            update(memories)
            .where(
                memories.c.namespace_pk == _select_namespace_pk(namespace), memories.c.id == escape(entry_id)
            )
            .where(memories.c.archived_at.is_not(None))
            .values(archived_at=None)
        )
        with self._database.write() as connection:
            _lock_namespace(connection, namespace)
            return connection.execute(restoration).rowcount > 0

    def delete(self, namespace: NamespacePath, ids: Sequence[str]) -> int:
        """Delete entries with their relations, and return their number."""
        pk, erased = _select_namespace_pk(namespace), 0
        with self._database.write() as connection:
            _lock_namespace(connection, namespace)
            for batch in split_parameters([escape(name) for name in ids]):
                deletion = delete(memories).where(memories.c.namespace_pk == pk, memories.c.id.in_(batch))
                erased += connection.execute(deletion).rowcount
            if erased:
                # The new revision invalidates writes that were compared with a deleted entry.
                space = update(memory_namespaces).where(memory_namespaces.c.namespace_pk == pk)
                counts = {
                    "erasure_epoch": memory_namespaces.c.erasure_epoch + 1,
                    "revision": memory_namespaces.c.revision + 1,
                }
                connection.execute(space.values(counts))
        return erased

    @retry_on_disconnect
    def list_decay_candidates(
        self, namespace: NamespacePath, *, created_before: datetime, after: int, limit: int
    ) -> tuple[DecayCandidate, ...]:
        """Return long-term entries that are not archived and were created before a time, sorted by row key.

        Args:
            namespace: Namespace of the entries.
            created_before: Maximum creation time.
            after: Row key of the last candidate of the previous page.
            limit: Maximum number of entries.
        """
        columns = [getattr(memories.c, "pk" if name == "key" else name) for name in DecayCandidate._fields]
        query = (
            _filter_by_tier(select(*columns), namespace, Tier.LONG_TERM)
            .where(memories.c.archived_at.is_(None), memories.c.created_at < created_before)
            .where(memories.c.pk > after)
            .order_by(memories.c.pk)
            .limit(limit)
        )
        with self._database.read() as connection:
            return tuple(DecayCandidate(*row) for row in connection.execute(query))

    def archive(self, namespace: NamespacePath, keys: Sequence[int], now: datetime) -> tuple[int, int]:
        """Archive entries by row key. Return the number of newly archived entries, and their tokens."""
        with self._database.write() as connection:
            _lock_namespace(connection, namespace)
            return archive_entries(connection, _select_namespace_pk(namespace), sorted(keys), now)

    @retry_on_disconnect
    def get_consolidation_state(self, namespace: NamespacePath) -> Mapping[str, Any] | None:
        """Return the progress of an interrupted consolidation, or None."""
        query = select(memory_namespaces.c.consolidation).where(
            memory_namespaces.c.namespace_pk == _select_namespace_pk(namespace)
        )
        with self._database.read() as connection:
            stored = connection.execute(query).scalar()
        return None if stored is None else unpack_body(stored)

    def save_consolidation_state(self, namespace: NamespacePath, state: Mapping[str, Any] | None) -> None:
        """Store the progress of a consolidation. None removes it."""
        own = memory_namespaces.c.namespace_pk == _select_namespace_pk(namespace)
        value = None if state is None else pack_body(state)
        with self._database.write() as connection:
            connection.execute(update(memory_namespaces).where(own).values(consolidation=value))


def _lock_namespace(connection: Connection, namespace: NamespacePath) -> None:
    # All writers of entries lock the namespace first. Locking entries in different orders would deadlock.
    own = namespaces.c.path == build_namespace_key(namespace)
    connection.execute(select(namespaces.c.pk).where(own).with_for_update())


def _select_namespace_pk(namespace: NamespacePath) -> ScalarSelect[int]:
    return (
        select(namespaces.c.pk).where(namespaces.c.path == build_namespace_key(namespace)).scalar_subquery()
    )


def _filter_by_tier(
    query: Select[*tuple[Any, ...]], namespace: NamespacePath, tier: Tier
) -> Select[*tuple[Any, ...]]:
    return query.where(
        memories.c.namespace_pk == _select_namespace_pk(namespace), memories.c.tier == tier.value
    )


def _build_conditions(filters: EntryFilters) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if filters.kinds is not None:
        conditions.append(memories.c.kind.in_([escape(kind) for kind in filters.kinds]))
    if filters.categories is not None:
        conditions.append(memories.c.category.in_([escape(name) for name in filters.categories]))
    if filters.tags is not None:
        tag = memory_tags.c.tag.in_([escape(name) for name in filters.tags])
        conditions.append(exists().where(memory_tags.c.memory_pk == memories.c.pk, tag))
    if filters.sessions is not None:
        # The present name of the linked session, or the stored name of an entry without a linked
        # session.
        names = [escape(name) for name in filters.sessions]
        conditions.append(func.coalesce(sessions.c.name, memories.c.session).in_(names))
    if filters.since is not None:
        conditions.append(memories.c.created_at >= filters.since)
    if filters.until is not None:
        conditions.append(memories.c.created_at < filters.until)
    if filters.min_importance > 0:
        conditions.append(memories.c.importance >= filters.min_importance)
    return [*conditions, *_build_validity_conditions(filters)]


def _build_validity_conditions(filters: EntryFilters) -> list[ColumnElement[bool]]:
    moment, conditions = filters.valid_at, list[Any]()
    if filters.overlaps is not None:
        start, end = filters.overlaps
        conditions.append(or_(memories.c.valid_until.is_(None), memories.c.valid_until > start))
        if end is not None:
            conditions.append(memories.c.valid_from < end)
    if moment is not None:
        conditions.append(memories.c.valid_from <= moment)
        conditions.append(or_(memories.c.valid_until.is_(None), memories.c.valid_until > moment))
    if not filters.archived:
        is_shown = memories.c.archived_at.is_(None)
        # A view of the past includes entries that were archived later.
        conditions.append(is_shown if moment is None else or_(is_shown, memories.c.archived_at > moment))
    return conditions


_SELECT_STATE = (
    select(
        memory_namespaces.c.namespace_pk,
        memory_namespaces.c.revision,
        # Chunks and episodes are deleted with their sessions, which only the namespace's counter records.
        (memory_namespaces.c.erasure_epoch + namespaces.c.erasure_epoch).label("erased"),
    )
    .join(namespaces, namespaces.c.pk == memory_namespaces.c.namespace_pk)
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
        self, text_keys: Sequence[ItemTextKey], model: int
    ) -> Mapping[ItemTextKey, tuple[str, bytes | None]]:
        """Return texts that have not changed since their keys were read, each with its vector of the model or None."""
        of_model = and_(memory_vectors.c.memory_pk == memories.c.pk, memory_vectors.c.embedder_pk == model)
        query = select(memories.c.pk, memories.c.revision, memories.c.content, memory_vectors.c.vector)
        query = query.outerjoin(memory_vectors, of_model)
        keys = {(key.pk, key.revision): key for key in text_keys}
        found: dict[ItemTextKey, tuple[str, bytes | None]] = {}
        with self._database.read() as connection:
            for batch in split_parameters(sorted({key.pk for key in text_keys})):
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
