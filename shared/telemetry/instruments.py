"""
Batches as OpenTelemetry metrics and spans; uses the API only.

A batch is a span with a link to the trace of each message, since a span can have only one parent.
A message that its sender traces also gets a span within that trace, so that the trace shows the hop.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.amqp import map_section, sections
from shared.amqp.codec import decode
from shared.amqp.values import Malformed
from shared.errors import BuswayError
from shared.protocols import BatchReport, Measurement, ReportedMessage
from shared.remedies import remedy_for
from shared.telemetry import names
from shared.telemetry.names import TRACE_PARENTS, TRACE_STATE, Metric, outcome_of

_NANOSECONDS = 1_000_000_000

type Attributes = Mapping[str, str | int]


class Instruments:
    """The instruments, which all tasks share."""

    def __init__(self, meter: metrics.Meter, tracer: Tracer, flush: Callable[[float], None] = lambda _: None) -> None:
        """Create every instrument of `names`; *flush* exports what was measured, within a number of seconds."""
        self.tracer = tracer
        self.flush = flush
        self.messages = _counter(meter, names.MESSAGES)
        self.lag = _histogram(meter, names.LAG)
        self.batch_size = _histogram(meter, names.BATCH_SIZE)
        self.duration = _histogram(meter, names.DURATION)
        self.retries = _counter(meter, names.RETRIES)
        self.bytes = _counter(meter, names.BYTES)
        obstacles = names.OBSTACLES
        self.obstacles = meter.create_up_down_counter(obstacles.name, obstacles.unit, obstacles.description)
        self.unwritten = _counter(meter, names.UNWRITTEN)
        self.found = _counter(meter, names.FOUND)
        self.nights = _counter(meter, names.NIGHTS)
        self.losses = _counter(meter, names.LOST)
        self._looked: dict[str, list[metrics.Observation]] = {}
        for gauge in names.GAUGES:
            meter.create_observable_gauge(gauge.name, [partial(self._taken, gauge.name)], gauge.unit, gauge.description)

    def of_task(self, source: Mapping[str, str]) -> "TaskInstruments":
        """Return the measurements of a task with the attributes of its *source* (`names.OF_THE_SOURCE`)."""
        return TaskInstruments(self, source)

    def finding(self, task: str, verdict: str, count: int) -> None:
        """Count messages with a finding."""
        self.found.add(count, {names.TASK: task, names.VERDICT: verdict})

    def night(self, verdict: str) -> None:
        """Count a reconciliation by its verdict."""
        self.nights.add(1, {names.VERDICT: verdict})

    def measured(self, measurements: Sequence[Measurement]) -> None:
        """Keep the values of the gauges for the next export."""
        looked: dict[str, list[metrics.Observation]] = {gauge.name: [] for gauge in names.GAUGES}
        for measurement in measurements:
            looked[measurement.metric].append(metrics.Observation(measurement.value, measurement.attributes))
        self._looked = looked

    def _taken(self, name: str, _: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        """Return the last values once: another instance may measure next, and then these are out of date."""
        return self._looked.pop(name, ())

    def lost(self, task: str, count: int) -> None:
        """Count lost messages."""
        self.losses.add(count, {names.TASK: task})


class TaskInstruments:
    """Measures the batches of one task."""

    def __init__(self, instruments: Instruments, source: Mapping[str, str]) -> None:
        """Give every measurement the attributes of the *source*."""
        self._instruments = instruments
        self._source = dict(source)
        self._task = source[names.TASK]
        operation = {names.OPERATION: names.PROCESS, names.OPERATION_TYPE: names.PROCESS}
        azure = {names.AZURE_NAMESPACE: names.AZURE_NAMESPACES[source[names.SYSTEM]]}
        self._of_spans: Attributes = {**self._source, **operation, **azure}
        self._standing: dict[str, Attributes] = {}

    def batch(self, report: BatchReport) -> None:
        """Record the metrics and spans of a batch."""
        if report.has_only_heartbeats:
            return
        self._measure(report)
        self._trace(report)

    def in_hand(self, size: int, oldest: int | None) -> AbstractContextManager[None]:  # noqa: ARG002 - not measured
        """Do nothing: what is finished is measured."""
        return nullcontext()

    def unwritten(self, records: int) -> None:
        """Count lost records of the journal."""
        self._instruments.unwritten.add(records, self._source)

    def outage(self, place: str, error: BuswayError | None) -> None:
        """Count a target that is unavailable or refuses, or count it down when it has recovered."""
        standing = self._standing.pop(place, None)
        if standing is not None:
            self._instruments.obstacles.add(-1, standing)
        if error is not None:
            attributes = {
                **self._source,
                names.TARGET: place,
                names.ERROR_TYPE: type(error).__name__,
                names.REMEDY: remedy_for(str(error)).name,
            }
            self._standing[place] = attributes
            self._instruments.obstacles.add(1, attributes)

    def _measure(self, report: BatchReport) -> None:
        to, source = self._instruments, self._source
        counts: Counter[tuple[str, int]] = Counter()
        targets: dict[int, object] = {}
        oldest: dict[str, int] = {}
        received = transmitted = 0
        for message in report.messages:
            outcome = outcome_of(message)
            # All messages of a batch share the target objects, and building a target's name takes longer than the rest.
            counts[outcome, id(message.target)] += 1
            targets[id(message.target)] = message.target
            received += len(message.content)
            if outcome in names.TRANSMITTED and message.outgoing is not None:
                transmitted += len(message.outgoing.content)
            enqueued = message.arrival.enqueued_time
            if enqueued is not None and enqueued < oldest.get(outcome, enqueued + 1):
                oldest[outcome] = enqueued
        for (outcome, identity), count in counts.items():
            target = targets[identity]
            placed = {} if target is None else {names.TARGET: str(target)}
            to.messages.add(count, {**source, names.OUTCOME: outcome, **placed})
        ended = report.started.timestamp() + report.seconds
        for outcome, enqueued in oldest.items():
            # The service's clock may be ahead of this machine's.
            to.lag.record(max(ended - enqueued / 1000, 0), {**source, names.OUTCOME: outcome})
        to.batch_size.record(report.size, source)
        failed = {} if report.error is None else {names.ERROR_TYPE: type(report.error).__name__}
        to.duration.record(report.seconds, {**source, names.OPERATION: names.PROCESS, **failed})
        if report.retries:
            to.retries.add(report.retries, source)
        to.bytes.add(received, {**source, names.DIRECTION: names.RECEIVE})
        if transmitted:
            to.bytes.add(transmitted, {**source, names.DIRECTION: names.TRANSMIT})

    def _trace(self, report: BatchReport) -> None:
        started = int(report.started.timestamp() * _NANOSECONDS)
        ended = started + int(report.seconds * _NANOSECONDS)
        traced = [
            (message, context) for message in report.messages if (context := trace_context(message.content)) is not None
        ]
        attributes: dict[str, str | int] = {**self._of_spans, names.BATCH_COUNT: report.size}
        if report.origin.partition is not None:
            attributes[names.PARTITION] = report.origin.partition
        span = self._instruments.tracer.start_span(
            names.BATCH_SPAN.format(task=self._task),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=_links(traced),
            start_time=started,
        )
        if report.error is not None:
            span.set_attribute(names.ERROR_TYPE, type(report.error).__name__)
            span.set_status(StatusCode.ERROR, str(report.error))
        span.end(ended)
        for message, context in traced:
            self._trace_message(message, context, span.get_span_context(), started).end(ended)

    def _trace_message(self, message: ReportedMessage, context: Context, batch: SpanContext, started: int) -> Span:
        outcome = outcome_of(message)
        attributes: dict[str, str | int] = {**self._of_spans, names.OUTCOME: outcome}
        if message.target is not None:
            attributes[names.TARGET] = str(message.target)
        if message.arrival.sequence_number is not None:
            attributes[names.SEQUENCE_NUMBER] = message.arrival.sequence_number
        if message.outgoing is not None and message.outgoing.message_id is not None:
            attributes[names.MESSAGE_ID] = message.outgoing.message_id
        span = self._instruments.tracer.start_span(
            names.MESSAGE_SPAN.format(task=self._task),
            context,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=(Link(batch, {}),),
            start_time=started,
        )
        if outcome in names.FAILED:
            span.set_status(StatusCode.ERROR, outcome)
        return span


def _links(traced: Sequence[tuple[ReportedMessage, Context]]) -> list[Link]:
    links: dict[tuple[int, int], Link] = {}
    for message, context in traced:
        sent_in = span_context(context)
        time = message.arrival.enqueued_time
        # The messages into which an editor split one message have the same trace.
        links[sent_in.trace_id, sent_in.span_id] = Link(sent_in, {} if time is None else {names.ENQUEUED_TIME: time})
    return list(links.values())


def _counter(meter: metrics.Meter, metric: Metric) -> metrics.Counter:
    return meter.create_counter(metric.name, metric.unit, metric.description)


def _histogram(meter: metrics.Meter, metric: Metric) -> metrics.Histogram:
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.boundaries
    )


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
