"""Figures of engines for Prometheus.

::

    registry = CollectorRegistry()
    engine = MemoryEngine(url, metrics=PrometheusMetrics(registry))

The names are those of the design documents as Prometheus writes them: ``NAMES``. No label tells of a tenant, a
session or a text: there are as many series as there are engines, whatever they hold. Nothing of prometheus_client
is imported before a ``PrometheusMetrics`` is made.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from langmem_tiers.core.checks import check_positive, check_whole
from langmem_tiers.core.clock import SystemClock
from langmem_tiers.core.errors import InvalidConfigError, MissingExtraError
from langmem_tiers.telemetry.prometheus_series import BUCKETS, NAMES, Series, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from langmem_tiers.core.clock import Clock
    from langmem_tiers.telemetry.instruments import Figures

__all__ = ["BUCKETS", "NAMES", "EngineMetrics", "PrometheusMetrics"]


class EngineMetrics:
    """Figures of one engine; get it from ``PrometheusMetrics.of(name)``."""

    def __init__(self, series: Series, engine: str, hit_window: int) -> None:
        self._series = series
        self._name = _check_label(engine)
        self._source: Source | None = None
        self._hits: deque[bool] = deque(maxlen=check_whole(hit_window, 1, "hit_window"))
        self._bind()

    def _bind(self) -> None:
        # Looked up once: a label costs more than what is done with it.
        self._observed = {key: one.labels(self._name) for key, one in self._series.histograms.items()}
        self._counted = {key: one.labels(self._name) for key, one in self._series.counters.items()}

    def observe(self, name: str, seconds: float) -> None:
        """Something took so long."""
        self._observed[name].observe(seconds)

    def count(self, name: str, amount: float = 1) -> None:
        """Something happened, so many times."""
        self._counted[name].inc(amount)

    def rate(self, name: str, *, hit: bool) -> None:  # noqa: ARG002 - there is one rate
        """A recall, and whether it found something."""
        self._hits.append(hit)

    def fail(self, verb: str, kind: str) -> None:
        """A verb raised an error of that class."""
        self._series.fail(self._name, verb, kind)

    def attach(self, read: Callable[[], Figures | None]) -> None:
        """An engine opens.

        Raises:
            InvalidConfigError: Another engine has this label, or the registry has such names already.
        """
        source = Source(read, self._hits)
        self._series.attach(self._name, source)
        self._source = source
        self._bind()

    def detach(self) -> None:
        """The engine closes: its series are gone."""
        if self._source is not None:
            self._series.detach(self._name, self._source)
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
        series = Series(registry, buckets, check_positive(cache_seconds, "cache_seconds"), monotonic)
        super().__init__(series, engine, hit_window)
        self._hit_window = hit_window

    def of(self, engine: str) -> EngineMetrics:
        """The same families for another engine, under a label of its own."""
        return EngineMetrics(self._series, engine, self._hit_window)


def _check_label(engine: object) -> str:
    if not isinstance(engine, str) or not engine:
        raise InvalidConfigError(f"engine must be a name for the label, got {engine!r}: use e.g. 'main'")
    return engine
