"""Metrics and traces: the instruments of an engine, and their export to Prometheus and OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.telemetry.instruments import EngineGauges, Metrics, Tracer
    from langmem_tiers.telemetry.opentelemetry import OpenTelemetryTracer
    from langmem_tiers.telemetry.prometheus import PrometheusMetrics
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".instruments": "EngineGauges Metrics Tracer",
            ".opentelemetry": "OpenTelemetryTracer",
            ".prometheus": "PrometheusMetrics",
        },
    )

__all__ = [
    "EngineGauges",
    "Metrics",
    "OpenTelemetryTracer",
    "PrometheusMetrics",
    "Tracer",
]
