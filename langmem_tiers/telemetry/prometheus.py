"""Prometheus metrics of engines.

::

    registry = CollectorRegistry()
    engine = MemoryEngine(url, metrics=PrometheusMetrics(registry))

``METRIC_NAMES`` maps the metric names of the engine to those of Prometheus. No label contains a tenant, a session or
a text, so the number of series depends only on the number of engines. prometheus_client is imported only when a
``PrometheusMetrics`` is created.
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
"""Metric names of the design documents and their Prometheus names; the last two are additions."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histograms in seconds. A durable write takes 1 to 10 ms, a recall 1 to 50 ms."""

_HELP = {
    "memory.episodic.count": "Messages in all sessions; on PostgreSQL an estimate of the server",
    "memory.semantic.count": "Knowledge, long-term entries, episodes and chunks; on PostgreSQL an estimate",
    "memory.storage.bytes": "Size of the tables with indexes; on SQLite of the file with its write-ahead log",
    STORE_DURATION: "Duration of storing messages durably",
    RETRIEVE_DURATION: "Duration of recalls",
    HIT_RATE: "Share of the latest recalls that found something",
    SUMMARIES: "Summaries created",
    TOKENS_SAVED: "Tokens saved in sessions by summaries and compressed messages",
    "memory.redis.connected": "1 if Redis answers, 0 if not; no sample without Redis",
    "memory.postgres.pool.active": "Connections in use; no sample on SQLite",
    STORED_MESSAGES: "Messages stored",
    ERRORS: "Errors by operation and class",
}


class ScrapeSource:
    """An engine to be scraped."""

    def __init__(self, read: Callable[[], EngineGauges | None], hits: deque[bool]) -> None:
        self._read = read
        self._hits = hits
        self._last_read: EngineGauges | None = None
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    @property
    def is_closed(self) -> bool:
        """True if the engine was closed or garbage-collected."""
        return self._read() is None

    def compute_hit_rate(self) -> float | None:
        """Return the share of the latest recalls that found something; None before the first recall."""
        hits = list(self._hits)
        return sum(hits) / len(hits) if hits else None

    def read_gauges(self, now: float, cache_seconds: float) -> EngineGauges | None:
        """Return the engine's gauges, cached for ``cache_seconds``; None if the engine is closed."""
        with self._lock:  # only one of two concurrent scrapes queries the database
            if self._last_read is None or now - self._read_at >= cache_seconds:
                self._last_read = _fill_missing(self._read(), self._last_read)
                self._read_at = now
            return self._last_read


def _fill_missing(new: EngineGauges | None, old: EngineGauges | None) -> EngineGauges | None:
    # Values that are currently unavailable (None) keep their last value. They become unavailable together.
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
    """All metric families with the label ``engine``, in one collector, so that they are registered together."""

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
        self.errors = Counter(
            METRIC_NAMES[ERRORS], _HELP[ERRORS], ["engine", "operation", "kind"], registry=None
        )

    def fail(self, name: str, operation: str, kind: str) -> None:
        """Count an error of an engine; ignored if the engine is closed."""
        with self._lock:
            if name in self._sources:
                self._error_labels.add((name, operation, kind))
                self.errors.labels(name, operation, kind).inc()

    def attach(self, name: str, source: ScrapeSource) -> None:
        """Register an engine; the first one also registers the collector."""
        with self._lock:
            if name in self._sources and not self._sources[name].is_closed:
                raise InvalidConfigError(
                    f"an engine with the label {name!r} is already registered: pass metrics.of('another name')"
                )
            if not self._sources:
                self._register()
            self._sources[name] = source

    def _register(self) -> None:
        try:
            self._registry.register(self)  # duck-typed: it has collect() and describe()
        except ValueError as error:
            raise InvalidConfigError(
                "the registry already contains metrics of an engine: create one PrometheusMetrics per registry, and "
                "pass metrics.of('another name') to the other engines"
            ) from error

    def detach(self, name: str, source: ScrapeSource) -> None:
        """Remove an engine with its series; the last one also unregisters the collector."""
        with self._lock:
            if self._sources.get(name) is not source:  # a newer engine has the same label
                return
            del self._sources[name]
            for family in (*self.histograms.values(), *self.counters.values()):
                family.remove(name)
            for labels in [labels for labels in self._error_labels if labels[0] == name]:
                self.errors.remove(*labels)
                self._error_labels.remove(labels)
            if not self._sources:
                self._registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """Return the families without samples, from which a registry learns the names."""
        return self._iter_families(())

    def collect(self) -> Iterator[Metric]:
        """Return the families with their samples."""
        with self._lock:
            sources = tuple(self._sources.items())
        for name, source in sources:
            if source.read_gauges(self._monotonic(), self._cache_seconds) is None:
                self.detach(name, source)  # garbage-collected without close()
        return self._iter_families(sources)

    def _iter_families(self, sources: tuple[tuple[str, ScrapeSource], ...]) -> Iterator[Metric]:
        now = self._monotonic()
        readings = [(name, source.read_gauges(now, self._cache_seconds)) for name, source in sources]
        available = [(name, gauges) for name, gauges in readings if gauges is not None]
        yield from self._iter_gauges(available, dict(sources))
        for family in (*self.histograms.values(), *self.counters.values(), self.errors):
            yield from family.collect()

    @staticmethod
    def _iter_gauges(
        readings: list[tuple[str, EngineGauges]], sources: dict[str, ScrapeSource]
    ) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - as above

        values: dict[str, Callable[[str, EngineGauges], float | None]] = {
            "memory.episodic.count": lambda _, gauges: gauges.messages,
            "memory.semantic.count": lambda _, gauges: gauges.memories,
            "memory.storage.bytes": lambda _, gauges: gauges.storage_bytes,
            HIT_RATE: lambda name, _: sources[name].compute_hit_rate(),
            "memory.redis.connected": lambda _, gauges: gauges.redis_connected,
            "memory.postgres.pool.active": lambda _, gauges: gauges.pool_active,
        }
        for metric, get_value in values.items():
            family = GaugeMetricFamily(METRIC_NAMES[metric], _HELP[metric], labels=["engine"])
            for name, gauges in readings:
                if (value := get_value(name, gauges)) is not None:
                    family.add_metric([name], float(value))
            yield family


__all__ = ["BUCKETS", "METRIC_NAMES", "EngineMetrics", "PrometheusMetrics"]


class EngineMetrics:
    """Metrics of one engine; create it with ``PrometheusMetrics.of(name)``."""

    def __init__(self, series: EngineCollector, engine: str, hit_window: int) -> None:
        self._collector = series
        self._name = _check_label(engine)
        self._source: ScrapeSource | None = None
        self._hits: deque[bool] = deque(maxlen=check_whole(hit_window, 1, "hit_window"))
        self._bind_labels()

    def _bind_labels(self) -> None:
        # Labels are resolved once, because that costs more than updating the metric.
        self._bound_histograms = {
            key: histogram.labels(self._name) for key, histogram in self._collector.histograms.items()
        }
        self._bound_counters = {
            key: counter.labels(self._name) for key, counter in self._collector.counters.items()
        }

    def observe(self, name: str, seconds: float) -> None:
        """Record a duration."""
        self._bound_histograms[name].observe(seconds)

    def count(self, name: str, amount: float = 1) -> None:
        """Increment a counter."""
        self._bound_counters[name].inc(amount)

    def rate(self, name: str, *, hit: bool) -> None:  # noqa: ARG002 - there is one rate
        """Record whether a recall found something."""
        self._hits.append(hit)

    def fail(self, operation: str, kind: str) -> None:
        """Count an error of class ``kind`` raised by an operation."""
        self._collector.fail(self._name, operation, kind)

    def attach(self, read: Callable[[], EngineGauges | None]) -> None:
        """Register the engine.

        Raises:
            InvalidConfigError: Another engine uses this label, or the registry already contains these metrics.
        """
        source = ScrapeSource(read, self._hits)
        self._collector.attach(self._name, source)
        self._source = source
        self._bind_labels()  # again, because detach() removes the bound series from the families

    def detach(self) -> None:
        """Unregister the engine and remove its series."""
        if self._source is not None:
            self._collector.detach(self._name, self._source)
            self._hits.clear()


class PrometheusMetrics(EngineMetrics):
    """Metrics of one or several engines in one registry.

    It is registered as long as an engine uses it. With several engines, pass ``metrics.of(name)`` to the others.

    Args:
        registry: Registry to scrape. The global registry is used only if you pass it.
        engine: Value of the label ``engine`` of all series.
        buckets: Upper bounds of the histograms, in seconds.
        hit_window: Number of recalls over which the hit rate is computed.
        cache_seconds: Time for which gauges read from the database are reused.
        clock: Source of the time. Default: the system clock.
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
            import prometheus_client  # noqa: F401, PLC0415 - optional dependency, imported on demand
        except ImportError as error:
            raise MissingExtraError(
                "PrometheusMetrics needs prometheus-client: pip install 'langmem-tiers[metrics]'"
            ) from error
        if not callable(getattr(registry, "register", None)):
            raise InvalidConfigError(
                f"registry must be a CollectorRegistry, got {type(registry).__name__}: "
                "use prometheus_client.CollectorRegistry()"
            )
        monotonic = (SystemClock() if clock is None else clock).monotonic
        series = EngineCollector(registry, buckets, check_positive(cache_seconds, "cache_seconds"), monotonic)
        super().__init__(series, engine, hit_window)
        self._hit_window = hit_window

    def of(self, engine: str) -> EngineMetrics:
        """Return the metrics of another engine, with its own label."""
        return EngineMetrics(self._collector, engine, self._hit_window)


def _check_label(engine: object) -> str:
    if not isinstance(engine, str) or not engine:
        raise InvalidConfigError(f"engine must be a non-empty label, got {engine!r}: use for example 'main'")
    return engine
