"""Settings: frozen, checked where they are built, handed in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.common.checks import check_fraction, check_positive, check_whole
from langmem_tiers.common.recall_strategy import HybridWeights, Strategy, TfIdfWeights, check_strategy
from langmem_tiers.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from urllib.parse import SplitResult


class VectorScan(StrEnum):
    """In what order pgvector goes on when what it found is of others."""

    STRICT = "strict_order"
    """By distance, exactly."""
    RELAXED = "relaxed_order"
    """About by distance: quicker. Recall sorts what it gets, so this loses next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    """How an engine treats a PostgreSQL server; nothing of it matters on SQLite."""

    pool_size: int | None = None
    """Connections that this process holds; ``EngineConfig.pool_size``, if left out. All processes together must stay
    below the server's ``max_connections``."""
    max_overflow: int = 0
    """Connections beyond that while many ask at once; they are closed afterwards."""
    pool_timeout_seconds: float | None = None
    """How long a caller waits for a connection; ``EngineConfig.busy_timeout_seconds``, if left out."""
    ping_after_seconds: float = 30.0
    """A connection that rested for longer is tried before it is used."""
    reconnect_seconds: float = 30.0
    """How long a server that was reached before and went away is waited for, as while it restarts; 0 does not wait."""
    ef_search: int = 200
    """What the HNSW index looks at for one query at the least, up to 1,000: more finds better and takes longer."""
    vector_scan: VectorScan = VectorScan.RELAXED
    exact_numbers: int = 5_000_000
    """Up to so many numbers in all, vectors of a namespace are compared one by one, which finds them all: 20,000
    vectors of 256. Beyond that the HNSW index is asked."""
    max_scan_tuples: int = 20_000
    """Where the HNSW index gives up looking for vectors of one tenant among those of all; the search goes through the
    tenant's own vectors then."""

    def __post_init__(self) -> None:
        if self.pool_size is not None:
            check_whole(self.pool_size, 1, "pool_size", most=10_000)
        check_whole(self.max_overflow, 0, "max_overflow", most=10_000)
        if self.pool_timeout_seconds is not None:
            check_positive(self.pool_timeout_seconds, "pool_timeout_seconds", most=86_400)
        check_positive(self.ping_after_seconds, "ping_after_seconds", most=86_400)
        if self.reconnect_seconds != 0 or isinstance(self.reconnect_seconds, bool):
            check_positive(self.reconnect_seconds, "reconnect_seconds", most=86_400)
        check_whole(self.ef_search, 1, "ef_search", most=1000)
        check_whole(self.exact_numbers, 0, "exact_numbers")
        check_whole(self.max_scan_tuples, 1, "max_scan_tuples", most=2**31 - 1)
        try:
            object.__setattr__(self, "vector_scan", VectorScan(self.vector_scan))
        except ValueError as error:
            known = ", ".join(VectorScan)
            raise InvalidConfigError(
                f"unknown vector_scan {self.vector_scan!r}: use one of {known}"
            ) from error


_REDIS_SCHEMES = ("redis", "rediss", "unix")


_MAX_PREFIX_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """Redis as a shared cache of each session's newest messages; never the only copy of anything.

    Every read compares what is cached with the session's row, so a Redis that is down, slow, empty or wrong makes
    reads slower and never wrong.
    """

    url: str = field(default="redis://localhost:6379", repr=False)
    """``redis://user:password@host:port/0``, ``rediss://...`` with TLS, or ``unix:///path/to/socket``."""
    prefix: str = "langmem-tiers"
    """How all keys begin."""
    ttl_seconds: int = 86_400
    """For how long a session that nobody writes to stays cached."""
    window: int = 100
    """How many of a session's newest messages are cached at most."""
    max_window_bytes: int = 1_000_000
    """What they may take in Redis; of larger ones fewer are cached."""
    timeout_seconds: float = 0.25
    """How long to wait for a connection, and for an answer."""
    retry_seconds: float = 5.0
    """How long a Redis that failed is left alone."""

    def __post_init__(self) -> None:
        _check_redis_url(self.url)
        _check_prefix(self.prefix)
        check_whole(self.ttl_seconds, 1, "ttl_seconds", most=10**9)
        check_whole(self.window, 1, "window", most=10_000)
        check_whole(self.max_window_bytes, 1, "max_window_bytes")
        check_positive(self.timeout_seconds, "timeout_seconds", most=3600)
        check_positive(self.retry_seconds, "retry_seconds", most=86_400)

    @property
    def label(self) -> str:
        """The URL for people: nothing that may hold a secret, so no password and no query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingConfig:
    """What working memories may take in this process."""

    max_agents: int = 1000
    """How many are held; the least recently used is stored and leaves first."""
    max_megabytes: int = 500
    """What all of them take, measured."""
    ttl_seconds: float = 1800.0
    """One that nobody used for so long is stored and leaves."""
    flush_tokens: int = 32_000
    """One that takes more tokens is stored to its session."""

    def __post_init__(self) -> None:
        check_whole(self.max_agents, 1, "max_agents")
        check_whole(self.max_megabytes, 1, "max_megabytes")
        check_positive(self.ttl_seconds, "ttl_seconds")
        check_whole(self.flush_tokens, 1, "flush_tokens")


def _check_redis_url(url: object) -> None:
    if not isinstance(url, str):
        raise InvalidConfigError(
            f"a Redis URL must be a str, got a {type(url).__name__}: use 'redis://localhost:6379'"
        )
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        raise InvalidConfigError(
            "that is no Redis URL, or its port is none: use 'redis://localhost:6379', and write marks in a password "
            "as %40, %2F, ..."
        ) from None
    if parts.scheme not in _REDIS_SCHEMES:
        raise InvalidConfigError(
            f"unknown kind of Redis URL {parts.scheme!r}: use redis://, rediss:// (TLS) or unix://"
        )
    if not port_is_one or not _has_target(parts):
        raise InvalidConfigError(
            f"the {parts.scheme}:// URL names no Redis: use 'redis://host:6379/0' or 'unix:///path/to/socket'"
        )


def _has_target(parts: SplitResult) -> bool:
    if parts.scheme == "unix":
        return len(parts.path) > 1
    return bool(parts.hostname) and (parts.path in ("", "/") or parts.path[1:].isdecimal())


def _check_prefix(prefix: object) -> None:
    if (
        not isinstance(prefix, str)
        or not 0 < len(prefix) <= _MAX_PREFIX_CHARACTERS
        or not prefix.isprintable()
    ):
        raise InvalidConfigError(
            f"prefix must be a text of 1 to {_MAX_PREFIX_CHARACTERS} printable characters, got {prefix!r}: "
            "use e.g. 'langmem-tiers'"
        )


MAX_LIMIT = 1_000_000
"""The most that one call returns; page through more."""


class Durability(StrEnum):
    """What an acknowledged write survives."""

    FULL = "full"
    """A power cut: every commit is on the disk before it is acknowledged."""
    NORMAL = "normal"
    """A crash of the program; a power cut may take the last moments. Faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The caches of recent messages and of what sessions show, least recently used sessions leave first.

    They are checked against the database on every read, so the limits bound memory and
    never age.
    """

    max_characters: int = 32_000_000
    """Of each, over all sessions; 0 switches them off."""
    ttl_seconds: float = 1800.0
    window: int = 50
    """How many of a session's newest messages are held."""

    def __post_init__(self) -> None:
        check_whole(self.max_characters, 0, "max_characters")
        check_positive(self.ttl_seconds, "ttl_seconds")
        check_whole(self.window, 1, "window", most=MAX_LIMIT)


class SummaryStrategy(StrEnum):
    """How a summary is made."""

    SIMPLE = "simple"
    """One question to the model."""
    HIERARCHICAL = "hierarchical"
    """Chunks of ten, then summaries of the summaries until they fit."""
    EXTRACTIVE = "extractive"
    """The sentences that say most, without a model."""
    MAP_REDUCE = "map-reduce"
    """Chunks of ten at the same time, then one question that combines them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryConfig:
    """How the engine summarises."""

    strategy: SummaryStrategy = SummaryStrategy.HIERARCHICAL
    target_tokens: int = 2000
    chunk_messages: int = 10
    time_limit_seconds: float = 30.0
    """How long a model may take for one summary, all its answers together."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "strategy", SummaryStrategy(self.strategy))
        except ValueError as error:
            known = ", ".join(SummaryStrategy)
            raise InvalidConfigError(f"unknown strategy {self.strategy!r}: use one of {known}") from error
        check_whole(self.target_tokens, 16, "target_tokens")
        check_whole(self.chunk_messages, 2, "chunk_messages")
        check_positive(self.time_limit_seconds, "time_limit_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """How the self-tuning optimizer runs."""

    interval_seconds: float = 120.0
    """Between two runs of the background thread."""
    snapshots: int = 500
    """How many are kept of each namespace."""
    lease_seconds: float = 600.0
    """For how long a process that died keeps others from running."""
    learns: bool = False
    """Whether a run also learns from the sessions that it tidies: facts, episodes and chunks."""

    def __post_init__(self) -> None:
        check_positive(self.interval_seconds, "interval_seconds")
        check_whole(self.snapshots, 1, "snapshots", most=MAX_LIMIT)
        check_positive(self.lease_seconds, "lease_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingConfig:
    """How an embedder is asked, and for how long its answers are remembered."""

    batch_size: int = 100
    """Texts in one question."""
    time_limit_seconds: float = 10.0
    """How long to wait for one answer."""
    retry_seconds: float = 30.0
    """How long an embedder that failed is left alone."""
    inline_seconds: float = 1.0
    """How long a recall embeds what is new before it leaves the rest to the background."""
    cache_entries: int = 10_000
    cache_hours: float = 24.0

    def __post_init__(self) -> None:
        check_whole(self.batch_size, 1, "batch_size", most=10_000)
        check_whole(self.cache_entries, 1, "cache_entries")
        for name in ("time_limit_seconds", "retry_seconds", "inline_seconds", "cache_hours"):
            check_positive(getattr(self, name), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallConfig:
    """How recall ranks when a call does not say."""

    limit: int = 20
    max_limit: int = 100
    strategy: Strategy = Strategy.BEST
    hybrid: HybridWeights = field(default_factory=HybridWeights)
    tf_idf: TfIdfWeights = field(default_factory=TfIdfWeights)
    relevance_threshold: float = 0.08
    """What words and meaning must give to a memory for it to come into a conversation unasked."""
    index_megabytes: int = 1024
    """What places and vectors of namespaces may take in memory; the least recently used leave first."""

    def __post_init__(self) -> None:
        check_whole(self.max_limit, 1, "max_limit", most=MAX_LIMIT)
        check_whole(self.limit, 1, "limit", most=self.max_limit)
        check_whole(self.index_megabytes, 1, "index_megabytes")
        check_fraction(self.relevance_threshold, "relevance_threshold")
        object.__setattr__(self, "strategy", check_strategy(self.strategy))
        for name, kind in (("hybrid", HybridWeights), ("tf_idf", TfIdfWeights)):
            if not isinstance(part := getattr(self, name), kind):
                raise InvalidConfigError(f"{name} must be a {kind.__name__}, got {part!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningConfig:
    """What is made of messages: chunks, facts and episodes; and how it ages."""

    chunk_messages: int = 10
    """Messages in a chunk."""
    recent_messages: int = 20
    """The newest messages, which are in no chunk."""
    max_chunks: int = 50
    """Of a session; beyond that the oldest two become one."""
    chunk_tokens: int = 150
    """What the summary of a chunk may take."""
    asks_model: bool = True
    """Whether a model, if the engine has one, is asked for facts too, besides the patterns."""
    promotion_threshold: float = 0.6
    """Extracted facts with a higher confidence become long-term entries by themselves."""
    max_episodes: int = 100
    """Of a namespace; beyond that those are archived that matter least by now: significance times decay."""
    half_life_days: float = 30.0
    """After so many days without use half of a memory's weight is left."""
    archive_after_days: float = 30.0
    """How old an entry must be for consolidation to archive it."""
    archive_below: float = 0.3
    """Consolidation archives entries whose importance times decay is less than that."""

    def __post_init__(self) -> None:
        for name in ("chunk_messages", "recent_messages", "max_episodes"):
            check_whole(getattr(self, name), 1, name, most=MAX_LIMIT)
        check_whole(self.max_chunks, 2, "max_chunks", most=MAX_LIMIT)
        check_whole(self.chunk_tokens, 16, "chunk_tokens")
        check_fraction(self.promotion_threshold, "promotion_threshold")
        check_fraction(self.archive_below, "archive_below")
        check_positive(self.half_life_days, "half_life_days")
        check_positive(self.archive_after_days, "archive_after_days")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceConfig:
    """What maintenance does, and when; it never runs by itself until ``engine.maintenance.start()``."""

    schedule: str = "0 3 * * *"
    """A cron line: minute, hour, day, month, weekday."""
    time_zone: str = "UTC"
    """In which the line is read."""
    retention_days: float | None = 90.0
    """Messages older than that go; what was promoted or learned from them stays. None keeps all."""
    compaction: bool = True
    """Whether full-text indexes are merged and unused room is given back."""

    def __post_init__(self) -> None:
        for name in ("schedule", "time_zone"):
            if not isinstance(value := getattr(self, name), str) or not value.strip():
                raise InvalidConfigError(
                    f"{name} must be a text, got {value!r}: use e.g. '0 3 * * *' and 'UTC'"
                )
        if self.retention_days is not None:
            check_positive(self.retention_days, "retention_days", most=1_000_000)
        if not isinstance(self.compaction, bool):
            raise InvalidConfigError(f"compaction must be True or False, got {self.compaction!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How the engine treats its database and its memories."""

    durability: Durability = Durability.FULL
    busy_timeout_seconds: float = 60.0
    """How long a write waits for others before it gives up."""
    connect_timeout_seconds: float = 10.0
    pool_size: int = 10
    """Connections held at most; more callers than that wait."""
    postgres: PostgresConfig = field(default_factory=PostgresConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    budget: TokenBudget = field(default_factory=TokenBudget)
    """What a context may take."""
    summary: SummaryConfig = field(default_factory=SummaryConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    recall: RecallConfig = field(default_factory=RecallConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    maintenance: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    working: WorkingConfig = field(default_factory=WorkingConfig)
    redis: RedisConfig | None = None
    """A cache of recent messages that several processes share; without one, the database serves them."""
    redundancy_threshold: float = 0.9
    """The similarity from which on the older of two entries is redundant."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "durability", Durability(self.durability))
        except ValueError as error:
            raise InvalidConfigError(
                f"unknown durability {self.durability!r}: use 'full' or 'normal'"
            ) from error
        for name, kind in _SECTION_TYPES.items():
            if not isinstance(part := getattr(self, name), kind):
                raise InvalidConfigError(f"{name} must be a {kind.__name__}, got {part!r}")
        if self.redis is not None and not isinstance(self.redis, RedisConfig):
            raise InvalidConfigError(
                f"redis must be a RedisConfig or None, got a {type(self.redis).__name__}"
            )
        if check_fraction(self.redundancy_threshold, "redundancy_threshold") == 0:
            raise InvalidConfigError("redundancy_threshold must be above 0, got 0: use e.g. 0.9")
        check_positive(self.busy_timeout_seconds, "busy_timeout_seconds", most=86_400)
        check_positive(self.connect_timeout_seconds, "connect_timeout_seconds", most=86_400)
        check_whole(self.pool_size, 1, "pool_size")


_SECTION_TYPES = {
    "postgres": PostgresConfig,
    "cache": CacheConfig,
    "budget": TokenBudget,
    "summary": SummaryConfig,
    "optimizer": OptimizerConfig,
    "embedding": EmbeddingConfig,
    "recall": RecallConfig,
    "learning": LearningConfig,
    "maintenance": MaintenanceConfig,
    "working": WorkingConfig,
}


def check_limit(limit: object) -> int:
    """The limit, or an error for what cannot be one."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidInputError(f"a limit must be a whole number from 1 to {MAX_LIMIT}, got {limit!r}")
    return limit
