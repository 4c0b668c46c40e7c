"""A pool with helper methods for tests."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.entries import Entry, Tier
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.long_term.records import MemoryWrite, NewEntry
from langmem_tiers.pools.models import NewContribution, Origin, PoolDelivery, PoolInfo, PoolMember
from tests.contract.storage.base import NOW

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.long_term.repository import LongTermRepository
    from langmem_tiers.pools.models import PoolUpdates
    from langmem_tiers.pools.repository import PoolRepository

LATER = NOW + timedelta(hours=1)
ALL = EntryFilters(archived=True)


class Shared:
    """A pool with an owner and a member, and short ways to use it."""

    def __init__(self, pools: PoolRepository, memories: LongTermRepository, tenant: str) -> None:
        self.pools, self.memories = pools, memories
        self.owner: NamespacePath = (tenant, "owner")
        self.member: NamespacePath = (tenant, "member")
        self.info = PoolInfo(id=uuid.uuid4().hex, name=f"{tenant} pool", created_at=NOW)
        self.id = self.info.id
        pools.create(self.info, [member(self.owner, is_owner=True), member(self.member)])

    def give(self, namespace: NamespacePath, name: str, **more: Any) -> bool:
        """Contribute an entry of that id."""
        origin = Origin(namespace=namespace, entry_id=more.pop("entry_id", None), copied_at=NOW)
        same_as = more.pop("same_as", None)
        archive = () if same_as is None else (name,)
        valid_from = more.pop("valid_from", NOW)
        new = NewEntry(entry=entry(self.info.namespace, name, valid_from=valid_from), terms=name)
        write = MemoryWrite(put=(new,), archive=archive, **more)
        return self.pools.contribute(
            self.id, namespace, NewContribution(write=write, origin=origin, same_as=same_as), NOW
        )

    def take(self, namespace: NamespacePath, news: PoolUpdates) -> bool:
        """Copy all that is new."""
        copies = {f"copy of {kept.entry.id}": (kept, origin) for kept, origin in news.entries}
        delivery = PoolDelivery(
            updates=news,
            sources=tuple(kept.key for kept, _ in news.entries),
            write=MemoryWrite(
                put=tuple(NewEntry(entry=entry(namespace, name), terms=name) for name in copies)
            ),
            origins={name: origin for name, (_, origin) in copies.items()},
        )
        return self.pools.deliver(self.id, namespace, delivery, NOW)

    def news(self, namespace: NamespacePath, *, now: datetime = NOW, limit: int = 9) -> PoolUpdates:
        """What is new for a member."""
        return self.pools.get_updates(self.id, namespace, now, limit=limit)

    def sync(self, namespace: NamespacePath) -> list[str]:
        """Take all that is new; the ids."""
        news = self.news(namespace)
        assert self.take(namespace, news)
        return [kept.entry.id for kept, _ in news.entries]

    def list_stored(self, namespace: NamespacePath | None = None) -> dict[str, StoredEntry]:
        """All that is kept in the pool, or in a namespace."""
        where = self.info.namespace if namespace is None else namespace
        page = self.memories.list_entries(where, Tier.LONG_TERM, ALL, limit=10_000)
        return {stored_entry.entry.id: stored_entry for stored_entry in reversed(page)}

    def list_shown(self) -> list[str]:
        """Ids of what the pool shows."""
        in_force = EntryFilters(valid_at=LATER)
        page = self.memories.list_entries(self.info.namespace, Tier.LONG_TERM, in_force, limit=10_000)
        return sorted(stored_entry.entry.id for stored_entry in page)


def member(namespace: NamespacePath, **more: Any) -> PoolMember:
    """A member that may read and write."""
    return PoolMember(namespace=namespace, joined_at=more.pop("joined_at", NOW), **more)


def entry(namespace: NamespacePath, name: str, *, valid_from: datetime = NOW) -> Entry:
    """An entry that says its id."""
    return Entry(
        id=name,
        namespace=namespace,
        tier=Tier.LONG_TERM,
        kind="fact",
        content=name,
        created_at=NOW,
        valid_from=valid_from,
        last_access_at=NOW,
    )
