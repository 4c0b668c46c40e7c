"""The front door: an engine on a database."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from langmem_tiers.backup.service import BackupApi
from langmem_tiers.common.closeable import Closeable
from langmem_tiers.common.message_adapter import read_messages
from langmem_tiers.common.messages import Message
from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.config import check_limit
from langmem_tiers.display.displayable import NotebookDisplayable
from langmem_tiers.display.tables import MAX_TABLE_ROWS, DisplayContent
from langmem_tiers.erasure.imported_contexts import strip_contexts
from langmem_tiers.erasure.models import ErasureRequest
from langmem_tiers.erasure.service import forget
from langmem_tiers.maintenance.service import Maintenance
from langmem_tiers.namespace import Namespace
from langmem_tiers.pools.service import Pools, erase_from_pools
from langmem_tiers.recall.vector_repository import list_embedders
from langmem_tiers.sessions.batch_models import Acknowledge, WriterConfig
from langmem_tiers.sessions.pending_writes import delete_erased_from_writers, flush_all
from langmem_tiers.sessions.service import complete_drafts
from langmem_tiers.tuning.background import ChangedNamespaces
from langmem_tiers.tuning.service import Optimizer
from langmem_tiers.wiring import (
    EngineOptions,
    assemble_backups,
    assemble_items,
    assemble_services,
    assemble_writer,
    build_figures_reader,
    get_database_id,
    open_database,
    open_redis,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.ids import IdSource
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import Embedder, LanguageModel, TokenCounter
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.erasure.models import ErasureReceipt
    from langmem_tiers.maintenance.models import Statistics
    from langmem_tiers.scoring_config import Scoring
    from langmem_tiers.services import EngineServices
    from langmem_tiers.session import Session
    from langmem_tiers.sessions.batch_writer import BatchWriter
    from langmem_tiers.sessions.redis.models import RedisStatus
    from langmem_tiers.telemetry.instruments import EngineGauges, Metrics, Tracer


def summarize_messages(parts: EngineServices, messages: object) -> str:
    """The summary of messages, read by their shape; empty where there are none."""
    read = read_messages(messages)
    sealed = [
        one if isinstance(one, Message) else complete_drafts(parts.short_term, [one])[0] for one in read
    ]
    return parts.summarizer.summarize(sealed).text if sealed else ""


class MemoryEngine(BackupApi, Closeable, NotebookDisplayable):
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
        metrics: Receives durations, counts and errors, for example ``telemetry.prometheus.PrometheusMetrics``.
        tracer: Creates a span per method call, for example ``telemetry.opentelemetry.OpenTelemetryTracer``.

    Attributes:
        embedder: The one that recall uses.
        items: JSON values under namespaces and keys, beside all sessions.
        maintenance: Retention, compaction and statistics, by call or by a schedule.
        optimizer: Tunes memory to what is said.
        pools: What several namespaces share.
        working: What agents have at hand in this process.
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
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        given = EngineOptions.resolve(
            config=config,
            counter=counter,
            model=model,
            embedder=embedder,
            scoring=scoring,
            clock=clock,
            ids=ids,
            metrics=metrics,
            tracer=tracer,
        )
        self.embedder = given.embedder
        self.config = given.config
        self.counter = given.counter
        self._database = open_database(url, given)
        self._database_id: str | None = None
        changes = ChangedNamespaces()
        self._redis = open_redis(self._database, given)
        self._services = assemble_services(self._database, given, changes, self._redis)
        self.optimizer = Optimizer(self._services, changes)
        self.items = assemble_items(self._database, given)
        self.working = self._services.working
        self._services.erasers.extend(
            [
                self.items.invalidate,
                self.working.delete_erased,
                partial(delete_erased_from_writers, self._services),
                partial(erase_from_pools, self._services.pools),
                partial(strip_contexts, self.items),
            ]
        )
        if self._redis is not None:
            self._services.erasers.append(self._redis.confirm_deleted)
        self.maintenance = Maintenance(self._services, self.items.sweep)
        self._backups = assemble_backups(self._database, given, self._redis)
        self.pools = Pools(self._services.long_term, self._services.entries, self._services.pools)
        self._figures_reader = build_figures_reader(self._database)
        self._scoring = given.scoring
        self._attach_instruments()

    def _attach_instruments(self) -> None:
        # Weakly, so that who scrapes does not keep an engine alive that nobody uses any more.
        mine = weakref.ref(self)
        try:
            self._services.instruments.attach(
                lambda: None if (engine := mine()) is None or engine.is_closed else engine.figures()
            )
        except BaseException:
            self._database.close()
            raise

    def __repr__(self) -> str:
        return f"MemoryEngine({self._database.label!r}{', closed' if self.is_closed else ''})"

    def _to_display(self) -> DisplayContent:
        if self.is_closed:
            return DisplayContent(repr(self))
        figures = self.figures()
        facts: dict[str, object] = {
            "messages": figures.messages,
            "memories": figures.memories,
            "bytes": figures.storage_bytes,
            "tokens for memory": self.config.budget.available,
            "embedder": None if self.embedder is None else repr(self.embedder),
            "optimizer": "runs in the background" if self.optimizer.is_running else "runs when it is called",
        }
        if figures.redis_connected is not None:
            facts["Redis answers"] = figures.redis_connected
        found = self.namespaces(limit=MAX_TABLE_ROWS + 1)
        if found:
            more = ", and more" if len(found) > MAX_TABLE_ROWS else ""
            facts["namespaces"] = ", ".join("/".join(path) for path in found[:MAX_TABLE_ROWS]) + more
        return DisplayContent(repr(self), facts)

    @property
    def url(self) -> str | None:
        """What opens the same database again on this machine, without the password.

        None if nothing does, because it is in memory or its URL has settings that are not to be told.
        """
        return self._database.reopen_url

    @property
    def backend(self) -> Literal["sqlite", "postgresql"]:
        """What kind of database it is on."""
        return "sqlite" if self._database.is_sqlite else "postgresql"

    @property
    def database_id(self) -> str:
        """The same for whoever opens this database, wherever it is; a database that was made anew has another."""
        if self._database_id is None:
            self._database_id = get_database_id(self._database)
        return self._database_id

    @property
    def services(self) -> EngineServices:
        """The stores and workers behind it, for what is built on the engine; they change from release to release."""
        return self._services

    @property
    def redis(self) -> RedisStatus | None:
        """How Redis serves, or None without one. It is asked now, unless it failed a moment ago."""
        return None if self._redis is None else self._redis.status()

    @property
    def is_closed(self) -> bool:
        """Whether ``close()`` was called."""
        return self._database.is_closed

    def namespace(self, *labels: str | Iterable[str]) -> Namespace:
        """The tenant with these labels, from the widest to the narrowest, or as one tuple."""
        whole = labels[0] if len(labels) == 1 else labels
        return Namespace(self._services, check_namespace(whole))

    def session(self, namespace: str | Iterable[str], name: str) -> Session:
        """Get the session of that namespace, or create it."""
        return Namespace(self._services, check_namespace(namespace)).session(name)

    def new_id(self) -> str:
        """An id for a message that is to be stored; later ones sort behind it.

        For those who have to name a message before they store it. Otherwise leave the id out.
        """
        parts = self._services.short_term
        return parts.ids.new(parts.now())

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
        return self._services.short_term.sessions.list_namespaces(
            () if prefix == () else check_namespace(prefix),
            after=None if after is None else check_namespace(after),
            limit=limit,
        )

    def summarize(self, messages: Iterable[object]) -> str:
        """Messages in one text of at most ``SummaryConfig.target_tokens``, with their facts; nothing is stored.

        It fits where a framework takes a function from messages to a text, such as LangChain's
        ``SummarizationMiddleware(summarizer=engine.summarize, trim_tokens_to_summarize=None, ...)``,
        which without that None hands on the newest 4,000 tokens only.

        Args:
            messages: Oldest first: our own, mappings with ``role`` and ``content``, or the messages of a
                framework, tool calls included. What memory had injected into them is left out.

        Raises:
            InvalidMessageError: One of them has no role or no text.
        """
        return summarize_messages(self._services, messages)

    def writer(
        self,
        *,
        max_messages: int = 100,
        max_wait_ms: float = 1000.0,
        max_pending: int = 10_000,
        acknowledge: Acknowledge | Literal["stored", "queued"] = Acknowledge.STORED,
        timeout_seconds: float | None = None,
        report_path: str | os.PathLike[str] | None = None,
    ) -> BatchWriter:
        """A writer for many threads and sessions: what they add meanwhile shares one transaction.

        Args:
            max_messages: So many make a batch.
            max_wait_ms: So long a message waits at most for others, where nobody waits for it.
            max_pending: Whoever adds while so many are not stored yet waits.
            acknowledge: ``"stored"``: ``add()`` returns when its messages are durable. ``"queued"``: at once.
            timeout_seconds: How long to wait for room, and for the store; the busy timeout, if left out.
            report_path: A file for what could not be stored. With ``"queued"`` everything that waits is in it
                meanwhile, so that even a process that is killed leaves it behind for ``writer.recover(path)``.
        """
        config = WriterConfig(
            max_messages=max_messages,
            max_wait_ms=max_wait_ms,
            max_pending=max_pending,
            acknowledge=acknowledge,  # type: ignore[arg-type]  # checked there
            timeout_seconds=self.config.busy_timeout_seconds if timeout_seconds is None else timeout_seconds,
            report_path=report_path,  # type: ignore[arg-type]  # made a Path there
        )
        writer = assemble_writer(self._database, self._services, self._scoring, config, self._redis)
        self._services.writers.add(writer)
        return writer

    def flush(self) -> None:
        """Store all that was taken and waits in this process: in its writers and in working memories.

        ``backup()``, ``move_to()``, ``snapshot()`` and ``forget()`` do so by themselves.

        Raises:
            StorageError: The database took it not, or not all; what it did not take is held on.
        """
        flush_all(self._services)

    def figures(self) -> EngineGauges:
        """What the database holds and how it stands; cheap enough to be asked every few seconds.

        On PostgreSQL the counts are the server's own estimates, which may be a minute behind.
        """
        redis = self.redis
        connected = None if redis is None else redis.is_connected
        return replace(self._figures_reader.read(), redis_connected=connected)

    def forget(
        self,
        *,
        namespace: str | Iterable[str] | None = None,
        session: str | None = None,
        message: str | None = None,
        entry: str | None = None,
        user: str | None = None,
        scrub: bool = True,
    ) -> ErasureReceipt:
        """Erase something everywhere: rows, full text, vectors, caches, and what was made of it.

        ``forget(namespace="alice")`` erases exactly that namespace with its sessions, memories, contexts and items;
        ``forget(namespace="alice", session="monday")`` a session with those set aside from it;
        ``forget(namespace="alice", session="monday", message=id)`` a message, a tool call with its results;
        ``forget(namespace="alice", entry=id)`` an entry, an episode, a chunk, a fact or something known, with what
        it was before; ``forget(user="alice")`` every namespace that has this label.

        Long-term entries and knowledge go if nothing else says so; entries that others said too are told in their
        words. Summaries and chunks are made anew from what is left, without a model. What waits in this process, in
        writers and in working memories, is stored first and erased with the rest; what a writer had left in a report
        when it was closed is yours to erase. To forget the same again is safe, and is what to do if this was stopped.

        Args:
            namespace: Whose.
            session: Name of a session.
            message: Id of a message of that session.
            entry: Id of an entry.
            user: A label.
            scrub: Whether the bytes are wiped from the files too. A SQLite file and the tables concerned of
                PostgreSQL are written anew for that, and others wait meanwhile. Without it,
                ``engine.maintenance.scrub()`` does it later.

        Returns:
            What was erased, and what could not be.

        Raises:
            InvalidInputError: It names nothing, or two things at once; nothing was erased.
        """
        request = ErasureRequest.of(
            namespace=namespace, session=session, message=message, entry=entry, user=user
        )
        return forget(self._services, request, scrub=scrub)

    def statistics(self) -> Statistics:
        """What the database holds and takes, by tier and by table; on SQLite keys are counted, which takes a while."""
        return self._services.maintenance_store.statistics(self._services.now())

    def embedders(self) -> tuple[str, ...]:
        """The identities of the embedders whose vectors of messages the database holds; its own need not be one."""
        return list_embedders(self._database)

    def check(self) -> None:
        """Whether the database is still where it was opened; costs a look at the file, and nothing on PostgreSQL.

        A SQLite file that was deleted, or that another one stands for, would go on to take what nobody reads.

        Raises:
            StorageUnavailableError: It is not.
        """
        self._database.check_file()

    def close(self) -> None:
        """Close its writers, stop the optimizer, store what working memory holds and give the database back.

        Everything else that was acknowledged as stored is on it already.

        Raises:
            StorageError: The database takes nothing; ``engine.working.unsaved()`` has what it did not take.
        """
        with ExitStack() as stack:
            stack.callback(self._close_resources)
            for writer in list(self._services.writers):
                stack.callback(writer.close)

    def _close_resources(self) -> None:
        self.optimizer.stop()
        self.maintenance.stop()
        self.items.sweeper.stop()
        try:
            self._services.working.close()
        finally:
            self._services.retriever.close()
            if not self._database.is_closed:
                self._services.long_term.access_counter.close()
            if self._redis is not None:
                self._redis.close()
            self._database.close()
            self._services.instruments.detach()
