"""Rows of pools and members, and checks of rights inside a transaction of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, select

from langmem_tiers.common.namespaces import build_namespace_key, escape, parse_namespace_key, unescape
from langmem_tiers.errors import EntryNotFoundError, NotAllowedError
from langmem_tiers.knowledge.models import name_from_id
from langmem_tiers.pools.models import (
    RIGHTS,
    Origin,
    PoolInfo,
    PoolMember,
    check_member,
    make_pool_not_found_error,
)
from langmem_tiers.storage.schema import knowledge, memories, namespaces, pool_members, pools

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.message_rows import AnyRow


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


def check_another_owner(connection: Connection, pool: AnyRow, without: NamespacePath) -> None:
    """Raise an error if the pool would have no owner left: then nobody could add members."""
    other_owners = (
        select(func.count())
        .select_from(pool_members)
        .where(pool_members.c.pool_pk == pool.pk, pool_members.c.is_owner)
        .where(pool_members.c.namespace != build_namespace_key(without))
    )
    if not connection.execute(other_owners).scalar_one():
        raise NotAllowedError(
            f"the namespace {without!r} is the only owner of the pool {unescape(pool.name)!r}: "
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
            "use an id that store() or recall() gave; nothing was contributed"
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
