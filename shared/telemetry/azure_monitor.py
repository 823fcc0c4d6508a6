"""
Exports metrics and spans to Application Insights.

The exporter signs in with the app's identity if APPLICATIONINSIGHTS_AUTHENTICATION_STRING is `Authorization=AAD`, as
the Functions host does for its own telemetry.
"""

from collections.abc import Mapping

from azure.monitor.opentelemetry.exporter import AzureMonitorMetricExporter, AzureMonitorTraceExporter
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

from shared.errors import ConfigError, Problem

CONNECTION_STRING = "APPLICATIONINSIGHTS_CONNECTION_STRING"


def exporters(settings: Mapping[str, str]) -> tuple[MetricExporter, SpanExporter]:
    """Return the exporters; raises ConfigError if the app setting of Application Insights cannot be used."""
    text = settings.get(CONNECTION_STRING)
    if not text:
        hint = "copy it from the Application Insights resource"
        raise ConfigError([Problem(CONNECTION_STRING, "the app setting is missing", hint)])
    try:
        return AzureMonitorMetricExporter(connection_string=text), AzureMonitorTraceExporter(connection_string=text)
    except ValueError:
        hint = "expected InstrumentationKey=GUID;IngestionEndpoint=https://HOST/"
        problem = Problem(CONNECTION_STRING, "the app setting is not a connection string of Application Insights", hint)
    # Raise outside the except clause: the exporter's error may quote the setting.
    raise ConfigError([problem])
