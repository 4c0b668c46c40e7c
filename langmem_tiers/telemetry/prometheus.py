"""Figures of engines for Prometheus.

::

    registry = CollectorRegistry()
    engine = MemoryEngine(url, metrics=PrometheusMetrics(registry))

The names are those of the design documents as Prometheus writes them: ``NAMES``. No label tells of a tenant, a
session or a text: there are as many series as there are engines, whatever they hold. Nothing of prometheus_client
is imported before a ``PrometheusMetrics`` is made.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_positive, check_whole
from langmem_tiers.common.clock import SystemClock
from langmem_tiers.errors import InvalidConfigError, MissingExtraError
from langmem_tiers.telemetry.instruments import (
    ERRORS,
    HIT_RATE,
    RETRIEVE_DURATION,
    STORE_DURATION,
    STORED_MESSAGES,
    SUMMARIES,
    TOKENS_SAVED,
    EngineGauges,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry, Counter, Histogram, Metric

    from langmem_tiers.common.clock import Clock


METRIC_NAMES = {
    "memory.episodic.count": "memory_episodic_count",
    "memory.semantic.count": "memory_semantic_count",
    "memory.storage.bytes": "memory_storage_bytes",
    STORE_DURATION: "memory_store_duration_seconds",
    RETRIEVE_DURATION: "memory_retrieve_duration_seconds",
    HIT_RATE: "memory_retrieve_hit_rate",
    SUMMARIES: "memory_summarization_runs_total",
    TOKENS_SAVED: "memory_summarization_tokens_saved_total",
    "memory.redis.connected": "memory_redis_connected",
    "memory.postgres.pool.active": "memory_postgres_pool_active",
    STORED_MESSAGES: "memory_store_messages_total",
    ERRORS: "memory_errors_total",
}
"""From the names of the design documents to ours; the last two are additions."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: a write that waits for the disk takes one to ten milliseconds, a recall one to fifty."""

_HELP = {
    "memory.episodic.count": "Messages of all sessions; on PostgreSQL the server's own estimate",
    "memory.semantic.count": "Knowledge, long-term entries, episodes and chunks; as above",
    "memory.storage.bytes": "What the tables take with their indexes; on SQLite the file and its log",
    STORE_DURATION: "How long it took to store messages, until they were durable",
    RETRIEVE_DURATION: "How long it took to recall",
    HIT_RATE: "The share of the latest recalls that found something",
    SUMMARIES: "Summaries that were made",
    TOKENS_SAVED: "Tokens that sessions take less by summaries and compressed messages",
    "memory.redis.connected": "Whether Redis answers; no sample where there is none",
    "memory.postgres.pool.active": "Connections in use; no sample on SQLite",
    STORED_MESSAGES: "Messages that were stored",
    ERRORS: "Errors by verb and class",
}


class ScrapeSource:
    """An engine as it is scraped."""

    def __init__(self, read: Callable[[], EngineGauges | None], hits: deque[bool]) -> None:
        self._read = read
        self._hits = hits
        self._last_read: EngineGauges | None = None
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    @property
    def is_closed(self) -> bool:
        """Whether its engine closed, or was dropped without that."""
        return self._read() is None

    def compute_hit_rate(self) -> float | None:
        """The share of the latest recalls that found something; None before the first."""
        hits = list(self._hits)
        return sum(hits) / len(hits) if hits else None

    def read_gauges(self, now: float, cache_seconds: float) -> EngineGauges | None:
        """What the engine says, or said a moment ago; None if it is gone."""
        with self._lock:  # of two who scrape at once one asks
            if self._last_read is None or now - self._read_at >= cache_seconds:
                self._last_read = _fill_missing(self._read(), self._last_read)
                self._read_at = now
            return self._last_read


def _fill_missing(new: EngineGauges | None, old: EngineGauges | None) -> EngineGauges | None:
    # What cannot be told just now is told as it last was.
    if new is None or old is None or new.messages is not None:
        return new
    return EngineGauges(
        messages=old.messages,
        memories=old.memories,
        storage_bytes=old.storage_bytes,
        pool_active=new.pool_active,
        redis_connected=new.redis_connected,
    )


class EngineCollector:
    """All families with the label ``engine``: one collector, so that all come and go together."""

    def __init__(
        self,
        registry: CollectorRegistry,
        buckets: tuple[float, ...],
        cache_seconds: float,
        monotonic: Callable[[], float],
    ) -> None:
        from prometheus_client import Counter, Histogram  # noqa: PLC0415 - as above

        self._registry = registry
        self._cache_seconds = cache_seconds
        self._monotonic = monotonic
        self._sources: dict[str, ScrapeSource] = {}
        self._error_labels: set[tuple[str, str, str]] = set()
        self._lock = threading.RLock()
        self.histograms: dict[str, Histogram] = {
            name: Histogram(METRIC_NAMES[name], _HELP[name], ["engine"], buckets=buckets, registry=None)
            for name in (STORE_DURATION, RETRIEVE_DURATION)
        }
        self.counters: dict[str, Counter] = {
            name: Counter(METRIC_NAMES[name], _HELP[name], ["engine"], registry=None)
            for name in (SUMMARIES, TOKENS_SAVED, STORED_MESSAGES)
        }
        self.errors = Counter(METRIC_NAMES[ERRORS], _HELP[ERRORS], ["engine", "verb", "kind"], registry=None)

    def fail(self, name: str, verb: str, kind: str) -> None:
        """An engine raised an error; nothing is said of one that has closed."""
        with self._lock:
            if name in self._sources:
                self._error_labels.add((name, verb, kind))
                self.errors.labels(name, verb, kind).inc()

    def attach(self, name: str, source: ScrapeSource) -> None:
        """An engine opens."""
        with self._lock:
            if name in self._sources and not self._sources[name].is_closed:
                raise InvalidConfigError(
                    f"an engine is watched as {name!r} already: hand in metrics.of('another name')"
                )
            if not self._sources:
                self._register()
            self._sources[name] = source

    def _register(self) -> None:
        try:
            self._registry.register(self)  # a collector by its shape
        except ValueError as error:
            raise InvalidConfigError(
                "the registry has figures of an engine already: make one PrometheusMetrics for each registry, and "
                "hand metrics.of('another name') to the other engines"
            ) from error

    def detach(self, name: str, source: ScrapeSource) -> None:
        """An engine closes."""
        with self._lock:
            if self._sources.get(name) is not source:
                return
            del self._sources[name]
            for family in (*self.histograms.values(), *self.counters.values()):
                family.remove(name)
            for labels in [one for one in self._error_labels if one[0] == name]:
                self.errors.remove(*labels)
                self._error_labels.remove(labels)
            if not self._sources:
                self._registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """The families without their samples, by which a registry knows names that are taken."""
        return self._iter_families(())

    def collect(self) -> Iterator[Metric]:
        """What a scrape gets."""
        with self._lock:
            sources = tuple(self._sources.items())
        for name, source in sources:
            if source.read_gauges(self._monotonic(), self._cache_seconds) is None:
                self.detach(name, source)  # it was dropped without being closed
        return self._iter_families(sources)

    def _iter_families(self, sources: tuple[tuple[str, ScrapeSource], ...]) -> Iterator[Metric]:
        now = self._monotonic()
        asked = [(name, source.read_gauges(now, self._cache_seconds)) for name, source in sources]
        told = [(name, figures) for name, figures in asked if figures is not None]
        yield from self._iter_gauges(told, dict(sources))
        for family in (*self.histograms.values(), *self.counters.values(), self.errors):
            yield from family.collect()

    @staticmethod
    def _iter_gauges(
        told: list[tuple[str, EngineGauges]], sources: dict[str, ScrapeSource]
    ) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - as above

        values: dict[str, Callable[[str, EngineGauges], float | None]] = {
            "memory.episodic.count": lambda _, one: one.messages,
            "memory.semantic.count": lambda _, one: one.memories,
            "memory.storage.bytes": lambda _, one: one.storage_bytes,
            HIT_RATE: lambda name, _: sources[name].compute_hit_rate(),
            "memory.redis.connected": lambda _, one: one.redis_connected,
            "memory.postgres.pool.active": lambda _, one: one.pool_active,
        }
        for seed, value_of in values.items():
            family = GaugeMetricFamily(METRIC_NAMES[seed], _HELP[seed], labels=["engine"])
            for name, figures in told:
                if (value := value_of(name, figures)) is not None:
                    family.add_metric([name], float(value))
            yield family


__all__ = ["BUCKETS", "METRIC_NAMES", "EngineMetrics", "PrometheusMetrics"]


class EngineMetrics:
    """Figures of one engine; get it from ``PrometheusMetrics.of(name)``."""

    def __init__(self, series: EngineCollector, engine: str, hit_window: int) -> None:
        self._collector = series
        self._name = _check_label(engine)
        self._source: ScrapeSource | None = None
        self._hits: deque[bool] = deque(maxlen=check_whole(hit_window, 1, "hit_window"))
        self._bind_labels()

    def _bind_labels(self) -> None:
        # Looked up once: a label costs more than what is done with it.
        self._bound_histograms = {
            key: one.labels(self._name) for key, one in self._collector.histograms.items()
        }
        self._bound_counters = {key: one.labels(self._name) for key, one in self._collector.counters.items()}

    def observe(self, name: str, seconds: float) -> None:
        """Something took so long."""
        self._bound_histograms[name].observe(seconds)

    def count(self, name: str, amount: float = 1) -> None:
        """Something happened, so many times."""
        self._bound_counters[name].inc(amount)

    def rate(self, name: str, *, hit: bool) -> None:  # noqa: ARG002 - there is one rate
        """A recall, and whether it found something."""
        self._hits.append(hit)

    def fail(self, verb: str, kind: str) -> None:
        """A verb raised an error of that class."""
        self._collector.fail(self._name, verb, kind)

    def attach(self, read: Callable[[], EngineGauges | None]) -> None:
        """An engine opens.

        Raises:
            InvalidConfigError: Another engine has this label, or the registry has such names already.
        """
        source = ScrapeSource(read, self._hits)
        self._collector.attach(self._name, source)
        self._source = source
        self._bind_labels()

    def detach(self) -> None:
        """The engine closes: its series are gone."""
        if self._source is not None:
            self._collector.detach(self._name, self._source)
            self._hits.clear()


class PrometheusMetrics(EngineMetrics):
    """Figures of one engine, or of several, in one registry.

    It is in the registry for as long as an engine uses it. With several engines, hand each one
    ``metrics.of(name)``.

    Args:
        registry: Where the figures are scraped from; never the global one, unless you hand it in.
        engine: The label ``engine`` of all its series.
        buckets: Upper bounds of the histograms, in seconds.
        hit_window: How many recalls the hit rate is of.
        cache_seconds: For how long what the database said is told again.
        clock: Where the time comes from.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        engine: str = "main",
        buckets: tuple[float, ...] = BUCKETS,
        hit_window: int = 1000,
        cache_seconds: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        try:
            import prometheus_client  # noqa: F401, PLC0415 - an extra, and not before it is needed
        except ImportError as error:
            raise MissingExtraError(
                "PrometheusMetrics needs prometheus-client: pip install 'langmem-tiers[metrics]'"
            ) from error
        if not callable(getattr(registry, "register", None)):
            raise InvalidConfigError(
                f"registry must be a CollectorRegistry, got a {type(registry).__name__}: "
                "use prometheus_client.CollectorRegistry()"
            )
        monotonic = (SystemClock() if clock is None else clock).monotonic
        series = EngineCollector(registry, buckets, check_positive(cache_seconds, "cache_seconds"), monotonic)
        super().__init__(series, engine, hit_window)
        self._hit_window = hit_window

    def of(self, engine: str) -> EngineMetrics:
        """The same families for another engine, under a label of its own."""
        return EngineMetrics(self._collector, engine, self._hit_window)


def _check_label(engine: object) -> str:
    if not isinstance(engine, str) or not engine:
        raise InvalidConfigError(f"engine must be a name for the label, got {engine!r}: use e.g. 'main'")
    return engine
