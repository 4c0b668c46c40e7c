"""OpenTelemetry spans of an engine.

::

    engine = MemoryEngine(url, tracer=OpenTelemetryTracer(trace.get_tracer("my-agent")))

The spans are ``memory.add``, ``memory.recall``, ``memory.build_context``, ``memory.summarize``,
``memory.optimize`` and ``memory.embed``. Their attributes are counts. Errors are reported by class, without the
message, which may contain names. opentelemetry is imported only when an ``OpenTelemetryTracer`` is created.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from langmem_tiers.errors import InvalidConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry import trace


class OpenTelemetryTracer:
    """Creates a span per operation of an engine, nested in the current span.

    Args:
        tracer: Result of ``opentelemetry.trace.get_tracer(...)``.
    """

    def __init__(self, tracer: trace.Tracer) -> None:
        try:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - optional dependency, imported on demand
        except ImportError as error:
            raise MissingExtraError(
                "OpenTelemetryTracer needs opentelemetry-api: pip install 'langmem-tiers[tracing]'"
            ) from error
        if not callable(getattr(tracer, "start_as_current_span", None)):
            raise InvalidConfigError(
                f"tracer must be an OpenTelemetry tracer, got {type(tracer).__name__}: "
                "use opentelemetry.trace.get_tracer('my-agent')"
            )
        self._tracer = tracer
        self._build_status: Callable[[str], trace.Status] = lambda kind: Status(StatusCode.ERROR, kind)

    @contextmanager
    def span(self, name: str) -> Iterator[_Span]:
        """Keep a span open during the block."""
        # The exception itself is not recorded: its message and its stack may contain names.
        with self._tracer.start_as_current_span(
            name, record_exception=False, set_status_on_exception=False
        ) as span:
            yield _Span(self, span)

    def build_error_status(self, kind: str) -> trace.Status:
        """Return the status of a failed span."""
        return self._build_status(kind)


class _Span:
    """An operation in progress."""

    __slots__ = ("_span", "_tracer")

    def __init__(self, tracer: OpenTelemetryTracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span

    def note(self, name: str, value: float) -> None:
        """Set a numeric attribute."""
        self._span.set_attribute(f"memory.{name}", value)

    def fail(self, kind: str) -> None:
        """Mark the span as failed with an error of class ``kind``."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(self._tracer.build_error_status(kind))
