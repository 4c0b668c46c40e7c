"""Long-term memory: stored entries and promoted messages from all sessions of a namespace."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from langmem_tiers.common.entries import Entry, Tier, build_interval_error
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.config import check_limit
from langmem_tiers.display.displayable import DisplayableTuple, NotebookDisplayable, build_list_display
from langmem_tiers.display.tables import MAX_TABLE_ROWS
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError
from langmem_tiers.facts.models import FactStateChangedError
from langmem_tiers.long_term.conflicts.resolution import resolve_conflicts
from langmem_tiers.long_term.models import (
    EntryDraft,
    EntryFilters,
    Outcome,
    Receipt,
    Related,
    Relation,
    RelationKind,
)
from langmem_tiers.long_term.quarantine import quarantine_if_unsafe
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.long_term.rules import (
    align_start_time,
    build_entry,
    build_filters,
    check_filter_names,
    to_new_entry,
    with_valid_at,
)
from langmem_tiers.recall.entry_search import EntrySearchRequest
from langmem_tiers.storage.retry_write import retry_on_conflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.display.tables import DisplayContent
    from langmem_tiers.long_term.conflicts.resolution import ConflictResolution
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.records import FactMove, StoredEntry
    from langmem_tiers.long_term.rules import DraftOptions, FilterOptions
    from langmem_tiers.sessions.models import LocatedItem
    from langmem_tiers.sessions.override_repository import OverrideRepository


MAX_REACHED_ENTRIES = 10_000
"""Maximum number of entries that one traversal returns."""


def walk_relations(
    dependencies: LongTermDependencies,
    namespace: NamespacePath,
    start: StoredEntry,
    depth: int,
    kinds: AbstractSet[str] | None,
) -> tuple[Related, ...]:
    """Return entries reachable over relations in either direction, nearest and strongest first.

    Each step takes two reads, however many entries it reaches.

    Args:
        dependencies: Stores to read from.
        namespace: Namespace of the entries.
        start: Entry to start from.
        depth: Maximum number of relations on the path.
        kinds: Follow only relations of these kinds. None means all.
    """
    store, visited = dependencies.store, {start.entry.id}
    paths: dict[str, tuple[Relation, ...]] = {start.entry.id: ()}
    reached: list[Related] = []
    step = 0
    while paths and step < depth and len(reached) < MAX_REACHED_ENTRIES:
        step += 1
        relations = [
            relation
            for relation in store.list_relations(namespace, sorted(paths))
            if kinds is None or relation.kind in kinds
        ]
        paths = _find_next_paths(paths, relations, visited)
        visited |= paths.keys()
        entries = store.get(namespace, sorted(paths))
        reached += sorted(
            (
                Related(
                    entry=dependencies.access_counter.with_pending_accesses(entries[name]).entry,
                    depth=step,
                    strength=_multiply_strengths(path),
                    path=path,
                )
                for name, path in paths.items()
                if name in entries
            ),
            # The id makes the order of equally strong entries deterministic.
            key=lambda related: (-related.strength, related.entry.id),
        )
    return tuple(reached[:MAX_REACHED_ENTRIES])


def _find_next_paths(
    paths: dict[str, tuple[Relation, ...]], relations: list[Relation], visited: set[str]
) -> dict[str, tuple[Relation, ...]]:
    # For each new entry, keep the strongest path. Entries of earlier steps are not visited again, so cycles end.
    found: dict[str, tuple[Relation, ...]] = {}
    for relation in relations:
        for entry, neighbor in ((relation.source, relation.target), (relation.target, relation.source)):
            if entry in paths and neighbor not in visited:
                path = (*paths[entry], relation)
                if neighbor not in found or _multiply_strengths(path) > _multiply_strengths(found[neighbor]):
                    found[neighbor] = path
    return found


def _multiply_strengths(path: tuple[Relation, ...]) -> float:
    strength = 1.0
    for relation in path:
        strength *= relation.strength
    return strength


_PAGE_SIZE = 500
_MAX_SIMILAR_ENTRIES = 48  # entries to compare a new one with: those that share the rarest words
LONG_TERM_TIERS = frozenset({Tier.LONG_TERM})


class LongTerm(NotebookDisplayable):
    """Long-term entries of a namespace. Get it from ``namespace.long_term``.

    An entry is valid from ``valid_from`` until ``valid_until``. Storing an entry that contradicts another one ends the
    validity of the other. Both stay in the history.
    """

    def __init__(
        self, dependencies: LongTermDependencies, overrides: OverrideRepository, namespace: NamespacePath
    ) -> None:
        self._dependencies = dependencies
        self._store = dependencies.store
        self._overrides = overrides
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"LongTerm({'/'.join(self._namespace)!r})"

    def _to_display(self) -> DisplayContent:
        return build_list_display(repr(self), self.latest(MAX_TABLE_ROWS), "the newest entries")

    def store(
        self,
        content: str,
        *,
        trusted: bool = False,
        **about: Unpack[DraftOptions],
    ) -> Receipt:
        """Store an entry.

        If a valid entry already says the same, nothing is stored twice. A valid entry that the new one contradicts is
        superseded. Text that looks like a prompt injection or contains a secret is quarantined until
        ``namespace.facts.promote`` is called.

        Args:
            content: Text to remember.
            trusted: Skip the check for prompt injections and secrets.
            **about: ``kind``, ``category``, ``tags``, ``importance``, ``source``, ``session``, ``valid_from`` and
                ``valid_until``, as in ``EntryDraft``.

        Returns:
            The outcome and its reason.

        Raises:
            InvalidInputError: The text is empty, or ``valid_until`` is not after ``valid_from``.
        """
        return self.put(EntryDraft(content=content, **about), trusted=trusted)

    def put(self, draft: EntryDraft, *, trusted: bool = False, moves: FactMove | None = None) -> Receipt:
        """Store a draft, as in ``store``.

        Args:
            draft: The entry to store.
            trusted: Skip the check for prompt injections and secrets.
            moves: State change of the extracted fact that the draft was made from. It happens in the same transaction.
        """
        if (
            not trusted
            and (quarantined := quarantine_if_unsafe(self._dependencies, self._namespace, draft)) is not None
        ):
            return quarantined
        # Optimistic: compare with the similar entries, then commit only if the memory still has the same revision.
        return retry_on_conflict(
            lambda: self._try_put(draft, moves),
            "concurrent writes to the same memory: try again later; nothing was stored",
        )

    def _try_put(self, draft: EntryDraft, moves: FactMove | None) -> Receipt | None:
        now = self._dependencies.now()
        new = build_entry(self._dependencies, self._namespace, draft, now)
        assert new.valid_from is not None  # noqa: S101 - build_entry always sets it
        # Archived entries count, too: repeating one restores it.
        filters = EntryFilters(overlaps=(new.valid_from, new.valid_until), archived=True)
        similar = self._dependencies.search.find_similar(
            self._build_search(draft.content, filters, _MAX_SIMILAR_ENTRIES)
        )
        existing = [match.entry for match in similar.entries]
        new = align_start_time(new, draft, existing)
        now = new.created_at
        resolution = resolve_conflicts(
            new, existing, now, importance=draft.importance, kin=self._dependencies.word_similarity
        )
        if self._commit(resolution, similar.revision, moves, now):
            entry = resolution.receipt.entry
            # A duplicate counts as a use of the entry that it repeats.
            self._record_accesses(
                [match for match in similar.entries if entry is not None and match.entry.id == entry.id],
                now,
            )
            return resolution.receipt if moves is None else replace(resolution.receipt, fact=moves.id)
        # The commit fails for a stale revision, which a retry solves, or for a fact that was moved, which it
        # does not.
        if moves is not None and self._has_moved(moves):
            raise FactStateChangedError(
                f"the extracted fact {moves.id!r} was promoted or changed by another process"
            )
        return None

    def _commit(
        self, resolution: ConflictResolution, revision: int, moves: FactMove | None, now: datetime
    ) -> bool:
        receipt = resolution.receipt
        assert receipt.entry is not None  # noqa: S101 - either the new entry or the one that it repeats
        # A plain duplicate changes nothing, so it needs no transaction.
        if not receipt.is_stored and moves is None and not resolution.restore and not resolution.update:
            return True
        put = (receipt.entry,) if receipt.is_stored else resolution.update
        write = MemoryWrite(
            put=tuple(map(to_new_entry, put)),
            close=resolution.close,
            relate=resolution.relate,
            restore=resolution.restore,
            fact_moves=() if moves is None else (replace(moves, entry_id=receipt.entry.id),),
            revision=revision,
        )
        return self._store.commit(self._namespace, write, now)

    def store_many(
        self, drafts: Iterable[EntryDraft], *, compared: bool = False, trusted: bool = False
    ) -> tuple[Receipt, ...]:
        """Store several entries.

        Args:
            drafts: Entries to store, in the order in which they were learned.
            compared: True if the drafts were compared before, for example because they come from another memory.
                They are then stored unchanged in one transaction. Default: False.
            trusted: Skip the check for prompt injections and secrets.
        """
        if not compared:
            return tuple(self.put(draft, trusted=trusted) for draft in drafts)
        now, receipts = self._dependencies.now(), list[Receipt]()
        for draft in drafts:
            quarantined = (
                None if trusted else quarantine_if_unsafe(self._dependencies, self._namespace, draft)
            )
            entry = (
                None
                if quarantined is not None
                else build_entry(self._dependencies, self._namespace, draft, now)
            )
            reason = "stored without comparison"
            receipts.append(quarantined or Receipt(outcome=Outcome.STORED, reason=reason, entry=entry))
        new = tuple(to_new_entry(receipt.entry) for receipt in receipts if receipt.entry is not None)
        self._store.commit(self._namespace, MemoryWrite(put=new), now)
        return tuple(receipts)

    def get(self, entry_id: str) -> Entry | None:
        """Return the entry with an id, valid or not, or None. This does not count as a use."""
        found = self._find(entry_id)
        return None if found is None else self._dependencies.access_counter.with_pending_accesses(found).entry

    def entries(
        self, *, limit: int = 100, before: str | None = None, **which: Unpack[FilterOptions]
    ) -> tuple[Entry, ...]:
        """Return stored entries, newest first.

        Args:
            limit: Maximum number of entries.
            before: Id of the last entry of the previous page.
            **which: ``kinds``, ``categories``, ``tags``, ``valid_at``, ``since``, ``until``, ``min_importance``,
                ``sessions`` and ``archived``, as in ``EntryFilters``. Without ``valid_at``, only entries that are valid
                now; with ``valid_at=None``, entries of any time.
        """
        check_limit(limit)
        key = None if before is None else self._require(before).key
        page = self._store.list_entries(
            self._namespace, Tier.LONG_TERM, self._build_filters(which), before=key, limit=limit
        )
        return DisplayableTuple(
            self._dependencies.access_counter.with_pending_accesses(stored).entry for stored in page
        )

    def valid_at(
        self, moment: datetime, *, limit: int = 100, **which: Unpack[FilterOptions]
    ) -> tuple[Entry, ...]:
        """Return the entries that were valid at a time, newest first."""
        return self.entries(limit=limit, **with_valid_at(which, moment))

    def search(self, text: str, *, limit: int = 10, **which: Unpack[FilterOptions]) -> tuple[Entry, ...]:
        """Return entries that match a text by words or by meaning, best first. Each result counts as a use.

        The ``relevance`` of each entry is its score, from 0 to 1.
        """
        check_limit(limit)
        if not isinstance(text, str):
            raise InvalidInputError(
                f"search() expects a str, got {type(text).__name__}: pass the words to search for"
            )
        found = self._dependencies.search.find(self._build_search(text, self._build_filters(which), limit))
        self._record_accesses([match.stored for match in found], self._dependencies.now())
        with_pending = self._dependencies.access_counter.with_pending_accesses
        return DisplayableTuple(
            replace(with_pending(match.stored).entry, relevance=min(1.0, max(0.0, match.score)))
            for match in found
        )

    def history(self, entry_id: str) -> tuple[Entry, ...]:
        """Return the entry with all entries that it superseded or that superseded it, by start of validity."""
        stored = self._require(entry_id)
        chain = self._store.list_connected(self._namespace, stored.entry.id, RelationKind.SUPERSEDES)
        entries = [
            self._dependencies.access_counter.with_pending_accesses(connected).entry for connected in chain
        ]
        return tuple(
            sorted(
                entries, key=lambda entry: (entry.valid_from or entry.created_at, entry.created_at, entry.id)
            )
        )

    def relate(
        self,
        source: str,
        target: str,
        kind: str = RelationKind.RELATED_TO,
        *,
        strength: float = 1.0,
    ) -> Relation:
        """Relate two entries. A superseded entry ends where the other one begins.

        Args:
            source: Id of the entry that the relation starts from, for example the superseding one.
            target: Id of the other entry, for example the superseded one.
            kind: A ``RelationKind`` or any other name.
            strength: Strength from 0 to 1. Default: 1.

        Raises:
            EntryNotFoundError: One of the entries does not exist.
            InvalidInputError: The target already supersedes the source.
        """
        now = self._dependencies.now()
        relation = Relation(source=source, target=target, kind=kind, strength=strength, created_at=now)
        close = {}
        if kind == RelationKind.SUPERSEDES:
            new, old = self._require(source).entry, self._require(target).entry
            # An entry cannot end before it starts.
            until = max(new.valid_from or now, old.valid_from or now)
            if old.valid_until is None or old.valid_until > until:
                close = {target: until}
        self._store.commit(self._namespace, MemoryWrite(relate=(relation,), close=close), now)
        return relation

    def relations(self, entry_id: str) -> tuple[Relation, ...]:
        """Return the relations that start or end at an entry, oldest first."""
        return self._store.list_relations(self._namespace, [self._require(entry_id).entry.id])

    def related(
        self, entry_id: str, *, depth: int = 1, kinds: Iterable[str] | None = None
    ) -> tuple[Related, ...]:
        """Return entries reachable over relations in either direction, nearest first.

        Each entry is returned once, even if the relations form cycles.

        Args:
            entry_id: Id of the entry to start from.
            depth: Maximum number of relations on the path. Default: 1.
            kinds: Follow only relations of these kinds. Default: all.
        """
        check_limit(depth)
        allowed = check_filter_names(kinds, "relation")
        return DisplayableTuple(
            walk_relations(self._dependencies, self._namespace, self._require(entry_id), depth, allowed)
        )

    def close(self, entry_id: str, at: datetime | None = None) -> Entry:
        """End the validity of an entry. It stays in the history.

        Args:
            entry_id: Id of the entry.
            at: End of the validity. Default: now.

        Raises:
            InvalidInputError: ``at`` is not after the start of the validity, or later than its present end.
        """
        now = self._dependencies.now()
        entry, until = self._require(entry_id).entry, now if at is None else check_time(at)
        if entry.valid_from is not None and until <= entry.valid_from:
            raise build_interval_error(entry.valid_from, until)
        if entry.valid_until is not None and until > entry.valid_until:
            raise InvalidInputError(
                f"the entry {entry_id!r} ended on {entry.valid_until.isoformat()} and cannot end later: "
                "store it again if it is valid again"
            )
        closed = replace(entry, valid_until=until)
        self._store.commit(self._namespace, MemoryWrite(close={entry_id: until}), now)
        return closed

    def archive(self, entry_id: str) -> None:
        """Archive an entry: hide it from results. ``restore`` makes it visible again."""
        write = MemoryWrite(archive=(self._require(entry_id).entry.id,))
        self._store.commit(self._namespace, write, self._dependencies.now())

    def restore(self, entry_id: str) -> bool:
        """Make an archived entry visible again. Return True if it was archived."""
        exists = self._find(entry_id) is not None
        return exists and self._store.restore(self._namespace, entry_id)

    def forget(self, entry_id: str) -> bool:
        """Delete an entry with its relations and vectors. Return True if it existed."""
        exists = self._find(entry_id) is not None
        return exists and self._store.delete(self._namespace, [entry_id]) > 0

    def latest(self, limit: int = 100) -> tuple[Entry, ...]:
        """Return the newest valid long-term memories: stored entries and promoted messages."""
        check_limit(limit)
        # The newest of each kind are enough: the newest of both are among them.
        promoted = self._overrides.list_promoted(self._namespace, before=None, limit=limit)
        both = (*self.entries(limit=limit), *(self._to_entry(located) for located in promoted))
        return DisplayableTuple(sorted(both, key=lambda entry: entry.created_at, reverse=True)[:limit])

    def __iter__(self) -> Iterator[Entry]:
        # Both are sorted by creation time, newest first, so merging them needs no list of all entries.
        return heapq.merge(
            self._iterate_stored_entries(),
            self._iterate_promoted_messages(),
            key=lambda entry: entry.created_at,
            reverse=True,
        )

    def _iterate_stored_entries(self) -> Iterator[Entry]:
        now, before = EntryFilters(valid_at=self._dependencies.now()), None
        while page := self._store.list_entries(
            self._namespace, Tier.LONG_TERM, now, before=before, limit=_PAGE_SIZE
        ):
            yield from (
                self._dependencies.access_counter.with_pending_accesses(stored).entry for stored in page
            )
            before = page[-1].key

    def _iterate_promoted_messages(self) -> Iterator[Entry]:
        before: int | None = None
        while page := self._overrides.list_promoted(self._namespace, before=before, limit=_PAGE_SIZE):
            yield from (self._to_entry(located) for located in page)
            before = page[-1].item.key

    def _build_search(self, text: str, filters: EntryFilters, limit: int) -> EntrySearchRequest:
        return EntrySearchRequest(
            namespace=self._namespace, text=text, tiers=LONG_TERM_TIERS, filters=filters, limit=limit
        )

    def _build_filters(self, which: FilterOptions) -> EntryFilters:
        return build_filters(which, self._dependencies.now())

    def _record_accesses(self, entries: Iterable[StoredEntry], now: datetime) -> None:
        self._dependencies.access_counter.record(self._namespace, [stored.key for stored in entries], now)

    def _find(self, entry_id: str) -> StoredEntry | None:
        found = self._store.get(self._namespace, [check_name(entry_id, "entry id")]).get(entry_id)
        return None if found is None or found.entry.tier is not Tier.LONG_TERM else found

    def _require(self, entry_id: str) -> StoredEntry:
        found = self._find(entry_id)
        if found is None:
            raise EntryNotFoundError(
                f"{self!r} has no entry {entry_id!r}: use an id returned by store() or entries()"
            )
        return found

    def _has_moved(self, move: FactMove) -> bool:
        fact = self._store.get_fact(self._namespace, move.id)
        return fact is None or fact.state not in move.from_states

    def _to_entry(self, promoted: LocatedItem) -> Entry:
        item = promoted.item
        message = item.get_overridden_message()
        return Entry(
            id=item.message.id,
            namespace=self._namespace,
            session=promoted.session,
            tier=item.tier,
            state=item.state,
            kind="message",
            role=item.message.role,
            content=message.content,
            created_at=item.message.created_at,
            relevance=1.0,
            token_count=message.token_count,
            reason="" if item.override is None else item.override.reason,
        )
