"""The memory of one tenant."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.leases import LeaseKind, build_lease_name
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.config import check_limit
from langmem_tiers.context.entry_lookup import find_entry
from langmem_tiers.context.namespace_recall import RawRecallRequest, recall_from_namespace, search_messages
from langmem_tiers.context.recall_context import build_recall_context
from langmem_tiers.display.displayable import DisplayableTuple, NotebookDisplayable, build_list_display
from langmem_tiers.display.tables import MAX_TABLE_ROWS, DisplayContent
from langmem_tiers.errors import NotFoundError, SessionNotFoundError
from langmem_tiers.long_term.consolidation import consolidate
from langmem_tiers.recall.embedding_backfill import EMBEDDING_LEASE_SECONDS, embed_namespace
from langmem_tiers.session import Session
from langmem_tiers.sessions.models import DeleteReport, SessionPage
from langmem_tiers.tasks.history import CyclePlace, load_cycle_page, load_task_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.recall_strategy import Strategy
    from langmem_tiers.context.entry_lookup import FoundEntry
    from langmem_tiers.context.models import MemoryContext
    from langmem_tiers.episodes.service import Episodes
    from langmem_tiers.facts.service import Facts
    from langmem_tiers.knowledge.service import KnowledgeBase
    from langmem_tiers.long_term.models import ConsolidationReport
    from langmem_tiers.long_term.service import LongTerm
    from langmem_tiers.maintenance.models import NamespaceUsage
    from langmem_tiers.recall.models import Hit, Recall, RecallFilters
    from langmem_tiers.services import EngineServices
    from langmem_tiers.tasks.history import CyclePage, TaskPage


class Namespace(NotebookDisplayable):
    """One tenant, isolated from all other namespaces. Get it from ``engine.namespace(...)``."""

    def __init__(self, services: EngineServices, path: NamespacePath) -> None:
        self._services = services
        self.path = path

    def __repr__(self) -> str:
        return f"Namespace({'/'.join(self.path)!r})"

    def _to_display(self) -> DisplayContent:
        return build_list_display(
            repr(self), self.sessions(limit=MAX_TABLE_ROWS).sessions, "the newest sessions"
        )

    def session(self, name: str) -> Session:
        """Return the session with this name; create it if needed."""
        info = self._services.short_term.sessions.get_or_create(
            self.path, check_name(name), self._services.now()
        )
        return Session(self._services, info)

    def find_session(self, name: str) -> Session | None:
        """Return the session with this name, or None; nothing is created."""
        info = self._services.short_term.sessions.get(self.path, check_name(name))
        return None if info is None else Session(self._services, info)

    def sessions(self, *, after: str | None = None, limit: int = 100) -> SessionPage:
        """List the sessions, newest first.

        Args:
            after: ``next_after`` of the previous page. Default: start with the newest session.
            limit: Sessions per page.
        """
        check_limit(limit)
        before = None
        if after is not None:
            cursor = self._services.short_term.sessions.get(self.path, check_name(after))
            if cursor is None:
                raise SessionNotFoundError(
                    f"{self!r} has no session {after!r}, it may have been deleted: restart from the first page"
                )
            before = cursor.key
        # Read one extra row to find out whether there is a next page.
        infos = self._services.short_term.sessions.list_sessions(self.path, before=before, limit=limit + 1)
        more = len(infos) > limit
        return SessionPage(sessions=infos[:limit], next_after=infos[limit - 1].name if more else None)

    def holdings(self, *, days: int = 90) -> NamespaceUsage:
        """Return counts and sizes by tier, and the messages per day.

        Message totals come from the sessions, so message rows are not counted one by one.

        Args:
            days: Number of days to report, ending today.

        Raises:
            NotFoundError: The namespace does not exist.
        """
        since = self._services.now() - timedelta(days=check_limit(days) - 1)
        usage = self._services.maintenance_store.get_namespace_usage(self.path, since)
        if usage is None:
            raise NotFoundError(f"{self!r} does not exist: engine.namespaces() lists the existing ones")
        return usage

    def entry(self, entry_id: str, *, session: str | None = None) -> FoundEntry:
        """Return one memory by id: a message, an entry, an episode, a chunk or a knowledge value.

        Args:
            entry_id: Id from a hit or a listing.
            session: Session of a message. Default: search all sessions.

        Raises:
            NotFoundError: No memory has this id.
            InvalidInputError: Several sessions have a message with this id; pass ``session``.
        """
        return find_entry(self._services, self.path, entry_id, session)

    def tasks(self, *, before: int | None = None, limit: int = 100) -> TaskPage:
        """List the tasks that agents recorded with ``AgentMemory``, newest first."""
        return load_task_page(self._services.short_term.sessions, self.path, before=before, limit=limit)

    def task_cycles(self, task: str, *, place: CyclePlace = CyclePlace(), limit: int = 100) -> CyclePage:  # noqa: B008 - frozen
        """List the steps of a recorded task, oldest first, each with the loop it belongs to, if any.

        Args:
            task: Name of the task.
            place: ``next_place`` of the previous page.
            limit: Steps per page.

        Raises:
            NotFoundError: The task does not exist.
        """
        return load_cycle_page(self._services.short_term, self.path, task, place=place, limit=limit)

    def recall(
        self,
        query: str,
        *,
        limit: int | None = None,
        strategy: Strategy | str | None = None,
        filters: RecallFilters | None = None,
        now: datetime | None = None,
        use: bool = True,
    ) -> Recall:
        """Find memories of all sessions that answer a query, best first, each with its score breakdown.

        Args:
            query: A question or words. Punctuation and search operators have no special meaning.
            limit: Maximum number of memories. Default: ``RecallConfig.limit``.
            strategy: Ranking strategy. Default: ``RecallConfig.strategy``.
            filters: Restricts which memories may be found.
            now: Reference time for expressions such as "last week". Default: the current time.
            use: Count the found messages, entries, episodes and chunks as used.
        """
        return recall_from_namespace(
            self._services, self.path, RawRecallRequest(query, limit, strategy, filters, now), counts=use
        )

    def search(self, text: str, *, limit: int = 10) -> tuple[Hit, ...]:
        """Find messages of all sessions that contain words of the text, best first (full-text search only).

        Words are stemmed, and one matching word is enough. Punctuation and search operators have no special
        meaning.
        """
        return DisplayableTuple(search_messages(self._services, self.path, text, limit))

    def build_context(
        self,
        query: str,
        *,
        budget: TokenBudget | None = None,
        filters: RecallFilters | None = None,
        now: datetime | None = None,
        seen: Iterable[str] = (),
    ) -> MemoryContext:
        """Build one fenced message with the memories that answer a question, within the budget.

        For a context that includes the current conversation, use ``session.build_context()``.

        Args:
            query: The question.
            budget: Token budget. Default: the budget of the engine.
            filters: Restricts which memories may be recalled.
            now: Reference time for expressions such as "last week". Default: the current time.
            seen: Texts that the prompt contains anyway; they are not repeated.
        """
        return build_recall_context(self._services, self.path, query, budget, filters, now, seen)

    def embed(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed every message that has no vector yet; return how many were embedded.

        Recall also embeds messages, for up to a second per call. Call this after a large import, or after
        changing the embedder. If several processes call it, one does the work and the others wait.
        Long-term entries and items get their vectors when they are searched.

        Args:
            progress: Called after each batch with the number of finished messages and the total.
        """
        lease = self._services.get_lease(
            build_lease_name(LeaseKind.EMBED, self.path), EMBEDDING_LEASE_SECONDS
        )
        return embed_namespace(self._services.retriever, lease, self.path, progress)

    @property
    def knowledge(self) -> KnowledgeBase:
        """Knowledge across sessions: keys and values with a confidence."""
        return self._services.get_knowledge(self.path)

    @property
    def long_term(self) -> LongTerm:
        """Long-term entries of all sessions, stored directly or promoted."""
        return self._services.get_long_term(self.path)

    @property
    def facts(self) -> Facts:
        """Facts extracted from messages, and how each was resolved."""
        return self._services.get_facts(self.path)

    @property
    def episodes(self) -> Episodes:
        """Episodes: the moments of conversations that matter."""
        return self._services.get_episodes(self.path)

    def consolidate(self, *, max_batches: int | None = None) -> ConsolidationReport:
        """Archive old long-term entries of low importance, and merge overlapping episodes.

        Safe to call at any time and from several processes; only one of them does the work. Archived entries stay
        stored and can be restored.

        Args:
            max_batches: Stop after this many batches of 1,000 entries; the next call continues there.
                Default: no limit.
        """
        return consolidate(
            self._services.long_term,
            self.episodes,
            self._services.config.learning,
            self._services.get_lease(build_lease_name(LeaseKind.CONSOLIDATE, self.path)),
            self.path,
            max_batches=max_batches,
        )

    def delete(self) -> DeleteReport:
        """Erase the namespace with its sessions and its pool contributions. Child namespaces stay."""
        # Working memory and caches go first: nothing may be written back after the rows are gone.
        self._services.working.delete(self.path)
        self._services.short_term.cache.invalidate()
        self._services.views.invalidate()
        self._services.retriever.invalidate(self.path)
        # Pools before sessions: if the process dies in between, the namespace still exists, and deleting it again also
        # deletes the rest. In the other order its contributions would stay, without a namespace to delete.
        self._services.pools.delete_namespace(self.path)
        return self._services.short_term.sessions.delete_namespace(self.path)
