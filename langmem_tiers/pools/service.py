"""Pools: memory that several namespaces share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Unpack

from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.long_term.conflicts.resolution import resolve_conflicts
from langmem_tiers.long_term.models import EntryFilters, Outcome, Receipt
from langmem_tiers.long_term.quarantine import quarantine_if_unsafe
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.long_term.rules import to_new_entry
from langmem_tiers.long_term.service import LongTerm
from langmem_tiers.pools.contribution import (
    MAX_SIMILAR_ENTRIES,
    POOL_TIERS,
    check_not_synced,
    contribute,
    require_own_entry,
    to_contribution_request,
)
from langmem_tiers.pools.models import (
    Contributor,
    PoolDelivery,
    PoolHit,
    PoolInfo,
    PoolMember,
    SyncReport,
    check_member,
    make_pool_not_found_error,
)
from langmem_tiers.recall.entry_search import EntrySearchRequest
from langmem_tiers.storage.retry_write import retry_on_conflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.knowledge.models import Knowledge
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.long_term.rules import DraftOptions, FilterOptions
    from langmem_tiers.pools.contribution import ContributionRequest
    from langmem_tiers.pools.models import Origin, PoolUpdates
    from langmem_tiers.pools.repository import PoolRepository
    from langmem_tiers.sessions.override_repository import OverrideRepository


_BATCH_SIZE = 100


@dataclass
class _Batch:
    """Content of one delivery while it is collected."""

    copied: list[tuple[Entry, Origin]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    close: dict[str, datetime] = field(default_factory=dict)
    relate: list[Relation] = field(default_factory=list)
    restore: list[str] = field(default_factory=list)
    revisions: set[int] = field(default_factory=set)
    known: int = 0
    own: int = 0


def sync_pool(
    dependencies: LongTermDependencies, store: PoolRepository, pool: PoolInfo, namespace: NamespacePath
) -> SyncReport:
    """Copy new entries to a member. Each is copied once, except the member's own contributions."""
    report, is_done = SyncReport(pool=pool.name, namespace=namespace), False

    def attempt_batch() -> tuple[SyncReport, bool] | None:
        now = dependencies.now()
        updates = store.get_updates(pool.id, namespace, now, limit=_BATCH_SIZE)
        # Nothing new, or nothing left.
        if updates.latest_revision == updates.synced_revision:
            return report, True
        batch = _compare_updates(dependencies, pool, namespace, updates, now)
        # Two revisions mean that the member's memory changed while the batch was compared: compare again.
        if len(batch.revisions) < 2 and store.deliver(
            pool.id, namespace, _build_delivery(updates, batch), now
        ):
            return _add_batch(report, batch), False
        return None

    while not is_done:
        report, is_done = retry_on_conflict(
            attempt_batch,
            f"concurrent writes to {namespace!r}: sync again later; it continues where it stopped",
        )
    return report


def _compare_updates(
    dependencies: LongTermDependencies,
    pool: PoolInfo,
    namespace: NamespacePath,
    updates: PoolUpdates,
    now: datetime,
) -> _Batch:
    # Compared with the member's memory, not with each other: that was done when they were contributed.
    batch = _Batch()
    for stored, origin in updates.entries:
        # Own contributions are already in the member's memory.
        if origin.namespace == namespace:
            batch.own += 1
            continue
        new = _copy_entry(dependencies, pool, namespace, stored, now)
        assert new.valid_from is not None  # noqa: S101 - every stored entry has one
        # With archived entries: a statement that the member has archived is restored, not copied again.
        filters = EntryFilters(overlaps=(new.valid_from, new.valid_until), archived=True)
        search = EntrySearchRequest(
            namespace=namespace,
            text=new.content,
            tiers=POOL_TIERS,
            filters=filters,
            limit=MAX_SIMILAR_ENTRIES,
        )
        similar = dependencies.search.find_similar(search)
        # The revision at which this entry was compared: the write is only valid if the memory has not changed since.
        batch.revisions.add(similar.revision)
        resolution = resolve_conflicts(
            new,
            [match.entry for match in similar.entries],
            now,
            kin=dependencies.word_similarity,
            is_copy=True,
        )
        batch.restore += resolution.restore
        if not resolution.receipt.is_stored:
            batch.known += 1
            continue
        assert resolution.receipt.entry is not None  # noqa: S101 - is_stored guarantees it
        batch.copied.append(
            (resolution.receipt.entry, replace(origin, copied_at=now, ends_at=stored.entry.valid_until))
        )
        batch.sources.append(stored.key)
        batch.relate += resolution.relate
        for name, until in resolution.close.items():
            # If several new entries end the same old one, the earliest end counts.
            batch.close[name] = min(until, batch.close.get(name, until))
    return batch


def _copy_entry(
    dependencies: LongTermDependencies,
    pool: PoolInfo,
    namespace: NamespacePath,
    stored: StoredEntry,
    now: datetime,
) -> Entry:
    return replace(
        # The copy has its own id and access counts, but keeps its content and validity.
        stored.entry,
        id=dependencies.new_id(),
        namespace=namespace,
        created_at=now,
        source=f"pool:{pool.name}",
        access_count=0,
        last_access_at=now,
    )


def _build_delivery(updates: PoolUpdates, batch: _Batch) -> PoolDelivery:
    return PoolDelivery(
        updates=updates,
        sources=tuple(batch.sources),
        write=MemoryWrite(
            put=tuple(to_new_entry(entry) for entry, _ in batch.copied),
            close=batch.close,
            relate=tuple(batch.relate),
            restore=tuple(dict.fromkeys(batch.restore)),
            revision=next(iter(batch.revisions), None),
        ),
        origins={entry.id: origin for entry, origin in batch.copied},
    )


def _add_batch(report: SyncReport, batch: _Batch) -> SyncReport:
    return replace(
        report,
        copied=(*report.copied, *(entry for entry, _ in batch.copied)),
        known=report.known + batch.known,
        own=report.own + batch.own,
        superseded=(*report.superseded, *batch.close),
    )


_PAGE_SIZE = 100


class Pools:
    """All pools of a database. Get it from ``engine.pools``.

    Code that has the engine may do everything, as with namespaces. A namespace may do what its membership allows:
    read, write, or own. If a method gets ``by``, it checks that this namespace owns the pool. Without ``by``, the
    application itself makes the request.
    """

    def __init__(
        self, dependencies: LongTermDependencies, overrides: OverrideRepository, store: PoolRepository
    ) -> None:
        self._dependencies = dependencies
        self._overrides = overrides
        self._store = store

    def create(
        self,
        name: str,
        *,
        members: Iterable[str | Iterable[str]] = (),
        owner: str | Iterable[str] | None = None,
    ) -> Pool:
        """Create a pool. The members may read and write; use ``pool.add`` to grant fewer rights.

        Args:
            name: Name, unique in the database. With several tenants, include the tenant in it.
            members: Namespaces of the members.
            owner: Namespace that may add and remove members. Default: the first member.

        Raises:
            PoolExistsError: A pool with this name exists.
            InvalidInputError: Neither a member nor an owner is given.
        """
        check_name(name, "pool name")
        if isinstance(members, str):
            raise InvalidInputError(
                f"members must be a list of namespaces, got {members!r}: use [{members!r}]"
            )
        paths = [check_namespace(member) for member in members]
        paths = paths if owner is None else [check_namespace(owner), *paths]
        if not paths:
            raise InvalidInputError(f"the pool {name!r} needs an owner: pass members=[...] or owner=...")
        now = self._dependencies.now()
        info = PoolInfo(id=self._dependencies.new_id(), name=name, created_at=now)
        pool_members = [
            PoolMember(namespace=path, is_owner=path == paths[0], joined_at=now)
            for path in dict.fromkeys(paths)
        ]
        self._store.create(info, pool_members)
        return self._build_pool(info)

    def get(self, name: str) -> Pool:
        """Return the pool with a name or id.

        Raises:
            PoolNotFoundError: The pool does not exist.
        """
        found = self._store.get(check_name(name, "pool name"))
        if found is None:
            raise make_pool_not_found_error(name)
        return self._build_pool(found)

    def of(self, namespace: str | Iterable[str]) -> tuple[Pool, ...]:
        """Return the pools that a namespace may read, sorted by name."""
        return tuple(self._build_pool(info) for info in self._store.list_readable(check_namespace(namespace)))

    def __iter__(self) -> Iterator[Pool]:
        after: str | None = None
        while page := self._store.list_pools(after=after, limit=_PAGE_SIZE):
            yield from (self._build_pool(info) for info in page)
            after = page[-1].name

    def _build_pool(self, info: PoolInfo) -> Pool:
        return Pool(self._dependencies, self._overrides, self._store, info)


class Pool:
    """A memory that its members share. Get it from ``engine.pools``.

    Attributes:
        id: Permanent id.
        name: Name of the pool.
        created_at: Creation time.
    """

    def __init__(
        self,
        dependencies: LongTermDependencies,
        overrides: OverrideRepository,
        store: PoolRepository,
        info: PoolInfo,
    ) -> None:
        self._dependencies = dependencies
        self._store = store
        self._info = info
        self._memory = LongTerm(dependencies, overrides, info.namespace)
        self.id: str = info.id
        self.name: str = info.name
        self.created_at: datetime = info.created_at

    def __repr__(self) -> str:
        return f"Pool({self.name!r})"

    def members(self) -> tuple[PoolMember, ...]:
        """Return all members with their rights, sorted by namespace."""
        return self._store.list_members(self.id)

    def add(
        self,
        namespace: str | Iterable[str],
        *,
        can_read: bool = True,
        can_write: bool = True,
        is_owner: bool = False,
        by: str | Iterable[str] | None = None,
    ) -> PoolMember:
        """Add a member, or replace the rights of an existing one.

        Args:
            namespace: Namespace of the member.
            can_read: True if it may query the pool and sync from it. Default: True.
            can_write: True if it may contribute. Default: True.
            is_owner: True if it may add and remove members and delete the pool. Default: False.
            by: Owner that requests the change. None: the application.

        Raises:
            NotAllowedError: ``by`` is not an owner, or the pool would lose its last owner.
        """
        member = PoolMember(
            namespace=check_namespace(namespace),
            can_read=can_read,
            can_write=can_write,
            is_owner=is_owner,
            joined_at=self._dependencies.now(),
        )
        return self._store.upsert_member(self.id, member, by=_check_actor(by))

    def contribute(
        self,
        namespace: str | Iterable[str],
        what: str | Entry | Knowledge,
        *,
        confidence: float | None = None,
        trusted: bool = False,
        **about: Unpack[DraftOptions],
    ) -> Receipt:
        """Share a copy of a text, an entry or knowledge with all members that may read the pool.

        A contradicting entry of the pool is superseded. If the pool already contains the statement, the contribution is
        stored as a hidden duplicate, and becomes visible when the existing entry is withdrawn or erased. Text that
        looks like a prompt injection or contains a secret is not stored in the pool: it is quarantined in the
        namespace's own ``facts``.

        Args:
            namespace: Contributor; it needs the right to write.
            what: A text, a long-term entry of the namespace, or knowledge of the namespace.
            confidence: Confidence from 0 to 1. Default: the confidence of the knowledge, 1 for anything else.
            trusted: Skip the check for prompt injections and secrets.
            **about: ``kind``, ``category``, ``tags``, ``importance``, ``source``, ``valid_from`` and ``valid_until``,
                as in ``EntryDraft``.

        Returns:
            The outcome and its reason. A contributor that may not read the pool learns only that the text is stored.

        Raises:
            NotAllowedError: The namespace may not write to the pool.
            InvalidInputError: The text is empty, belongs to another namespace, or was synced from a pool.
        """
        path = check_namespace(namespace)
        request = to_contribution_request(what, path, confidence, about)
        return self._contribute(self._require_member(path, "can_write"), request, trusted=trusted)

    def contribute_entry(
        self, namespace: str | Iterable[str], entry_id: str, *, confidence: float | None = None
    ) -> Receipt:
        """Share a copy of a long-term entry of the namespace, by its id.

        Raises:
            EntryNotFoundError: The entry does not exist.
            NotAllowedError: The namespace may not write to the pool.
            InvalidInputError: The entry was synced from a pool.
        """
        path = check_namespace(namespace)
        member = self._require_member(path, "can_write")
        entry = require_own_entry(self._dependencies, path, entry_id)
        return self._contribute(member, to_contribution_request(entry, path, confidence, {}), trusted=False)

    def query(
        self,
        namespace: str | Iterable[str],
        text: str,
        *,
        limit: int = 10,
        **which: Unpack[FilterOptions],
    ) -> tuple[PoolHit, ...]:
        """Return contributions that match a text by words or by meaning, best first.

        Args:
            namespace: Namespace that asks; it needs the right to read.
            text: A question or keywords.
            limit: Maximum number of results.
            **which: Filters, as in ``namespace.long_term.search``.

        Raises:
            NotAllowedError: The namespace may not read the pool.
        """
        self._require_member(check_namespace(namespace), "can_read")
        found = self._memory.search(text, limit=limit, **which)
        origins = self._store.get_origins(self._info.namespace, [entry.id for entry in found])
        return tuple(
            PoolHit(
                entry=entry,
                score=entry.relevance,
                contributors=tuple(map(_to_contributor, origins[entry.id])),
            )
            for entry in found
            if entry.id in origins  # it may have been erased since the search
        )

    def sync_to(self, namespace: str | Iterable[str]) -> SyncReport:
        """Copy new contributions since the last sync into the namespace's long-term memory.

        Each contribution is copied once. Statements that the namespace already has or has contributed itself are
        skipped. A copy supersedes entries that it contradicts, like any stored entry. Its ``source`` names the pool.

        Args:
            namespace: Member to copy to; it needs the right to read.

        Raises:
            NotAllowedError: The namespace may not read the pool.
        """
        return sync_pool(self._dependencies, self._store, self._info, check_namespace(namespace))

    def leave(self, namespace: str | Iterable[str], *, take_back: bool = False) -> int:
        """Remove a member at its own request. It keeps the copies that it has synced.

        Args:
            namespace: Member that leaves.
            take_back: True deletes its contributions. Copies that others have synced stay.

        Returns:
            Number of deleted contributions.

        Raises:
            NotAllowedError: The namespace is not a member, or is the only owner.
        """
        path = check_namespace(namespace)
        return self._store.remove_member(self.id, path, by=path, take_back=take_back)

    def remove(
        self,
        namespace: str | Iterable[str],
        *,
        take_back: bool = False,
        by: str | Iterable[str] | None = None,
    ) -> int:
        """Remove a member at the request of an owner or the application, as in ``leave``.

        Raises:
            NotAllowedError: The namespace is not a member or is the only owner, or ``by`` is not an owner.
        """
        path = check_namespace(namespace)
        return self._store.remove_member(self.id, path, by=_check_actor(by), take_back=take_back)

    def delete(self, *, by: str | Iterable[str] | None = None) -> int:
        """Delete the pool and its contributions, and return their number. Synced copies stay.

        Raises:
            NotAllowedError: ``by`` is not an owner.
        """
        return self._store.delete(self.id, by=_check_actor(by))

    def _require_member(self, namespace: NamespacePath, needs: str) -> PoolMember:
        return check_member(self._store.get_member(self.id, namespace), self.name, namespace, needs=needs)

    def _contribute(self, member: PoolMember, request: ContributionRequest, *, trusted: bool) -> Receipt:
        if request.entry_id is not None:
            check_not_synced(self._store, member.namespace, request.entry_id)
        if (
            # The namespace of the contributor, not the pool, keeps the quarantined text.
            not trusted
            and (quarantined := quarantine_if_unsafe(self._dependencies, member.namespace, request.draft))
            is not None
        ):
            return quarantined
        receipt = contribute(self._dependencies, self._store, self._info, member.namespace, request)
        return receipt if member.can_read else _build_redacted_receipt()


def _check_actor(by: str | Iterable[str] | None) -> NamespacePath | None:
    return None if by is None else check_namespace(by)


def _to_contributor(origin: Origin) -> Contributor:
    return Contributor(
        namespace=origin.namespace, contributed_at=origin.copied_at, confidence=origin.confidence
    )


def _build_redacted_receipt() -> Receipt:
    # A contributor without the right to read must not learn what others contributed. So the outcome is always "stored",
    # whether the pool already had the statement or something contradicted it.
    return Receipt(outcome=Outcome.STORED, reason="in the pool")


def erase_from_pools(store: PoolRepository, erased: ErasedIds) -> dict[str, int]:
    """Erase contributions of erased namespaces and entries from pools, with their synced copies.

    Args:
        store: Store of the pools.
        erased: Ids of everything that was erased.

    Returns:
        Number of erased contributions, copies and memberships by display name, without zeros.
    """
    erasures = [store.delete_namespace(path) for path in erased.namespaces]
    erasures += [store.delete_entries(path, ids) for path, ids in erased.entries.items() if ids]
    counts = {
        "pool contributions": sum(erasure.contributions for erasure in erasures),
        "pool copies": sum(erasure.copies for erasure in erasures),
        "pool memberships": sum(erasure.memberships for erasure in erasures),
    }
    return {kind: count for kind, count in counts.items() if count}
