"""Pools: knowledge shared by several namespaces, who may do what with it, and the contract of their store.

What was contributed lies in a namespace of the pool's own. It begins with an empty label, which no namespace of a
caller has, so nobody reaches it but through the pool.
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
    """A pool as it was created."""

    id: str
    name: str
    created_at: datetime

    @property
    def namespace(self) -> NamespacePath:
        """Where what was contributed lies."""
        return ("", "pools", self.id)


RIGHTS = ("can_read", "can_write", "is_owner")
"""What a member may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMember(Displayable):
    """A namespace in a pool, and what it may do there.

    Args:
        namespace: Which.
        can_read: Whether it may query the pool and sync from it.
        can_write: Whether it may contribute.
        is_owner: Whether it may add and remove members, and delete the pool.
        joined_at: When it was added; other rights leave that as it is.
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
                f"a member that may neither read nor write is none, got {self.namespace!r}: "
                "use pool.remove() to take it out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a copy comes from: whoever erases that finds the copy by it."""

    namespace: NamespacePath
    """Who contributed it."""
    entry_id: str | None = None
    """The id that it has there: of a long-term entry, or of something known; None where it was said as it is."""
    copied_at: datetime
    confidence: float = 1.0
    """How sure the contributor is of it."""
    ends_at: datetime | None = None
    """When it ceases to hold by itself, whatever else is contributed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributor(Displayable):
    """Who contributed something."""

    namespace: NamespacePath
    contributed_at: datetime
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHit(Displayable):
    """Something in a pool that answers a text."""

    entry: Entry
    score: float
    """How well, from 0 to 1."""
    contributors: tuple[Contributor, ...]
    """All who said so, the first one first."""

    @property
    def confidence(self) -> float:
        """How sure the surest of them is."""
        return max(one.confidence for one in self.contributors)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport(Displayable):
    """What a sync brought."""

    pool: str
    namespace: NamespacePath
    copied: tuple[Entry, ...] = ()
    """New entries of the namespace."""
    known: int = 0
    """How many it knew already."""
    own: int = 0
    """How many it had contributed itself."""
    superseded: tuple[str, ...] = ()
    """Ids of its entries that no longer hold because of what is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolErasure(Displayable):
    """What was erased from pools, and of what was copied from them."""

    contributions: int = 0
    copies: int = 0
    """Entries of other namespaces that were synced from those contributions."""
    memberships: int = 0
    pools: int = 0
    """Pools that had no other member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewContribution:
    """A contribution that is to be made."""

    write: MemoryWrite
    """With the entry, which is the only one put."""
    origin: Origin
    same_as: str | None = None
    """Id of the entry that says so already: the new one stands behind it, and is shown once that one is erased."""


@dataclass(frozen=True, slots=True)
class PoolUpdates:
    """What a member has not synced yet."""

    synced_revision: int
    """Up to where it had synced."""
    latest_revision: int
    """Up to where it has, once it takes these."""
    entries: tuple[tuple[StoredEntry, Origin], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDelivery:
    """Copies of what is new in a pool for one of its members."""

    updates: PoolUpdates
    sources: tuple[int, ...]
    """Keys of the pool's entries that are copied; all must be there still."""
    write: MemoryWrite
    """What is written into the member's memory."""
    origins: Mapping[str, Origin]
    """Of each entry that is put, by its id."""


class PoolStore(Protocol):
    """Keeps pools, their members, and where what was contributed comes from.

    Each change looks at the rights inside its own transaction. So whoever is removed while contributing did so before,
    or is refused.
    """

    def create(self, pool: PoolInfo, members: Sequence[PoolMember]) -> None:
        """Make a pool.

        Raises:
            PoolExistsError: Another has its name, or is called by it as id; nothing was made.
        """
        ...

    def get(self, name: str) -> PoolInfo | None:
        """The pool with that id, else the one with that name."""
        ...

    def list_pools(self, *, after: str | None, limit: int) -> tuple[PoolInfo, ...]:
        """Pools by their names, behind that name."""
        ...

    def list_readable(self, namespace: NamespacePath) -> tuple[PoolInfo, ...]:
        """The pools that a namespace may read, by their names."""
        ...

    def list_members(self, pool_id: str) -> tuple[PoolMember, ...]:
        """All members, in the order of their names.

        Raises:
            PoolNotFoundError: There is no such pool.
        """
        ...

    def get_member(self, pool_id: str, namespace: NamespacePath) -> PoolMember | None:
        """One member.

        Raises:
            PoolNotFoundError: There is no such pool.
        """
        ...

    def upsert_member(self, pool_id: str, member: PoolMember, *, by: NamespacePath | None) -> PoolMember:
        """Add a member, or give it other rights; the member as it is then, in the pool for as long as before.

        Args:
            pool_id: Where.
            member: Whom.
            by: Who asks for it, which must be an owner; None for whoever holds the store.

        Raises:
            PoolNotFoundError: There is no such pool.
            NotAllowedError: ``by`` is no owner, or no owner would be left; nothing was changed.
        """
        ...

    def remove_member(
        self, pool_id: str, namespace: NamespacePath, *, by: NamespacePath | None, take_back: bool
    ) -> int:
        """Take a member out; how many contributions went with it.

        Args:
            pool_id: From where.
            namespace: Whom.
            by: Who asks for it: the member itself or an owner; None for whoever holds the store.
            take_back: Whether what it contributed goes with it.

        Raises:
            PoolNotFoundError: There is no such pool.
            NotAllowedError: It is no member, ``by`` may not, or no owner would be left; nothing was changed.
        """
        ...

    def delete(self, pool_id: str, *, by: NamespacePath | None) -> int:
        """Erase a pool with all that was contributed; how much that was. What was synced stays where it is.

        Raises:
            PoolNotFoundError: There is no such pool.
            NotAllowedError: ``by`` is no owner; nothing was changed.
        """
        ...

    def contribute(self, pool_id: str, namespace: NamespacePath, new: NewContribution, now: datetime) -> bool:
        """Keep a contribution.

        Returns:
            False, with nothing changed, if the pool's memory is not at the revision that the write was made for.

        Raises:
            PoolNotFoundError: There is no such pool.
            NotAllowedError: The namespace may not write to it.
            EntryNotFoundError: What is contributed is not there any more.
        """
        ...

    def get_origins(self, namespace: NamespacePath, ids: Sequence[str]) -> Mapping[str, tuple[Origin, ...]]:
        """Where some entries of a namespace come from: all who said so, the first one first; none for its own."""
        ...

    def get_updates(
        self, pool_id: str, namespace: NamespacePath, now: datetime, *, limit: int
    ) -> PoolUpdates:
        """What was contributed since the member's last sync and has not ceased to hold, oldest first.

        Raises:
            PoolNotFoundError: There is no such pool.
            NotAllowedError: The namespace may not read it.
        """
        ...

    def deliver(self, pool_id: str, namespace: NamespacePath, delivery: PoolDelivery, now: datetime) -> bool:
        """Keep copies in the member's memory, and note how far it has synced.

        Returns:
            False, with nothing changed, if somebody else was faster: the member has synced meanwhile, its memory has
            changed, or one of the entries was erased.

        Raises:
            PoolNotFoundError: There is no such pool.
            NotAllowedError: The namespace may not read it.
        """
        ...

    def delete_namespace(self, namespace: NamespacePath) -> PoolErasure:
        """Erase all that a namespace contributed to any pool, what others synced of it, and its memberships.

        The oldest member owns a pool that has no other owner then; one without members goes.
        """
        ...

    def delete_entries(self, namespace: NamespacePath, ids: Sequence[str]) -> PoolErasure:
        """Erase contributions of some entries of a namespace, and what others synced of them."""
        ...


def make_pool_not_found_error(name: str) -> PoolNotFoundError:
    """What to raise for a pool that is not there."""
    return PoolNotFoundError(f"there is no pool {name!r}: make it with engine.pools.create()")


def check_member(member: PoolMember | None, pool: str, namespace: NamespacePath, *, needs: str) -> PoolMember:
    """The member, or an error if it has not the right that is named.

    Args:
        member: What the namespace is in the pool.
        pool: Its name.
        namespace: Who asks.
        needs: ``can_read``, ``can_write`` or ``is_owner``.
    """
    if member is not None and getattr(member, needs):
        return member
    if member is None:
        what = "is no member of"
    else:
        what = {"can_read": "may not read", "can_write": "may not write to"}.get(needs, "does not own")
    # All of them: one that is left out would be given or taken away by its default.
    rights = ", ".join(f"{right}={right == needs or getattr(member, right, False)}" for right in RIGHTS)
    raise NotAllowedError(
        f"the namespace {namespace!r} {what} the pool {pool!r}: "
        f"let an owner call pool.add({namespace!r}, {rights}); nothing was read or changed"
    )
