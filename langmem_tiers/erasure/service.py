"""Forgetting: what waits is stored, then rows go, each step whole by itself, then copies elsewhere, then the bytes.

Whoever stops in the middle forgets the same again: what is gone is passed over, what is left goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.common.archived_session_names import build_archived_prefix, is_archived_name
from langmem_tiers.erasure.erasure_plan import (
    complete_tool_groups,
    plan_entry_erasure,
    plan_message_erasure,
    plan_session_erasure,
)
from langmem_tiers.erasure.imported_contexts import STRIPPED_CONTEXTS_KIND
from langmem_tiers.erasure.models import ErasedCounts, ErasedIds, ErasureReceipt, ScrubResult
from langmem_tiers.erasure.scrub import PendingScrub
from langmem_tiers.errors import LangmemTiersError, StorageBusyError, StorageError
from langmem_tiers.knowledge.models import id_from_name
from langmem_tiers.long_term.conflicts.resolution import invalidate_statement_cache
from langmem_tiers.sessions.pending_writes import flush_all
from langmem_tiers.tasks.journal import NOTES_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasureRequest
    from langmem_tiers.erasure.records import ErasureImpact, ErasurePlan, MessageRef, SessionRef
    from langmem_tiers.services import EngineServices

_MAX_TRIES = 50  # each time somebody else has written what it goes by


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureResult:
    """What is gone from the rows of the database."""

    counts: ErasedCounts = field(default_factory=ErasedCounts)
    erased: ErasedIds = field(default_factory=ErasedIds)
    remade: int = 0

    def __add__(self, other: ErasureResult) -> ErasureResult:
        return ErasureResult(
            counts=self.counts + other.counts,
            erased=self.erased + other.erased,
            remade=self.remade + other.remade,
        )


def forget(parts: EngineServices, request: ErasureRequest, *, scrub: bool) -> ErasureReceipt:
    """Erase what is asked for, everywhere.

    Args:
        parts: The stores and workers.
        request: What.
        scrub: Whether the bytes are wiped too.
    """
    now = parts.now()
    waiting = _flush_pending(parts, request)
    owed = PendingScrub(parts)
    owed.begin()
    gone = _erase_rows(parts, request)
    invalidate_caches(parts, gone.erased)
    elsewhere, left = _run_erasers(parts, gone.erased)
    stripped = ErasedCounts(items=elsewhere.get(STRIPPED_CONTEXTS_KIND, 0))
    wiped = _scrub_if_needed(
        parts, owed, gone.counts + stripped, from_pools=any(elsewhere.values()), scrub=scrub
    )
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
    parts: EngineServices, session: SessionRef, messages: Sequence[MessageRef], *, lasting: bool
) -> ErasureResult:
    """Erase messages of a session with what was made of them.

    Args:
        parts: The stores and workers.
        session: Whose.
        messages: Which.
        lasting: Whether long-term entries and knowledge from them go too.
    """

    def look() -> ErasureImpact | None:
        return parts.erasure.find_message_impact(session, messages, lasting=lasting)

    if not messages:
        return ErasureResult()
    return _plan_and_delete(parts, look, lambda seen: plan_message_erasure(parts, seen, lasting=lasting))


def invalidate_caches(parts: EngineServices, erased: ErasedIds) -> None:
    """Hold nothing of it in this process; others see by a number in the database that it is gone."""
    parts.short_term.cache.invalidate()
    parts.views.invalidate()
    parts.analyzer.compressor.invalidate()
    parts.long_term.search.invalidate()
    invalidate_statement_cache()
    if parts.retriever.embedding is not None:
        parts.retriever.embedding.invalidate()
    namespaces = {*erased.namespaces, *erased.entries}
    namespaces.update(path for path, _ in (*erased.sessions, *erased.messages))
    for path in namespaces:
        parts.retriever.invalidate(path)


def _flush_pending(parts: EngineServices, request: ErasureRequest) -> tuple[str, ...]:
    # What waits in this process: written later, it would outlive the receipt.
    try:
        flush_all(parts, request.namespace, request.session)
    except StorageError as error:
        return (f"not all that waited was stored and erased ({error}): forget the same again",)
    return ()


def _erase_rows(parts: EngineServices, request: ErasureRequest) -> ErasureResult:
    if request.user is not None:
        return _erase_namespaces(parts, parts.erasure.find_user_namespaces(request.user))
    assert request.namespace is not None  # noqa: S101 - the request was checked
    if request.entry is not None:
        return _erase_entry(parts, request.namespace, request.entry)
    if request.session is None:
        return _erase_namespaces(parts, (request.namespace,))
    if request.message is None:
        return _erase_session(parts, request.namespace, request.session)
    return _erase_message(parts, request.namespace, request.session, request.message)


def _erase_namespaces(parts: EngineServices, paths: Sequence[NamespacePath]) -> ErasureResult:
    gone = ErasureResult(erased=ErasedIds(namespaces=tuple(paths)))
    for path in paths:
        gone += ErasureResult(counts=parts.erasure.delete_namespace(path))
    return gone


def _erase_session(parts: EngineServices, namespace: NamespacePath, name: str) -> ErasureResult:
    # With the conversations that were set aside from it, and the notes of a task.
    own = (name, f"{name}{NOTES_SUFFIX}")
    starts = dict.fromkeys((name, *map(build_archived_prefix, own)))
    found = [
        one
        for one in parts.erasure.find_sessions(namespace, tuple(starts))
        if one.name in own or any(is_archived_name(one.name, of=each) for each in own)
    ]
    names = tuple(dict.fromkeys((name, *(one.name for one in found))))
    gone = _plan_and_delete(
        parts,
        lambda: parts.erasure.find_session_impact(namespace, found, names),
        lambda seen: plan_session_erasure(parts, seen, names),
    )
    return gone + ErasureResult(erased=ErasedIds(sessions=tuple((namespace, each) for each in names)))


def _erase_message(
    parts: EngineServices, namespace: NamespacePath, name: str, message_id: str
) -> ErasureResult:
    named = parts.erasure.find_sessions(namespace, (name,))
    session = next((one for one in named if one.name == name), None)
    asked = ErasureResult(erased=ErasedIds(messages={(namespace, name): (message_id,)}))
    if session is None:
        return asked
    places = parts.erasure.find_messages(session, [message_id])
    return asked + erase_messages(parts, session, complete_tool_groups(places, {message_id}), lasting=True)


def _erase_entry(parts: EngineServices, namespace: NamespacePath, entry_id: str) -> ErasureResult:
    gone = _plan_and_delete(
        parts,
        lambda: parts.erasure.find_entry_impact(namespace, entry_id),
        lambda seen: plan_entry_erasure(parts, seen, entry_id),
    )
    return gone + ErasureResult(erased=ErasedIds(entries={namespace: (entry_id,)}))


def _plan_and_delete(
    parts: EngineServices,
    look: Callable[[], ErasureImpact | None],
    decide: Callable[[ErasureImpact], ErasurePlan],
) -> ErasureResult:
    for _ in range(_MAX_TRIES):
        touched = look()
        if touched is None:  # somebody else has erased the whole session
            return ErasureResult()
        removal = decide(touched)
        counts = parts.erasure.delete(removal)
        if counts is not None:
            return ErasureResult(
                counts=counts, erased=_collect_erased_ids(removal), remade=_count_remade(removal)
            )
    raise StorageBusyError(
        "others write to the same memory all the time: forget it again later; nothing of this step was erased"
    )


def _collect_erased_ids(removal: ErasurePlan) -> ErasedIds:
    names = (*removal.knowledge, *removal.past_knowledge)
    known = (id_from_name(category, key) for category, key in names)
    told = (one.entry.id for one in removal.rewritten_entries)
    entries = tuple(dict.fromkeys((*removal.memories, *told, *removal.facts, *known)))
    ids = tuple(one.id for one in removal.messages)
    session = None if removal.state is None else removal.state.session
    return ErasedIds(
        messages={} if session is None else {(session.namespace, session.name): ids},
        entries={removal.namespace: entries} if entries else {},
    )


def _count_remade(removal: ErasurePlan) -> int:
    return len(removal.rewritten_entries) + (removal.summary is not None)


def _run_erasers(parts: EngineServices, erased: ErasedIds) -> tuple[dict[str, int], list[str]]:
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


def _scrub_if_needed(
    parts: EngineServices, owed: PendingScrub, counts: ErasedCounts, *, from_pools: bool, scrub: bool
) -> ScrubResult | None:
    erases = bool(counts.total or from_pools)
    # One that was stopped may have left bytes of rows that are gone: then all is gone over.
    all_of_it = scrub and owed.is_full_scrub_due(erases=erases)
    wiped = ScrubResult() if scrub else None
    if erases and not scrub:
        owed.leave_pending()
        return wiped
    if erases or all_of_it:  # otherwise nothing was there: no table of anybody is written anew for that
        wiped = _scrub_database(parts, None if all_of_it else counts, from_pools=from_pools)
    if wiped is not None and wiped.left:
        owed.leave_pending()
    else:
        owed.complete(all_of_it=all_of_it)
    return wiped


def _scrub_database(parts: EngineServices, counts: ErasedCounts | None, *, from_pools: bool) -> ScrubResult:
    try:
        return parts.maintenance_store.scrub(counts, from_pools=from_pools)
    except StorageError as error:
        return ScrubResult(
            left=(f"the rows are gone, their bytes are not wiped ({error}): forget the same again",)
        )
