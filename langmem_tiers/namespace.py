"""One tenant's memory."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import check_name
from langmem_tiers.config import check_limit
from langmem_tiers.context.entry_lookup import find_entry
from langmem_tiers.context.namespace_recall import RawRecallRequest, recall_from_namespace, search_messages
from langmem_tiers.context.recall_context import build_recall_context
from langmem_tiers.display.displayable import DisplayableTuple, NotebookDisplayable, build_list_display
from langmem_tiers.display.tables import MAX_TABLE_ROWS, DisplayContent
from langmem_tiers.errors import NotFoundError, SessionNotFoundError
from langmem_tiers.long_term.consolidation import consolidate
from langmem_tiers.recall.reembedding import embed_namespace
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
    from langmem_tiers.context.models import Context
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
    """One tenant: its sessions and nothing of any other. Get it from ``engine.namespace(...)``."""

    def __init__(self, parts: EngineServices, path: NamespacePath) -> None:
        self._services = parts
        self.path = path

    def __repr__(self) -> str:
        return f"Namespace({'/'.join(self.path)!r})"

    def _to_display(self) -> DisplayContent:
        return build_list_display(
            repr(self), self.sessions(limit=MAX_TABLE_ROWS).sessions, "the newest sessions"
        )

    def session(self, name: str) -> Session:
        """Get the session, or create it."""
        info = self._services.short_term.sessions.get_or_create(
            self.path, check_name(name), self._services.now()
        )
        return Session(self._services, info)

    def find_session(self, name: str) -> Session | None:
        """The session, if there is one; nothing is created."""
        info = self._services.short_term.sessions.get(self.path, check_name(name))
        return None if info is None else Session(self._services, info)

    def sessions(self, *, after: str | None = None, limit: int = 100) -> SessionPage:
        """The sessions, newest first.

        Args:
            after: ``next_after`` of the page before; from the newest if left out.
            limit: Sessions per page.
        """
        check_limit(limit)
        before = None
        if after is not None:
            cursor = self._services.short_term.sessions.get(self.path, check_name(after))
            if cursor is None:
                raise SessionNotFoundError(
                    f"{self!r} has no session {after!r}: start again from the first page"
                )
            before = cursor.key
        found = self._services.short_term.sessions.list_sessions(self.path, before=before, limit=limit + 1)
        more = len(found) > limit
        return SessionPage(sessions=found[:limit], next_after=found[limit - 1].name if more else None)

    def holdings(self, *, days: int = 90) -> NamespaceUsage:
        """What the namespace holds, and what was said in it by day; it counts what was made of messages, not those.

        Args:
            days: How far back growth is told.

        Raises:
            NotFoundError: There is no such namespace.
        """
        since = self._services.now() - timedelta(days=check_limit(days) - 1)
        found = self._services.maintenance_store.get_namespace_usage(self.path, since)
        if found is None:
            raise NotFoundError(f"{self!r} holds nothing: engine.namespaces() tells which there are")
        return found

    def entry(self, entry_id: str, *, session: str | None = None) -> FoundEntry:
        """One memory by its id: a message, an entry, an episode, a chunk or something known.

        Args:
            entry_id: As a hit or a list has it.
            session: The one that a message is of; all are looked through, if left out.

        Raises:
            NotFoundError: There is none.
        """
        return find_entry(self._services, self.path, entry_id, session)

    def tasks(self, *, before: int | None = None, limit: int = 100) -> TaskPage:
        """The tasks that agents recorded with ``AgentMemory``, newest first."""
        return load_task_page(self._services, self.path, before=before, limit=limit)

    def task_cycles(self, task: str, *, place: CyclePlace = CyclePlace(), limit: int = 100) -> CyclePage:  # noqa: B008 - it never changes
        """The steps of a recorded task, oldest first, each with the loop that it is part of, if it is.

        Args:
            task: What it is called.
            place: ``next_place`` of the page before.
            limit: Steps per page.

        Raises:
            NotFoundError: There is no such task.
        """
        return load_cycle_page(self._services, self.path, task, place=place, limit=limit)

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
        """What was said in any session that answers a query, best first, each with the reasons.

        Args:
            query: A question, or words; marks and operators in it mean nothing.
            limit: How many memories at most.
            strategy: How to rank; the configuration's, if left out.
            filters: What may be recalled.
            now: The time that "last week" is seen from; the clock's, if left out.
            use: Whether messages, entries, episodes and chunks that are found count as used.
        """
        return recall_from_namespace(
            self._services, self.path, RawRecallRequest(query, limit, strategy, filters, now), counts=use
        )

    def search(self, text: str, *, limit: int = 10) -> tuple[Hit, ...]:
        """Messages of all sessions that hold words of the text, best first: plain full text.

        Words are stemmed, and any of them is enough. Marks and operators in the text mean nothing.
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
    ) -> Context:
        """What memory has to say to a question, as one fenced message, never more than the budget.

        For a context with the conversation at hand in it, use ``session.build_context()``.

        Args:
            query: The question.
            budget: What it may take; the engine's, if left out.
            filters: What may be recalled.
            now: The time that "last week" is seen from; the clock's, if left out.
            seen: Texts that the model is shown anyway; they are not told again.
        """
        return build_recall_context(self._services, self.path, query, budget, filters, now, seen)

    def embed(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed every message that has no vector yet; how many that were.

        Recall does so by itself, for a second at a time. After a large import, or with another
        embedder, this does it all at once. Of several processes that call it one does it, the others wait.
        Long-term entries and items get their vectors when they are searched.

        Args:
            progress: Told how many messages are done, and of how many, after each batch.
        """
        return embed_namespace(self._services, self.path, progress)

    @property
    def knowledge(self) -> KnowledgeBase:
        """What is known across sessions: key and value with a confidence."""
        return self._services.get_knowledge(self.path)

    @property
    def long_term(self) -> LongTerm:
        """What was stored or promoted for long, from all sessions."""
        return self._services.get_long_term(self.path)

    @property
    def facts(self) -> Facts:
        """What was extracted from messages, and what became of it."""
        return self._services.get_facts(self.path)

    @property
    def episodes(self) -> Episodes:
        """Moments of conversations that matter."""
        return self._services.get_episodes(self.path)

    def consolidate(self, *, max_batches: int | None = None) -> ConsolidationReport:
        """Archive long-term entries that are old and matter little by now, and make one of episodes that overlap.

        Safe to call at any time and from several processes: one of them does it. What is archived stays and can be
        restored.

        Args:
            max_batches: Stop after so many batches of 1,000; the next call goes on from there.
        """
        return consolidate(self._services, self.path, max_batches=max_batches)

    def delete(self) -> DeleteReport:
        """Erase the namespace with all its sessions and what it gave to pools. Namespaces below it stay."""
        self._services.working.delete(self.path)
        self._services.short_term.cache.invalidate()
        self._services.views.invalidate()
        self._services.retriever.invalidate(self.path)
        self._services.pools.delete_namespace(self.path)
        return self._services.short_term.sessions.delete_namespace(self.path)
