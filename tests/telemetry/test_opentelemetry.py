"""Spans of an engine, exported by the OpenTelemetry SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from langmem_tiers import InvalidConfigError, MemoryEngine, MessageConflictError, MessageDraft
from langmem_tiers.telemetry.opentelemetry import OpenTelemetryTracer
from tests.telemetry.sample_workload import EMBEDDER, SECRETS, SMALL, do_everything

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan


class Traced:
    """A tracer, and what it exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.otel = provider.get_tracer("tests")
        self.tracer = OpenTelemetryTracer(self.otel)

    def spans(self, name: str | None = None) -> Sequence[ReadableSpan]:
        found = self._exporter.get_finished_spans()
        return [span for span in found if name in (None, span.name)]


@pytest.fixture
def traced() -> Traced:
    return Traced()


def test_each_operation_has_a_span_with_counts(url: str, traced: Traced) -> None:
    with MemoryEngine(url, config=SMALL, embedder=EMBEDDER, tracer=traced.tracer) as engine:
        do_everything(engine)
        engine.namespace("tenant-8231").delete()
    verbs = ("add", "recall", "build_context", "summarize", "optimize", "embed")
    assert {span.name for span in traced.spans()} == {f"memory.{verb}" for verb in verbs}
    assert [dict(span.attributes or {}) for span in traced.spans("memory.add")] == [
        {"memory.messages": 1, "memory.duplicates": 0}
    ] * 60
    for span in traced.spans():
        assert span.attributes
        assert all(isinstance(value, int | float) for value in span.attributes.values())


def test_nested_operations_are_child_spans(traced: Traced) -> None:
    with MemoryEngine(embedder=EMBEDDER, tracer=traced.tracer) as engine:
        engine.session("a", "s").add("user", "The walrus swims.")
        with traced.otel.start_as_current_span("agent"):
            engine.namespace("a").build_context("walrus")
    by_id = {span.context.span_id: span.name for span in traced.spans() if span.context is not None}
    parents = {span.name: by_id.get(span.parent.span_id) if span.parent else None for span in traced.spans()}
    assert parents == {
        "agent": None,
        "memory.add": None,
        "memory.build_context": "agent",
        "memory.recall": "memory.build_context",
        "memory.embed": "memory.recall",
    }


def test_an_error_is_recorded_only_by_its_class(traced: Traced) -> None:
    with MemoryEngine(tracer=traced.tracer) as engine:
        session = engine.session("tenant-8231", "session-5512")
        session.add(MessageDraft("user", "one", id="walrus"))
        with pytest.raises(MessageConflictError, match="walrus"):
            session.add(MessageDraft("user", "two", id="walrus"))
    good, bad = traced.spans("memory.add")
    assert good.status.status_code is StatusCode.UNSET
    assert (bad.status.status_code, bad.status.description) == (StatusCode.ERROR, "MessageConflictError")
    assert (bad.attributes or {})["error.type"] == "MessageConflictError"
    assert not bad.events


def test_spans_contain_neither_texts_nor_names(url: str, traced: Traced) -> None:
    with MemoryEngine(url, config=SMALL, tracer=traced.tracer) as engine:
        do_everything(engine)
        engine.namespace("tenant-8231").delete()
    exported = " ".join(span.to_json() for span in traced.spans()).lower()
    assert not [secret for secret in SECRETS if secret.lower() in exported]


def test_an_invalid_tracer_is_refused() -> None:
    wrong: Any = TracerProvider()
    with pytest.raises(InvalidConfigError, match="get_tracer"):
        OpenTelemetryTracer(wrong)
