"""Puts what a namespace knows into a pool, among what is there already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, Tier, check_score
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError, StorageBusyError
from langmem_tiers.knowledge.models import Knowledge
from langmem_tiers.long_term.conflicts.resolution import settle
from langmem_tiers.long_term.entry_factory import made_after, made_entry, new_entry
from langmem_tiers.long_term.models import EntryDraft, EntryFilters, Outcome
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.pools.models import NewContribution, Origin
from langmem_tiers.recall.entry_search import Sought

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.conflicts.resolution import Settled
    from langmem_tiers.long_term.dependencies import LastingParts
    from langmem_tiers.long_term.entry_filters import DraftWords
    from langmem_tiers.long_term.models import Receipt
    from langmem_tiers.pools.models import PoolInfo, PoolStore

ALIKE = 48  # entries that a new one is compared with: those that share the most telling words
TRIES = 50  # each time somebody else has stored something meanwhile
LONG_TERM = frozenset({Tier.LONG_TERM})


@dataclass(frozen=True, slots=True)
class Given:
    """What is to be contributed."""

    draft: EntryDraft
    entry_id: str | None = None
    confidence: float = 1.0


def given_of(what: object, namespace: NamespacePath, confidence: float | None, about: DraftWords) -> Given:
    """What a caller handed in: a text, an entry of its own, or something it knows.

    Raises:
        InvalidInputError: It is none of these, or not the namespace's own.
    """
    if isinstance(what, str):
        return Given(EntryDraft(content=what, **_shared(about)), None, _sure(confidence, 1.0))
    if isinstance(what, Knowledge):
        told: DraftWords = {"category": what.category}
        draft = EntryDraft(content=what.told, **_shared({**told, **about}))
        return Given(draft, check_name(what.id, "id of knowledge"), _sure(confidence, what.confidence))
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
    return Given(_draft_of(what, about), what.id, _sure(confidence, 1.0))


def contribute(
    parts: LastingParts, store: PoolStore, pool: PoolInfo, namespace: NamespacePath, given: Given
) -> Receipt:
    """Put it into the pool. What somebody else said already is kept behind that, and shown once that is erased."""
    for _ in range(TRIES):
        now = parts.now()
        new = made_entry(parts, pool.namespace, given.draft, now)
        assert new.valid_from is not None  # noqa: S101 - of all that is made here
        meant = EntryFilters(meets=(new.valid_from, new.valid_until))
        sought = Sought(
            namespace=pool.namespace, text=new.content, tiers=LONG_TERM, filters=meant, limit=ALIKE
        )
        alike = parts.search.similar(sought)
        there = [one.entry for one in alike.found]
        new = made_after(new, given.draft, there)
        now = new.created_at
        settled = settle(new, there, now, importance=given.draft.importance, kin=parts.kin)
        origin = Origin(
            namespace=namespace,
            entry_id=given.entry_id,
            copied_at=now,
            confidence=given.confidence,
            ends_at=new.valid_until,
        )
        same_as = settled.receipt.duplicate_of
        if same_as is not None and _said_before(store, pool, same_as, origin):
            return _repeated(settled, there, "it was contributed before")
        write = _write(settled, new, alike.revision)
        kept = NewContribution(write=write, origin=origin, same_as=same_as)
        if store.contribute(pool.id, namespace, kept, now):
            if same_as is None:
                return settled.receipt
            return _repeated(settled, there, "it is kept behind what says so already")
    raise StorageBusyError("others contribute all the time: try again later; nothing was stored")


def refuse_copy(store: PoolStore, namespace: NamespacePath, entry_id: str) -> None:
    """Refuse what was synced from a pool: it is its contributor's to share, and to erase."""
    found = store.origins(namespace, [entry_id]).get(entry_id)
    if found:
        raise InvalidInputError(
            f"the entry {entry_id!r} was synced from a pool, where {found[0].namespace!r} contributed it: "
            "contribute what is your own, or say it in your own words"
        )


def own_entry(parts: LastingParts, namespace: NamespacePath, entry_id: str) -> Entry:
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


def _draft_of(entry: Entry, about: DraftWords) -> EntryDraft:
    as_it_is: DraftWords = {
        "kind": entry.kind,
        "category": entry.category,
        "tags": entry.tags,
        "importance": entry.importance,
        "valid_from": entry.valid_from,
        "valid_until": entry.valid_until,
    }
    return EntryDraft(content=entry.content, **_shared({**as_it_is, **about}))


def _shared(about: DraftWords) -> DraftWords:
    # In which session it was said is nobody else's business, nor the source unless it is named, which may say that.
    return {**about, "session": None}


def _sure(confidence: float | None, otherwise: float) -> float:
    return otherwise if confidence is None else check_score(confidence, "confidence")


def _said_before(store: PoolStore, pool: PoolInfo, entry_id: str, origin: Origin) -> bool:
    own = (origin.namespace, origin.entry_id)
    found = store.origins(pool.namespace, [entry_id]).get(entry_id, ())
    return any((one.namespace, one.entry_id) == own for one in found)


def _write(settled: Settled, new: Entry, revision: int) -> MemoryWrite:
    receipt = settled.receipt
    if receipt.outcome is Outcome.DUPLICATE:
        return MemoryWrite(put=(new_entry(new),), archive=(new.id,), revision=revision)
    assert receipt.entry is not None  # noqa: S101 - the new one
    return MemoryWrite(
        put=(new_entry(receipt.entry),), close=settled.close, relate=settled.relate, revision=revision
    )


def _repeated(settled: Settled, there: list[Entry], reason: str) -> Receipt:
    old = next(one for one in there if one.id == settled.receipt.duplicate_of)
    return replace(settled.receipt, entry=old, reason=reason)
