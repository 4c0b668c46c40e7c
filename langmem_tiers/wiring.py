"""Composition root: build the services of an engine from its options and the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from langmem_tiers.backup.file import BackupReader, create_backup_file, open_backup_file
from langmem_tiers.backup.repository import BackupRepository, verify_backup
from langmem_tiers.backup.writer import TermBuilder
from langmem_tiers.common.clock import Clock, SystemClock
from langmem_tiers.common.ids import IdSource, TimeSortedIds
from langmem_tiers.common.messages import check_time
from langmem_tiers.compression.compressor import Compressor
from langmem_tiers.compression.fact_finder import FactFinder
from langmem_tiers.compression.summarizer import Summarizer
from langmem_tiers.config import EngineConfig
from langmem_tiers.erasure.repository import ErasureRepository
from langmem_tiers.errors import InvalidConfigError
from langmem_tiers.facts.extraction import FactExtractor
from langmem_tiers.facts.llm_extraction import LlmFactExtractor
from langmem_tiers.items.index_repository import ItemIndexRepository
from langmem_tiers.items.repository import ItemRepository
from langmem_tiers.items.service import Items
from langmem_tiers.knowledge.repository import KnowledgeRepository
from langmem_tiers.long_term.access_counter import AccessCounter
from langmem_tiers.long_term.dependencies import LongTermDependencies
from langmem_tiers.long_term.repository import LongTermIndexRepository, LongTermRepository
from langmem_tiers.maintenance.repository import MaintenanceRepository
from langmem_tiers.maintenance.service import Schedule
from langmem_tiers.maintenance.statistics import DatabaseStatsReader
from langmem_tiers.pools.repository import PoolRepository
from langmem_tiers.recall.embedders.embedding import EmbeddingClient
from langmem_tiers.recall.embedders.vectors import WordSimilarity
from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder
from langmem_tiers.recall.entry_search import MemorySearch
from langmem_tiers.recall.indexing import Indexer
from langmem_tiers.recall.repository import RecallIndexRepository
from langmem_tiers.recall.retriever import Retriever
from langmem_tiers.recall.vector_repository import VectorRepository
from langmem_tiers.scoring_config import Scoring
from langmem_tiers.services import EngineServices
from langmem_tiers.sessions.analysis import Analyzer
from langmem_tiers.sessions.batch_repository import BatchRepository
from langmem_tiers.sessions.batch_writer import BatchWriter
from langmem_tiers.sessions.cache import SessionCache, ViewCache
from langmem_tiers.sessions.message_repository import MessageRepository
from langmem_tiers.sessions.override_repository import OverrideRepository
from langmem_tiers.sessions.redis.cache import RedisCache
from langmem_tiers.sessions.repository import SessionRepository
from langmem_tiers.sessions.service import SessionDependencies
from langmem_tiers.sessions.transcript_repository import TranscriptRepository
from langmem_tiers.storage.database import Database
from langmem_tiers.storage.migrations import migrate
from langmem_tiers.storage.urls import parse_url, redact_url
from langmem_tiers.telemetry.instruments import Instruments
from langmem_tiers.text.token_counting import ContentAwareCounter
from langmem_tiers.text.tokenize import extract_terms
from langmem_tiers.tuning.repository import TuningRepository
from langmem_tiers.working_memory.service import WorkingMemories

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager
    from pathlib import Path

    from langmem_tiers.backup.models import BackupInfo, RestoreRequest
    from langmem_tiers.common.ports import Embedder, LanguageModel, TokenCounter
    from langmem_tiers.sessions.batch_models import WriterConfig
    from langmem_tiers.telemetry.instruments import Metrics, Tracer
    from langmem_tiers.tuning.scheduler import ChangedNamespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Validated constructor options of an engine, except its database."""

    config: EngineConfig
    counter: TokenCounter
    model: LanguageModel | None
    embedder: Embedder | None
    scoring: Scoring
    clock: Clock
    ids: IdSource
    instruments: Instruments

    @classmethod
    def resolve(  # noqa: PLR0913 - the same as MemoryEngine, all by keyword
        cls,
        *,
        config: EngineConfig | None,
        counter: TokenCounter | None,
        model: LanguageModel | None,
        embedder: Embedder | Literal["offline"] | None,
        scoring: Scoring | None,
        clock: Clock | None,
        ids: IdSource | None,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
    ) -> Self:
        """Validate the arguments of an engine and fill in the defaults.

        Raises:
            InvalidConfigError: An argument has the wrong type or lacks a required method.
        """
        _check_config(config)
        _check_counter(counter)
        _check_scoring(scoring)
        _check_model(model)
        _check_embedder(embedder)
        _check_instruments(metrics, tracer)
        clock = SystemClock() if clock is None else clock
        return cls(
            config=EngineConfig() if config is None else config,
            counter=ContentAwareCounter() if counter is None else counter,
            model=model,
            embedder=OfflineEmbedder() if embedder == "offline" else embedder,
            scoring=Scoring() if scoring is None else scoring,
            clock=clock,
            ids=TimeSortedIds() if ids is None else ids,
            instruments=Instruments(metrics, tracer, clock.monotonic),
        )


def open_database(url: str | os.PathLike[str], options: EngineOptions) -> Database:
    """Open a database and migrate it to the current schema."""
    database = Database(url, options.config)
    try:
        migrate(database, check_time(options.clock.now()))
    except BaseException:
        database.close()
        raise
    return database


def get_url_label(url: str) -> str:
    """Return a database URL for display, without anything that may be secret."""
    return redact_url(parse_url(url))


def read_backup_info(path: Path) -> BackupInfo:
    """Read the header of a backup, without its records."""
    with open_backup_file(path) as file:
        return BackupReader(path, file).info


def check_backup(path: Path, request: RestoreRequest) -> None:
    """Verify a backup by reading all of it, as a restore does before it writes."""
    with open_backup_file(path) as file:
        verify_backup(path, file, request)


def create_whole_file(path: Path) -> AbstractContextManager[Path]:
    """Create a file readable by its owner only; it gets its final name once it is complete."""
    return create_backup_file(path, overwrite=False)


def assemble_writer(
    database: Database,
    services: EngineServices,
    scoring: Scoring,
    config: WriterConfig,
    redis: RedisCache | None = None,
) -> BatchWriter:
    """Build a batch writer for many threads."""
    on_written = None if redis is None else redis.extend
    store = BatchRepository(database, Indexer(scoring.importance), on_written)
    return BatchWriter(services.short_term, store, config)


def build_stats_reader(database: Database) -> DatabaseStatsReader:
    """Build the reader of the database gauges."""
    return DatabaseStatsReader(database)


def open_redis(database: Database, options: EngineOptions) -> RedisCache | None:
    """Open the Redis cache, or return None if none is configured; connects on first use."""
    config = options.config.redis
    if config is None:
        return None
    try:
        return RedisCache(config, database, options.clock.monotonic)
    except BaseException:
        database.close()
        raise


def assemble_services(
    database: Database, options: EngineOptions, changes: ChangedNamespaces, redis: RedisCache | None = None
) -> EngineServices:
    """Build the stores and workers of an engine on a database."""
    sessions = (
        SessionRepository(database)
        if redis is None
        else SessionRepository(database, redis.invalidate_sessions, redis.record_session_row)
    )
    entries = OverrideRepository(database)
    short_term = _build_session_dependencies(database, sessions, options, changes, redis)
    finder, embedding = FactFinder(options.scoring.facts), _build_embedding(database, options)
    return EngineServices(
        short_term=short_term,
        entries=entries,
        views=ViewCache(entries, options.config.cache, options.clock.monotonic),
        knowledge=KnowledgeRepository(database, extract_terms),
        tuning=TuningRepository(database),
        analyzer=_build_analyzer(options, finder),
        summarizer=_build_summarizer(options, finder),
        retriever=_build_retriever(database, sessions, options, embedding),
        long_term=_build_long_term_dependencies(database, options, embedding),
        pools=PoolRepository(database),
        fact_extractor=FactExtractor(options.scoring.statements, finder),
        llm_fact_extractor=_build_llm_fact_extractor(options, finder),
        moment_patterns=options.scoring.moments,
        working=WorkingMemories(short_term, options.config.working),
        config=options.config,
        erasure=ErasureRepository(database, redis),
        maintenance_store=MaintenanceRepository(database, options.config.busy_timeout_seconds, redis),
    )


def assemble_items(database: Database, options: EngineOptions) -> Items:
    """Build the items of a database, searched with the engine's embedder."""
    return Items(
        ItemRepository(database),
        ItemIndexRepository(database),
        VectorRepository(database),
        options.config,
        options.clock,
        embedder=options.embedder,
    )


def assemble_backups(
    database: Database, options: EngineOptions, redis: RedisCache | None = None
) -> BackupRepository:
    """Build the store that creates and restores backups of a database."""
    terms = TermBuilder(Indexer(options.scoring.importance), extract_terms)
    return (
        BackupRepository(database, terms)
        if redis is None
        else BackupRepository(database, terms, redis.invalidate_sessions)
    )


def _build_session_dependencies(
    database: Database,
    sessions: SessionRepository,
    options: EngineOptions,
    changes: ChangedNamespaces,
    redis: RedisCache | None,
) -> SessionDependencies:
    record = MessageRepository(database, Indexer(options.scoring.importance))
    lists = TranscriptRepository(database, record)
    return SessionDependencies(
        sessions=sessions,
        messages=record if redis is None else redis.wrap_message_store(record),
        transcripts=lists if redis is None else redis.wrap_transcript_store(lists),
        counter=options.counter,
        clock=options.clock,
        ids=options.ids,
        cache=SessionCache(options.config.cache, options.clock.monotonic),
        on_change=changes.add,
        instruments=options.instruments,
    )


def _build_summarizer(options: EngineOptions, finder: FactFinder) -> Summarizer:
    return Summarizer(
        options.counter,
        options.model,
        facts=finder,
        config=options.config.summary,
        instruments=options.instruments,
    )


def _build_analyzer(options: EngineOptions, finder: FactFinder) -> Analyzer:
    return Analyzer(
        compressor=Compressor(options.counter, finder),
        relevance=options.scoring.relevance,
        importance=options.scoring.importance,
        key_facts=options.scoring.key_facts,
        redundancy_threshold=options.config.redundancy_threshold,
    )


def _build_embedding(database: Database, options: EngineOptions) -> EmbeddingClient | None:
    if options.embedder is None:
        return None
    store = VectorRepository(database)
    return EmbeddingClient(
        options.embedder, store, options.config.embedding, options.clock, options.instruments
    )


def _build_retriever(
    database: Database, sessions: SessionRepository, options: EngineOptions, embedding: EmbeddingClient | None
) -> Retriever:
    return Retriever(
        index=RecallIndexRepository(database),
        sessions=sessions,
        embedding=embedding,
        config=options.config,
        clock=options.clock,
    )


def _build_long_term_dependencies(
    database: Database, options: EngineOptions, embedding: EmbeddingClient | None
) -> LongTermDependencies:
    store = LongTermRepository(database)
    return LongTermDependencies(
        store=store,
        search=MemorySearch(
            store, LongTermIndexRepository(database), embedding, options.config, options.clock
        ),
        access_counter=AccessCounter(store),
        token_counter=options.counter,
        ids=options.ids,
        now=lambda: check_time(options.clock.now()),
        word_similarity=_build_word_similarity(options.embedder),
    )


def _build_word_similarity(embedder: Embedder | None) -> WordSimilarity | None:
    # Similarity is looked up word by word. Only a local embedder is fast enough for that, not a remote API.
    if embedder is None or not getattr(embedder, "is_quick", False):
        return None
    return WordSimilarity(embedder.embed_documents)


def _build_llm_fact_extractor(options: EngineOptions, finder: FactFinder) -> LlmFactExtractor | None:
    if options.model is None or not options.config.learning.asks_model:
        return None
    return LlmFactExtractor(
        options.model, facts=finder, time_limit_seconds=options.config.summary.time_limit_seconds
    )


def _check_config(config: object) -> None:
    if config is None:
        return
    if not isinstance(config, EngineConfig):
        raise InvalidConfigError(f"config must be an EngineConfig, got {type(config).__name__}: create one")
    # Reject an invalid schedule before the database is opened.
    Schedule(config.maintenance)


def _check_scoring(scoring: object) -> None:
    if scoring is not None and not isinstance(scoring, Scoring):
        raise InvalidConfigError(f"scoring must be a Scoring, got {type(scoring).__name__}: use Scoring(...)")


def _check_model(model: object) -> None:
    # LlamaIndex models have a complete() too, with another signature and result. Detect them by two other
    # attributes, so that the error comes now and not with the first summary.
    is_llama_index = hasattr(model, "metadata") and hasattr(model, "acomplete")
    if model is not None and (is_llama_index or not callable(getattr(model, "complete", None))):
        raise InvalidConfigError(
            f"model must have complete(prompt, *, system, max_tokens), got {type(model).__name__}: "
            "wrap a LangChain chat model as langmem_tiers_langchain.LangChainModel(model), a LlamaIndex model as "
            "langmem_tiers_llamaindex.LlamaIndexModel(llm)"
        )


def _check_embedder(embedder: object) -> None:
    if embedder in (None, "offline"):
        return
    if not (
        callable(getattr(embedder, "embed_query", None))
        and callable(getattr(embedder, "embed_documents", None))
    ):
        raise InvalidConfigError(
            f"embedder must have embed_documents(texts) and embed_query(text), got {type(embedder).__name__}: "
            'use "offline" or None, or wrap the embedding model of a framework with its adapter'
        )
    if not isinstance(getattr(embedder, "identity", None), str):
        raise InvalidConfigError(
            f"embedder must have an identity (str), {type(embedder).__name__} has none: "
            "wrap LangChain embeddings as langmem_tiers_langchain.LangChainEmbedder(embeddings), LlamaIndex "
            "embeddings as langmem_tiers_llamaindex.LlamaIndexEmbedder(embed_model)"
        )


def _check_instruments(metrics: object, tracer: object) -> None:
    if metrics is not None and not callable(getattr(metrics, "observe", None)):
        raise InvalidConfigError(
            f"metrics must implement the Metrics protocol (observe(name, seconds), ...), got {type(metrics).__name__}: "
            "use langmem_tiers.telemetry.PrometheusMetrics(registry)"
        )
    if tracer is not None and not callable(getattr(tracer, "span", None)):
        raise InvalidConfigError(
            f"tracer must have span(name), got {type(tracer).__name__}: "
            "wrap an OpenTelemetry tracer as langmem_tiers.telemetry.OpenTelemetryTracer(tracer)"
        )


def _check_counter(counter: object) -> None:
    if counter is not None and (
        not callable(getattr(counter, "count", None)) or not isinstance(getattr(counter, "name", None), str)
    ):
        raise InvalidConfigError(
            f"counter must have a name (str) and count(text), got {counter!r}: pass CharCounter() or a similar object"
        )
