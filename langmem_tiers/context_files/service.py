"""Context files: loading, saving, compacting, searching and comparing the contexts of sessions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from langmem_tiers.common.closeable import Closeable
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.compression.summarizer import Summarizer
from langmem_tiers.context_files.compaction import compact
from langmem_tiers.context_files.engine_transfer import EngineEndpoint, export_context, import_context
from langmem_tiers.context_files.facts import FactSearch, extract_facts
from langmem_tiers.context_files.file_store import FileContextStore
from langmem_tiers.context_files.models import ContextData
from langmem_tiers.context_files.sql_store import SqlContextStore
from langmem_tiers.context_files.store_models import (
    ContextDeleteReport,
    ContextFilesConfig,
    ContextVersion,
    SaveReport,
)
from langmem_tiers.context_files.versions import diff_contexts, merge_contexts
from langmem_tiers.errors import (
    ContextConflictError,
    InvalidConfigError,
    InvalidInputError,
    NotFoundError,
)
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.text.token_counting import CharCounter
from langmem_tiers.wiring import EngineOptions, open_database

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.ports import Embedder, LanguageModel, TokenCounter
    from langmem_tiers.context_files.compaction import CompactionReport
    from langmem_tiers.context_files.engine_transfer import ContextImportReport
    from langmem_tiers.context_files.facts import FactHits, FactsReport
    from langmem_tiers.context_files.store_models import ContextStore
    from langmem_tiers.context_files.versions import ContextDiff
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.storage.database import Database

_CONFLICT_CHOICES = ("refuse", "merge", "overwrite")
_DATABASE_SCHEMES = ("sqlite:", "postgresql:", "postgresql+", "postgres:")


class ContextFiles(Closeable):
    """Contexts of sessions, stored in readable JSON files or in a database.

    Threads can share an instance, and processes can work on the same folder or database.

    Args:
        where: A folder, or ``sqlite:///memory.db`` or ``postgresql://user@host/name``. The first save creates a
            missing folder.
        config: Limits of compaction and number of versions to keep.
        namespace: Namespace of the contexts in a shared database. A folder ignores it.
        counter: Counts the tokens of entries without a count. Default: such entries count as zero.
        model: Writes summaries. Default: a summary contains shortened lines of the conversation.
        embedder: Finds facts by meaning. Default: ``"offline"``, the built-in embedder. None searches by words only.
        clock: Source of the current time. Default: the system clock.

    Example::

        files = ContextFiles("contexts")
        context = files.load("session-1").with_fact("Alice prefers Rust.")
        context = files.save(context).context  # continue with the saved context
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        config: ContextFilesConfig | None = None,
        namespace: str | Iterable[str] = "context-files",
        counter: TokenCounter | None = None,
        model: LanguageModel | None = None,
        embedder: Embedder | Literal["offline"] | None = "offline",
        clock: Clock | None = None,
    ) -> None:
        _check_config(config)
        options = EngineOptions.resolve(
            config=None,
            counter=counter,
            model=model,
            embedder=embedder,
            scoring=None,
            clock=clock,
            ids=None,
        )
        self.config = ContextFilesConfig() if config is None else config
        self._location = where
        self._clock = options.clock
        self._counter = counter
        self._summarizer = None if model is None else Summarizer(counter or CharCounter(), model)
        self._fact_search = FactSearch(options.embedder, options.clock)
        self._database: Database | None = None
        self.store: ContextStore
        if isinstance(where, str) and where.startswith(_DATABASE_SCHEMES):
            self._database = open_database(where, options)
            self.store = SqlContextStore(self._database, check_namespace(namespace), self.config)
        else:
            self.store = FileContextStore(where, self.config)

    def __repr__(self) -> str:
        return f"ContextFiles({str(self._location) if self._database is None else self._database.label!r})"

    def close(self) -> None:
        """Close the database, if one is used. Everything saved before is already durable."""
        self.store.close()
        if self._database is not None:
            self._database.close()

    def initialize(self) -> None:
        """Create the folder now instead of with the first save, so that a wrong path fails early."""
        if isinstance(self.store, FileContextStore):
            self.store.initialize()

    def load(self, session_id: str) -> ContextData:
        """Return the context of a session, or an empty one that exists once it is saved.

        A damaged context is set aside and replaced by the newest readable version. ``recovery`` of the returned
        context describes it.

        Raises:
            StorageCorruptError: The context is damaged and no version is readable. Load again to start with an
                empty context.
        """
        check_name(session_id, "session id")
        return self.store.load(session_id) or ContextData(session_id=session_id)

    def save(
        self, context: ContextData, *, on_conflict: Literal["refuse", "merge", "overwrite"] = "refuse"
    ) -> SaveReport:
        """Store a context atomically. The context is durable when this method returns.

        Continue with ``context`` of the report: the context that was passed is based on the previous version.

        Args:
            context: The context to store.
            on_conflict: Action if another process saved the session since the context was loaded: ``"refuse"``
                raises an error, ``"merge"`` combines both, ``"overwrite"`` replaces the stored context, which remains
                as a version. Default: ``"refuse"``.

        Raises:
            ContextConflictError: Another process saved the session, and ``on_conflict`` is ``"refuse"``. Nothing was
                written.
        """
        if not isinstance(context, ContextData):
            raise InvalidInputError(
                f"save() expects a ContextData, got {type(context).__name__}: use what load() returned"
            )
        if on_conflict not in _CONFLICT_CHOICES:
            raise InvalidInputError(
                f"unknown on_conflict {on_conflict!r}: use one of {', '.join(_CONFLICT_CHOICES)}"
            )
        if on_conflict == "merge":
            return self._merge_and_save(context)
        return self.store.save(context, self._now(), overwrite=on_conflict == "overwrite")

    def update(self, session_id: str, change: Callable[[ContextData], ContextData]) -> SaveReport:
        """Load, change and save a context; repeat if another process saved in between.

        No change of any process is lost.

        Args:
            session_id: The session to update.
            change: Returns the changed context. It is called once per attempt and may run more than once.
        """
        return retry_on_conflict(
            lambda: self.save(change(self.load(session_id))),
            f"session {session_id!r} is being modified concurrently: try again later; nothing was written",
            conflict=ContextConflictError,
        )

    def delete(self, session_id: str) -> ContextDeleteReport:
        """Delete the context of a session with all versions. Damaged copies that were set aside are kept."""
        return self.store.delete(check_name(session_id, "session id"))

    def sessions(self) -> tuple[str, ...]:
        """Return the sorted ids of all sessions that have a context."""
        return self.store.sessions()

    def compact(self, context: ContextData, *, force: bool = False) -> CompactionReport:
        """Shrink a context that exceeds its limits. The result is not saved.

        Args:
            context: The context to shrink. It is not changed.
            force: Keep only the newest ``keep_history`` entries even if the history is within its limits.
        """
        return compact(
            context,
            now=self._now(),
            config=self.config.compaction,
            counter=self._counter,
            summarizer=self._summarizer,
            force=force,
        )

    def extract_facts(self, context: ContextData, *, since: float | None = None) -> FactsReport:
        """Add facts found in the history to a copy of the context. The result is not saved."""
        return extract_facts(context, since=since)

    def find_facts(self, context: ContextData, text: str, *, limit: int = 5) -> FactHits:
        """Return the facts that match a text by words and by meaning, best first."""
        return self._fact_search.find(context.facts, text, limit=limit)

    def versions(self, session_id: str) -> tuple[ContextVersion, ...]:
        """Return the stored versions of a session, newest first."""
        return self.store.versions(check_name(session_id, "session id"))

    def version(self, session_id: str, number: int) -> ContextData:
        """Return the context of a version.

        Raises:
            NotFoundError: The version does not exist or is damaged.
        """
        found = self.store.version(check_name(session_id, "session id"), number)
        if found is None:
            available = ", ".join(str(version.number) for version in self.versions(session_id)) or "none"
            raise NotFoundError(
                f"session {session_id!r} has no version {number!r}: use an available one ({available})"
            )
        return found

    def diff(self, session_id: str, older: int, newer: int) -> ContextDiff:
        """Compare two versions."""
        return diff_contexts(self.version(session_id, older), self.version(session_id, newer), (older, newer))

    def restore(self, session_id: str, number: int) -> SaveReport:
        """Save an earlier version again as the newest one. The versions in between are kept."""
        earlier = self.version(session_id, number)
        # Based on the current version: as the version it was loaded from, saving it would be a conflict.
        return self.update(session_id, lambda now: replace(earlier, based_on=now.based_on, recovery=None))

    def to_engine(
        self, session_id: str, engine: MemoryEngine, namespace: str | Iterable[str]
    ) -> ContextImportReport:
        """Import a context into an engine: entries become messages of the session, facts become knowledge.

        Importing the same context again stores nothing twice.

        Args:
            session_id: The session id of the context, and the session name in the engine.
            engine: The engine to import into.
            namespace: The namespace of the session in the engine.
        """
        return import_context(_build_endpoint(engine, namespace, session_id), self.load(session_id))

    def from_engine(
        self, session_id: str, engine: MemoryEngine, namespace: str | Iterable[str]
    ) -> SaveReport:
        """Save a session of an engine as a context: its current messages, its summary and its knowledge.

        Args:
            session_id: The session name in the engine, and the session id of the context.
            engine: The engine to export from.
            namespace: The namespace of the session in the engine.
        """
        context = export_context(_build_endpoint(engine, namespace, session_id), session_id)
        return self.update(session_id, lambda now: replace(context, based_on=now.based_on))

    def _merge_and_save(self, context: ContextData) -> SaveReport:
        with suppress(ContextConflictError):
            return self.store.save(context, self._now())
        # Each attempt merges the original context, not the result of the previous attempt: that one already contains
        # an older state of the stored context, whose counts would be added twice.
        report = self.update(
            context.session_id,
            lambda stored: merge_contexts(self._find_merge_base(context), stored, context),
        )
        return replace(report, is_merged=True)

    def _find_merge_base(self, context: ContextData) -> ContextData:
        # The common ancestor, if that version still exists. With an empty base the merge keeps everything of both
        # sides, because nothing can be recognized as removed.
        for version in self.versions(context.session_id):
            if version.revision == context.based_on:
                found = self.store.version(context.session_id, version.number)
                if found is not None:
                    return found
        return ContextData(session_id=context.session_id)

    def _now(self) -> datetime:
        return check_time(self._clock.now())


def _build_endpoint(engine: MemoryEngine, namespace: str | Iterable[str], session_id: str) -> EngineEndpoint:
    tenant = engine.namespace(namespace)
    return EngineEndpoint(
        session=tenant.session(session_id),
        knowledge=tenant.knowledge,
        items=engine.items,
        counter=engine.counter,
    )


def _check_config(config: object) -> None:
    if config is not None and not isinstance(config, ContextFilesConfig):
        raise InvalidConfigError(
            f"config must be a ContextFilesConfig, got {type(config).__name__}: create one"
        )
