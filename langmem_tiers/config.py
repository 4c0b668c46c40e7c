"""Settings of an engine: frozen dataclasses that validate themselves on construction."""

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
    """Order in which pgvector continues an index scan when filtered rows leave too few results."""

    STRICT = "strict_order"
    """Exactly by distance."""
    RELAXED = "relaxed_order"
    """Approximately by distance. Faster, and almost lossless because recall sorts the results again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    """Settings for PostgreSQL; ignored on SQLite."""

    pool_size: int | None = None
    """Connections that this process keeps open. Default: ``EngineConfig.pool_size``. The total of all processes
    must stay below the server's ``max_connections``."""
    max_overflow: int = 0
    """Additional connections under load; they are closed afterwards."""
    pool_timeout_seconds: float | None = None
    """Maximum wait for a free connection. Default: ``EngineConfig.busy_timeout_seconds``."""
    ping_after_seconds: float = 30.0
    """Idle time after which a connection is tested before it is used."""
    reconnect_seconds: float = 30.0
    """Maximum wait for a server that was reachable before, for example during a restart; 0 fails at once."""
    ef_search: int = 200
    """Minimum number of candidates that the HNSW index visits per query, up to 1,000. More improves recall and takes
    longer."""
    vector_scan: VectorScan = VectorScan.RELAXED
    """Scan order of the HNSW index; see ``VectorScan``."""
    exact_numbers: int = 5_000_000
    """Limit for exact search, as vectors times dimensions; the default is about 20,000 vectors of 256 dimensions.
    Larger namespaces use the HNSW index."""
    max_scan_tuples: int = 20_000
    """Number of tuples after which the HNSW scan stops looking for one tenant's vectors among those of all tenants. The
    search then compares the tenant's own vectors."""

    def __post_init__(self) -> None:
        if self.pool_size is not None:
            check_whole(self.pool_size, 1, "pool_size", max_value=10_000)
        check_whole(self.max_overflow, 0, "max_overflow", max_value=10_000)
        if self.pool_timeout_seconds is not None:
            check_positive(self.pool_timeout_seconds, "pool_timeout_seconds", max_value=86_400)
        check_positive(self.ping_after_seconds, "ping_after_seconds", max_value=86_400)
        # False equals 0, so booleans go through check_positive(), which rejects them.
        if self.reconnect_seconds != 0 or isinstance(self.reconnect_seconds, bool):
            check_positive(self.reconnect_seconds, "reconnect_seconds", max_value=86_400)
        check_whole(self.ef_search, 1, "ef_search", max_value=1000)
        check_whole(self.exact_numbers, 0, "exact_numbers")
        check_whole(self.max_scan_tuples, 1, "max_scan_tuples", max_value=2**31 - 1)
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
    """Redis as a shared cache of each session's newest messages; never the only copy of data.

    Every read compares the cached data with the session's row. A Redis that is down, slow, empty or wrong
    makes reads slower, but never wrong.
    """

    url: str = field(default="redis://localhost:6379", repr=False)
    """``redis://user:password@host:port/0``, ``rediss://...`` with TLS, or ``unix:///path/to/socket``."""
    prefix: str = "langmem-tiers"
    """Prefix of all keys."""
    ttl_seconds: int = 86_400
    """Lifetime of a cached session without new writes."""
    window: int = 100
    """Maximum number of newest messages cached per session."""
    max_window_bytes: int = 1_000_000
    """Maximum size of a cached session in Redis; fewer messages are cached if they are larger."""
    timeout_seconds: float = 0.25
    """Timeout for connecting and for each reply."""
    retry_seconds: float = 5.0
    """Pause after a failure before Redis is tried again."""

    def __post_init__(self) -> None:
        _check_redis_url(self.url)
        _check_prefix(self.prefix)
        check_whole(self.ttl_seconds, 1, "ttl_seconds", max_value=10**9)
        check_whole(self.window, 1, "window", max_value=10_000)
        check_whole(self.max_window_bytes, 1, "max_window_bytes")
        check_positive(self.timeout_seconds, "timeout_seconds", max_value=3600)
        check_positive(self.retry_seconds, "retry_seconds", max_value=86_400)

    @property
    def label(self) -> str:
        """URL for display, without password and query, which may contain secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingConfig:
    """Limits on working memories in this process."""

    max_agents: int = 1000
    """Maximum number of agents in memory; the least recently used is stored and evicted first."""
    max_megabytes: int = 500
    """Maximum total size, as measured."""
    ttl_seconds: float = 1800.0
    """Idle time after which a working memory is stored and evicted."""
    flush_tokens: int = 32_000
    """Size in tokens above which a working memory is stored to its session."""

    def __post_init__(self) -> None:
        check_whole(self.max_agents, 1, "max_agents")
        check_whole(self.max_megabytes, 1, "max_megabytes")
        check_positive(self.ttl_seconds, "ttl_seconds")
        check_whole(self.flush_tokens, 1, "flush_tokens")


def _check_redis_url(url: object) -> None:
    if not isinstance(url, str):
        raise InvalidConfigError(
            f"a Redis URL must be a str, got {type(url).__name__}. Use 'redis://localhost:6379'."
        )
    try:
        parts = urlsplit(url)
        has_valid_port = parts.port is None or parts.port > 0
    # "from None" and no repr: the URL may contain a password, which must not appear in errors or logs.
    except ValueError:
        raise InvalidConfigError(
            "invalid Redis URL or port. Use 'redis://localhost:6379', and percent-encode special characters in a "
            "password (%40, %2F, ...)."
        ) from None
    if parts.scheme not in _REDIS_SCHEMES:
        raise InvalidConfigError(
            f"unknown Redis URL scheme {parts.scheme!r}. Use redis://, rediss:// (TLS) or unix://."
        )
    if not has_valid_port or not _has_target(parts):
        raise InvalidConfigError(
            f"the {parts.scheme}:// URL has no valid target. Use 'redis://host:6379/0' or "
            "'unix:///path/to/socket'."
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
            f"prefix must be a str of 1 to {_MAX_PREFIX_CHARACTERS} printable characters, got {prefix!r}. "
            "Use for example 'langmem-tiers'."
        )


MAX_LIMIT = 1_000_000
"""Maximum number of results per call; page through larger results."""


class Durability(StrEnum):
    """Failures that an acknowledged write survives."""

    FULL = "full"
    """A power failure: every commit is on disk before it is acknowledged."""
    NORMAL = "normal"
    """A crash of the process. A power failure may lose the last commits. Faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """Limits of the in-process caches of recent messages and session views, which evict by least recent use.

    Every read checks the cache against the database. The limits therefore only bound memory; cached data is
    never stale.
    """

    max_characters: int = 32_000_000
    """Maximum number of characters per cache, over all sessions; 0 disables the caches."""
    ttl_seconds: float = 1800.0
    """Lifetime of a cached session."""
    window: int = 50
    """Number of newest messages cached per session."""

    def __post_init__(self) -> None:
        check_whole(self.max_characters, 0, "max_characters")
        check_positive(self.ttl_seconds, "ttl_seconds")
        check_whole(self.window, 1, "window", max_value=MAX_LIMIT)


class SummaryStrategy(StrEnum):
    """Algorithm that creates a summary."""

    SIMPLE = "simple"
    """One prompt to the model."""
    HIERARCHICAL = "hierarchical"
    """Summarize chunks of ten messages, then summarize the summaries until they fit."""
    EXTRACTIVE = "extractive"
    """Select the most informative sentences, without a model."""
    MAP_REDUCE = "map-reduce"
    """Summarize chunks of ten messages in parallel, then combine them with one prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryConfig:
    """Settings for summaries."""

    strategy: SummaryStrategy = SummaryStrategy.HIERARCHICAL
    target_tokens: int = 2000
    """Target size of a summary."""
    chunk_messages: int = 10
    """Messages per chunk."""
    time_limit_seconds: float = 30.0
    """Maximum time for all model calls of one summary."""

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
    """Settings for the self-tuning optimizer."""

    interval_seconds: float = 120.0
    """Pause between two runs of the background thread."""
    snapshots: int = 500
    """Number of snapshots kept per namespace."""
    lease_seconds: float = 600.0
    """Lease duration: how long a crashed process blocks the others from running."""
    learns: bool = False
    """True if a run also learns facts, episodes and chunks from the sessions that it optimizes."""

    def __post_init__(self) -> None:
        check_positive(self.interval_seconds, "interval_seconds")
        check_whole(self.snapshots, 1, "snapshots", max_value=MAX_LIMIT)
        check_positive(self.lease_seconds, "lease_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingConfig:
    """Settings for calls to the embedder and for the cache of its vectors."""

    batch_size: int = 100
    """Texts per request."""
    time_limit_seconds: float = 10.0
    """Timeout of one request."""
    retry_seconds: float = 30.0
    """Pause after a failure before the embedder is called again."""
    inline_seconds: float = 1.0
    """Time that a recall spends on embedding new messages before it leaves the rest to the background thread."""
    cache_entries: int = 10_000
    cache_hours: float = 24.0

    def __post_init__(self) -> None:
        check_whole(self.batch_size, 1, "batch_size", max_value=10_000)
        check_whole(self.cache_entries, 1, "cache_entries")
        for name in ("time_limit_seconds", "retry_seconds", "inline_seconds", "cache_hours"):
            check_positive(getattr(self, name), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallConfig:
    """Default ranking settings for recall."""

    limit: int = 20
    max_limit: int = 100
    strategy: Strategy = Strategy.BEST
    hybrid: HybridWeights = field(default_factory=HybridWeights)
    tf_idf: TfIdfWeights = field(default_factory=TfIdfWeights)
    relevance_threshold: float = 0.08
    """Minimum score from words and meaning for a memory to be added to a conversation automatically."""
    index_megabytes: int = 1024
    """Maximum memory for word positions and vectors of all namespaces; the least recently used are evicted first."""

    def __post_init__(self) -> None:
        check_whole(self.max_limit, 1, "max_limit", max_value=MAX_LIMIT)
        check_whole(self.limit, 1, "limit", max_value=self.max_limit)
        check_whole(self.index_megabytes, 1, "index_megabytes")
        check_fraction(self.relevance_threshold, "relevance_threshold")
        object.__setattr__(self, "strategy", check_strategy(self.strategy))
        for name, kind in (("hybrid", HybridWeights), ("tf_idf", TfIdfWeights)):
            if not isinstance(part := getattr(self, name), kind):
                raise InvalidConfigError(f"{name} must be a {kind.__name__}, got {part!r}. Create one.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningConfig:
    """Settings for chunks, facts and episodes extracted from messages, and for their decay."""

    chunk_messages: int = 10
    """Messages per chunk."""
    recent_messages: int = 20
    """Number of newest messages that are not chunked yet."""
    max_chunks: int = 50
    """Maximum number of chunks per session; beyond it, the two oldest are merged."""
    chunk_tokens: int = 150
    """Maximum size of a chunk's summary."""
    asks_model: bool = True
    """True if the engine's model, if any, extracts facts in addition to the patterns."""
    promotion_threshold: float = 0.6
    """Confidence above which extracted facts are promoted to long-term entries automatically."""
    max_episodes: int = 100
    """Maximum number of episodes per namespace; beyond it, those of the lowest significance times decay are
    archived."""
    half_life_days: float = 30.0
    """Days without access after which a memory's weight is halved."""
    archive_after_days: float = 30.0
    """Minimum age of an entry before consolidation may archive it."""
    archive_below: float = 0.3
    """Consolidation archives entries whose importance times decay is below this value."""

    def __post_init__(self) -> None:
        for name in ("chunk_messages", "recent_messages", "max_episodes"):
            check_whole(getattr(self, name), 1, name, max_value=MAX_LIMIT)
        check_whole(self.max_chunks, 2, "max_chunks", max_value=MAX_LIMIT)
        check_whole(self.chunk_tokens, 16, "chunk_tokens")
        check_fraction(self.promotion_threshold, "promotion_threshold")
        check_fraction(self.archive_below, "archive_below")
        check_positive(self.half_life_days, "half_life_days")
        check_positive(self.archive_after_days, "archive_after_days")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceConfig:
    """Schedule and scope of maintenance; it runs only after ``engine.maintenance.start()``."""

    schedule: str = "0 3 * * *"
    """A cron expression: minute, hour, day, month, weekday."""
    time_zone: str = "UTC"
    """Time zone of the schedule."""
    retention_days: float | None = 90.0
    """Age after which messages are deleted; promoted or learned memories stay. None keeps all messages."""
    compaction: bool = True
    """True if full-text indexes are merged and unused space is released."""

    def __post_init__(self) -> None:
        for name in ("schedule", "time_zone"):
            if not isinstance(value := getattr(self, name), str) or not value.strip():
                raise InvalidConfigError(
                    f"{name} must be a non-empty str, got {value!r}. Use for example '0 3 * * *' and 'UTC'."
                )
        if self.retention_days is not None:
            check_positive(self.retention_days, "retention_days", max_value=1_000_000)
        if not isinstance(self.compaction, bool):
            raise InvalidConfigError(
                f"compaction must be True or False, got {self.compaction!r}. Pass a bool."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of an engine: its database, its caches and its features."""

    durability: Durability = Durability.FULL
    busy_timeout_seconds: float = 60.0
    """Maximum wait for a locked database before a write fails."""
    connect_timeout_seconds: float = 10.0
    pool_size: int = 10
    """Maximum number of open connections; further callers wait."""
    postgres: PostgresConfig = field(default_factory=PostgresConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    budget: TokenBudget = field(default_factory=TokenBudget)
    """Default token budget of a context."""
    summary: SummaryConfig = field(default_factory=SummaryConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    recall: RecallConfig = field(default_factory=RecallConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    maintenance: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    working: WorkingConfig = field(default_factory=WorkingConfig)
    redis: RedisConfig | None = None
    """A cache of recent messages shared by several processes. None reads them from the database."""
    redundancy_threshold: float = 0.9
    """Minimum similarity at which the older of two entries counts as redundant."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "durability", Durability(self.durability))
        except ValueError as error:
            raise InvalidConfigError(
                f"unknown durability {self.durability!r}: use 'full' or 'normal'"
            ) from error
        for name, kind in _SECTION_TYPES.items():
            if not isinstance(part := getattr(self, name), kind):
                raise InvalidConfigError(f"{name} must be a {kind.__name__}, got {part!r}. Create one.")
        if self.redis is not None and not isinstance(self.redis, RedisConfig):
            raise InvalidConfigError(
                f"redis must be a RedisConfig or None, got {type(self.redis).__name__}. Use RedisConfig(url)."
            )
        if check_fraction(self.redundancy_threshold, "redundancy_threshold") == 0:
            raise InvalidConfigError("redundancy_threshold must be above 0, got 0: use e.g. 0.9")
        check_positive(self.busy_timeout_seconds, "busy_timeout_seconds", max_value=86_400)
        check_positive(self.connect_timeout_seconds, "connect_timeout_seconds", max_value=86_400)
        check_whole(self.pool_size, 1, "pool_size")


# Field name to section class; EngineConfig rejects a dict or a section of the wrong class.
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
    """Return the limit, or raise InvalidInputError if it is not a valid limit."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidInputError(f"limit must be a whole number from 1 to {MAX_LIMIT}, got {limit!r}")
    return limit
