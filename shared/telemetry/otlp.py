"""Exports metrics and spans to a collector over OTLP with HTTP; the settings OTEL_EXPORTER_OTLP_* name it."""

from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter


def exporters(_: Mapping[str, str], /) -> tuple[MetricExporter, SpanExporter]:
    """Return the exporters; they read their settings from the environment."""
    return OTLPMetricExporter(), OTLPSpanExporter()
