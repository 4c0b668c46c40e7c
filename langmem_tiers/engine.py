"""The public entry point: ``MemoryEngine``, bound to one database."""

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
from langmem_tiers.sessions.batch_writer import delete_erased_from_writers
from langmem_tiers.sessions.service import complete_drafts
from langmem_tiers.storage.migrations import get_database_id
from langmem_tiers.tuning.scheduler import ChangedNamespaces
from langmem_tiers.tuning.service import Optimizer
from langmem_tiers.wiring import (
    EngineOptions,
    assemble_backups,
    assemble_items,
    assemble_services,
    assemble_writer,
    build_stats_reader,
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
    from langmem_tiers.sessions.redis.connection import RedisStatus
    from langmem_tiers.telemetry.instruments import EngineGauges, Metrics, Tracer


def summarize_messages(services: EngineServices, messages: object) -> str:
    """Summarize messages of any supported type; return an empty string if there are none."""
    completed = [
        message if isinstance(message, Message) else complete_drafts(services.short_term, [message])[0]
        for message in read_messages(messages)
    ]
    return services.summarizer.summarize(completed).text if completed else ""


class MemoryEngine(BackupApi, Closeable, NotebookDisplayable):
    """Memory in one database. Thread-safe; use one engine per process.

    Args:
        url: ``sqlite:///memory.db`` or a ``Path`` to the file, ``sqlite://`` (in memory, lost when the
            engine closes) or ``postgresql://user@host/name``.
        config: Durability, time limits, cache and token budget.
        counter: Token counter. Default: an estimate based on the kind of content.
        model: Language model for summaries. Without one, summaries are extracted from the messages.
        embedder: Turns text into vectors for recall. ``"offline"`` is the built-in embedder; with None,
            recall matches words only.
        scoring: Custom signals, patterns and fact extractors.
        clock: Source of the current time.
        ids: Source of ids for messages and entries.
        metrics: Receives durations, counts and errors, for example ``telemetry.PrometheusMetrics``.
        tracer: Creates a span per method call, for example ``telemetry.OpenTelemetryTracer``.

    Attributes:
        embedder: The embedder used for recall, or None.
        items: JSON values stored by namespace and key, independent of sessions.
        maintenance: Retention, compaction and statistics, on demand or on a schedule.
        optimizer: Tunes the memory parameters to the conversations of each namespace.
        pools: Memories shared by several namespaces.
        working: In-process working memories of agents.
    """

    def __init__(  # noqa: PLR0913 - optional dependencies, all but the URL by keyword
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
        options = EngineOptions.resolve(
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
        self.embedder = options.embedder
        self.config = options.config
        self.counter = options.counter
        self._database = open_database(url, options)
        self._database_id: str | None = None
        changes = ChangedNamespaces()
        self._redis = open_redis(self._database, options)
        self._services = assemble_services(self._database, options, changes, self._redis)
        self.optimizer = Optimizer(self._services, changes)
        self.items = assemble_items(self._database, options)
        self.working = self._services.working
        # Each forget() runs all of these, for copies that deleting rows does not reach: caches, queues, pools and
        # imported contexts.
        self._services.erasers.extend(
            [
                self.items.invalidate,
                self.working.delete_erased,
                partial(delete_erased_from_writers, self._services.writers),
                partial(erase_from_pools, self._services.pools),
                partial(strip_contexts, self.items),
            ]
        )
        if self._redis is not None:
            self._services.erasers.append(self._redis.confirm_deleted)
        self.maintenance = Maintenance(self._services, self.items.sweep)
        self._backups = assemble_backups(self._database, options, self._redis)
        self.pools = Pools(self._services.long_term, self._services.entries, self._services.pools)
        self._stats_reader = build_stats_reader(self._database)
        self._scoring = options.scoring
        self._attach_instruments()

    def _attach_instruments(self) -> None:
        # A weak reference: the metrics registry must not keep an unused engine alive.
        reference = weakref.ref(self)
        try:
            self._services.instruments.attach(
                lambda: None if (engine := reference()) is None or engine.is_closed else engine.figures()
            )
        except BaseException:
            # The constructor fails here, so no caller will ever be able to close the connection.
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
            facts["Redis connected"] = figures.redis_connected
        # Read one extra row to find out whether there are more.
        paths = self.namespaces(limit=MAX_TABLE_ROWS + 1)
        if paths:
            more = ", and more" if len(paths) > MAX_TABLE_ROWS else ""
            facts["namespaces"] = ", ".join("/".join(path) for path in paths[:MAX_TABLE_ROWS]) + more
        return DisplayContent(repr(self), facts)

    @property
    def url(self) -> str | None:
        """URL that opens the same database again on this machine, without the password.

        None if no such URL exists: the database is in memory, or its URL contains settings that may be secret.
        """
        return self._database.reopen_url

    @property
    def backend(self) -> Literal["sqlite", "postgresql"]:
        """Kind of database: ``"sqlite"`` or ``"postgresql"``."""
        return "sqlite" if self._database.is_sqlite else "postgresql"

    @property
    def database_id(self) -> str:
        """Identity of the database: the same for every engine that opens it, new when it is recreated."""
        if self._database_id is None:
            self._database_id = get_database_id(self._database)
        return self._database_id

    @property
    def services(self) -> EngineServices:
        """Stores and workers of the engine, for extensions. Not stable: they change between releases."""
        return self._services

    @property
    def redis(self) -> RedisStatus | None:
        """Redis status, or None without Redis. Pings the server, unless it failed a moment ago."""
        return None if self._redis is None else self._redis.status()

    @property
    def is_closed(self) -> bool:
        """True if ``close()`` was called."""
        return self._database.is_closed

    def namespace(self, *labels: str | Iterable[str]) -> Namespace:
        """Return the namespace with these labels, broadest first; one tuple of labels works too.

        For example, ``engine.namespace("acme", "alice")``. Nothing is created until something is stored.
        """
        path = labels[0] if len(labels) == 1 else labels
        return Namespace(self._services, check_namespace(path))

    def session(self, namespace: str | Iterable[str], name: str) -> Session:
        """Return the session with this name in the namespace; create it if needed."""
        return Namespace(self._services, check_namespace(namespace)).session(name)

    def new_id(self) -> str:
        """Return an id for a message that will be stored; ids sort by creation time.

        Use it if you need to refer to a message before storing it. Otherwise leave the id out.
        """
        dependencies = self._services.short_term
        return dependencies.ids.new(dependencies.now())

    def namespaces(
        self,
        prefix: str | Iterable[str] = (),
        *,
        after: Iterable[str] | None = None,
        limit: int = 100,
    ) -> tuple[NamespacePath, ...]:
        """List namespaces whose leading labels equal the prefix, in a fixed order.

        Args:
            prefix: Leading labels: ``("acme",)`` matches ``("acme", "alice")`` but not ``("acme-corp",)``.
                Default: all namespaces.
            after: The last namespace of the previous page.
            limit: Namespaces per page.
        """
        check_limit(limit)
        return self._services.short_term.sessions.list_namespaces(
            () if prefix == () else check_namespace(prefix),
            after=None if after is None else check_namespace(after),
            limit=limit,
        )

    def summarize(self, messages: Iterable[object]) -> str:
        """Summarize messages and their facts in at most ``SummaryConfig.target_tokens``; nothing is stored.

        Pass it wherever a framework expects a function from messages to text, such as LangChain's
        ``SummarizationMiddleware(summarizer=engine.summarize, trim_tokens_to_summarize=None, ...)``.
        Without ``trim_tokens_to_summarize=None``, that middleware passes on only the newest 4,000 tokens.

        Args:
            messages: Oldest first: ``Message`` objects, mappings with ``role`` and ``content``, or the messages
                of a framework, including tool calls. Text that memory injected into them is left out.

        Raises:
            InvalidMessageError: A message has no role or no text.
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
        """Create a batch writer for many threads and sessions; concurrent adds share one transaction.

        Args:
            max_messages: Messages per batch.
            max_wait_ms: Longest time in milliseconds that a queued message waits for its batch.
                Applies with ``acknowledge="queued"``.
            max_pending: Limit of messages not stored yet. While it is reached, ``add()`` blocks.
            acknowledge: ``"stored"``: ``add()`` returns when its messages are durable. ``"queued"``: it returns
                at once.
            timeout_seconds: Time limit for waiting for free space in the queue and for the database.
                Default: the busy timeout of the configuration.
            report_path: File for messages that could not be stored. With ``"queued"`` it also holds every pending
                message, so that after a crash ``writer.recover(path)`` can store them.
        """
        config = WriterConfig(
            max_messages=max_messages,
            max_wait_ms=max_wait_ms,
            max_pending=max_pending,
            acknowledge=acknowledge,  # type: ignore[arg-type]  # converted by WriterConfig
            timeout_seconds=self.config.busy_timeout_seconds if timeout_seconds is None else timeout_seconds,
            report_path=report_path,  # type: ignore[arg-type]  # converted by WriterConfig
        )
        writer = assemble_writer(self._database, self._services, self._scoring, config, self._redis)
        self._services.writers.add(writer)
        return writer

    def flush(self) -> None:
        """Store all pending data of this process: batch writers, working memories and access counts.

        ``backup()``, ``move_to()``, ``snapshot()`` and ``forget()`` call it themselves.

        Raises:
            StorageError: Some data could not be stored. It stays pending.
        """
        self._services.flush()

    def figures(self) -> EngineGauges:
        """Return the gauges of the database: counts, size and state. Cheap enough to poll every few seconds.

        On PostgreSQL the counts are the server's estimates and may be a minute old.
        """
        redis = self.redis
        connected = None if redis is None else redis.is_connected
        return replace(self._stats_reader.read(), redis_connected=connected)

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
        """Erase data everywhere: rows, full text, vectors, caches and everything derived from it.

        - ``forget(namespace="alice")`` erases exactly this namespace: sessions, memories, contexts and items.
        - ``forget(namespace="alice", session="monday")`` erases a session and its archived predecessors.
        - ``forget(namespace="alice", session="monday", message=id)`` erases a message. A tool call is erased
          together with its results.
        - ``forget(namespace="alice", entry=id)`` erases an entry, episode, chunk, fact or knowledge value,
          including its earlier versions.
        - ``forget(user="alice")`` erases every namespace with this label.

        Long-term entries and knowledge are erased unless another source supports them; then they are rewritten
        in the words of that source. Summaries and chunks are rebuilt from the remaining messages, without a model.
        Pending data of this process (batch writers, working memories) is stored first and erased with the rest.
        Crash reports of closed writers are not erased: delete those files yourself. Repeating a call is safe;
        do so if a call was interrupted.

        Args:
            namespace: The namespace.
            session: Name of a session.
            message: Id of a message in that session.
            entry: Id of an entry.
            user: A namespace label.
            scrub: Also overwrite the bytes in the database files. This rewrites the SQLite file, or the affected
                PostgreSQL tables, and blocks other writers meanwhile. With False, call
                ``engine.maintenance.scrub()`` later.

        Returns:
            A receipt: what was erased, and what could not be erased.

        Raises:
            InvalidInputError: The arguments select nothing, or two things at once. Nothing was erased.
        """
        request = ErasureRequest.of(
            namespace=namespace, session=session, message=message, entry=entry, user=user
        )
        return forget(self._services, request, scrub=scrub)

    def statistics(self) -> Statistics:
        """Return counts and sizes by tier and by table. Slow on SQLite, which has to count the keys."""
        return self._services.maintenance_store.statistics(self._services.now())

    def embedders(self) -> tuple[str, ...]:
        """List the identities of the embedders with stored message vectors; may not include the current one."""
        return list_embedders(self._database)

    def check(self) -> None:
        """Check that the SQLite file is still the one that was opened; does nothing on PostgreSQL.

        After the file was deleted or replaced, the open connection would still accept writes that no other
        process can read.

        Raises:
            StorageUnavailableError: The file is missing or was replaced.
        """
        self._database.check_file()

    def close(self) -> None:
        """Close the writers, stop the optimizer, store the working memories and close the database.

        All other data is stored before the call that adds it returns.

        Raises:
            StorageError: The database rejected a write. ``engine.working.unsaved()`` returns the unsaved data.
        """
        # The stack runs in reverse order: the writers need the database, so the resources are closed last. An
        # error of one writer does not keep the others open.
        with ExitStack() as stack:
            stack.callback(self._close_resources)
            for writer in list(self._services.writers):
                stack.callback(writer.close)

    def _close_resources(self) -> None:
        # First the background threads, which use the database; the database itself comes last.
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
