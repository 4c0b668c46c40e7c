"""Models of pools: memory shared by several namespaces, and the rights of the members.

Contributions are stored in a namespace of the pool. Its path begins with an empty label, which callers cannot use,
so its entries are reachable only through the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError, NotAllowedError, PoolNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping
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
