"""Models of pools: memory shared by several namespaces, the rights of the members, and the store interface.

Contributions are stored in a namespace of the pool. Its path begins with an empty label, which callers cannot use,
so its entries are reachable only through the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError, NotAllowedError, PoolNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.records import MemoryWrite, StoredEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInfo(Displayable):
    """Identity of a pool."""

    id: str
    name: str
    created_at: datetime

    @property
    def namespace(self) -> NamespacePath:
        """Internal namespace that contains the contributions."""
        return ("", "pools", self.id)


RIGHTS = ("can_read", "can_write", "is_owner")
"""Names of the rights that a member can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMember(Displayable):
    """A member of a pool and its rights.

    Args:
        namespace: Namespace of the member.
        can_read: True if it may query the pool and sync from it. Default: True.
        can_write: True if it may contribute. Default: True.
        is_owner: True if it may add and remove members and delete the pool. Default: False.
        joined_at: When it was added. A later change of rights keeps this time.
    """

    namespace: NamespacePath
    can_read: bool = True
    can_write: bool = True
    is_owner: bool = False
    joined_at: datetime

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        if not (self.can_read or self.can_write or self.is_owner):
            raise InvalidInputError(
                f"a member needs the right to read, write or own, got none for {self.namespace!r}: "
                "use pool.remove() to remove a member"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of a copy. If the original is erased, the copy is found through this record and erased, too."""

    namespace: NamespacePath
    """Namespace of the contributor."""
    entry_id: str | None = None
    """Id of the original: a long-term entry or knowledge. None for a text that was contributed directly."""
    copied_at: datetime
    confidence: float = 1.0
    """Confidence of the contributor, from 0 to 1."""
    ends_at: datetime | None = None
    """End of validity that the original itself has, independent of other contributions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributor(Displayable):
    """A namespace that contributed an entry."""

    namespace: NamespacePath
    contributed_at: datetime
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHit(Displayable):
    """An entry of a pool that matches a query."""

    entry: Entry
    score: float
    """Relevance, from 0 to 1."""
    contributors: tuple[Contributor, ...]
    """All namespaces that contributed this statement, the first contributor first."""

    @property
    def confidence(self) -> float:
        """Highest confidence of all contributors."""
        return max(contributor.confidence for contributor in self.contributors)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport(Displayable):
    """Result of a sync."""

    pool: str
    namespace: NamespacePath
    copied: tuple[Entry, ...] = ()
    """New entries in the namespace."""
    known: int = 0
    """Number of entries that the namespace already had."""
    own: int = 0
    """Number of entries that the namespace had contributed itself."""
    superseded: tuple[str, ...] = ()
    """Ids of the namespace's entries that are no longer valid because a new entry contradicts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolErasure(Displayable):
    """Number of records erased from pools and from the namespaces that synced them."""

    contributions: int = 0
    copies: int = 0
    """Entries that other namespaces had synced from the erased contributions."""
    memberships: int = 0
    pools: int = 0
    """Deleted pools that had no other member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewContribution:
    """A contribution to store."""

    write: MemoryWrite
    """Write of the pool's memory. It contains exactly one entry."""
    origin: Origin
    same_as: str | None = None
    """Id of an existing entry with the same statement. The new one stays hidden until that one is erased."""


@dataclass(frozen=True, slots=True)
class PoolUpdates:
    """Contributions that a member has not synced yet."""

    synced_revision: int
    """Revision up to which the member has synced."""
    latest_revision: int
    """Revision up to which the member has synced after it takes these entries."""
    entries: tuple[tuple[StoredEntry, Origin], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDelivery:
    """Copies of new pool entries for one member."""

    updates: PoolUpdates
    sources: tuple[int, ...]
    """Row keys of the copied pool entries. All of them must still exist."""
    write: MemoryWrite
    """Write of the member's memory."""
    origins: Mapping[str, Origin]
    """Origin of each written entry, by entry id."""


class PoolStore(Protocol):
    """Store of pools, their members, and the origins of contributions.

    Each change checks the rights in its own transaction. A member that is removed while it contributes has therefore
    either contributed before, or gets an error.
    """

    def create(self, pool: PoolInfo, members: Sequence[PoolMember]) -> None:
        """Create a pool.

        Raises:
            PoolExistsError: The name or id is the name or id of another pool; nothing was created.
        """
        ...

    def get(self, name: str) -> PoolInfo | None:
        """Return the pool with an id or, if there is none, with a name."""
        ...

    def list_pools(self, *, after: str | None, limit: int) -> tuple[PoolInfo, ...]:
        """Return pools sorted by name, starting after the given name."""
        ...

    def list_readable(self, namespace: NamespacePath) -> tuple[PoolInfo, ...]:
        """Return the pools that a namespace may read, sorted by name."""
        ...

    def list_members(self, pool_id: str) -> tuple[PoolMember, ...]:
        """Return all members, sorted by namespace.

        Raises:
            PoolNotFoundError: The pool does not exist.
        """
        ...

    def get_member(self, pool_id: str, namespace: NamespacePath) -> PoolMember | None:
        """Return a member, or None if the namespace is not one.

        Raises:
            PoolNotFoundError: The pool does not exist.
        """
        ...

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
        ...

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
        ...

    def delete(self, pool_id: str, *, by: NamespacePath | None) -> int:
        """Delete a pool and its contributions, and return their number. Synced copies stay.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: ``by`` is not an owner; nothing was changed.
        """
        ...

    def contribute(self, pool_id: str, namespace: NamespacePath, new: NewContribution, now: datetime) -> bool:
        """Store a contribution.

        Returns:
            False, with nothing changed, if the pool's memory has another revision than the one the write is based on.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: The namespace may not write to the pool.
            EntryNotFoundError: The contributed entry does not exist any more.
        """
        ...

    def get_origins(self, namespace: NamespacePath, ids: Sequence[str]) -> Mapping[str, tuple[Origin, ...]]:
        """Return the origins of entries by id, the first contributor first. The namespace's own entries have none."""
        ...

    def get_updates(
        self, pool_id: str, namespace: NamespacePath, now: datetime, *, limit: int
    ) -> PoolUpdates:
        """Return valid contributions since the member's last sync, oldest first.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: The namespace may not read the pool.
        """
        ...

    def deliver(self, pool_id: str, namespace: NamespacePath, delivery: PoolDelivery, now: datetime) -> bool:
        """Store copies in the member's memory and record how far it has synced.

        Returns:
            False, with nothing changed, if the member has synced meanwhile, its memory has changed, or one of the
            pool's entries was erased.

        Raises:
            PoolNotFoundError: The pool does not exist.
            NotAllowedError: The namespace may not read the pool.
        """
        ...

    def delete_namespace(self, namespace: NamespacePath) -> PoolErasure:
        """Delete all contributions of a namespace, the copies that others synced, and its memberships.

        If a pool loses its last owner, its oldest member becomes the owner. A pool without members is deleted.
        """
        ...

    def delete_entries(self, namespace: NamespacePath, ids: Sequence[str]) -> PoolErasure:
        """Delete the contributions of the given entries of a namespace, and the copies that others synced."""
        ...


def make_pool_not_found_error(name: str) -> PoolNotFoundError:
    """Create the error for a pool that does not exist."""
    return PoolNotFoundError(f"pool {name!r} does not exist: create it with engine.pools.create()")


def check_member(member: PoolMember | None, pool: str, namespace: NamespacePath, *, needs: str) -> PoolMember:
    """Return the member, or raise an error if it lacks a right.

    Args:
        member: Membership of the namespace, or None.
        pool: Name of the pool.
        namespace: Namespace that needs the right.
        needs: Required right: ``can_read``, ``can_write`` or ``is_owner``.

    Raises:
        NotAllowedError: The namespace is not a member, or lacks the right.
    """
    if member is not None and getattr(member, needs):
        return member
    if member is None:
        what = "is not a member of"
    else:
        what = {"can_read": "may not read", "can_write": "may not write to"}.get(needs, "does not own")
    # The suggested call names every right: an omitted one would be granted or revoked by its default.
    rights = ", ".join(f"{right}={right == needs or getattr(member, right, False)}" for right in RIGHTS)
    raise NotAllowedError(
        f"the namespace {namespace!r} {what} the pool {pool!r}: "
        f"let an owner call pool.add({namespace!r}, {rights}); nothing was read or changed"
    )
