"""
Reads the trace of a message from the application properties in which the Azure SDKs write it.

They write `traceparent`, the same text as `Diagnostic-Id` for readers older than the W3C standard, and `tracestate` if
it exists. Nothing is written here: the properties of the sender arrive unchanged.

Source: azure/servicebus/_common/tracing.py (7.15.0), azure/eventhub/_tracing.py (5.15.1); W3C Trace Context.
"""

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.amqp import map_section, sections
from shared.amqp.codec import decode
from shared.amqp.values import Malformed
from shared.telemetry.names import TRACE_PARENTS, TRACE_STATE

_MARK, _OLDER_MARK = (name.encode() for name in TRACE_PARENTS)
_WANTED = frozenset((*TRACE_PARENTS, TRACE_STATE))
_PROPAGATOR = TraceContextTextMapPropagator()


def trace_context(content: bytes) -> Context | None:
    """Return the trace context of an encoded message, None if it is missing or invalid."""
    # Most messages have none, and searching their bytes is much faster than splitting them into sections.
    if _MARK not in content and _OLDER_MARK not in content:
        return None
    try:
        properties = sections.split(content).application_properties
        found = {
            key: decode(properties, start, stop)[0].payload
            for key, _, start, stop in map_section.entries(properties)
            if key in _WANTED
        }
    except Malformed:
        return None
    parent = next((found[name] for name in TRACE_PARENTS if isinstance(found.get(name), str)), None)
    if not isinstance(parent, str):
        return None
    state = found.get(TRACE_STATE)
    carrier = {"traceparent": parent, **({"tracestate": state} if isinstance(state, str) else {})}
    context = _PROPAGATOR.extract(carrier, Context())
    return context if span_context(context).is_valid else None


def span_context(context: Context) -> SpanContext:
    """Return the span in *context*: the one in which the message was sent."""
    return get_current_span(context).get_span_context()
