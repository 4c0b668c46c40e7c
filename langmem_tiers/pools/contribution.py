"""Adds contributions to a pool and resolves conflicts with its entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, Tier, check_score
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError
from langmem_tiers.knowledge.models import Knowledge
from langmem_tiers.long_term.conflicts.resolution import resolve_conflicts
from langmem_tiers.long_term.models import EntryDraft, EntryFilters, Outcome
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.long_term.rules import align_start_time, build_entry, to_new_entry
from langmem_tiers.pools.models import NewContribution, Origin
from langmem_tiers.recall.entry_search import EntrySearchRequest
from langmem_tiers.storage.retry_write import retry_on_conflict

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.conflicts.resolution import ConflictResolution
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.models import Receipt
    from langmem_tiers.long_term.rules import DraftOptions
    from langmem_tiers.pools.models import PoolInfo
    from langmem_tiers.pools.repository import PoolRepository

MAX_SIMILAR_ENTRIES = 48  # entries to compare a new one with: those that share the rarest words
POOL_TIERS = frozenset({Tier.LONG_TERM})


@dataclass(frozen=True, slots=True)
class ContributionRequest:
    """A contribution before it is compared with the pool: draft, id of the original, and confidence."""

    draft: EntryDraft
    entry_id: str | None = None
    confidence: float = 1.0


def to_contribution_request(
    what: object, namespace: NamespacePath, confidence: float | None, about: DraftOptions
) -> ContributionRequest:
    """Convert an argument of ``contribute``: a text, an entry of the namespace, or knowledge.

    Raises:
        InvalidInputError: The argument has another type, or belongs to another namespace.
    """
    if isinstance(what, str):
        return ContributionRequest(
            EntryDraft(content=what, **_drop_session(about)), None, _resolve_confidence(confidence, 1.0)
        )
    if isinstance(what, Knowledge):
        defaults: DraftOptions = {"category": what.category}
        draft = EntryDraft(content=what.text, **_drop_session({**defaults, **about}))
        return ContributionRequest(
            draft, check_name(what.id, "id of knowledge"), _resolve_confidence(confidence, what.confidence)
        )
    if not isinstance(what, Entry):
        raise InvalidInputError(
            f"contribute() expects a str, an Entry or a Knowledge, got {type(what).__name__}: pass its text"
        )
    if what.namespace != namespace:
        raise InvalidInputError(
            f"the entry {what.id!r} belongs to {what.namespace!r}, not to {namespace!r}: "
            "a namespace can contribute only its own entries"
        )
    if what.tier is not Tier.LONG_TERM or what.kind == "message":
        raise InvalidInputError(
            f"the entry {what.id!r} is a {what.kind} of the {what.tier} tier: contribute its text"
        )
    return ContributionRequest(_to_draft(what, about), what.id, _resolve_confidence(confidence, 1.0))


def contribute(
    dependencies: LongTermDependencies,
    store: PoolRepository,
    pool: PoolInfo,
    namespace: NamespacePath,
    request: ContributionRequest,
) -> Receipt:
    """Add a contribution to the pool. If an entry with the same statement exists, add a hidden duplicate."""

    def attempt() -> Receipt | None:
        now = dependencies.now()
        new = build_entry(dependencies, pool.namespace, request.draft, now)
        assert new.valid_from is not None  # noqa: S101 - build_entry always sets it
        filters = EntryFilters(overlaps=(new.valid_from, new.valid_until))
        search = EntrySearchRequest(
            namespace=pool.namespace,
            text=new.content,
            tiers=POOL_TIERS,
            filters=filters,
            limit=MAX_SIMILAR_ENTRIES,
        )
        similar = dependencies.search.find_similar(search)
        existing = [match.entry for match in similar.entries]
        new = align_start_time(new, request.draft, existing)
        now = new.created_at
        resolution = resolve_conflicts(
            new, existing, now, importance=request.draft.importance, kin=dependencies.word_similarity
        )
        origin = Origin(
            namespace=namespace,
            entry_id=request.entry_id,
            copied_at=now,
            confidence=request.confidence,
            ends_at=new.valid_until,
        )
        same_as = resolution.receipt.duplicate_of
        # Contributing the same original twice must not add a second duplicate.
        if same_as is not None and _is_already_contributed(store, pool, same_as, origin):
            return _to_duplicate_receipt(resolution, existing, "already contributed")
        write = _build_write(resolution, new, similar.revision)
        contribution = NewContribution(write=write, origin=origin, same_as=same_as)
        # False: the pool changed since it was compared. Compare again with the new state.
        if store.contribute(pool.id, namespace, contribution, now):
            if same_as is None:
                return resolution.receipt
            return _to_duplicate_receipt(resolution, existing, "stored as a hidden duplicate")
        return None

    return retry_on_conflict(
        attempt,
        "concurrent contributions to the same pool: try again later; nothing was stored",
    )


def check_not_synced(store: PoolRepository, namespace: NamespacePath, entry_id: str) -> None:
    """Raise an error if an entry was synced from a pool: only its contributor may share it and erase it."""
    found = store.get_origins(namespace, [entry_id]).get(entry_id)
    if found:
        raise InvalidInputError(
            f"the entry {entry_id!r} was synced from a pool, where {found[0].namespace!r} contributed it: "
            "contribute entries of your own, or pass a text in your own words"
        )


def require_own_entry(dependencies: LongTermDependencies, namespace: NamespacePath, entry_id: str) -> Entry:
    """Return a long-term entry of a namespace.

    Raises:
        EntryNotFoundError: The entry does not exist.
    """
    found = dependencies.store.get(namespace, [check_name(entry_id, "entry id")]).get(entry_id)
    if found is None or found.entry.tier is not Tier.LONG_TERM:
        raise EntryNotFoundError(
            f"the namespace {namespace!r} has no long-term entry {entry_id!r}: use an id returned by store()"
        )
    return found.entry


def _to_draft(entry: Entry, about: DraftOptions) -> EntryDraft:
    defaults: DraftOptions = {
        "kind": entry.kind,
        "category": entry.category,
        "tags": entry.tags,
        "importance": entry.importance,
        "valid_from": entry.valid_from,
        "valid_until": entry.valid_until,
    }
    return EntryDraft(content=entry.content, **_drop_session({**defaults, **about}))


def _drop_session(about: DraftOptions) -> DraftOptions:
    # The session and source are private to the contributor, so an entry's are not copied. A caller may pass a source.
    return {**about, "session": None}


def _resolve_confidence(confidence: float | None, otherwise: float) -> float:
    return otherwise if confidence is None else check_score(confidence, "confidence")


def _is_already_contributed(store: PoolRepository, pool: PoolInfo, entry_id: str, origin: Origin) -> bool:
    own = (origin.namespace, origin.entry_id)
    found = store.get_origins(pool.namespace, [entry_id]).get(entry_id, ())
    return any((found_origin.namespace, found_origin.entry_id) == own for found_origin in found)


def _build_write(resolution: ConflictResolution, new: Entry, revision: int) -> MemoryWrite:
    receipt = resolution.receipt
    # A duplicate is stored archived, so it is hidden until the entry before it is erased.
    if receipt.outcome is Outcome.DUPLICATE:
        return MemoryWrite(put=(to_new_entry(new),), archive=(new.id,), revision=revision)
    assert receipt.entry is not None  # noqa: S101 - a stored entry
    return MemoryWrite(
        put=(to_new_entry(receipt.entry),),
        close=resolution.close,
        relate=resolution.relate,
        revision=revision,
    )


def _to_duplicate_receipt(resolution: ConflictResolution, existing: list[Entry], reason: str) -> Receipt:
    old = next(entry for entry in existing if entry.id == resolution.receipt.duplicate_of)
    return replace(resolution.receipt, entry=old, reason=reason)
