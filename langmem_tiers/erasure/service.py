"""The steps of ``forget()``: flush pending writes, delete rows, erase external copies, scrub the bytes.

Each step is atomic. After an interruption, forget the same data again: steps that are done are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import build_archived_prefix, is_archived_name
from langmem_tiers.erasure.erasure_plan import (
    complete_tool_groups,
    plan_entry_erasure,
    plan_message_erasure,
    plan_session_erasure,
)
from langmem_tiers.erasure.imported_contexts import STRIPPED_CONTEXTS_KIND
from langmem_tiers.erasure.models import ErasedCounts, ErasedIds, ErasureReceipt, ScrubResult
from langmem_tiers.erasure.scrub import PendingScrub
from langmem_tiers.errors import LangmemTiersError, StorageError
from langmem_tiers.knowledge.models import id_from_name
from langmem_tiers.long_term.conflicts.resolution import invalidate_statement_cache
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.tasks.journal import NOTES_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasureRequest
    from langmem_tiers.erasure.records import ErasureImpact, ErasurePlan, MessageRef, SessionRef
    from langmem_tiers.services import EngineServices


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureResult:
    """Result of deleting rows of the database."""

    counts: ErasedCounts = field(default_factory=ErasedCounts)
    erased: ErasedIds = field(default_factory=ErasedIds)
    remade: int = 0

    def __add__(self, other: ErasureResult) -> ErasureResult:
        return ErasureResult(
            counts=self.counts + other.counts,
            erased=self.erased + other.erased,
            remade=self.remade + other.remade,
        )


def forget(services: EngineServices, request: ErasureRequest, *, scrub: bool) -> ErasureReceipt:
    """Erase the data of a request everywhere.

    Args:
        services: Services of the engine.
        request: Data to erase.
        scrub: Also scrub the bytes from the files of the database.
    """
    now = services.now()
    unflushed = _flush_pending(services, request)
    # Recorded before any row is deleted: if the process is killed in between, the next erasure finds the record and
    # scrubs the bytes.
    pending_scrub = PendingScrub(services.tuning, services.now)
    pending_scrub.begin()
    result = _erase_rows(services, request)
    invalidate_caches(services, result.erased)
    # Erasers come after the rows: an eraser that ran first could copy the rows again.
    elsewhere, left = _run_erasers(services, result.erased)
    stripped = ErasedCounts(items=elsewhere.get(STRIPPED_CONTEXTS_KIND, 0))
    scrubbed = _scrub_if_needed(
        services, pending_scrub, result.counts + stripped, from_pools=any(elsewhere.values()), scrub=scrub
    )
    return ErasureReceipt(
        id=services.short_term.ids.new(now),
        asked=request,
        erased_at=now,
        counts=result.counts,
        remade=result.remade,
        elsewhere=elsewhere,
        is_scrubbed=scrubbed is not None and not scrubbed.left and scrubbed.is_clear,
        left=(*unflushed, *left, *(() if scrubbed is None else scrubbed.left)),
        notes=() if scrubbed is None else scrubbed.notes,
    )


def erase_messages(
    services: EngineServices, session: SessionRef, messages: Sequence[MessageRef], *, with_long_term: bool
) -> ErasureResult:
    """Erase messages of a session with the data derived from them.

    Args:
        services: Services of the engine.
        session: Session of the messages.
        messages: Messages to erase.
        with_long_term: Also erase long-term entries and knowledge that come from the messages.
    """

    def find_impact() -> ErasureImpact | None:
        return services.erasure.find_message_impact(session, messages, with_long_term=with_long_term)

    if not messages:
        return ErasureResult()
    return _plan_and_delete(
        services,
        find_impact,
        lambda impact: plan_message_erasure(services, impact, with_long_term=with_long_term),
    )


def invalidate_caches(services: EngineServices, erased: ErasedIds) -> None:
    """Invalidate the caches of this process; other processes notice the erasure by a counter in the database."""
    services.short_term.cache.invalidate()
    services.views.invalidate()
    services.analyzer.compressor.invalidate()
    services.long_term.search.invalidate()
    invalidate_statement_cache()
    if services.retriever.embedding is not None:
        services.retriever.embedding.invalidate()
    namespaces = {*erased.namespaces, *erased.entries}
    namespaces.update(path for path, _ in (*erased.sessions, *erased.messages))
    for path in namespaces:
        services.retriever.invalidate(path)


def _flush_pending(services: EngineServices, request: ErasureRequest) -> tuple[str, ...]:
    # A write that is still queued in this process would be stored after the receipt, and the data would be back.
    try:
        services.flush(request.namespace, request.session)
    except StorageError as error:
        return (
            f"some queued writes could not be stored and then erased ({error}): forget the same data again",
        )
    return ()


def _erase_rows(services: EngineServices, request: ErasureRequest) -> ErasureResult:
    if request.user is not None:
        return _erase_namespaces(services, services.erasure.find_user_namespaces(request.user))
    assert request.namespace is not None  # noqa: S101 - the request was checked
    if request.entry is not None:
        return _erase_entry(services, request.namespace, request.entry)
    if request.session is None:
        return _erase_namespaces(services, (request.namespace,))
    if request.message is None:
        return _erase_session(services, request.namespace, request.session)
    return _erase_message(services, request.namespace, request.session, request.message)


def _erase_namespaces(services: EngineServices, paths: Sequence[NamespacePath]) -> ErasureResult:
    result = ErasureResult(erased=ErasedIds(namespaces=tuple(paths)))
    for path in paths:
        result += ErasureResult(counts=services.erasure.delete_namespace(path))
    return result


def _erase_session(services: EngineServices, namespace: NamespacePath, name: str) -> ErasureResult:
    # Also erases the archived conversations of the session and the notes of a task.
    own_names = (name, f"{name}{NOTES_SUFFIX}")
    prefixes = dict.fromkeys((name, *map(build_archived_prefix, own_names)))
    # The prefixes also match other sessions, for example "monday 2" for "monday".
    found = [
        session
        for session in services.erasure.find_sessions(namespace, tuple(prefixes))
        if session.name in own_names or any(is_archived_name(session.name, original=own) for own in own_names)
    ]
    names = tuple(dict.fromkeys((name, *(session.name for session in found))))
    result = _plan_and_delete(
        services,
        lambda: services.erasure.find_session_impact(namespace, found, names),
        lambda impact: plan_session_erasure(services, impact, names),
    )
    return result + ErasureResult(erased=ErasedIds(sessions=tuple((namespace, erased) for erased in names)))


def _erase_message(
    services: EngineServices, namespace: NamespacePath, name: str, message_id: str
) -> ErasureResult:
    candidates = services.erasure.find_sessions(namespace, (name,))
    session = next((candidate for candidate in candidates if candidate.name == name), None)
    # The id is reported to erasers even if the message does not exist: an earlier erasure may have deleted the rows
    # and stopped before the external copies.
    requested = ErasureResult(erased=ErasedIds(messages={(namespace, name): (message_id,)}))
    if session is None:
        return requested
    messages = services.erasure.find_messages(session, [message_id])
    return requested + erase_messages(
        services, session, complete_tool_groups(messages, {message_id}), with_long_term=True
    )


def _erase_entry(services: EngineServices, namespace: NamespacePath, entry_id: str) -> ErasureResult:
    result = _plan_and_delete(
        services,
        lambda: services.erasure.find_entry_impact(namespace, entry_id),
        lambda impact: plan_entry_erasure(services, impact, entry_id),
    )
    return result + ErasureResult(erased=ErasedIds(entries={namespace: (entry_id,)}))


def _plan_and_delete(
    services: EngineServices,
    find_impact: Callable[[], ErasureImpact | None],
    build_plan: Callable[[ErasureImpact], ErasurePlan],
) -> ErasureResult:
    # Optimistic locking: planning may take long (it rebuilds summaries), so it happens outside of a transaction.
    # delete() compares the stamp of the plan and returns None if anything changed since; then plan again.
    def attempt() -> ErasureResult | None:
        impact = find_impact()
        if impact is None:  # another process erased the whole session
            return ErasureResult()
        plan = build_plan(impact)
        counts = services.erasure.delete(plan)
        if counts is None:
            return None
        return ErasureResult(counts=counts, erased=_collect_erased_ids(plan), remade=_count_remade(plan))

    return retry_on_conflict(
        attempt,
        "the memory is being modified concurrently: forget the same data again later. "
        "Nothing was erased in this step",
    )


def _collect_erased_ids(plan: ErasurePlan) -> ErasedIds:
    names = (*plan.knowledge, *plan.past_knowledge)
    knowledge_ids = (id_from_name(category, key) for category, key in names)
    rewritten_ids = (rewritten.entry.id for rewritten in plan.rewritten_entries)
    entries = tuple(dict.fromkeys((*plan.memories, *rewritten_ids, *plan.facts, *knowledge_ids)))
    ids = tuple(message.id for message in plan.messages)
    session = None if plan.state is None else plan.state.session
    return ErasedIds(
        messages={} if session is None else {(session.namespace, session.name): ids},
        entries={plan.namespace: entries} if entries else {},
    )


def _count_remade(plan: ErasurePlan) -> int:
    return len(plan.rewritten_entries) + (plan.summary is not None)


def _run_erasers(services: EngineServices, erased: ErasedIds) -> tuple[dict[str, int], list[str]]:
    counts: dict[str, int] = {}
    left = list[str]()
    for eraser in tuple(services.erasers):
        try:
            for kind, count in eraser(erased).items():
                counts[kind] = counts.get(kind, 0) + count
        except LangmemTiersError as error:
            left.append(f"external copies were not erased ({error}): forget the same data again")
        except Exception as error:  # noqa: BLE001 - the other erasers must still run; the receipt reports it
            # The text of a foreign exception may contain the erased content, so only its type is reported.
            name = getattr(eraser, "__qualname__", type(eraser).__qualname__)
            left.append(f"{name} raised {type(error).__name__}: forget the same data again")
    return counts, left


def _scrub_if_needed(
    services: EngineServices, pending: PendingScrub, counts: ErasedCounts, *, from_pools: bool, scrub: bool
) -> ScrubResult | None:
    erases = bool(counts.total or from_pools)
    # An erasure that was interrupted may have left bytes of deleted rows in any table.
    is_full = scrub and pending.is_full_scrub_due(erases=erases)
    result = ScrubResult() if scrub else None
    if erases and not scrub:
        pending.leave_pending()
        return result
    # Otherwise nothing was deleted: rewriting the tables would only block other users of the database.
    if erases or is_full:
        result = _scrub_database(services, None if is_full else counts, from_pools=from_pools)
    if result is not None and result.left:
        pending.leave_pending()
    else:
        pending.complete(all_of_it=is_full)
    return result


def _scrub_database(
    services: EngineServices, counts: ErasedCounts | None, *, from_pools: bool
) -> ScrubResult:
    try:
        return services.maintenance_store.scrub(counts, from_pools=from_pools)
    except StorageError as error:
        return ScrubResult(
            left=(
                f"the rows were deleted, but their bytes were not scrubbed ({error}): forget the same data again",
            )
        )
