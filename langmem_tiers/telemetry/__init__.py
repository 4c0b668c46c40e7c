"""Metrics and traces: the instruments of an engine, and their export to Prometheus and OpenTelemetry."""
