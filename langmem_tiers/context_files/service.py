"""Contexts in files, or in a database: the joint of stores, compaction and search for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from langmem_tiers.common.closeable import Closeable
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.compression.summarizer import Summarizer
from langmem_tiers.context_files.compaction import compact
from langmem_tiers.context_files.diff import diff_contexts
from langmem_tiers.context_files.exchange import EngineEndpoint, export_context, import_context
from langmem_tiers.context_files.fact_collection import extract_facts
from langmem_tiers.context_files.fact_search import FactSearch
from langmem_tiers.context_files.file_store import FileContextStore
from langmem_tiers.context_files.merge import merge_contexts
from langmem_tiers.context_files.models import ContextData
from langmem_tiers.context_files.sql_store import SqlContextStore
from langmem_tiers.context_files.store_models import (
    ContextDeleteReport,
    ContextFilesConfig,
    ContextVersion,
    SaveReport,
)
from langmem_tiers.errors import (
    ContextConflictError,
    InvalidConfigError,
    InvalidInputError,
    NotFoundError,
    StorageBusyError,
)
from langmem_tiers.text.token_counting import CharCounter
from langmem_tiers.wiring import EngineOptions, open_database

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.ports import Embedder, LanguageModel, TokenCounter
    from langmem_tiers.context_files.compaction import CompactionReport
    from langmem_tiers.context_files.diff import ContextDiff
    from langmem_tiers.context_files.exchange import ContextImportReport
    from langmem_tiers.context_files.fact_collection import FactsReport
    from langmem_tiers.context_files.fact_search import FactHits
    from langmem_tiers.context_files.store_models import ContextStore
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.storage.database import Database

_MAX_TRIES = 100  # far more than a few who save one session need
_CONFLICT_CHOICES = ("refuse", "merge", "overwrite")
_DATABASE_SCHEMES = ("sqlite:", "postgresql:", "postgresql+", "postgres:")


class ContextFiles(Closeable):
    """The contexts of sessions, each in a JSON file that people can read, or all in a database.

    Safe to share between threads, and between processes that work on the same folder.

    Args:
        where: A folder, which the first save makes, or ``sqlite:///memory.db`` or ``postgresql://user@host/name``.
        config: Limits of compaction, how many versions are kept.
        namespace: Whose contexts, in a database that several share; a folder has none.
        counter: Counts entries that nobody counted; they count nothing, if left out.
        model: Writes summaries; without one they are lines of what was said.
        embedder: Finds facts by meaning; ``"offline"`` is the one that is always there, None finds by words alone.
        clock: Where the time comes from.
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
        given = EngineOptions.resolve(
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
        self._clock = given.clock
        self._counter = counter
        self._summarizer = None if model is None else Summarizer(counter or CharCounter(), model)
        self._fact_search = FactSearch(given.embedder, given.clock)
        self._database: Database | None = None
        self.store: ContextStore
        if isinstance(where, str) and where.startswith(_DATABASE_SCHEMES):
            self._database = open_database(where, given)
            self.store = SqlContextStore(self._database, check_namespace(namespace), self.config)
        else:
            self.store = FileContextStore(where, self.config)

    def __repr__(self) -> str:
        return f"ContextFiles({str(self._location) if self._database is None else self._database.label!r})"

    def close(self) -> None:
        """Give the database back, if there is one. Everything that was saved is on it already."""
        self.store.close()
        if self._database is not None:
            self._database.close()

    def initialize(self) -> None:
        """Make the folder now, and not with the first save: whether it can be made is known at once."""
        if isinstance(self.store, FileContextStore):
            self.store.initialize()

    def load(self, session_id: str) -> ContextData:
        """The context of a session; an empty one if there is none, which exists once it is saved.

        A context that cannot be read is set aside, and the last good version takes its place: then ``recovery`` says
        what was done.

        Raises:
            StorageCorruptError: It cannot be read, and no good version is kept. Load again to begin anew.
        """
        check_name(session_id, "session id")
        return self.store.load(session_id) or ContextData(session_id=session_id)

    def save(
        self, context: ContextData, *, on_conflict: Literal["refuse", "merge", "overwrite"] = "refuse"
    ) -> SaveReport:
        """Keep a context. When it returns, it is on the disk, and no crash leaves half of it.

        Go on with the context of the report: the one that was handed in is based on the version before.

        Args:
            context: What to keep.
            on_conflict: What to do if somebody else saved the session since the context was loaded: ``"refuse"``,
                ``"merge"`` both, or ``"overwrite"`` theirs, which stays in the list of versions.

        Raises:
            ContextConflictError: Somebody else saved it, and nothing else was said; nothing was written.
        """
        if not isinstance(context, ContextData):
            raise InvalidInputError(
                f"save() takes a ContextData, got a {type(context).__name__}: use what load() gave"
            )
        if on_conflict not in _CONFLICT_CHOICES:
            raise InvalidInputError(
                f"unknown on_conflict {on_conflict!r}: use one of {', '.join(_CONFLICT_CHOICES)}"
            )
        if on_conflict == "merge":
            return self._save_merged(context)
        return self.store.save(context, self._now(), overwrite=on_conflict == "overwrite")

    def update(self, session_id: str, change: Callable[[ContextData], ContextData]) -> SaveReport:
        """Load, change and save; again, if somebody else saved in between. So no change of anybody is lost.

        Args:
            session_id: Whose context.
            change: What to make of it; it may be asked more than once.
        """
        for _ in range(_MAX_TRIES):
            try:
                return self.save(change(self.load(session_id)))
            except ContextConflictError:
                continue
        raise StorageBusyError(f"session {session_id!r} is saved by others all the time: try again later")

    def delete(self, session_id: str) -> ContextDeleteReport:
        """Erase the context of a session with all its versions. What was set aside as damaged stays."""
        return self.store.delete(check_name(session_id, "session id"))

    def sessions(self) -> tuple[str, ...]:
        """The ids of all sessions that have a context, sorted."""
        return self.store.sessions()

    def compact(self, context: ContextData, *, force: bool = False) -> CompactionReport:
        """The context made smaller where it has grown beyond the limits; nothing is saved yet.

        Args:
            context: As it is.
            force: Keep the newest entries only, also where there are not too many.
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
        """The context with the facts that its history holds and that it does not say yet; nothing is saved yet."""
        return extract_facts(context, since=since)

    def find_facts(self, context: ContextData, text: str, *, limit: int = 5) -> FactHits:
        """The facts that a text is about, best first, by words and by meaning."""
        return self._fact_search.find(context.facts, text, limit=limit)

    def versions(self, session_id: str) -> tuple[ContextVersion, ...]:
        """The versions that are kept of a session, newest first."""
        return self.store.versions(check_name(session_id, "session id"))

    def version(self, session_id: str, number: int) -> ContextData:
        """The context as it was in a version.

        Raises:
            NotFoundError: That version is not kept.
        """
        found = self.store.version(check_name(session_id, "session id"), number)
        if found is None:
            kept = ", ".join(str(one.number) for one in self.versions(session_id)) or "none"
            raise NotFoundError(
                f"session {session_id!r} has no version {number!r}: use one of those that are kept ({kept})"
            )
        return found

    def diff(self, session_id: str, older: int, newer: int) -> ContextDiff:
        """What changed from one version to another."""
        return diff_contexts(self.version(session_id, older), self.version(session_id, newer), (older, newer))

    def restore(self, session_id: str, number: int) -> SaveReport:
        """Put an earlier version into force again, as the next one; those in between stay."""
        earlier = self.version(session_id, number)
        return self.update(session_id, lambda now: replace(earlier, based_on=now.based_on, recovery=None))

    def to_engine(
        self, session_id: str, engine: MemoryEngine, namespace: str | Iterable[str]
    ) -> ContextImportReport:
        """Take a context into the engine: entries as messages of the session of the same name, facts as knowledge.

        Again with the same context, nothing is stored twice.

        Args:
            session_id: Whose context, and the name of the session.
            engine: Where to.
            namespace: The namespace of the session.
        """
        return import_context(_build_endpoint(engine, namespace, session_id), self.load(session_id))

    def from_engine(
        self, session_id: str, engine: MemoryEngine, namespace: str | Iterable[str]
    ) -> SaveReport:
        """Save a session of the engine as a context: the messages of its list, its summary, and what is known.

        Args:
            session_id: The name of the session, and whose context.
            engine: Where from.
            namespace: The namespace of the session.
        """
        context = export_context(_build_endpoint(engine, namespace, session_id), session_id)
        return self.update(session_id, lambda now: replace(context, based_on=now.based_on))

    def _save_merged(self, context: ContextData) -> SaveReport:
        is_merged, ours = False, context
        for _ in range(_MAX_TRIES):
            try:
                return replace(self.store.save(ours, self._now()), is_merged=is_merged)
            except ContextConflictError:
                theirs = self.load(context.session_id)
                ours = merge_contexts(self._find_merge_base(context), theirs, context)
                is_merged = True
        raise StorageBusyError(
            f"session {context.session_id!r} is saved by others all the time: try again later"
        )

    def _find_merge_base(self, context: ContextData) -> ContextData:
        # What both were made from, if it is still kept.
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
        raise InvalidConfigError(f"config must be a ContextFilesConfig, got a {type(config).__name__}")
