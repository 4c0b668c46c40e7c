"""Changes of pools and of what is copied from them, inside a transaction that somebody else has opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, delete, exists, func, insert, select, update

from langmem_tiers.core.names import namespace_key
from langmem_tiers.core.pools import PoolErasure
from langmem_tiers.storage.item_writes import parts_of
from langmem_tiers.storage.memory_tables import memories
from langmem_tiers.storage.memory_writes import TooLateError, keys_of, write_all
from langmem_tiers.storage.pool_access import member_rights, origin_row
from langmem_tiers.storage.pool_erasing import erase_copies, lock_pools_of
from langmem_tiers.storage.pool_tables import origins, pool_members, pools
from langmem_tiers.storage.schema import namespaces

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.pools import PoolDelivery, PoolMember
    from langmem_tiers.storage.rows import AnyRow

_OWNS = (
    update(pool_members)
    .where(pool_members.c.pool_pk == bindparam("of"), pool_members.c.namespace == bindparam("who"))
    .values(is_owner=True)
)


def erase_from_pools(connection: Connection, namespace: NamespacePath) -> PoolErasure:
    """As ``PoolStore.erase_namespace``, inside a transaction; before any namespace is locked in it."""
    locked = lock_pools_of(connection, namespace)
    contributions, copies = erase_copies(connection, namespace)
    own = pool_members.c.namespace == namespace_key(namespace)
    memberships = connection.execute(delete(pool_members).where(own)).rowcount
    has_members = exists().where(pool_members.c.pool_pk == pools.c.pk)
    empty = select(pools.c.pk).where(pools.c.pk.in_(locked), ~has_members)
    left = list(connection.execute(empty).scalars())
    delete_pools(connection, left)
    _let_oldest_own(connection, locked)
    return PoolErasure(contributions=contributions, copies=copies, memberships=memberships, pools=len(left))


def _let_oldest_own(connection: Connection, keys: Sequence[int]) -> None:
    # Pools that lost their only owner, which nobody could add members to.
    others = pool_members.alias()
    is_owned = exists().where(others.c.pool_pk == pool_members.c.pool_pk, others.c.is_owner)
    heirs: dict[int, str] = {}
    for some in parts_of(keys):
        left = select(pool_members).where(pool_members.c.pool_pk.in_(some), ~is_owned)
        for row in connection.execute(left.order_by(pool_members.c.joined_at, pool_members.c.namespace)):
            heirs.setdefault(row.pool_pk, row.namespace)
    if heirs:
        rows = [{"of": pool, "who": path} for pool, path in heirs.items()]
        connection.execute(_OWNS, rows)


def delete_pools(connection: Connection, keys: Sequence[int]) -> int:
    """Erase pools that are locked; how many contributions they held."""
    own = select(pools.c.namespace_pk).where(pools.c.pk.in_(keys))
    held = select(func.count()).select_from(memories).where(memories.c.namespace_pk.in_(own))
    count = int(connection.execute(held).scalar_one())
    connection.execute(delete(namespaces).where(namespaces.c.pk.in_(own)))  # and all that is in them
    return count


def check_sources(connection: Connection, pool: AnyRow, sources: Sequence[int]) -> None:
    """Refuse to copy what is not shown any more."""
    # Nobody erases while the pool is locked: what is there now is copied before.
    for some in parts_of(sources):
        there = (
            select(func.count())
            .select_from(memories)
            .where(memories.c.namespace_pk == pool.namespace_pk, memories.c.pk.in_(some))
            .where(memories.c.archived_at.is_(None))
        )
        if connection.execute(there).scalar_one() < len(some):
            raise TooLateError("an entry was erased meanwhile")


def put_copies(
    connection: Connection, namespace: NamespacePath, delivery: PoolDelivery, now: datetime
) -> None:
    """Write copies into a namespace, with where they come from."""
    write = delivery.write
    if not (write.put or write.restore):
        return
    write_all(connection, namespace, write, now)
    if not delivery.origins:
        return
    own = select(namespaces.c.pk).where(namespaces.c.path == namespace_key(namespace))
    keys = keys_of(connection, connection.execute(own).scalar_one(), list(delivery.origins))
    rows = [origin_row(origin, keys[name]) for name, origin in delivery.origins.items()]
    connection.execute(insert(origins), rows)


def is_member(pool_pk: int, namespace: NamespacePath) -> ColumnElement[bool]:
    """What picks the row of a member."""
    return and_(pool_members.c.pool_pk == pool_pk, pool_members.c.namespace == namespace_key(namespace))


def member_row(pool_pk: int, member: PoolMember) -> dict[str, Any]:
    """The columns of a new member."""
    own = {"pool_pk": pool_pk, "namespace": namespace_key(member.namespace), "joined_at": member.joined_at}
    return own | {"synced": 0} | member_rights(member)
