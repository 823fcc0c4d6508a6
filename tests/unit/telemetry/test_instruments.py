"""What a pipeline reports about its batches, measured by the SDK in memory."""

import asyncio
import importlib
import json
import logging
import re
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, StaticSampler

from shared.amqp.codec import encode
from shared.amqp.values import Value, binary, string
from shared.errors import ConfigError, TargetRefused, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.ttl import Keep
from shared.protocols import Outcome, Outgoing
from shared.telemetry import names
from shared.telemetry.batch_log import BatchLog
from shared.telemetry.instruments import Instruments, span_context, trace_context
from shared.telemetry.names import Metric
from shared.telemetry.opening import open_telemetry
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
    OutputThatRejects,
    clock_at_delivery,
    sleep_by,
)
from tests.messages import ENQUEUED, delivered
from tests.strategies import values

DOCUMENT = Path(__file__).parents[3] / "docs" / "telemetry.md"
SOURCE = {
    names.TASK: "orders",
    names.SOURCE: "west/orders",
    names.SYSTEM: names.SERVICE_BUS,
    names.DESTINATION: "orders",
}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Measured:
    """A pipeline to one output, and what is measured of it."""

    def __init__(
        self, output: Any, *, rejects: OutputThatAccepts | None = None, sampler: StaticSampler | None = None
    ) -> None:
        self.reader = InMemoryMetricReader()
        self.exporter = InMemorySpanExporter()
        tracers = TracerProvider(sampler=sampler)
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        instruments = Instruments(MeterProvider([self.reader]).get_meter("t"), tracers.get_tracer("t"))
        self.clock = clock_at_delivery()
        task = Task(
            name="orders",
            origin=Origin("west", "orders"),
            editors=(),
            router=Router([Route(Target(output, "east", "copies"))]),
            rejects=None if rejects is None else Target(rejects, "west", "rejected"),
            time_to_live=Keep(),
            loop_guard=LoopGuard(),
        )
        self.pipeline = Pipeline(
            task, JournalInMemory(), self.clock, sleep_by(self.clock), telemetry=instruments.of_task(SOURCE)
        )

    def run(self, *batch: bytes) -> Counter[Outcome] | None:
        return asyncio.run(self.pipeline.run(batch))

    def points(self, metric: Metric) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            point
            for of in data.resource_metrics
            for scope in of.scope_metrics
            for each in scope.metrics
            if each.name == metric.name
            for point in each.data.data_points
        ]

    def obstacles(self) -> dict[str, int]:
        return {point.attributes[names.ERROR_TYPE]: point.value for point in self.points(names.OBSTACLES)}

    def counts(self) -> dict[Any, Any]:
        return {
            (point.attributes[names.OUTCOME], point.attributes.get(names.TARGET)): point.value
            for point in self.points(names.MESSAGES)
        }


def test_a_message_that_is_redelivered_with_its_batch_is_counted_as_sent_once() -> None:
    measured = Measured(OutputThatFailsOnce(after=2, error=TargetUnavailable("away", retry_after=timedelta(hours=1))))
    batch = [delivered(number) for number in (1, 2, 3)]
    with pytest.raises(TargetUnavailable):
        measured.run(*batch)
    assert measured.counts() == {("sent", "east/copies"): 2, ("retry", "east/copies"): 1}
    measured.run(*batch)
    assert measured.counts() == {
        ("sent", "east/copies"): 3,
        ("retry", "east/copies"): 1,
        ("remembered", None): 2,
    }


def test_nightly_run_is_counted_by_verdict_and_findings_by_task() -> None:
    reader = InMemoryMetricReader()
    night = Instruments(MeterProvider([reader]).get_meter("t"), TracerProvider().get_tracer("t"))
    night.finding("orders", "missing", 3)
    night.finding("orders", "missing", 1)
    night.night("findings")
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    found = set()
    for metric in scope.metrics:
        for point in metric.data.data_points:
            assert isinstance(point, NumberDataPoint)
            found.add((metric.name, tuple(sorted((point.attributes or {}).items())), point.value))
    assert found == {
        ("busway.findings", (("busway.task", "orders"), ("busway.verdict", "missing")), 4),
        ("busway.nights", (("busway.verdict", "findings"),), 1),
    }


def test_retries_and_the_time_they_take_are_measured() -> None:
    measured = Measured(OutputThatFailsOnce())
    measured.run(delivered(1))
    (retries,) = measured.points(names.RETRIES)
    assert retries.value == 1
    (duration,) = measured.points(names.DURATION)
    assert duration.sum == pytest.approx(0.2)
    (lag,) = measured.points(names.LAG)
    assert lag.sum == pytest.approx(0.2)


def test_the_lag_is_that_of_the_oldest_message_and_never_negative() -> None:
    measured = Measured(OutputThatAccepts())
    measured.run(delivered(1, enqueued=ENQUEUED - 3_000), delivered(2), delivered(3, enqueued=ENQUEUED + 9_000))
    measured.run(delivered(4, enqueued=ENQUEUED + 9_000))
    (lag,) = measured.points(names.LAG)
    assert (lag.count, lag.max, lag.min) == (2, 3.0, 0.0)


def test_bytes_are_counted_when_received_and_accepted() -> None:
    west, rejects = OutputThatRejects(lambda message: message.message_id == "m-2"), OutputThatAccepts()
    measured = Measured(west, rejects=rejects)
    batch = [delivered(1), delivered(2)]
    measured.run(*batch)
    found = {point.attributes[names.DIRECTION]: point.value for point in measured.points(names.BYTES)}
    accepted = [*west.accepted["copies"], *rejects.accepted["rejected"]]
    assert found == {"receive": sum(map(len, batch)), "transmit": sum(len(message.content) for message in accepted)}
    assert measured.counts() == {("sent", "east/copies"): 1, ("rejected", "west/rejected"): 1}


def test_a_batch_that_fails_is_an_error_in_metrics_and_spans() -> None:
    measured = Measured(OutputThatIsDown())
    with pytest.raises(TargetUnavailable):
        measured.run(delivered(1, named={"traceparent": string(PARENT)}))
    (duration,) = measured.points(names.DURATION)
    assert duration.attributes[names.ERROR_TYPE] == "TargetUnavailable"
    batch, message = measured.exporter.get_finished_spans()
    assert (batch.status.is_ok, message.status.is_ok) == (False, False)
    assert format(message.context.trace_id, "032x") == PARENT.split("-")[1]


def test_unsampled_spans_are_not_exported() -> None:
    measured = Measured(OutputThatAccepts(), sampler=ALWAYS_OFF)
    measured.run(delivered(1, named={"traceparent": string(PARENT)}))
    assert measured.exporter.get_finished_spans() == ()
    assert measured.counts() == {("sent", "east/copies"): 1}


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ({"traceparent": string(PARENT)}, True),
        ({"Diagnostic-Id": string(PARENT)}, True),
        ({"traceparent": binary(PARENT.encode())}, False),
        ({"traceparent": string("00-0af7-b7ad-01")}, False),
        ({"traceparent": string(f"00-{'0' * 32}-b7ad6b7169203331-01")}, False),
        ({"Diagnostic-Id": string("|4711.1.")}, False),
        ({"other": string("traceparent")}, False),
        ({}, False),
    ],
)
def test_a_trace_context_is_read_where_the_sdks_write_it(named: dict[str, Value], found: bool) -> None:
    context = trace_context(delivered(1, named=named))
    assert (context is not None) is found
    if context is not None:
        assert format(span_context(context).span_id, "016x") == PARENT.split("-")[2]


@given(st.sampled_from(["traceparent", "Diagnostic-Id", "tracestate"]), values, st.integers(0, 400))
def test_nothing_in_a_message_can_make_telemetry_fail(name: str, value: Value, length: int) -> None:
    content = delivered(1, named={"traceparent": string(PARENT), name: value})
    trace_context(content)
    trace_context(content[:length])
    trace_context(encode(value) + b"traceparent")


def test_an_sdk_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.monitor.opentelemetry.exporter", None)
    monkeypatch.delitem(sys.modules, "shared.telemetry.azure_monitor", raising=False)
    with pytest.raises(ConfigError) as raised:
        open_telemetry({"BUSWAY_TELEMETRY": "azure-monitor"})
    (problem,) = raised.value.problems
    assert problem.path == "BUSWAY_TELEMETRY"
    assert "needs the package azure-monitor-opentelemetry-exporter" in problem.problem


def test_the_log_line_has_its_fields_in_the_text_and_for_other_handlers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    output = OutputThatAccepts()
    measured = Measured(output)
    measured.pipeline._telemetry = BatchLog("orders")
    measured.run(delivered(1), delivered(2))
    (record,) = [record for record in caplog.records if record.name == "busway.batch"]
    sentence, _, fields = record.getMessage().partition(" {")
    assert sentence == "orders: 2 messages in 0 ms: 2 sent."
    values = json.loads("{" + fields)
    assert values == {name: record.__dict__[name] for name in values}
    assert values["busway.messages.sent"] == 2
    assert values["busway.io"] == len(delivered(1)) + len(delivered(2))


def test_the_document_has_every_metric_with_unit_and_attributes() -> None:
    rows = re.findall(r"^- `([\w.]+)` \(([\w -]+), `([^`]+)`([^)]*)\): (.+)$", DOCUMENT.read_text(), re.MULTILINE)
    of_document = {
        name: (kind, unit, sorted(re.findall(r"`([^`]+)`", attributes)), values.strip())
        for name, kind, unit, attributes, values in rows
    }
    of_code = {
        metric.name: (metric.kind, metric.unit, sorted(metric.attributes), metric.description.rstrip("."))
        for metric in names.METRICS
    }
    assert of_document == of_code


def test_the_document_has_every_attribute() -> None:
    text = DOCUMENT.read_text()
    constants = {
        value for value in vars(importlib.import_module("shared.telemetry.names")).values() if isinstance(value, str)
    }
    dotted = {value for value in constants if re.fullmatch(r"(busway|messaging|network|az|error)\.[\w.]+", value)}
    assert {name for name in dotted if f"`{name}`" not in text} == set()


class OutputInTrouble(OutputThatAccepts):
    """Gives the answers that were set, then accepts; notes what is measured from the second attempt on."""

    def __init__(self, *errors: TargetUnavailable | TargetRefused) -> None:
        super().__init__()
        self.errors = list(errors)
        self.standing: list[Any] = []
        self.measured = Measured(self)

    def answer(self, _: Outgoing, /) -> TargetUnavailable | TargetRefused | None:
        if self.standing or len(self.errors) < 3:
            self.standing.append(self.measured.obstacles())
        return self.errors.pop(0) if self.errors else None


def test_unavailable_targets_are_counted_during_the_outage() -> None:
    away, full = TargetUnavailable("east/copies: away"), TargetRefused("east/copies: full")
    output = OutputInTrouble(away, away, full)
    output.measured.run(delivered(1))
    assert output.standing == [
        {"TargetUnavailable": 1},
        {"TargetUnavailable": 1},
        {"TargetUnavailable": 0, "TargetRefused": 1},
    ]
    assert output.measured.obstacles() == {"TargetUnavailable": 0, "TargetRefused": 0}
