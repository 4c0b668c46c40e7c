"""Spans of an engine for OpenTelemetry.

::

    engine = MemoryEngine(url, tracer=OpenTelemetryTracer(trace.get_tracer("my-agent")))

Spans are called ``memory.add``, ``memory.recall``, ``memory.build_context``, ``memory.summarize``,
``memory.optimize`` and ``memory.embed``. Their attributes are counts; of an error they tell its class and not its
message, which may quote a name. Nothing of OpenTelemetry is imported before an ``OpenTelemetryTracer`` is made.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from langmem_tiers.errors import InvalidConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry import trace


class OpenTelemetryTracer:
    """Puts spans around what an engine does, inside the one that is current.

    Args:
        tracer: What ``opentelemetry.trace.get_tracer(...)`` gives.
    """

    def __init__(self, tracer: trace.Tracer) -> None:
        try:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra, not before it is needed
        except ImportError as error:
            raise MissingExtraError(
                "OpenTelemetryTracer needs opentelemetry-api: pip install 'langmem-tiers[tracing]'"
            ) from error
        if not callable(getattr(tracer, "start_as_current_span", None)):
            raise InvalidConfigError(
                f"tracer must be one of OpenTelemetry, got a {type(tracer).__name__}: "
                "use opentelemetry.trace.get_tracer('my-agent')"
            )
        self._tracer = tracer
        self._build_status: Callable[[str], trace.Status] = lambda kind: Status(StatusCode.ERROR, kind)

    @contextmanager
    def span(self, name: str) -> Iterator[_Span]:
        """A span for as long as its block runs."""
        # The exception itself stays out: its message and its stack may quote names.
        with self._tracer.start_as_current_span(
            name, record_exception=False, set_status_on_exception=False
        ) as under_way:
            yield _Span(self, under_way)

    def build_error_status(self, kind: str) -> trace.Status:
        """The status of a span that failed."""
        return self._build_status(kind)


class _Span:
    """One piece of work under way."""

    __slots__ = ("_span", "_tracer")

    def __init__(self, tracer: OpenTelemetryTracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span

    def note(self, name: str, value: float) -> None:
        """A figure of it."""
        self._span.set_attribute(f"memory.{name}", value)

    def fail(self, kind: str) -> None:
        """It raised an error of that class."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(self._tracer.build_error_status(kind))
