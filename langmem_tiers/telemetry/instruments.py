"""Instrumentation of an engine: durations and counts of its operations, never texts or names of users.

Pass a ``Metrics`` or a ``Tracer`` to the engine to receive them. With neither, the overhead of an operation is less
than a microsecond. Implementations must not raise and must not block, because they are called during the operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self

from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import LangmemTiersError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

STORE_DURATION = "memory.store.duration"
STORED_MESSAGES = "memory.store.messages"
RETRIEVE_DURATION = "memory.retrieve.duration"
HIT_RATE = "memory.retrieve.hit_rate"
SUMMARIES = "memory.summarization.runs"
TOKENS_SAVED = "memory.summarization.tokens_saved"
ERRORS = "memory.errors"


class Operation(StrEnum):
    """Measured operations; the value is the name of the span."""

    ADD = "memory.add"
    RECALL = "memory.recall"
    BUILD_CONTEXT = "memory.build_context"
    SUMMARIZE = "memory.summarize"
    OPTIMIZE = "memory.optimize"
    EMBED = "memory.embed"


_DURATIONS = {Operation.ADD: STORE_DURATION, Operation.RECALL: RETRIEVE_DURATION}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGauges(Displayable):
    """Sizes and connections of a database. Values that are currently unavailable are None."""

    messages: int | None
    """Messages in all sessions; on PostgreSQL an estimate of the server."""
    memories: int | None
    """Knowledge, long-term entries, episodes and chunks; an estimate as above."""
    storage_bytes: int | None
    """Size of the tables with indexes; on SQLite of the file with its write-ahead log."""
    pool_active: int | None
    """Connections in use; None for SQLite."""
    redis_connected: bool | None = None
    """True if Redis answers; None if the engine does not use Redis."""


class Metrics(Protocol):
    """Receives measurements under the metric names of this module. Use one object per engine."""

    def observe(self, name: str, seconds: float) -> None:
        """Record a duration."""
        ...

    def count(self, name: str, amount: float = 1) -> None:
        """Increment a counter."""
        ...

    def rate(self, name: str, *, hit: bool) -> None:
        """Record the outcome of an attempt."""
        ...

    def fail(self, operation: str, kind: str) -> None:
        """Count an error of class ``kind`` raised by an operation."""
        ...

    def attach(self, read: Callable[[], EngineGauges | None]) -> None:
        """Register an engine when it opens. ``read`` returns its gauges, or None once the engine is closed."""
        ...

    def detach(self) -> None:
        """Unregister the engine when it closes."""
        ...


class TraceSpan(Protocol):
    """An operation in progress."""

    def note(self, name: str, value: float) -> None:
        """Set a numeric attribute."""
        ...

    def fail(self, kind: str) -> None:
        """Mark the span as failed with an error of class ``kind``."""
        ...


class Tracer(Protocol):
    """Creates spans, nested in the current one."""

    def span(self, name: str) -> AbstractContextManager[TraceSpan]:
        """Return a context manager that keeps a span open during its block."""
        ...


class Instruments:
    """Metrics and tracer of an engine, both optional.

    Args:
        metrics: Receives measurements.
        tracer: Creates spans.
        monotonic: Clock for durations, in seconds.
    """

    __slots__ = ("_is_silent", "metrics", "monotonic", "tracer")

    def __init__(
        self,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
        monotonic: Callable[[], float] = float,
    ) -> None:
        self.metrics = metrics
        self.tracer = tracer
        self.monotonic = monotonic
        self._is_silent = metrics is None and tracer is None

    def measure(self, operation: Operation) -> OperationScope:
        """Return a context manager that times its block, opens a span and counts errors."""
        return _NO_SCOPE if self._is_silent else _RecordedScope(self, operation)

    def count(self, name: str, amount: float = 1) -> None:
        """Increment a counter."""
        if self.metrics is not None and amount > 0:
            self.metrics.count(name, amount)

    def attach(self, read: Callable[[], EngineGauges | None]) -> None:
        """Report that the engine opens."""
        if self.metrics is not None:
            self.metrics.attach(read)

    def detach(self) -> None:
        """Report that the engine closes."""
        if self.metrics is not None:
            self.metrics.detach()


class OperationScope:
    """A measured block; this base class records nothing."""

    __slots__ = ()

    def record(self, **values: float) -> None:
        """Record numbers about the operation, such as messages, hits or tokens."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Record nothing."""


_NO_SCOPE = OperationScope()
SILENT_INSTRUMENTS = Instruments()
"""Instruments of an engine without metrics and tracer."""


class _RecordedScope(OperationScope):
    """A block that reports to metrics and tracer."""

    __slots__ = ("_instruments", "_open", "_operation", "_span", "_started", "_values")

    def __init__(self, instruments: Instruments, operation: Operation) -> None:
        self._instruments = instruments
        self._operation = operation
        self._values: dict[str, float] = {}
        self._open: AbstractContextManager[TraceSpan] | None = None
        self._span: TraceSpan | None = None

    def record(self, **values: float) -> None:
        self._values.update(values)

    def __enter__(self) -> Self:
        if self._instruments.tracer is not None:
            self._open = self._instruments.tracer.span(self._operation.value)
            self._span = self._open.__enter__()
        # After the span is opened, so that the tracer's overhead is not measured.
        self._started = self._instruments.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = self._instruments.monotonic() - self._started
        failed = None if kind is None else get_error_name(kind)
        if self._instruments.metrics is not None:
            self._report(self._instruments.metrics, seconds, failed)
        if self._open is not None and self._span is not None:
            for name, value in self._values.items():
                self._span.note(name, value)
            if failed is not None:
                self._span.fail(failed)
            self._open.__exit__(kind, error, trace)

    def _report(self, metrics: Metrics, seconds: float, failed: str | None) -> None:
        if (name := _DURATIONS.get(self._operation)) is not None:
            metrics.observe(name, seconds)
        if failed is not None:
            metrics.fail(self._operation.value, failed)
        # Failed recalls are not part of the hit rate.
        elif self._operation is Operation.RECALL:
            metrics.rate(HIT_RATE, hit=self._values.get("hits", 0) > 0)
        elif self._operation is Operation.ADD and (stored := self._values.get("messages", 0)) > 0:
            metrics.count(STORED_MESSAGES, stored)


def get_error_name(kind: type[BaseException]) -> str:
    """Return the class name of a langmem-tiers error, or "other" for all other errors."""
    if not issubclass(kind, LangmemTiersError):
        return "other"
    # Private subclasses are counted as their public base class.
    return next(base.__name__ for base in kind.__mro__ if not base.__name__.startswith("_"))
