"""Puts what a namespace knows into a pool, among what is there already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, Tier, check_score
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError, StorageBusyError
from langmem_tiers.knowledge.models import Knowledge
from langmem_tiers.long_term.conflicts.resolution import resolve_conflicts
from langmem_tiers.long_term.entry_factory import align_start_time, build_entry, to_new_entry
from langmem_tiers.long_term.models import EntryDraft, EntryFilters, Outcome
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.pools.models import NewContribution, Origin
from langmem_tiers.recall.entry_search import EntrySearchRequest

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.conflicts.resolution import ConflictResolution
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.entry_filters import DraftOptions
    from langmem_tiers.long_term.models import Receipt
    from langmem_tiers.pools.models import PoolInfo, PoolStore

MAX_SIMILAR_ENTRIES = 48  # entries that a new one is compared with: those that share the most telling words
MAX_ATTEMPTS = 50  # each time somebody else has stored something meanwhile
POOL_TIERS = frozenset({Tier.LONG_TERM})


@dataclass(frozen=True, slots=True)
class ContributionRequest:
    """What is to be contributed."""

    draft: EntryDraft
    entry_id: str | None = None
    confidence: float = 1.0


def to_contribution_request(
    what: object, namespace: NamespacePath, confidence: float | None, about: DraftOptions
) -> ContributionRequest:
    """What a caller handed in: a text, an entry of its own, or something it knows.

    Raises:
        InvalidInputError: It is none of these, or not the namespace's own.
    """
    if isinstance(what, str):
        return ContributionRequest(
            EntryDraft(content=what, **_drop_session(about)), None, _resolve_confidence(confidence, 1.0)
        )
    if isinstance(what, Knowledge):
        told: DraftOptions = {"category": what.category}
        draft = EntryDraft(content=what.text, **_drop_session({**told, **about}))
        return ContributionRequest(
            draft, check_name(what.id, "id of knowledge"), _resolve_confidence(confidence, what.confidence)
        )
    if not isinstance(what, Entry):
        raise InvalidInputError(
            f"contribute() takes a text, an Entry or Knowledge, got a {type(what).__name__}: pass it as text"
        )
    if what.namespace != namespace:
        raise InvalidInputError(
            f"the entry {what.id!r} is of {what.namespace!r}, not of {namespace!r}: "
            "a namespace contributes what is its own"
        )
    if what.tier is not Tier.LONG_TERM or what.kind == "message":
        raise InvalidInputError(
            f"the entry {what.id!r} is a {what.kind} of the {what.tier} tier: contribute its text"
        )
    return ContributionRequest(_to_draft(what, about), what.id, _resolve_confidence(confidence, 1.0))


def contribute(
    parts: LongTermDependencies,
    store: PoolStore,
    pool: PoolInfo,
    namespace: NamespacePath,
    given: ContributionRequest,
) -> Receipt:
    """Put it into the pool. What somebody else said already is kept behind that, and shown once that is erased."""
    for _ in range(MAX_ATTEMPTS):
        now = parts.now()
        new = build_entry(parts, pool.namespace, given.draft, now)
        assert new.valid_from is not None  # noqa: S101 - of all that is made here
        meant = EntryFilters(overlaps=(new.valid_from, new.valid_until))
        sought = EntrySearchRequest(
            namespace=pool.namespace,
            text=new.content,
            tiers=POOL_TIERS,
            filters=meant,
            limit=MAX_SIMILAR_ENTRIES,
        )
        alike = parts.search.find_similar(sought)
        there = [one.entry for one in alike.entries]
        new = align_start_time(new, given.draft, there)
        now = new.created_at
        settled = resolve_conflicts(
            new, there, now, importance=given.draft.importance, kin=parts.word_similarity
        )
        origin = Origin(
            namespace=namespace,
            entry_id=given.entry_id,
            copied_at=now,
            confidence=given.confidence,
            ends_at=new.valid_until,
        )
        same_as = settled.receipt.duplicate_of
        if same_as is not None and _is_already_contributed(store, pool, same_as, origin):
            return _to_duplicate_receipt(settled, there, "it was contributed before")
        write = _build_write(settled, new, alike.revision)
        kept = NewContribution(write=write, origin=origin, same_as=same_as)
        if store.contribute(pool.id, namespace, kept, now):
            if same_as is None:
                return settled.receipt
            return _to_duplicate_receipt(settled, there, "it is kept behind what says so already")
    raise StorageBusyError("others contribute all the time: try again later; nothing was stored")


def check_not_synced(store: PoolStore, namespace: NamespacePath, entry_id: str) -> None:
    """Refuse what was synced from a pool: it is its contributor's to share, and to erase."""
    found = store.get_origins(namespace, [entry_id]).get(entry_id)
    if found:
        raise InvalidInputError(
            f"the entry {entry_id!r} was synced from a pool, where {found[0].namespace!r} contributed it: "
            "contribute what is your own, or say it in your own words"
        )


def require_own_entry(parts: LongTermDependencies, namespace: NamespacePath, entry_id: str) -> Entry:
    """A long-term entry of a namespace.

    Raises:
        EntryNotFoundError: It is not there.
    """
    found = parts.store.get(namespace, [check_name(entry_id, "entry id")]).get(entry_id)
    if found is None or found.entry.tier is not Tier.LONG_TERM:
        raise EntryNotFoundError(
            f"the namespace {namespace!r} has no long-term entry {entry_id!r}: use an id that store() gave"
        )
    return found.entry


def _to_draft(entry: Entry, about: DraftOptions) -> EntryDraft:
    as_it_is: DraftOptions = {
        "kind": entry.kind,
        "category": entry.category,
        "tags": entry.tags,
        "importance": entry.importance,
        "valid_from": entry.valid_from,
        "valid_until": entry.valid_until,
    }
    return EntryDraft(content=entry.content, **_drop_session({**as_it_is, **about}))


def _drop_session(about: DraftOptions) -> DraftOptions:
    # In which session it was said is nobody else's business, nor the source unless it is named, which may say that.
    return {**about, "session": None}


def _resolve_confidence(confidence: float | None, otherwise: float) -> float:
    return otherwise if confidence is None else check_score(confidence, "confidence")


def _is_already_contributed(store: PoolStore, pool: PoolInfo, entry_id: str, origin: Origin) -> bool:
    own = (origin.namespace, origin.entry_id)
    found = store.get_origins(pool.namespace, [entry_id]).get(entry_id, ())
    return any((one.namespace, one.entry_id) == own for one in found)


def _build_write(settled: ConflictResolution, new: Entry, revision: int) -> MemoryWrite:
    receipt = settled.receipt
    if receipt.outcome is Outcome.DUPLICATE:
        return MemoryWrite(put=(to_new_entry(new),), archive=(new.id,), revision=revision)
    assert receipt.entry is not None  # noqa: S101 - the new one
    return MemoryWrite(
        put=(to_new_entry(receipt.entry),), close=settled.close, relate=settled.relate, revision=revision
    )


def _to_duplicate_receipt(settled: ConflictResolution, there: list[Entry], reason: str) -> Receipt:
    old = next(one for one in there if one.id == settled.receipt.duplicate_of)
    return replace(settled.receipt, entry=old, reason=reason)
