"""Puts the parts of an engine together: what was handed in, and the rest as it comes by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from langmem_tiers.backup.file import BackupReader, new_file, reading_file
from langmem_tiers.backup.repository import SqlBackups, checked
from langmem_tiers.backup.writer import Terms
from langmem_tiers.common.clock import Clock, SystemClock
from langmem_tiers.common.ids import IdSource, TimeSortedIds
from langmem_tiers.common.messages import check_time
from langmem_tiers.compression.compressor import Compressor
from langmem_tiers.compression.fact_finder import FactFinder
from langmem_tiers.compression.summarizer import Summarizer
from langmem_tiers.config import EngineConfig
from langmem_tiers.erasure.repository import SqlErasureStore
from langmem_tiers.errors import InvalidConfigError
from langmem_tiers.facts.extraction import FactExtractor
from langmem_tiers.facts.llm_extraction import ModelFacts
from langmem_tiers.items.index_repository import SqlItemIndex
from langmem_tiers.items.repository import SqlItemStore
from langmem_tiers.items.service import ItemParts, Items
from langmem_tiers.knowledge.repository import SqlKnowledgeStore
from langmem_tiers.long_term.access_counter import Uses
from langmem_tiers.long_term.dependencies import LastingParts
from langmem_tiers.long_term.index_repository import SqlMemoryIndex
from langmem_tiers.long_term.repository import SqlMemoryStore
from langmem_tiers.maintenance.repository import SqlUpkeep
from langmem_tiers.maintenance.schedule import Schedule
from langmem_tiers.pools.repository import SqlPoolStore
from langmem_tiers.recall.embedders.embedding import Embedding
from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder
from langmem_tiers.recall.entry_search import MemorySearch
from langmem_tiers.recall.indexing import Indexer
from langmem_tiers.recall.repository import SqlIndexStore
from langmem_tiers.recall.retriever import Retriever
from langmem_tiers.recall.vector_repository import SqlVectorStore
from langmem_tiers.recall.word_similarity import Kinship
from langmem_tiers.scoring_config import Scoring
from langmem_tiers.services import MemoryParts
from langmem_tiers.sessions.analysis import Analyzer
from langmem_tiers.sessions.batch_repository import SqlBatchStore
from langmem_tiers.sessions.batch_writer import BatchWriter
from langmem_tiers.sessions.cache import SessionCache, ViewCache
from langmem_tiers.sessions.message_repository import SqlMessageStore
from langmem_tiers.sessions.override_repository import SqlEntryStore
from langmem_tiers.sessions.redis.cache import RedisCache
from langmem_tiers.sessions.repository import SqlSessionStore
from langmem_tiers.sessions.service import ShortTermParts
from langmem_tiers.sessions.transcript_repository import SqlTranscriptStore
from langmem_tiers.sessions.write_ahead_file import JsonLinesUnsavedFiles
from langmem_tiers.storage.cheap_counts import SqlFigures
from langmem_tiers.storage.database import Database
from langmem_tiers.storage.migrations import identity_of, migrate
from langmem_tiers.storage.urls import label_of, parse_url
from langmem_tiers.telemetry.instruments import Instruments
from langmem_tiers.text.token_counting import ContentAwareCounter
from langmem_tiers.text.tokenize import terms_of
from langmem_tiers.tuning.repository import SqlTuningStore
from langmem_tiers.working_memory.service import WorkingMemories

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager
    from pathlib import Path

    from langmem_tiers.backup.models import BackupInfo, BackupStore, RestoreWish
    from langmem_tiers.common.ports import Embedder, LanguageModel, SessionStore, TokenCounter
    from langmem_tiers.sessions.batch_models import WriterConfig
    from langmem_tiers.telemetry.instruments import Metrics, Tracer
    from langmem_tiers.tuning.background import Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What an engine is made of besides its database, checked."""

    config: EngineConfig
    counter: TokenCounter
    model: LanguageModel | None
    embedder: Embedder | None
    scoring: Scoring
    clock: Clock
    ids: IdSource
    instruments: Instruments

    @classmethod
    def of(  # noqa: PLR0913 - as the engine's own, all by keyword
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
        """What was handed in to an engine, and for what was left out what comes by default."""
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


def open_database(url: str | os.PathLike[str], given: Given) -> Database:
    """The database, brought to the schema of today."""
    database = Database(url, given.config)
    try:
        migrate(database, check_time(given.clock.now()))
    except BaseException:
        database.close()
        raise
    return database


def database_id(database: Database) -> str:
    """What tells a database apart from all others."""
    return identity_of(database)


def url_label(url: str) -> str:
    """A database URL for people, without anything that may be a secret."""
    return label_of(parse_url(url))


def backup_info(path: Path) -> BackupInfo:
    """What a backup says of itself; its records are not read."""
    with reading_file(path) as file:
        return BackupReader(path, file).info


def check_backup(path: Path, wish: RestoreWish) -> None:
    """Read a backup to its end, as a restore does before it writes."""
    with reading_file(path) as file:
        checked(path, file, wish)


def whole_file(path: Path) -> AbstractContextManager[Path]:
    """A new file for its owner alone: written beside its place, it takes its name when all went well."""
    return new_file(path, overwrite=False)


def assemble_writer(
    database: Database,
    parts: MemoryParts,
    scoring: Scoring,
    config: WriterConfig,
    redis: RedisCache | None = None,
) -> BatchWriter:
    """A writer that stores what many threads add."""
    written = None if redis is None else redis.extend
    store = SqlBatchStore(database, Indexer(scoring.importance), written)
    return BatchWriter(parts.short_term, store, JsonLinesUnsavedFiles(), config)


def figures_of(database: Database) -> SqlFigures:
    """Tells how a database stands."""
    return SqlFigures(database)


def open_redis(database: Database, given: Given) -> RedisCache | None:
    """The cache that several processes share, if there is one; it is asked only when it is needed."""
    config = given.config.redis
    if config is None:
        return None
    try:
        return RedisCache(config, database, given.clock.monotonic)
    except BaseException:
        database.close()
        raise


def assemble(
    database: Database, given: Given, changes: Changes, redis: RedisCache | None = None
) -> MemoryParts:
    """The stores and workers of an engine on a database."""
    sessions = (
        SqlSessionStore(database) if redis is None else SqlSessionStore(database, redis.erase, redis.found)
    )
    entries = SqlEntryStore(database)
    short_term = _short_term(database, sessions, given, changes, redis)
    finder, embedding = FactFinder(given.scoring.facts), _embedding(database, given)
    return MemoryParts(
        short_term=short_term,
        entries=entries,
        views=ViewCache(entries, given.config.cache, given.clock.monotonic),
        knowledge=SqlKnowledgeStore(database, terms_of),
        tuning=SqlTuningStore(database),
        analyzer=_analyzer(given, finder),
        summarizer=_summarizer(given, finder),
        retriever=_retriever(database, sessions, given, embedding),
        lasting=_lasting(database, given, embedding),
        pools=SqlPoolStore(database),
        extractor=FactExtractor(given.scoring.statements, finder),
        model_facts=_model_facts(given, finder),
        moments=given.scoring.moments,
        working=WorkingMemories(short_term, given.config.working),
        config=given.config,
        erasure=SqlErasureStore(database, redis),
        upkeep=SqlUpkeep(database, given.config.busy_timeout_seconds, redis),
    )


def assemble_items(database: Database, given: Given) -> Items:
    """The items of a database, found by the engine's own embedder."""
    parts = ItemParts(
        store=SqlItemStore(database),
        index=SqlItemIndex(database),
        vectors=SqlVectorStore(database),
        config=given.config,
        clock=given.clock,
    )
    return Items(parts, given.embedder)


def assemble_backups(database: Database, given: Given, redis: RedisCache | None = None) -> BackupStore:
    """What makes and restores backups of a database."""
    terms = Terms(Indexer(given.scoring.importance), terms_of)
    return SqlBackups(database, terms) if redis is None else SqlBackups(database, terms, redis.erase)


def _short_term(
    database: Database, sessions: SessionStore, given: Given, changes: Changes, redis: RedisCache | None
) -> ShortTermParts:
    record = SqlMessageStore(database, Indexer(given.scoring.importance))
    lists = SqlTranscriptStore(database, record)
    return ShortTermParts(
        sessions=sessions,
        messages=record if redis is None else redis.messages(record),
        transcripts=lists if redis is None else redis.transcripts(lists),
        counter=given.counter,
        clock=given.clock,
        ids=given.ids,
        cache=SessionCache(given.config.cache, given.clock.monotonic),
        changed=changes.note,
        instruments=given.instruments,
    )


def _summarizer(given: Given, finder: FactFinder) -> Summarizer:
    return Summarizer(
        given.counter,
        given.model,
        facts=finder,
        config=given.config.summary,
        instruments=given.instruments,
    )


def _analyzer(given: Given, finder: FactFinder) -> Analyzer:
    return Analyzer(
        compressor=Compressor(given.counter, finder),
        relevance=given.scoring.relevance,
        importance=given.scoring.importance,
        key_facts=given.scoring.key_facts,
        redundancy_threshold=given.config.redundancy_threshold,
    )


def _embedding(database: Database, given: Given) -> Embedding | None:
    if given.embedder is None:
        return None
    store = SqlVectorStore(database)
    return Embedding(given.embedder, store, given.config.embedding, given.clock, given.instruments)


def _retriever(
    database: Database, sessions: SessionStore, given: Given, embedding: Embedding | None
) -> Retriever:
    return Retriever(
        index=SqlIndexStore(database),
        sessions=sessions,
        embedding=embedding,
        config=given.config,
        clock=given.clock,
    )


def _lasting(database: Database, given: Given, embedding: Embedding | None) -> LastingParts:
    store = SqlMemoryStore(database)
    return LastingParts(
        store=store,
        search=MemorySearch(store, SqlMemoryIndex(database), embedding, given.config, given.clock),
        uses=Uses(store),
        counter=given.counter,
        ids=given.ids,
        now=lambda: check_time(given.clock.now()),
        kin=_kin(given.embedder),
    )


def _kin(embedder: Embedder | None) -> Kinship | None:
    # Words are looked up one by one: only an embedder in this process is quick enough for that.
    if embedder is None or not getattr(embedder, "is_quick", False):
        return None
    return Kinship(embedder.embed_documents)


def _model_facts(given: Given, finder: FactFinder) -> ModelFacts | None:
    if given.model is None or not given.config.learning.asks_model:
        return None
    return ModelFacts(given.model, facts=finder, time_limit_seconds=given.config.summary.time_limit_seconds)


def _check_config(config: object) -> None:
    if config is None:
        return
    if not isinstance(config, EngineConfig):
        raise InvalidConfigError(f"config must be an EngineConfig, got a {type(config).__name__}")
    Schedule(config.maintenance)  # a line that is none is refused before anything is opened


def _check_scoring(scoring: object) -> None:
    if scoring is not None and not isinstance(scoring, Scoring):
        raise InvalidConfigError(f"scoring must be a Scoring, got a {type(scoring).__name__}")


def _check_model(model: object) -> None:
    # LlamaIndex's models have a complete() of their own, which gives something else.
    is_other = hasattr(model, "metadata") and hasattr(model, "acomplete")
    if model is not None and (is_other or not callable(getattr(model, "complete", None))):
        raise InvalidConfigError(
            f"model must have complete(prompt, *, system, max_tokens), got a {type(model).__name__}: "
            "wrap a chat model of LangChain as langmem_tiers_langchain.LangChainModel(model), one of LlamaIndex as "
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
            f"embedder must have embed_documents(texts) and embed_query(text), got a {type(embedder).__name__}: "
            'use "offline", None, or wrap the model of a framework in its adapter'
        )
    if not isinstance(getattr(embedder, "identity", None), str):
        raise InvalidConfigError(
            f"embedder must have an identity, which a {type(embedder).__name__} has not: "
            "wrap embeddings of LangChain as langmem_tiers_langchain.LangChainEmbedder(embeddings), those of "
            "LlamaIndex as langmem_tiers_llamaindex.LlamaIndexEmbedder(embed_model)"
        )


def _check_instruments(metrics: object, tracer: object) -> None:
    if metrics is not None and not callable(getattr(metrics, "observe", None)):
        raise InvalidConfigError(
            f"metrics must have observe(name, seconds) and the like, got a {type(metrics).__name__}: "
            "use langmem_tiers.telemetry.prometheus.PrometheusMetrics(registry)"
        )
    if tracer is not None and not callable(getattr(tracer, "span", None)):
        raise InvalidConfigError(
            f"tracer must have span(name), got a {type(tracer).__name__}: "
            "wrap one of OpenTelemetry as langmem_tiers.telemetry.opentelemetry.OpenTelemetryTracer(tracer)"
        )


def _check_counter(counter: object) -> None:
    if counter is not None and (
        not callable(getattr(counter, "count", None)) or not isinstance(getattr(counter, "name", None), str)
    ):
        raise InvalidConfigError(
            f"counter must have a name and count(text), got {counter!r}: use CharCounter() or one like it"
        )
