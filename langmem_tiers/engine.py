"""The joint: wires the tiers to their storage and hands both to the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from langmem_tiers.compression.compress import Compressor
from langmem_tiers.compression.facts import FactFinder
from langmem_tiers.compression.summarize import Summarizer
from langmem_tiers.core.clock import Clock, SystemClock
from langmem_tiers.core.config import EngineConfig, check_limit
from langmem_tiers.core.errors import InvalidConfigError, SessionNotFoundError
from langmem_tiers.core.ids import IdSource, TimeSortedIds
from langmem_tiers.core.messages import check_time
from langmem_tiers.core.names import check_name, check_namespace
from langmem_tiers.core.reports import DeleteReport, SessionPage
from langmem_tiers.flows.analyze import Analyzer
from langmem_tiers.flows.background import Changes
from langmem_tiers.flows.build_context import build_context
from langmem_tiers.flows.optimize import Optimizer
from langmem_tiers.flows.parts import MemoryParts
from langmem_tiers.flows.recall import Asked, recall, search
from langmem_tiers.flows.session import Session
from langmem_tiers.retrieval.embedding import Embedding
from langmem_tiers.retrieval.index_text import Indexer
from langmem_tiers.retrieval.offline import OfflineEmbedder
from langmem_tiers.retrieval.retriever import Retriever
from langmem_tiers.scoring.tables import Scoring
from langmem_tiers.scoring.terms import terms_of
from langmem_tiers.scoring.tokens import ContentAwareCounter
from langmem_tiers.storage.database import Database
from langmem_tiers.storage.entries import SqlEntryStore
from langmem_tiers.storage.index import SqlIndexStore
from langmem_tiers.storage.knowledge import SqlKnowledgeStore
from langmem_tiers.storage.messages import SqlMessageStore
from langmem_tiers.storage.migrations import migrate
from langmem_tiers.storage.sessions import SqlSessionStore
from langmem_tiers.storage.tuning import SqlTuningStore
from langmem_tiers.storage.vectors import SqlVectorStore
from langmem_tiers.tiers.long_term import LongTerm
from langmem_tiers.tiers.session_cache import SessionCache
from langmem_tiers.tiers.short_term import ShortTermParts
from langmem_tiers.tiers.view_cache import ViewCache

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from datetime import datetime
    from types import TracebackType

    from langmem_tiers.core.budget import TokenBudget
    from langmem_tiers.core.context import Context
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.ports import Embedder, LanguageModel, TokenCounter
    from langmem_tiers.core.recall import Hit, Recall, RecallFilters, Strategy
    from langmem_tiers.tiers.knowledge import KnowledgeBase


class MemoryEngine:
    """Memory on one database. Safe to share between threads; one per process.

    Args:
        url: ``sqlite:///memory.db`` or a ``Path`` to the file, ``sqlite://`` (in memory, gone with
            the engine) or ``postgresql://user@host/name``.
        config: Durability, time limits, cache, budget.
        counter: Counts tokens; by content if left out.
        model: Writes summaries; without one they are put together from what was said.
        embedder: Turns text into vectors for recall; ``"offline"`` is the one that is always there,
            None recalls by words alone.
        scoring: Signals and facts of your own.
        clock: Where the time comes from.
        ids: Where ids come from.
    """

    def __init__(  # noqa: PLR0913 - parts that may be handed in, all but one by keyword
        self,
        url: str | os.PathLike[str] = "sqlite://",
        *,
        config: EngineConfig | None = None,
        counter: TokenCounter | None = None,
        model: LanguageModel | None = None,
        embedder: Embedder | Literal["offline"] | None = "offline",
        scoring: Scoring | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        config = EngineConfig() if config is None else config
        clock = SystemClock() if clock is None else clock
        counter = ContentAwareCounter() if counter is None else counter
        _check_parts(config, counter, scoring, model, embedder)
        self.embedder = OfflineEmbedder() if embedder == "offline" else embedder
        scoring = Scoring() if scoring is None else scoring
        indexer = Indexer(scoring.importance)
        self._database = Database(url, config)
        try:
            migrate(self._database, check_time(clock.now()), indexer, terms_of)
        except BaseException:
            self._database.close()
            raise
        changes, sessions = Changes(), SqlSessionStore(self._database)
        entries = SqlEntryStore(self._database)
        finder = FactFinder(scoring.facts)
        self._parts = MemoryParts(
            short_term=ShortTermParts(
                sessions=sessions,
                messages=SqlMessageStore(self._database, indexer),
                counter=counter,
                clock=clock,
                ids=TimeSortedIds() if ids is None else ids,
                cache=SessionCache(config.cache, clock.monotonic),
                changed=changes.note,
            ),
            entries=entries,
            views=ViewCache(entries, config.cache, clock.monotonic),
            knowledge=SqlKnowledgeStore(self._database, terms_of),
            tuning=SqlTuningStore(self._database),
            analyzer=Analyzer(
                compressor=Compressor(counter, finder),
                relevance=scoring.relevance,
                importance=scoring.importance,
                key_facts=scoring.key_facts,
                redundancy_threshold=config.redundancy_threshold,
            ),
            summarizer=Summarizer(counter, model, facts=finder, config=config.summary),
            retriever=Retriever(
                index=SqlIndexStore(self._database),
                sessions=sessions,
                embedding=None
                if self.embedder is None
                else Embedding(self.embedder, SqlVectorStore(self._database), config.embedding, clock),
                config=config,
                clock=clock,
            ),
            config=config,
        )
        self.optimizer = Optimizer(self._parts, changes)

    def __repr__(self) -> str:
        return f"MemoryEngine({self._database.label!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def namespace(self, *labels: str | Iterable[str]) -> Namespace:
        """The tenant with these labels, from the widest to the narrowest, or as one tuple."""
        whole = labels[0] if len(labels) == 1 else labels
        return Namespace(self._parts, check_namespace(whole))

    def session(self, namespace: str | Iterable[str], name: str) -> Session:
        """Get the session of that namespace, or create it."""
        return Namespace(self._parts, check_namespace(namespace)).session(name)

    def namespaces(
        self,
        prefix: str | Iterable[str] = (),
        *,
        after: Iterable[str] | None = None,
        limit: int = 100,
    ) -> tuple[NamespacePath, ...]:
        """Namespaces that begin with the prefix's whole labels, in a fixed order.

        Args:
            prefix: ``("acme",)`` finds ``("acme", "alice")`` and not ``("acme-corp",)``.
            after: The last namespace of the page before.
            limit: Namespaces per page.
        """
        check_limit(limit)
        return self._parts.short_term.sessions.namespaces(
            () if prefix == () else check_namespace(prefix),
            after=None if after is None else check_namespace(after),
            limit=limit,
        )

    def close(self) -> None:
        """Stop the optimizer and give the database back. Everything acknowledged is on it already."""
        self.optimizer.stop()
        self._parts.retriever.close()
        self._database.close()


def _check_parts(config: object, counter: object, scoring: object, model: object, embedder: object) -> None:
    if not isinstance(config, EngineConfig):
        raise InvalidConfigError(f"config must be an EngineConfig, got a {type(config).__name__}")
    if scoring is not None and not isinstance(scoring, Scoring):
        raise InvalidConfigError(f"scoring must be a Scoring, got a {type(scoring).__name__}")
    if model is not None and not callable(getattr(model, "complete", None)):
        raise InvalidConfigError(
            f"model must have complete(prompt, *, system, max_tokens), got a {type(model).__name__}"
        )
    if embedder not in (None, "offline") and not (
        callable(getattr(embedder, "embed_query", None))
        and callable(getattr(embedder, "embed_documents", None))
    ):
        raise InvalidConfigError(
            f"embedder must have embed_documents(texts) and embed_query(text), got a {type(embedder).__name__}: "
            'use "offline", None, or wrap the model of a framework in its adapter'
        )
    if not callable(getattr(counter, "count", None)) or not isinstance(getattr(counter, "name", None), str):
        raise InvalidConfigError(
            f"counter must have a name and count(text), got {counter!r}: use CharCounter() or one like it"
        )


class Namespace:
    """One tenant: its sessions and nothing of any other. Get it from ``engine.namespace(...)``."""

    def __init__(self, parts: MemoryParts, path: NamespacePath) -> None:
        self._parts = parts
        self.path = path

    def __repr__(self) -> str:
        return f"Namespace({'/'.join(self.path)!r})"

    def session(self, name: str) -> Session:
        """Get the session, or create it."""
        info = self._parts.short_term.sessions.open(self.path, check_name(name), self._parts.now())
        return Session(self._parts, info)

    def find_session(self, name: str) -> Session | None:
        """The session, if there is one; nothing is created."""
        info = self._parts.short_term.sessions.find(self.path, check_name(name))
        return None if info is None else Session(self._parts, info)

    def sessions(self, *, after: str | None = None, limit: int = 100) -> SessionPage:
        """The sessions, newest first.

        Args:
            after: ``next_after`` of the page before; from the newest if left out.
            limit: Sessions per page.
        """
        check_limit(limit)
        before = None
        if after is not None:
            cursor = self._parts.short_term.sessions.find(self.path, check_name(after))
            if cursor is None:
                raise SessionNotFoundError(
                    f"{self!r} has no session {after!r}: start again from the first page"
                )
            before = cursor.key
        found = self._parts.short_term.sessions.sessions(self.path, before=before, limit=limit + 1)
        more = len(found) > limit
        return SessionPage(sessions=found[:limit], next_after=found[limit - 1].name if more else None)

    def recall(
        self,
        query: str,
        *,
        limit: int | None = None,
        strategy: Strategy | str | None = None,
        filters: RecallFilters | None = None,
        now: datetime | None = None,
    ) -> Recall:
        """What was said in any session that answers a query, best first, each with the reasons.

        Args:
            query: A question, or words; marks and operators in it mean nothing.
            limit: How many memories at most.
            strategy: How to rank; the configuration's, if left out.
            filters: What may be recalled.
            now: The time that "last week" is seen from; the clock's, if left out.
        """
        return recall(self._parts, self.path, Asked(query, limit, strategy, filters, now))

    def search(self, text: str, *, limit: int = 10) -> tuple[Hit, ...]:
        """Messages of all sessions that hold words of the text, best first: plain full text.

        Words are stemmed, and any of them is enough. Marks and operators in the text mean nothing.
        """
        return search(self._parts, self.path, text, limit)

    def build_context(
        self,
        query: str,
        *,
        budget: TokenBudget | None = None,
        filters: RecallFilters | None = None,
        now: datetime | None = None,
    ) -> Context:
        """What memory has to say to a question, as one fenced message, never more than the budget.

        For a context with the conversation at hand in it, use ``session.build_context()``.

        Args:
            query: The question.
            budget: What it may take; the engine's, if left out.
            filters: What may be recalled.
            now: The time that "last week" is seen from; the clock's, if left out.
        """
        return build_context(self._parts, self.path, query, budget, filters, now)

    def embed(self) -> int:
        """Embed everything that has no vector yet; how many messages that were.

        Recall does so by itself, for a second at a time. After a large import, or with another
        embedder, this does it all at once.
        """
        return self._parts.retriever.embed(self.path)

    @property
    def knowledge(self) -> KnowledgeBase:
        """What is known across sessions: key and value with a confidence."""
        return self._parts.knowledge_of(self.path)

    @property
    def long_term(self) -> LongTerm:
        """What was promoted, from all sessions."""
        return LongTerm(self._parts.entries, self.path)

    def delete(self) -> DeleteReport:
        """Erase the namespace with all its sessions. Namespaces that begin with its labels stay."""
        self._parts.short_term.cache.drop()
        self._parts.views.drop()
        self._parts.retriever.forget(self.path)
        return self._parts.short_term.sessions.delete_namespace(self.path)
