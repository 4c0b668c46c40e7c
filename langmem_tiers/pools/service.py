"""Pools: what several namespaces share, and nothing else of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.long_term.models import Outcome, Receipt
from langmem_tiers.long_term.quarantine import quarantine_if_unsafe
from langmem_tiers.long_term.service import LongTerm
from langmem_tiers.pools.contribution import (
    check_not_synced,
    contribute,
    require_own_entry,
    to_contribution_request,
)
from langmem_tiers.pools.models import (
    Contributor,
    PoolHit,
    PoolInfo,
    PoolMember,
    check_member,
    make_pool_not_found_error,
)
from langmem_tiers.pools.sync import sync_pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import EntryStore
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.knowledge.models import Knowledge
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.entry_filters import DraftOptions, FilterOptions
    from langmem_tiers.pools.contribution import ContributionRequest
    from langmem_tiers.pools.models import Origin, PoolStore, SyncReport

_PAGE_SIZE = 100


class Pools:
    """All pools of a database. Get it from ``engine.pools``.

    Whoever holds the engine may do everything, as with namespaces. A namespace may do what its membership allows:
    read, write, or own. Where a verb takes ``by``, it is checked that this namespace owns the pool; left out, it
    is the application that asks.
    """

    def __init__(self, parts: LongTermDependencies, promoted: EntryStore, store: PoolStore) -> None:
        self._dependencies = parts
        self._entry_store = promoted
        self._store = store

    def create(
        self,
        name: str,
        *,
        members: Iterable[str | Iterable[str]] = (),
        owner: str | Iterable[str] | None = None,
    ) -> Pool:
        """Make a pool. Its members may read and write; ``pool.add`` gives others less.

        Args:
            name: What it is called, by all who use the database: put the tenant into it, if there are several.
            members: Namespaces.
            owner: Who may add and remove members; the first member, if left out.

        Raises:
            PoolExistsError: There is one of that name.
            InvalidInputError: There is neither a member nor an owner.
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
        those = [
            PoolMember(namespace=path, is_owner=path == paths[0], joined_at=now)
            for path in dict.fromkeys(paths)
        ]
        self._store.create(info, those)
        return self._build_pool(info)

    def get(self, name: str) -> Pool:
        """The pool with that name or id.

        Raises:
            PoolNotFoundError: There is none.
        """
        found = self._store.get(check_name(name, "pool name"))
        if found is None:
            raise make_pool_not_found_error(name)
        return self._build_pool(found)

    def of(self, namespace: str | Iterable[str]) -> tuple[Pool, ...]:
        """The pools that a namespace may read, by their names."""
        return tuple(self._build_pool(info) for info in self._store.list_readable(check_namespace(namespace)))

    def __iter__(self) -> Iterator[Pool]:
        after: str | None = None
        while page := self._store.list_pools(after=after, limit=_PAGE_SIZE):
            yield from (self._build_pool(info) for info in page)
            after = page[-1].name

    def _build_pool(self, info: PoolInfo) -> Pool:
        return Pool(self._dependencies, self._entry_store, self._store, info)


class Pool:
    """What its members share. Get it from ``engine.pools``.

    Attributes:
        id: What tells it apart for ever.
        name: What it is called.
        created_at: Since when.
    """

    def __init__(
        self, parts: LongTermDependencies, promoted: EntryStore, store: PoolStore, info: PoolInfo
    ) -> None:
        self._dependencies = parts
        self._store = store
        self._info = info
        self._memory = LongTerm(parts, promoted, info.namespace)
        self.id: str = info.id
        self.name: str = info.name
        self.created_at: datetime = info.created_at

    def __repr__(self) -> str:
        return f"Pool({self.name!r})"

    def members(self) -> tuple[PoolMember, ...]:
        """Who is in it, in the order of their names, and what each may do."""
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
        """Let a namespace in, or give a member these rights in place of those it has.

        Args:
            namespace: Whom.
            can_read: Whether it may query and sync.
            can_write: Whether it may contribute.
            is_owner: Whether it may add and remove members, and delete the pool.
            by: The owner that asks for it.

        Raises:
            NotAllowedError: ``by`` is no owner, or none would be left.
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
        """Share a copy of something with all who may read the pool.

        What contradicts something in the pool takes its place. What the pool says already is kept behind that, and
        shown once that is taken back or erased. What reads like an order to the model, or holds a secret, does not
        get in: it is kept aside in the namespace's own ``facts``.

        Args:
            namespace: Who contributes it, which needs the right to write.
            what: A text, a long-term entry of the namespace, or something it knows.
            confidence: How sure it is of it, from 0 to 1; that of what is known, else 1, if left out.
            trusted: Take it whatever it reads like.
            **about: ``kind``, ``category``, ``tags``, ``importance``, ``source``, ``valid_from`` and ``valid_until``,
                as in ``EntryDraft``.

        Returns:
            What became of it, and why; for who may not read the pool, only that it is in it.

        Raises:
            NotAllowedError: The namespace may not write to the pool.
            InvalidInputError: It says nothing, is somebody else's, or was synced from a pool.
        """
        path = check_namespace(namespace)
        given = to_contribution_request(what, path, confidence, about)
        return self._contribute(self._require_member(path, "can_write"), given, trusted=trusted)

    def contribute_entry(
        self, namespace: str | Iterable[str], entry_id: str, *, confidence: float | None = None
    ) -> Receipt:
        """The same for a long-term entry of the namespace, by its id.

        Raises:
            EntryNotFoundError: There is none.
            NotAllowedError: The namespace may not write to the pool.
            InvalidInputError: It was synced from a pool.
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
        """What was contributed that answers a text by words or by meaning, the best first.

        Args:
            namespace: Who asks, which needs the right to read.
            text: A question, or words.
            limit: How many at most.
            **which: As in ``namespace.long_term.search``.

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
            if entry.id in origins  # or it was erased meanwhile
        )

    def sync_to(self, namespace: str | Iterable[str]) -> SyncReport:
        """Copy what is new since the last sync into the namespace's long-term memory, with the pool as its source.

        Each comes once, and none that the namespace knows already or has contributed itself. What contradicts
        something it knows takes the place of that, as with everything that is stored.

        Args:
            namespace: Whose memory, which needs the right to read.

        Raises:
            NotAllowedError: The namespace may not read the pool.
        """
        return sync_pool(self._dependencies, self._store, self._info, check_namespace(namespace))

    def leave(self, namespace: str | Iterable[str], *, take_back: bool = False) -> int:
        """Take a member out at its own wish. What it has synced it keeps.

        Args:
            namespace: Who leaves.
            take_back: Whether what it contributed leaves with it; what others have synced they keep.

        Returns:
            How many contributions were taken back.

        Raises:
            NotAllowedError: It is no member, or the only owner.
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
        """The same at the wish of an owner.

        Raises:
            NotAllowedError: It is no member or the only owner, or ``by`` is no owner.
        """
        path = check_namespace(namespace)
        return self._store.remove_member(self.id, path, by=_check_actor(by), take_back=take_back)

    def delete(self, *, by: str | Iterable[str] | None = None) -> int:
        """Erase the pool with all that was contributed; how much that was. What was synced stays where it is.

        Raises:
            NotAllowedError: ``by`` is no owner.
        """
        return self._store.delete(self.id, by=_check_actor(by))

    def _require_member(self, namespace: NamespacePath, needs: str) -> PoolMember:
        return check_member(self._store.get_member(self.id, namespace), self.name, namespace, needs=needs)

    def _contribute(self, member: PoolMember, given: ContributionRequest, *, trusted: bool) -> Receipt:
        if given.entry_id is not None:
            check_not_synced(self._store, member.namespace, given.entry_id)
        if (
            not trusted
            and (aside := quarantine_if_unsafe(self._dependencies, member.namespace, given.draft)) is not None
        ):
            return aside
        receipt = contribute(self._dependencies, self._store, self._info, member.namespace, given)
        return receipt if member.can_read else _build_redacted_receipt()


def _check_actor(by: str | Iterable[str] | None) -> NamespacePath | None:
    return None if by is None else check_namespace(by)


def _to_contributor(origin: Origin) -> Contributor:
    return Contributor(
        namespace=origin.namespace, contributed_at=origin.copied_at, confidence=origin.confidence
    )


def _build_redacted_receipt() -> Receipt:
    # Who may not read learns nothing of what others said, neither from what was there nor from what became of it.
    return Receipt(outcome=Outcome.STORED, reason="it is in the pool")


def erase_from_pools(store: PoolStore, erased: ErasedIds) -> dict[str, int]:
    """Erase from pools, and from what others synced of them, what came from something that is gone.

    Args:
        store: Where pools are kept.
        erased: What is gone.

    Returns:
        How many contributions, copies and memberships went.
    """
    done = [store.delete_namespace(path) for path in erased.namespaces]
    done += [store.delete_entries(path, ids) for path, ids in erased.entries.items() if ids]
    told = {
        "pool contributions": sum(one.contributions for one in done),
        "pool copies": sum(one.copies for one in done),
        "pool memberships": sum(one.memberships for one in done),
    }
    return {kind: count for kind, count in told.items() if count}
