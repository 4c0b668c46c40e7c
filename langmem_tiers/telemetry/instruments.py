"""What an engine tells about its work: how long, how often, how many. Never what was said, nor by whom.

Whoever wants to hear it hands in a ``Metrics`` or a ``Tracer``; with neither, a verb costs less than a microsecond
more. What is handed in must not raise and must not wait: it is called in the middle of the work.
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
    """What is watched; its value is the name of its span."""

    ADD = "memory.add"
    RECALL = "memory.recall"
    BUILD_CONTEXT = "memory.build_context"
    SUMMARIZE = "memory.summarize"
    OPTIMIZE = "memory.optimize"
    EMBED = "memory.embed"


_DURATIONS = {Operation.ADD: STORE_DURATION, Operation.RECALL: RETRIEVE_DURATION}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGauges(Displayable):
    """What a database holds and how it stands. What could not be told just now is None."""

    messages: int | None
    """Of all sessions; an estimate of the database's own on PostgreSQL."""
    memories: int | None
    """Knowledge, long-term entries, episodes and chunks; as above."""
    storage_bytes: int | None
    """With indexes and, on SQLite, the write-ahead log."""
    pool_active: int | None
    """Connections in use; None where there is no pool that could run out."""
    redis_connected: bool | None = None
    """Whether Redis answers; None where the engine has none."""


class Metrics(Protocol):
    """Takes figures under the names of this module. One engine each."""

    def observe(self, name: str, seconds: float) -> None:
        """Something took so long."""
        ...

    def count(self, name: str, amount: float = 1) -> None:
        """Something happened, so many times."""
        ...

    def rate(self, name: str, *, hit: bool) -> None:
        """Something was tried, and whether it went well."""
        ...

    def fail(self, verb: str, kind: str) -> None:
        """A verb raised an error of that class."""
        ...

    def attach(self, read: Callable[[], EngineGauges | None]) -> None:
        """An engine opens; ``read`` tells how it stands, and None once it is gone."""
        ...

    def detach(self) -> None:
        """The engine closes."""
        ...


class TraceSpan(Protocol):
    """One piece of work under way."""

    def note(self, name: str, value: float) -> None:
        """A figure of it."""
        ...

    def fail(self, kind: str) -> None:
        """It raised an error of that class."""
        ...


class Tracer(Protocol):
    """Makes spans, each inside the one that is under way."""

    def span(self, name: str) -> AbstractContextManager[TraceSpan]:
        """A span for as long as its block runs."""
        ...


class Instruments:
    """What an engine was handed to tell about its work, if anything.

    Args:
        metrics: For figures.
        tracer: For spans.
        monotonic: Where the time comes from.
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

    def measure(self, verb: Operation) -> OperationScope:
        """Time a block, put a span around it, and count it if it fails."""
        return _NO_SCOPE if self._is_silent else _RecordedScope(self, verb)

    def count(self, name: str, amount: float = 1) -> None:
        """Something happened, so many times."""
        if self.metrics is not None and amount > 0:
            self.metrics.count(name, amount)

    def attach(self, read: Callable[[], EngineGauges | None]) -> None:
        """An engine opens."""
        if self.metrics is not None:
            self.metrics.attach(read)

    def detach(self) -> None:
        """The engine closes."""
        if self.metrics is not None:
            self.metrics.detach()


class OperationScope:
    """A block that is watched by nobody."""

    __slots__ = ()

    def record(self, **figures: float) -> None:
        """Figures of what is done: how many messages, hits, tokens."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nobody wants to know."""


_NO_SCOPE = OperationScope()
SILENT_INSTRUMENTS = Instruments()
"""Those of an engine that was handed none."""


class _RecordedScope(OperationScope):
    """A block that somebody wants to know of."""

    __slots__ = ("_figures", "_instruments", "_open", "_span", "_started", "_verb")

    def __init__(self, instruments: Instruments, verb: Operation) -> None:
        self._instruments = instruments
        self._verb = verb
        self._figures: dict[str, float] = {}
        self._open: AbstractContextManager[TraceSpan] | None = None
        self._span: TraceSpan | None = None

    def record(self, **figures: float) -> None:
        self._figures.update(figures)

    def __enter__(self) -> Self:
        if self._instruments.tracer is not None:
            self._open = self._instruments.tracer.span(self._verb.value)
            self._span = self._open.__enter__()
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
            for name, value in self._figures.items():
                self._span.note(name, value)
            if failed is not None:
                self._span.fail(failed)
            self._open.__exit__(kind, error, trace)

    def _report(self, metrics: Metrics, seconds: float, failed: str | None) -> None:
        if (name := _DURATIONS.get(self._verb)) is not None:
            metrics.observe(name, seconds)
        if failed is not None:
            metrics.fail(self._verb.value, failed)
        elif self._verb is Operation.RECALL:
            metrics.rate(HIT_RATE, hit=self._figures.get("hits", 0) > 0)
        elif self._verb is Operation.ADD and (stored := self._figures.get("messages", 0)) > 0:
            metrics.count(STORED_MESSAGES, stored)


def get_error_name(kind: type[BaseException]) -> str:
    """What an error is counted as: its class if it is ours, and one word for all others."""
    if not issubclass(kind, LangmemTiersError):
        return "other"
    return next(one.__name__ for one in kind.__mro__ if not one.__name__.startswith("_"))
