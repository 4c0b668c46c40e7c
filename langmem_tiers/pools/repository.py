"""SQL storage of pools."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, delete, exists, func, insert, or_, select, update

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.namespaces import build_namespace_key, escape, parse_namespace_key, unescape
from langmem_tiers.errors import EntryNotFoundError, NotAllowedError, PoolExistsError
from langmem_tiers.items.repository import split_parameters
from langmem_tiers.knowledge.models import name_from_id
from langmem_tiers.long_term.rows import SELECT_ENTRIES, to_stored_entry
from langmem_tiers.long_term.writes import (
    StaleWriteError,
    apply_memory_write,
    require_entry_keys,
    run_memory_write,
)
from langmem_tiers.pools.copy_deletion import delete_contributions, delete_copies, lock_pools_of
from langmem_tiers.pools.models import (
    RIGHTS,
    Origin,
    PoolErasure,
    PoolInfo,
    PoolMember,
    PoolUpdates,
    check_member,
    make_pool_not_found_error,
)
from langmem_tiers.sessions.repository import get_or_create_namespace
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.driver_errors import ConcurrentWriteError
from langmem_tiers.storage.schema import (
    knowledge,
    memories,
    memory_namespaces,
    namespaces,
    origins,
    pool_members,
    pools,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.pools.models import NewContribution, PoolDelivery
    from langmem_tiers.sessions.message_sql import AnyRow
    from langmem_tiers.storage.database import Database


def lock_pool(connection: Connection, pool_id: str) -> AnyRow:
    """Lock a pool and return its row. The lock is held until the transaction ends.

    Raises:
        PoolNotFoundError: The pool does not exist.
    """
    query = select(pools).where(pools.c.id == escape(pool_id)).with_for_update()
    row = connection.execute(query).first()
    if row is None:
        raise make_pool_not_found_error(pool_id)
    return row


def find_member(connection: Connection, pool_pk: int, namespace: NamespacePath) -> PoolMember | None:
    """Return the membership of a namespace, or None. It cannot change while the pool is locked."""
    own = and_(pool_members.c.pool_pk == pool_pk, pool_members.c.namespace == build_namespace_key(namespace))
    row = connection.execute(select(pool_members).where(own)).first()
    return None if row is None else to_pool_member(row)


def check_owner(connection: Connection, pool: AnyRow, by: NamespacePath | None) -> None:
    """Raise an error if ``by`` is not an owner of the pool. None skips the check."""
    if by is not None:
        member = find_member(connection, pool.pk, by)
        check_member(member, unescape(pool.name), by, needs="is_owner")


def check_another_owner(connection: Connection, pool: AnyRow, excluded_namespace: NamespacePath) -> None:
    """Raise an error if the pool would have no owner left: then nobody could add members."""
    other_owners = (
        select(func.count())
        .select_from(pool_members)
        .where(pool_members.c.pool_pk == pool.pk, pool_members.c.is_owner)
        .where(pool_members.c.namespace != build_namespace_key(excluded_namespace))
    )
    if not connection.execute(other_owners).scalar_one():
        raise NotAllowedError(
            f"the namespace {excluded_namespace!r} is the only owner of the pool {unescape(pool.name)!r}: "
            "add another with pool.add(..., is_owner=True), or delete the pool; nothing was changed"
        )


def lock_origin(connection: Connection, origin: Origin) -> None:
    """Lock the original of a contribution, so that it cannot be erased before the transaction commits.

    Otherwise an erasure between the check and the commit would miss the new contribution.

    Raises:
        EntryNotFoundError: The original does not exist any more.
    """
    if origin.entry_id is None:
        return
    own = select(namespaces.c.pk).where(namespaces.c.path == build_namespace_key(origin.namespace))
    entry = select(memories.c.pk).where(
        memories.c.namespace_pk == own.scalar_subquery(), memories.c.id == escape(origin.entry_id)
    )
    found = connection.execute(entry.with_for_update(read=True, of=memories)).first()
    # An id with a "/" may also name knowledge.
    name = name_from_id(origin.entry_id)
    if found is None and name is not None:
        category, key = name
        known = select(knowledge.c.pk).where(
            knowledge.c.namespace_pk == own.scalar_subquery(),
            knowledge.c.category == escape(category),
            knowledge.c.key == escape(key),
        )
        found = connection.execute(known.with_for_update(read=True, of=knowledge)).first()
    if found is None:
        raise EntryNotFoundError(
            f"the namespace {origin.namespace!r} has no entry {origin.entry_id!r} to contribute: "
            "use an id returned by store() or recall(); nothing was contributed"
        )


def to_pool_info(row: AnyRow) -> PoolInfo:
    """Convert a row to a pool."""
    return PoolInfo(id=unescape(row.id), name=unescape(row.name), created_at=row.created_at)


def to_pool_member(row: AnyRow) -> PoolMember:
    """Convert a row to a member."""
    return PoolMember(
        namespace=parse_namespace_key(row.namespace),
        can_read=row.can_read,
        can_write=row.can_write,
        is_owner=row.is_owner,
        joined_at=row.joined_at,
    )


def to_rights_columns(member: PoolMember) -> dict[str, bool]:
    """Return the columns of a member's rights."""
    return {name: getattr(member, name) for name in RIGHTS}


def to_origin(row: AnyRow) -> Origin:
    """Convert a row to an origin. The query must label the origin's namespace ``origin``."""
    return Origin(
        namespace=parse_namespace_key(row.origin),
        entry_id=None if row.entry_id is None else unescape(row.entry_id),
        copied_at=row.copied_at,
        confidence=row.confidence,
        ends_at=row.ends_at,
    )


def to_origin_row(origin: Origin, memory_pk: int, same_as_pk: int | None = None) -> dict[str, Any]:
    """Convert an origin to a row."""
    return {
        "memory_pk": memory_pk,
        "namespace": build_namespace_key(origin.namespace),
        "entry_id": None if origin.entry_id is None else escape(origin.entry_id),
        "copied_at": origin.copied_at,
        "confidence": origin.confidence,
        "ends_at": origin.ends_at,
        "same_as_pk": same_as_pk,
    }


_MAKE_OWNER = (
    update(pool_members)
    .where(pool_members.c.pool_pk == bindparam("of"), pool_members.c.namespace == bindparam("who"))
    .values(is_owner=True)
)


def delete_from_pools(connection: Connection, namespace: NamespacePath) -> PoolErasure:
    """Apply ``PoolRepository.delete_namespace`` inside a transaction. Call it before any namespace is locked there."""
    locked = lock_pools_of(connection, namespace)
    contributions, copies = delete_copies(connection, namespace)
    own = pool_members.c.namespace == build_namespace_key(namespace)
    memberships = connection.execute(delete(pool_members).where(own)).rowcount
    has_members = exists().where(pool_members.c.pool_pk == pools.c.pk)
    empty = select(pools.c.pk).where(pools.c.pk.in_(locked), ~has_members)
    empty_pools = list(connection.execute(empty).scalars())
    delete_pools(connection, empty_pools)
    _make_oldest_owner(connection, locked)
    return PoolErasure(
        contributions=contributions, copies=copies, memberships=memberships, pools=len(empty_pools)
    )


def _make_oldest_owner(connection: Connection, keys: Sequence[int]) -> None:
    # For pools that lost their last owner: without one, nobody could add members.
    other_members = pool_members.alias()
    is_owned = exists().where(other_members.c.pool_pk == pool_members.c.pool_pk, other_members.c.is_owner)
    heirs: dict[int, str] = {}
    for batch in split_parameters(keys):
        members = select(pool_members).where(pool_members.c.pool_pk.in_(batch), ~is_owned)
        for row in connection.execute(members.order_by(pool_members.c.joined_at, pool_members.c.namespace)):
            heirs.setdefault(row.pool_pk, row.namespace)
    if heirs:
        rows = [{"of": pool, "who": path} for pool, path in heirs.items()]
        connection.execute(_MAKE_OWNER, rows)


def delete_pools(connection: Connection, keys: Sequence[int]) -> int:
    """Delete locked pools and return the number of their contributions."""
    own = select(pools.c.namespace_pk).where(pools.c.pk.in_(keys))
    contributions = select(func.count()).select_from(memories).where(memories.c.namespace_pk.in_(own))
    count = int(connection.execute(contributions).scalar_one())
    # Deletes the contributions as well, by the foreign keys.
    connection.execute(delete(namespaces).where(namespaces.c.pk.in_(own)))
    return count


def check_sources(connection: Connection, pool: AnyRow, sources: Sequence[int]) -> None:
    """Raise ``StaleWriteError`` if an entry to copy is not visible any more."""
    # The pool is locked, so entries that exist now cannot be erased before they are copied.
    for batch in split_parameters(sources):
        visible = (
            select(func.count())
            .select_from(memories)
            .where(memories.c.namespace_pk == pool.namespace_pk, memories.c.pk.in_(batch))
            .where(memories.c.archived_at.is_(None))
        )
        if connection.execute(visible).scalar_one() < len(batch):
            raise StaleWriteError("an entry was erased concurrently")


def insert_copies(
    connection: Connection, namespace: NamespacePath, delivery: PoolDelivery, now: datetime
) -> None:
    """Insert copies into a namespace, with their origins."""
    write = delivery.write
    if not (write.put or write.restore):
        return
    apply_memory_write(connection, namespace, write, now)
    if not delivery.origins:
        return
    own = select(namespaces.c.pk).where(namespaces.c.path == build_namespace_key(namespace))
    keys = require_entry_keys(connection, connection.execute(own).scalar_one(), list(delivery.origins))
    rows = [to_origin_row(origin, keys[name]) for name, origin in delivery.origins.items()]
    connection.execute(insert(origins), rows)


def build_member_condition(pool_pk: int, namespace: NamespacePath) -> ColumnElement[bool]:
    """Return the condition that selects a member's row."""
    return and_(pool_members.c.pool_pk == pool_pk, pool_members.c.namespace == build_namespace_key(namespace))


def to_member_row(pool_pk: int, member: PoolMember) -> dict[str, Any]:
    """Convert a new member to a row."""
    own = {
        "pool_pk": pool_pk,
        "namespace": build_namespace_key(member.namespace),
        "joined_at": member.joined_at,
    }
    return own | {"synced_revision": 0} | to_rights_columns(member)


_ORIGIN_COLUMNS = (
    origins.c.namespace.label("origin"),
    origins.c.entry_id,
    origins.c.copied_at,
    origins.c.confidence,
    origins.c.ends_at,
)


class PoolRepository:
    """Pools, their members, and the origins of contributions.

    Each change checks the rights in its own transaction. A member that is removed while it contributes has therefore
    either contributed before, or gets an error.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, pool: PoolInfo, members: Sequence[PoolMember]) -> None:
        """Create a pool.

        Raises:
            PoolExistsError: The name or id is the name or id of another pool; nothing was created.
        """
        name, pool_id = escape(pool.name), escape(pool.id)
        # get() accepts a name or an id, so a name must not equal another pool's id either.
        taken = exists().where(or_(pools.c.name.in_([name, pool_id]), pools.c.id.in_([name, pool_id])))
        try:
            with self._database.write() as connection:
                if connection.execute(select(taken)).scalar_one():
                    raise _make_pool_exists_error(pool.name)
                path = build_namespace_key(pool.namespace)
                row = {
                    "id": pool_id,
                    "name": name,
                    "namespace_pk": get_or_create_namespace(connection, path, pool.created_at),
                    "created_at": pool.created_at,
                }
                key = connection.execute(insert(pools).values(row).returning(pools.c.pk)).scalar_one()
                rows = [to_member_row(key, member) for member in members]
                connection.execute(insert(pool_members), rows)
        except ConcurrentWriteError:
            raise _make_pool_exists_error(pool.name) from None

    @retry_on_disconnect
    def get(self, name: str) -> PoolInfo | None:
        """Return the pool with an id or, if there is none, with a name."""
        escaped = escape(name)
        query = select(pools).where(or_(pools.c.id == escaped, pools.c.name == escaped))
        with self._database.read() as connection:
            # An id takes precedence over a name.
            found = connection.execute(query.order_by((pools.c.id == escaped).desc())).first()
        return None if found is None else to_pool_info(found)

    @retry_on_disconnect
    def list_pools(self, *, after: str | None, limit: int) -> tuple[PoolInfo, ...]:
        """Return pools sorted by name, starting after the given name."""
        query = select(pools).order_by(pools.c.name).limit(limit)
        if after is not None:
            query = query.where(pools.c.name > escape(after))
        with self._database.read() as connection:
            return tuple(to_pool_info(row) for row in connection.execute(query))

    @retry_on_disconnect
    def list_readable(self, namespace: NamespacePath) -> tuple[PoolInfo, ...]:
        """Return the pools that a namespace may read, sorted by name."""
        query = (
            select(pools)
            .join(pool_members, pool_members.c.pool_pk == pools.c.pk)
            .where(pool_members.c.namespace == build_namespace_key(namespace), pool_members.c.can_read)
            .order_by(pools.c.name)
        )
        with self._database.read() as connection:
            return tuple(to_pool_info(row) for row in connection.execute(query))

    @retry_on_disconnect
    def list_members(self, pool_id: str) -> tuple[PoolMember, ...]:
        """Return all members, sorted by namespace.

        Raises:
            PoolNotFoundError: The pool does not exist.
        """
        query = (
            select(pools.c.pk, pool_members)
            .outerjoin(pool_members, pool_members.c.pool_pk == pools.c.pk)
            .where(pools.c.id == escape(pool_id))
            .order_by(pool_members.c.namespace)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        # The outer join returns a row for every existing pool, so without rows the pool does not exist.
        if not rows:
            raise make_pool_not_found_error(pool_id)
        return tuple(to_pool_member(row) for row in rows if row.namespace is not None)

    def get_member(self, pool_id: str, namespace: NamespacePath) -> PoolMember | None:
        """Return a member, or None if the namespace is not one.

        Raises:
            PoolNotFoundError: The pool does not exist.
        """
        row = self._read_member_row(pool_id, namespace)
        return None if row.namespace is None else to_pool_member(row)

    def upsert_member(self, pool_id: str, member: PoolMember, *, by: NamespacePath | None) -> PoolMember:
        """Add a member or change its rights. Return it with its original joining time.

        Args:
            pool_id: Id of the pool.
            member: The member with its new rights.
            by: Namespace that requests the change; it must be an owner. None skips the check.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: ``by`` is not an owner, or the pool would lose its last owner; nothing was changed.
        """
        with self._database.write() as connection:
            pool = lock_pool(connection, pool_id)
            check_owner(connection, pool, by)
            before = find_member(connection, pool.pk, member.namespace)
            if before is None:
                connection.execute(insert(pool_members).values(to_member_row(pool.pk, member)))
                return member
            if before.is_owner and not member.is_owner:
                check_another_owner(connection, pool, member.namespace)
            own = build_member_condition(pool.pk, member.namespace)
            connection.execute(update(pool_members).where(own).values(to_rights_columns(member)))
            return replace(member, joined_at=before.joined_at)

    def remove_member(
        self, pool_id: str, namespace: NamespacePath, *, by: NamespacePath | None, take_back: bool
    ) -> int:
        """Remove a member. Return the number of its contributions that were deleted.

        Args:
            pool_id: Id of the pool.
            namespace: Namespace of the member.
            by: Namespace that requests the change: the member itself or an owner. None skips the check.
            take_back: True deletes the member's contributions.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: The namespace is not a member, ``by`` lacks the right, or the pool would have no owner;
                nothing was changed.
        """
        with self._database.write() as connection:
            pool = lock_pool(connection, pool_id)
            # Members may leave by themselves; removing another member takes an owner.
            if by != namespace:
                check_owner(connection, pool, by)
            deletion = delete(pool_members).where(build_member_condition(pool.pk, namespace))
            if (member := find_member(connection, pool.pk, namespace)) is None:
                check_member(None, unescape(pool.name), namespace, needs="can_read")
            elif member.is_owner:
                check_another_owner(connection, pool, namespace)
            connection.execute(deletion)
            return delete_contributions(connection, pool, namespace) if take_back else 0

    def delete(self, pool_id: str, *, by: NamespacePath | None) -> int:
        """Delete a pool and its contributions, and return their number. Synced copies stay.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: ``by`` is not an owner; nothing was changed.
        """
        with self._database.write() as connection:
            pool = lock_pool(connection, pool_id)
            check_owner(connection, pool, by)
            return delete_pools(connection, [pool.pk])

    def contribute(self, pool_id: str, namespace: NamespacePath, new: NewContribution, now: datetime) -> bool:
        """Store a contribution.

        Returns:
            False, with nothing changed, if the pool's memory has another revision than the one the write is based on.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: The namespace may not write to the pool.
            EntryNotFoundError: The contributed entry does not exist any more.
        """

        def work(connection: Connection) -> None:
            pool = lock_pool(connection, pool_id)
            member = find_member(connection, pool.pk, namespace)
            check_member(member, unescape(pool.name), namespace, needs="can_write")
            apply_memory_write(connection, to_pool_info(pool).namespace, new.write, now)
            (put,) = new.write.put
            ids = [put.entry.id] if new.same_as is None else [put.entry.id, new.same_as]
            keys = require_entry_keys(connection, pool.namespace_pk, ids)
            same_as = None if new.same_as is None else keys[new.same_as]
            row = to_origin_row(new.origin, keys[put.entry.id], same_as)
            connection.execute(insert(origins).values(row))
            # Last, because it takes locks in the contributor's namespace: the pool is always locked first.
            lock_origin(connection, new.origin)

        return run_memory_write(self._database, work)

    @retry_on_disconnect
    def get_origins(self, namespace: NamespacePath, ids: Sequence[str]) -> Mapping[str, tuple[Origin, ...]]:
        """Return the origins of entries by id, the first contributor first. The namespace's own entries have none."""
        own = (
            select(namespaces.c.pk)
            .where(namespaces.c.path == build_namespace_key(namespace))
            .scalar_subquery()
        )
        query = (
            select(memories.c.id, *_ORIGIN_COLUMNS)
            .join(origins, or_(origins.c.memory_pk == memories.c.pk, origins.c.same_as_pk == memories.c.pk))
            .where(memories.c.namespace_pk == own)
            .order_by(origins.c.memory_pk)
        )
        found: dict[str, tuple[Origin, ...]] = {}
        with self._database.read() as connection:
            for batch in split_parameters([escape(name) for name in ids]):
                for row in connection.execute(query.where(memories.c.id.in_(batch))):
                    name = unescape(row.id)
                    found[name] = (*found.get(name, ()), to_origin(row))
        return found

    @retry_on_disconnect
    def get_updates(
        self, pool_id: str, namespace: NamespacePath, now: datetime, *, limit: int
    ) -> PoolUpdates:
        """Return valid contributions since the member's last sync, oldest first.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: The namespace may not read the pool.
        """
        row = self._read_member_row(pool_id, namespace)
        member = None if row.namespace is None else to_pool_member(row)
        check_member(member, unescape(row.name), namespace, needs="can_read")
        is_open = or_(memories.c.valid_until.is_(None), memories.c.valid_until > now)
        query = (
            SELECT_ENTRIES.add_columns(*_ORIGIN_COLUMNS)
            .join(origins, origins.c.memory_pk == memories.c.pk)
            .where(memories.c.namespace_pk == row.namespace_pk, memories.c.tier == Tier.LONG_TERM.value)
            .where(memories.c.revision > row.synced_revision, memories.c.archived_at.is_(None), is_open)
            .order_by(memories.c.revision)
            .limit(limit)
        )
        # The latest revision is read first, and entries only up to it: an entry that is added between the two reads
        # must not be skipped by the next sync.
        latest = select(memory_namespaces.c.revision).where(
            memory_namespaces.c.namespace_pk == row.namespace_pk
        )
        with self._database.read() as connection:
            latest_revision = connection.execute(latest).scalar() or 0
            rows = connection.execute(query.where(memories.c.revision <= latest_revision)).all()
        content = ("", "pools", pool_id)
        entries = tuple((to_stored_entry(row, content), to_origin(row)) for row in rows)
        # A full page may not be the last one: the next sync continues after its last entry.
        return PoolUpdates(
            row.synced_revision, rows[-1].revision if len(rows) == limit else latest_revision, entries
        )

    def deliver(self, pool_id: str, namespace: NamespacePath, delivery: PoolDelivery, now: datetime) -> bool:
        """Store copies in the member's memory and record how far it has synced.

        Returns:
            False, with nothing changed, if the member has synced meanwhile, its memory has changed, or one of the
            pool's entries was erased.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: The namespace may not read the pool.
        """

        def work(connection: Connection) -> None:
            pool = lock_pool(connection, pool_id)
            member = find_member(connection, pool.pk, namespace)
            check_member(member, unescape(pool.name), namespace, needs="can_read")
            own = and_(
                build_member_condition(pool.pk, namespace),
                # Compare and set: fails if the member has synced since the updates were read.
                pool_members.c.synced_revision == delivery.updates.synced_revision,
            )
            progress = (
                update(pool_members).where(own).values(synced_revision=delivery.updates.latest_revision)
            )
            if not connection.execute(progress).rowcount:
                raise StaleWriteError("the member has synced concurrently")
            check_sources(connection, pool, delivery.sources)
            insert_copies(connection, namespace, delivery, now)

        return run_memory_write(self._database, work)

    def delete_namespace(self, namespace: NamespacePath) -> PoolErasure:
        """Delete all contributions of a namespace, the copies that others synced, and its memberships.

        If a pool loses its last owner, its oldest member becomes the owner. A pool without members is deleted.
        """
        with self._database.write() as connection:
            return delete_from_pools(connection, namespace)

    def delete_entries(self, namespace: NamespacePath, ids: Sequence[str]) -> PoolErasure:
        """Delete the contributions of the given entries of a namespace, and the copies that others synced."""
        with self._database.write() as connection:
            lock_pools_of(connection, namespace)
            contributions, copies = delete_copies(connection, namespace, ids)
        return PoolErasure(contributions=contributions, copies=copies)

    @retry_on_disconnect
    def _read_member_row(self, pool_id: str, namespace: NamespacePath) -> AnyRow:
        is_membership = and_(
            pool_members.c.pool_pk == pools.c.pk, pool_members.c.namespace == build_namespace_key(namespace)
        )
        query = select(pools.c.name, pools.c.namespace_pk, pool_members).outerjoin(
            pool_members, is_membership
        )
        with self._database.read() as connection:
            row = connection.execute(query.where(pools.c.id == escape(pool_id))).first()
        if row is None:
            raise make_pool_not_found_error(pool_id)
        return row


def _make_pool_exists_error(name: str) -> PoolExistsError:
    return PoolExistsError(
        f"pool {name!r} already exists: use another name, or engine.pools.get({name!r}); nothing was created"
    )
