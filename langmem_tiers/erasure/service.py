"""Forgetting: what waits is stored, then rows go, each step whole by itself, then copies elsewhere, then the bytes.

Whoever stops in the middle forgets the same again: what is gone is passed over, what is left goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.common.archived_session_names import aside_start, was_set_aside
from langmem_tiers.erasure.erasure_plan import (
    removal_of_entry,
    removal_of_messages,
    removal_of_sessions,
    whole_groups,
)
from langmem_tiers.erasure.imported_contexts import STRIPPED
from langmem_tiers.erasure.models import Erased, ErasedCounts, ErasureReceipt, Scrubbed
from langmem_tiers.erasure.scrub import WipeOwed
from langmem_tiers.errors import LangmemTiersError, StorageBusyError, StorageError
from langmem_tiers.knowledge.models import id_from_name
from langmem_tiers.long_term.conflicts.resolution import let_go
from langmem_tiers.sessions.pending_writes import flush_all
from langmem_tiers.tasks.journal import NOTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasureRequest
    from langmem_tiers.erasure.records import Place, Removal, SessionName, Touched
    from langmem_tiers.services import MemoryParts

_TRIES = 50  # each time somebody else has written what it goes by


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What is gone from the rows of the database."""

    counts: ErasedCounts = field(default_factory=ErasedCounts)
    erased: Erased = field(default_factory=Erased)
    remade: int = 0

    def __add__(self, other: Gone) -> Gone:
        return Gone(
            counts=self.counts + other.counts,
            erased=self.erased + other.erased,
            remade=self.remade + other.remade,
        )


def forget(parts: MemoryParts, request: ErasureRequest, *, scrub: bool) -> ErasureReceipt:
    """Erase what is asked for, everywhere.

    Args:
        parts: The stores and workers.
        request: What.
        scrub: Whether the bytes are wiped too.
    """
    now = parts.now()
    waiting = _stored(parts, request)
    owed = WipeOwed(parts)
    owed.note()
    gone = _rows(parts, request)
    let_go_of(parts, gone.erased)
    elsewhere, left = _elsewhere(parts, gone.erased)
    stripped = ErasedCounts(items=elsewhere.get(STRIPPED, 0))
    wiped = _wiped(parts, owed, gone.counts + stripped, from_pools=any(elsewhere.values()), scrub=scrub)
    return ErasureReceipt(
        id=parts.short_term.ids.new(now),
        asked=request,
        erased_at=now,
        counts=gone.counts,
        remade=gone.remade,
        elsewhere=elsewhere,
        is_scrubbed=wiped is not None and not wiped.left and wiped.is_clear,
        left=(*waiting, *left, *(() if wiped is None else wiped.left)),
        notes=() if wiped is None else wiped.notes,
    )


def erase_messages(
    parts: MemoryParts, session: SessionName, messages: Sequence[Place], *, lasting: bool
) -> Gone:
    """Erase messages of a session with what was made of them.

    Args:
        parts: The stores and workers.
        session: Whose.
        messages: Which.
        lasting: Whether long-term entries and knowledge from them go too.
    """

    def look() -> Touched | None:
        return parts.erasure.touched_by_messages(session, messages, lasting=lasting)

    if not messages:
        return Gone()
    return _carried_out(parts, look, lambda seen: removal_of_messages(parts, seen, lasting=lasting))


def let_go_of(parts: MemoryParts, erased: Erased) -> None:
    """Hold nothing of it in this process; others see by a number in the database that it is gone."""
    parts.short_term.cache.drop()
    parts.views.drop()
    parts.analyzer.compressor.let_go()
    parts.lasting.search.let_go()
    let_go()
    if parts.retriever.embedding is not None:
        parts.retriever.embedding.let_go()
    namespaces = {*erased.namespaces, *erased.entries}
    namespaces.update(path for path, _ in (*erased.sessions, *erased.messages))
    for path in namespaces:
        parts.retriever.forget(path)


def _stored(parts: MemoryParts, request: ErasureRequest) -> tuple[str, ...]:
    # What waits in this process: written later, it would outlive the receipt.
    try:
        flush_all(parts, request.namespace, request.session)
    except StorageError as error:
        return (f"not all that waited was stored and erased ({error}): forget the same again",)
    return ()


def _rows(parts: MemoryParts, request: ErasureRequest) -> Gone:
    if request.user is not None:
        return _namespaces(parts, parts.erasure.namespaces_of(request.user))
    assert request.namespace is not None  # noqa: S101 - the request was checked
    if request.entry is not None:
        return _entry(parts, request.namespace, request.entry)
    if request.session is None:
        return _namespaces(parts, (request.namespace,))
    if request.message is None:
        return _session(parts, request.namespace, request.session)
    return _message(parts, request.namespace, request.session, request.message)


def _namespaces(parts: MemoryParts, paths: Sequence[NamespacePath]) -> Gone:
    gone = Gone(erased=Erased(namespaces=tuple(paths)))
    for path in paths:
        gone += Gone(counts=parts.erasure.erase_namespace(path))
    return gone


def _session(parts: MemoryParts, namespace: NamespacePath, name: str) -> Gone:
    # With the conversations that were set aside from it, and the notes of a task.
    own = (name, f"{name}{NOTES}")
    starts = dict.fromkeys((name, *map(aside_start, own)))
    found = [
        one
        for one in parts.erasure.sessions_of(namespace, tuple(starts))
        if one.name in own or any(was_set_aside(one.name, of=each) for each in own)
    ]
    names = tuple(dict.fromkeys((name, *(one.name for one in found))))
    gone = _carried_out(
        parts,
        lambda: parts.erasure.touched_by_sessions(namespace, found, names),
        lambda seen: removal_of_sessions(parts, seen, names),
    )
    return gone + Gone(erased=Erased(sessions=tuple((namespace, each) for each in names)))


def _message(parts: MemoryParts, namespace: NamespacePath, name: str, message_id: str) -> Gone:
    named = parts.erasure.sessions_of(namespace, (name,))
    session = next((one for one in named if one.name == name), None)
    asked = Gone(erased=Erased(messages={(namespace, name): (message_id,)}))
    if session is None:
        return asked
    places = parts.erasure.places(session, [message_id])
    return asked + erase_messages(parts, session, whole_groups(places, {message_id}), lasting=True)


def _entry(parts: MemoryParts, namespace: NamespacePath, entry_id: str) -> Gone:
    gone = _carried_out(
        parts,
        lambda: parts.erasure.touched_by_entry(namespace, entry_id),
        lambda seen: removal_of_entry(parts, seen, entry_id),
    )
    return gone + Gone(erased=Erased(entries={namespace: (entry_id,)}))


def _carried_out(
    parts: MemoryParts, look: Callable[[], Touched | None], decide: Callable[[Touched], Removal]
) -> Gone:
    for _ in range(_TRIES):
        touched = look()
        if touched is None:  # somebody else has erased the whole session
            return Gone()
        removal = decide(touched)
        counts = parts.erasure.remove(removal)
        if counts is not None:
            return Gone(counts=counts, erased=_names(removal), remade=_remade(removal))
    raise StorageBusyError(
        "others write to the same memory all the time: forget it again later; nothing of this step was erased"
    )


def _names(removal: Removal) -> Erased:
    names = (*removal.knowledge, *removal.known_before)
    known = (id_from_name(category, key) for category, key in names)
    told = (one.entry.id for one in removal.put)
    entries = tuple(dict.fromkeys((*removal.memories, *told, *removal.facts, *known)))
    ids = tuple(one.id for one in removal.messages)
    session = None if removal.state is None else removal.state.session
    return Erased(
        messages={} if session is None else {(session.namespace, session.name): ids},
        entries={removal.namespace: entries} if entries else {},
    )


def _remade(removal: Removal) -> int:
    return len(removal.put) + (removal.summary is not None)


def _elsewhere(parts: MemoryParts, erased: Erased) -> tuple[dict[str, int], list[str]]:
    found: dict[str, int] = {}
    left = list[str]()
    for eraser in tuple(parts.erasers):
        try:
            for kind, count in eraser(erased).items():
                found[kind] = found.get(kind, 0) + count
        except LangmemTiersError as error:
            left.append(f"copies elsewhere are not erased ({error}): forget the same again")
        except Exception as error:  # noqa: BLE001 - the others are still to be asked; the receipt tells
            name = getattr(eraser, "__qualname__", type(eraser).__qualname__)
            left.append(f"{name} raised {type(error).__name__}: forget the same again")
    return found, left


def _wiped(
    parts: MemoryParts, owed: WipeOwed, counts: ErasedCounts, *, from_pools: bool, scrub: bool
) -> Scrubbed | None:
    erases = bool(counts.total or from_pools)
    # One that was stopped may have left bytes of rows that are gone: then all is gone over.
    all_of_it = scrub and owed.is_all(erases=erases)
    wiped = Scrubbed() if scrub else None
    if erases and not scrub:
        owed.keep()
        return wiped
    if erases or all_of_it:  # otherwise nothing was there: no table of anybody is written anew for that
        wiped = _scrubbed(parts, None if all_of_it else counts, from_pools=from_pools)
    if wiped is not None and wiped.left:
        owed.keep()
    else:
        owed.settle(all_of_it=all_of_it)
    return wiped


def _scrubbed(parts: MemoryParts, counts: ErasedCounts | None, *, from_pools: bool) -> Scrubbed:
    try:
        return parts.upkeep.scrub(counts, from_pools=from_pools)
    except StorageError as error:
        return Scrubbed(
            left=(f"the rows are gone, their bytes are not wiped ({error}): forget the same again",)
        )
