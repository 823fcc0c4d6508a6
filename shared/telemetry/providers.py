"""
The OpenTelemetry SDK behind the instruments.

The providers are not the global ones of the process, which other code in the worker may set. OpenTelemetry's own
settings apply: intervals (OTEL_METRIC_EXPORT_INTERVAL, OTEL_BSP_*), sampling (OTEL_TRACES_SAMPLER), limits
(OTEL_SPAN_LINK_COUNT_LIMIT), names (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES), no telemetry (OTEL_SDK_DISABLED).
"""

from collections.abc import Mapping

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from shared.telemetry.instruments import Instruments
from shared.telemetry.names import SCOPE, SERVICE

# Azure Functions sets these to the names of the app and its instance.
_SITE_NAME = "WEBSITE_SITE_NAME"
_INSTANCE = "WEBSITE_INSTANCE_ID"


def instruments(metrics: MetricExporter, spans: SpanExporter, settings: Mapping[str, str]) -> Instruments:
    """Return instruments that export to *metrics* and *spans*, the last time when the process ends."""
    resource = _resource(settings)
    meters = MeterProvider([PeriodicExportingMetricReader(metrics)], resource=resource)
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(spans))

    def flush(timeout_seconds: float) -> None:
        limit = int(timeout_seconds * 1000)
        meters.force_flush(limit)
        tracers.force_flush(limit)

    return Instruments(meters.get_meter(SCOPE), tracers.get_tracer(SCOPE), flush)


def _resource(settings: Mapping[str, str]) -> Resource:
    attributes = {"service.name": settings.get(_SITE_NAME) or SERVICE}
    if _INSTANCE in settings:
        attributes["service.instance.id"] = settings[_INSTANCE]
    # The second resource, with OpenTelemetry's own settings, wins.
    return Resource(attributes).merge(OTELResourceDetector().detect())
