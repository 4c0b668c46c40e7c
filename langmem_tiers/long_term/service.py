"""Long-term memory: what was stored as an entry or promoted from a message, from all sessions of a namespace."""

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
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError, StorageBusyError
from langmem_tiers.facts.models import FactStateChangedError
from langmem_tiers.long_term.conflicts.resolution import resolve_conflicts
from langmem_tiers.long_term.entry_factory import align_start_time, build_entry, to_new_entry
from langmem_tiers.long_term.entry_filters import build_filters, check_filter_names, with_valid_at
from langmem_tiers.long_term.models import (
    EntryDraft,
    EntryFilters,
    Outcome,
    Receipt,
    Relation,
    RelationKind,
)
from langmem_tiers.long_term.quarantine import quarantine_if_unsafe
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.long_term.relation_traversal import walk_relations
from langmem_tiers.recall.entry_search import EntrySearchRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import EntryStore
    from langmem_tiers.display.tables import DisplayContent
    from langmem_tiers.long_term.conflicts.resolution import ConflictResolution
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.entry_filters import DraftOptions, FilterOptions
    from langmem_tiers.long_term.models import Related
    from langmem_tiers.long_term.records import FactMove, StoredEntry
    from langmem_tiers.sessions.models import LocatedItem

_PAGE_SIZE = 500
_MAX_SIMILAR_ENTRIES = 48  # entries that a new one is compared with: those that share the most telling words
_MAX_ATTEMPTS = 50  # each time somebody else has stored something meanwhile
LONG_TERM_TIERS = frozenset({Tier.LONG_TERM})


class LongTerm(NotebookDisplayable):
    """The long-term entries of a namespace. Get it from ``namespace.long_term``.

    An entry holds from ``valid_from`` until ``valid_until``. Storing one that contradicts another ends that one, and
    both stay in the history.
    """

    def __init__(self, parts: LongTermDependencies, promoted: EntryStore, namespace: NamespacePath) -> None:
        self._dependencies = parts
        self._store = parts.store
        self._entry_store = promoted
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
        """Remember something for long.

        What an entry in force says already is not stored twice. What contradicts one in force takes its place. What
        reads like an order to the model, or holds a secret, is kept aside until ``namespace.facts.promote`` is called.

        Args:
            content: What is to be remembered.
            trusted: Store it whatever it reads like.
            **about: ``kind``, ``category``, ``tags``, ``importance``, ``source``, ``session``, ``valid_from`` and
                ``valid_until``, as in ``EntryDraft``.

        Returns:
            What became of it, and why.

        Raises:
            InvalidInputError: It says nothing, or ``valid_until`` does not lie after ``valid_from``.
        """
        return self.put(EntryDraft(content=content, **about), trusted=trusted)

    def put(self, draft: EntryDraft, *, trusted: bool = False, moves: FactMove | None = None) -> Receipt:
        """The same for a draft."""
        if (
            not trusted
            and (aside := quarantine_if_unsafe(self._dependencies, self._namespace, draft)) is not None
        ):
            return aside
        for _ in range(_MAX_ATTEMPTS):
            now = self._dependencies.now()
            new = build_entry(self._dependencies, self._namespace, draft, now)
            assert new.valid_from is not None  # noqa: S101 - of all that is made here
            meant = EntryFilters(overlaps=(new.valid_from, new.valid_until), archived=True)
            alike = self._dependencies.search.find_similar(
                self._build_search(draft.content, meant, _MAX_SIMILAR_ENTRIES)
            )
            there = [one.entry for one in alike.entries]
            new = align_start_time(new, draft, there)
            now = new.created_at
            settled = resolve_conflicts(
                new, there, now, importance=draft.importance, kin=self._dependencies.word_similarity
            )
            if self._commit(settled, alike.revision, moves, now):
                entry = settled.receipt.entry
                self._record_accesses(
                    [one for one in alike.entries if entry is not None and one.entry.id == entry.id], now
                )
                return settled.receipt if moves is None else replace(settled.receipt, fact=moves.id)
            if moves is not None and self._has_moved(moves):
                raise FactStateChangedError(
                    f"the extracted fact {moves.id!r} was promoted or changed meanwhile"
                )
        raise StorageBusyError("others store entries all the time: try again later; nothing was stored")

    def _commit(
        self, settled: ConflictResolution, revision: int, moves: FactMove | None, now: datetime
    ) -> bool:
        receipt = settled.receipt
        assert receipt.entry is not None  # noqa: S101 - either the new one or the one that says so already
        if not receipt.is_stored and moves is None and not settled.restore and not settled.update:
            return True
        put = (receipt.entry,) if receipt.is_stored else settled.update
        write = MemoryWrite(
            put=tuple(map(to_new_entry, put)),
            close=settled.close,
            relate=settled.relate,
            restore=settled.restore,
            fact_moves=() if moves is None else (replace(moves, entry_id=receipt.entry.id),),
            revision=revision,
        )
        return self._store.commit(self._namespace, write, now)

    def store_many(
        self, drafts: Iterable[EntryDraft], *, compared: bool = False, trusted: bool = False
    ) -> tuple[Receipt, ...]:
        """Remember many things.

        Args:
            drafts: What is to be remembered, in the order in which it was learned.
            compared: They were compared before, such as entries of another memory: each is stored as it is, all in
                one transaction.
            trusted: Store them whatever they read like.
        """
        if not compared:
            return tuple(self.put(draft, trusted=trusted) for draft in drafts)
        now, receipts = self._dependencies.now(), list[Receipt]()
        for draft in drafts:
            aside = None if trusted else quarantine_if_unsafe(self._dependencies, self._namespace, draft)
            entry = (
                None if aside is not None else build_entry(self._dependencies, self._namespace, draft, now)
            )
            reason = "it was not compared"
            receipts.append(aside or Receipt(outcome=Outcome.STORED, reason=reason, entry=entry))
        new = tuple(to_new_entry(one.entry) for one in receipts if one.entry is not None)
        self._store.commit(self._namespace, MemoryWrite(put=new), now)
        return tuple(receipts)

    def get(self, entry_id: str) -> Entry | None:
        """One entry, in force or not. Looking at it counts as no use."""
        found = self._find(entry_id)
        return None if found is None else self._dependencies.access_counter.with_pending_accesses(found).entry

    def entries(
        self, *, limit: int = 100, before: str | None = None, **which: Unpack[FilterOptions]
    ) -> tuple[Entry, ...]:
        """Stored entries, the last stored first.

        Args:
            limit: How many at most.
            before: Id of the last one of the page before.
            **which: ``kinds``, ``categories``, ``tags``, ``valid_at``, ``since``, ``until``, ``min_importance``,
                ``sessions`` and ``archived``, as in ``EntryFilters``; those in force now, if ``valid_at`` is left out,
                and with ``valid_at=None`` whenever they held.
        """
        check_limit(limit)
        key = None if before is None else self._require(before).key
        page = self._store.list_entries(
            self._namespace, Tier.LONG_TERM, self._build_filters(which), before=key, limit=limit
        )
        return DisplayableTuple(
            self._dependencies.access_counter.with_pending_accesses(one).entry for one in page
        )

    def valid_at(
        self, moment: datetime, *, limit: int = 100, **which: Unpack[FilterOptions]
    ) -> tuple[Entry, ...]:
        """The entries that were in force at a time, the last stored first."""
        return self.entries(limit=limit, **with_valid_at(which, moment))

    def search(self, text: str, *, limit: int = 10, **which: Unpack[FilterOptions]) -> tuple[Entry, ...]:
        """Entries that answer a text by words or by meaning, the best first. Being found counts as a use.

        ``relevance`` of each says how well, from 0 to 1.
        """
        check_limit(limit)
        if not isinstance(text, str):
            raise InvalidInputError(f"search() takes words as a str, got a {type(text).__name__}")
        found = self._dependencies.search.find(self._build_search(text, self._build_filters(which), limit))
        self._record_accesses([one.stored for one in found], self._dependencies.now())
        seen = self._dependencies.access_counter.with_pending_accesses
        return DisplayableTuple(
            replace(seen(one.stored).entry, relevance=min(1.0, max(0.0, one.score))) for one in found
        )

    def history(self, entry_id: str) -> tuple[Entry, ...]:
        """The entry with those that it superseded and that superseded it, by when they held."""
        kept = self._require(entry_id)
        chain = self._store.list_connected(self._namespace, kept.entry.id, RelationKind.SUPERSEDES)
        entries = [self._dependencies.access_counter.with_pending_accesses(one).entry for one in chain]
        return tuple(
            sorted(entries, key=lambda one: (one.valid_from or one.created_at, one.created_at, one.id))
        )

    def relate(
        self,
        source: str,
        target: str,
        kind: str = RelationKind.RELATED_TO,
        *,
        strength: float = 1.0,
    ) -> Relation:
        """Say how one entry relates to another. What is superseded ceases to hold where the other begins.

        Raises:
            EntryNotFoundError: One of them is not there.
            InvalidInputError: One would supersede what supersedes it.
        """
        now = self._dependencies.now()
        relation = Relation(source=source, target=target, kind=kind, strength=strength, created_at=now)
        close = {}
        if kind == RelationKind.SUPERSEDES:  # then the other does not hold any more
            new, old = self._require(source).entry, self._require(target).entry
            until = max(new.valid_from or now, old.valid_from or now)
            if old.valid_until is None or old.valid_until > until:
                close = {target: until}
        self._store.commit(self._namespace, MemoryWrite(relate=(relation,), close=close), now)
        return relation

    def relations(self, entry_id: str) -> tuple[Relation, ...]:
        """The relations that begin or end at an entry, oldest first."""
        return self._store.list_relations(self._namespace, [self._require(entry_id).entry.id])

    def related(
        self, entry_id: str, *, depth: int = 1, kinds: Iterable[str] | None = None
    ) -> tuple[Related, ...]:
        """Entries that are reached over relations, either way, the nearest first; each once, whatever the cycles.

        Args:
            entry_id: Where to begin.
            depth: How many relations may lie between.
            kinds: Only over relations of these kinds.
        """
        check_limit(depth)
        allowed = check_filter_names(kinds, "relation")
        return DisplayableTuple(
            walk_relations(self._dependencies, self._namespace, self._require(entry_id), depth, allowed)
        )

    def close(self, entry_id: str, at: datetime | None = None) -> Entry:
        """Say that an entry does not hold any more; it stays in the history.

        Args:
            entry_id: Which.
            at: Since when; since now, if left out.

        Raises:
            InvalidInputError: That does not lie after the time from which on it held.
        """
        now = self._dependencies.now()
        entry, until = self._require(entry_id).entry, now if at is None else check_time(at)
        if entry.valid_from is not None and until <= entry.valid_from:
            raise build_interval_error(entry.valid_from, until)
        if entry.valid_until is not None and until > entry.valid_until:
            raise InvalidInputError(
                f"the entry {entry_id!r} ceased to hold on {entry.valid_until.isoformat()}, it cannot end later: "
                "store it anew if it holds again"
            )
        closed = replace(entry, valid_until=until)
        self._store.commit(self._namespace, MemoryWrite(close={entry_id: until}), now)
        return closed

    def archive(self, entry_id: str) -> None:
        """Show an entry no longer. It is kept, and ``restore`` brings it back."""
        write = MemoryWrite(archive=(self._require(entry_id).entry.id,))
        self._store.commit(self._namespace, write, self._dependencies.now())

    def restore(self, entry_id: str) -> bool:
        """Show an archived entry again; whether it was archived."""
        there = self._find(entry_id) is not None
        return there and self._store.restore(self._namespace, entry_id)

    def forget(self, entry_id: str) -> bool:
        """Erase an entry with its relations and vectors; whether it was there."""
        there = self._find(entry_id) is not None
        return there and self._store.delete(self._namespace, [entry_id]) > 0

    def latest(self, limit: int = 100) -> tuple[Entry, ...]:
        """The newest of all that is long-term and in force: stored entries, and messages that were promoted."""
        check_limit(limit)
        promoted = self._entry_store.list_promoted(self._namespace, before=None, limit=limit)
        both = (*self.entries(limit=limit), *(self._to_entry(one) for one in promoted))
        return DisplayableTuple(sorted(both, key=lambda one: one.created_at, reverse=True)[:limit])

    def __iter__(self) -> Iterator[Entry]:
        return heapq.merge(
            self._iterate_stored(), self._iterate_promoted(), key=lambda one: one.created_at, reverse=True
        )

    def _iterate_stored(self) -> Iterator[Entry]:
        now, before = EntryFilters(valid_at=self._dependencies.now()), None
        while page := self._store.list_entries(
            self._namespace, Tier.LONG_TERM, now, before=before, limit=_PAGE_SIZE
        ):
            yield from (self._dependencies.access_counter.with_pending_accesses(one).entry for one in page)
            before = page[-1].key

    def _iterate_promoted(self) -> Iterator[Entry]:
        before: int | None = None
        while page := self._entry_store.list_promoted(self._namespace, before=before, limit=_PAGE_SIZE):
            yield from (self._to_entry(one) for one in page)
            before = page[-1].item.key

    def _build_search(self, text: str, filters: EntryFilters, limit: int) -> EntrySearchRequest:
        return EntrySearchRequest(
            namespace=self._namespace, text=text, tiers=LONG_TERM_TIERS, filters=filters, limit=limit
        )

    def _build_filters(self, which: FilterOptions) -> EntryFilters:
        return build_filters(which, self._dependencies.now())

    def _record_accesses(self, kept: Iterable[StoredEntry], now: datetime) -> None:
        self._dependencies.access_counter.record(self._namespace, [one.key for one in kept], now)

    def _find(self, entry_id: str) -> StoredEntry | None:
        found = self._store.get(self._namespace, [check_name(entry_id, "entry id")]).get(entry_id)
        return None if found is None or found.entry.tier is not Tier.LONG_TERM else found

    def _require(self, entry_id: str) -> StoredEntry:
        found = self._find(entry_id)
        if found is None:
            raise EntryNotFoundError(
                f"{self!r} has no entry {entry_id!r}: use an id that store() or entries() gave"
            )
        return found

    def _has_moved(self, move: FactMove) -> bool:
        fact = self._store.get_fact(self._namespace, move.id)
        return fact is None or fact.state not in move.from_states

    def _to_entry(self, promoted: LocatedItem) -> Entry:
        item = promoted.item
        shown = item.get_overridden_message()
        return Entry(
            id=item.message.id,
            namespace=self._namespace,
            session=promoted.session,
            tier=item.tier,
            state=item.state,
            kind="message",
            role=item.message.role,
            content=shown.content,
            created_at=item.message.created_at,
            relevance=1.0,
            token_count=shown.token_count,
            reason="" if item.override is None else item.override.reason,
        )
