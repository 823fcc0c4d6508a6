"""The function app of this repository in the host, telling a collector what it does with real messages."""

import json
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from shared.errors import ConfigError
from shared.telemetry.opening import open_telemetry
from tests.collectors import Collector, plain
from tests.site import Site

ENTITIES = """
west: {queues: {orders: , lost: {lock_duration: 8}}, hubs: {readings: {partition_count: 1}}}
east: {queues: [copies, from-hub]}
"""
MORE = "hub: {kind: event-hubs, setting: WEST, site: west-hub}"
TASKS = """
task: orders
source: {connection: west, queue: orders}
routes: [{when: "priority IS NULL", target: {connection: east, queue: copies}}]
---
task: readings
source: {connection: hub, hub: readings}
routes: [{target: {connection: east, queue: from-hub}}]
rejects: {connection: west, queue: lost}
---
task: lost
source: {connection: west, queue: lost}
routes: [{target: {connection: east, queue: no-such-queue}}]
limits: {hold: PT5S}
"""
TRACE = "0af7651916cd43dd8448eb211c80319c"
SENDER = "b7ad6b7169203331"
TRACED: dict[str | bytes, Any] = {
    "Diagnostic-Id": f"00-{TRACE}-{SENDER}-01",
    "traceparent": f"00-{TRACE}-{SENDER}-01",
    "tracestate": "rojo=00f067aa0ba902b7",
}
OTHER_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SECONDS = 30


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    often = {"OTEL_METRIC_EXPORT_INTERVAL": "300", "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with Site(tmp_path, ENTITIES, TASKS, more=MORE, settings=often) as site:
        yield site


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def over_otlp(collector: Collector) -> dict[str, str]:
    return {"BUSWAY_TELEMETRY": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}


def points(collector: Collector, name: str) -> tuple[Any, list[Any]]:
    metric = collector.metrics()[name]
    return metric, list(getattr(metric, str(metric.WhichOneof("data"))).data_points)


def test_spans_continue_the_trace_of_each_message_and_a_log_line_has_each_batch(
    site: Site, collector: Collector
) -> None:
    with site.running_host(**over_otlp(collector)) as running:
        site.send(
            "west/orders",
            ServiceBusMessage("traced", message_id="m1", application_properties=dict(TRACED)),
            ServiceBusMessage("plain", message_id="m2"),
            ServiceBusMessage("old", application_properties={"Diagnostic-Id": f"00-{OTHER_TRACE}-{SENDER}-01"}),
            ServiceBusMessage("odd", application_properties={"traceparent": 17, "Diagnostic-Id": "|4711.1."}),
        )
        arrived = {str(message): message.application_properties for message in site.take("east/copies", 4)}
        running.wait_for(lambda: len(collector.spans()) >= 3)
        log = running.log()
    found = re.findall(r"INFO busway\.batch: orders: (\d) messages in \d+ ms: \1 sent\. (\{.*\})$", log, re.MULTILINE)
    assert sum(int(count) for count, _ in found) == 4, log[-2000:]
    fields = json.loads(found[0][1])
    assert (fields["busway.task"], fields["busway.messages.sent"]) == ("orders", int(found[0][0]))
    assert 0 <= fields["busway.lag"] < SECONDS
    for name, value in TRACED.items():
        assert arrived["traced"][str(name).encode()] == value.encode()
    assert set(arrived["plain"]) == {b"repl-path", b"repl-enqueue-time", b"repl-sequence"}
    assert arrived["odd"][b"traceparent"] == 17

    batches = [span for span in collector.spans() if span.name == "process orders"]
    links = {
        (link.trace_id.hex(), link.span_id.hex()): plain(link.attributes) for span in batches for link in span.links
    }
    assert set(links) == {(TRACE, SENDER), (OTHER_TRACE, SENDER)}
    assert all(
        abs(int(str(link["enqueuedTime"])) / 1000 - batches[0].start_time_unix_nano / 1e9) < SECONDS
        for link in links.values()
    )
    assert sum(int(str(plain(span.attributes)["messaging.batch.message_count"])) for span in batches) == 4
    attributes = plain(batches[0].attributes)
    assert attributes.pop("messaging.batch.message_count")
    assert attributes == {
        "busway.task": "orders",
        "busway.source": "west/orders",
        "messaging.system": "servicebus",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "az.namespace": "Microsoft.ServiceBus",
    }
    assert {span.kind for span in collector.spans()} == {5}, "consumers"

    hops = {span.trace_id.hex(): span for span in collector.spans() if span.name == "process orders message"}
    assert set(hops) == {TRACE, OTHER_TRACE}
    hop = hops[TRACE]
    assert hop.parent_span_id.hex() == SENDER
    assert hop.trace_state == TRACED["tracestate"]
    assert hop.start_time_unix_nano <= hop.end_time_unix_nano
    (link,) = hop.links
    assert link.span_id in {span.span_id for span in batches}
    assert plain(hop.attributes) | {
        "busway.outcome": "sent",
        "busway.target": "east/copies",
        "messaging.message.id": "m1",
    } == plain(hop.attributes)


def test_metrics_count_the_outcomes_of_the_messages(site: Site, collector: Collector) -> None:
    with site.running_host(**over_otlp(collector), WEBSITE_SITE_NAME="busway-west"):
        site.send(
            "west/orders",
            *(ServiceBusMessage("x" * 1000) for _ in range(20)),
            *(ServiceBusMessage("y", application_properties={"priority": 1}) for _ in range(3)),
        )
        site.publish_events("west/readings", "17 K")
        site.take("east/copies", 20)
        site.take("east/from-hub", 1)
    # Nothing waited for the next export: the end of the process is one.
    metric, counts = points(collector, "busway.messages")
    assert metric.unit == "{message}"
    found = {
        (str(each["busway.task"]), str(each["busway.outcome"]), each.get("busway.target")): point.as_int
        for point in counts
        for each in [plain(point.attributes)]
    }
    assert found == {
        ("orders", "sent", "east/copies"): 20,
        ("orders", "filtered", None): 3,
        ("readings", "sent", "east/from-hub"): 1,
    }
    metric, sizes = points(collector, "busway.batch.size")
    of_task = {plain(point.attributes)["busway.task"]: point for point in sizes}
    assert (metric.unit, of_task["orders"].sum, of_task["readings"].sum) == ("{message}", 23, 1)
    readings = plain(of_task["readings"].attributes)
    assert (readings["messaging.system"], readings["messaging.destination.name"]) == ("eventhubs", "readings")
    assert readings["messaging.consumer.group.name"] == "$Default"
    metric, durations = points(collector, "messaging.process.duration")
    assert metric.unit == "s"
    assert all(0 < point.sum < SECONDS for point in durations)
    metric, lags = points(collector, "busway.lag")
    assert metric.unit == "s"
    assert {plain(point.attributes)["busway.outcome"] for point in lags} == {"sent", "filtered"}
    assert all(0 <= point.max < SECONDS for point in lags)
    metric, transferred = points(collector, "busway.io")
    by_direction = {
        plain(point.attributes)["network.io.direction"]: point.as_int
        for point in transferred
        if plain(point.attributes)["busway.task"] == "orders"
    }
    assert metric.unit == "By"
    assert by_direction["transmit"] > 20_000, by_direction
    assert by_direction["receive"] > 20_000, by_direction
    assert "busway.retries" not in collector.metrics()
    assert collector.service_names() == {"busway-west"}


def test_a_batch_that_stays_at_its_source_is_a_visible_error(site: Site, collector: Collector) -> None:
    with site.host(**over_otlp(collector)) as running:
        running.wait_until_ready()
        site.send("west/lost", ServiceBusMessage("x", application_properties=dict(TRACED)))
        running.wait_for(lambda: "busway.obstacles" in collector.metrics(), 90)
        running.wait_for(lambda: any(span.status.code == 2 for span in collector.spans()), 90)
        running.wait_for(lambda: "busway.retries" in collector.metrics())
        running.kill()
    errors = {span.name: span for span in collector.spans() if span.status.code == 2}
    assert set(errors) == {"process lost", "process lost message"}
    assert plain(errors["process lost"].attributes)["error.type"] == "TargetRefused"
    assert "east/no-such-queue: the target refuses" in errors["process lost"].status.message
    assert plain(errors["process lost message"].attributes)["busway.outcome"] == "retry"
    _, durations = points(collector, "messaging.process.duration")
    assert {plain(point.attributes).get("error.type") for point in durations} == {"TargetRefused"}


def test_application_insights_gets_metrics_and_requests_with_their_links(site: Site, collector: Collector) -> None:
    settings = {
        "BUSWAY_TELEMETRY": "azure-monitor",
        "APPLICATIONINSIGHTS_CONNECTION_STRING": "InstrumentationKey=00000000-0000-4000-8000-000000000000;"
        f"IngestionEndpoint={collector.url}/",
        # The exporter's telemetry of itself, which goes to Microsoft.
        "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
        "APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED": "true",
        "BUSWAY_MEASUREMENTS": "*/2 * * * * *",
    }
    with site.running_host(**settings) as running:
        site.send("west/orders", ServiceBusMessage("traced", application_properties=dict(TRACED)))
        site.take("east/copies", 1)
        running.wait_for(lambda: "busway.task.state" in str(collector.received))
    data = [envelope["data"] for envelope in collector.envelopes()]
    requests = {each["baseData"]["name"]: each["baseData"] for each in data if each["baseType"] == "RequestData"}
    assert set(requests) == {"process orders", "process orders message"}
    batch = requests["process orders"]
    assert json.loads(batch["properties"]["_MS.links"]) == [{"operation_Id": TRACE, "id": SENDER}]
    assert batch["properties"]["busway.task"] == "orders"
    assert batch["measurements"]["timeSinceEnqueued"] >= 0
    operations = {
        envelope["data"]["baseData"].get("name"): (
            envelope["tags"]["ai.operation.id"],
            envelope["tags"].get("ai.operation.parentId"),
        )
        for envelope in collector.envelopes()
        if envelope["data"]["baseType"] == "RequestData"
    }
    assert operations["process orders message"] == (TRACE, SENDER)
    named = {
        metric["name"]: each["baseData"]["properties"]
        for each in data
        if each["baseType"] == "MetricData"
        for metric in each["baseData"]["metrics"]
    }
    assert {"busway.messages", "busway.lag", "busway.batch.size", "busway.io", "messaging.process.duration"} <= set(
        named
    )
    assert named["busway.messages"]["busway.outcome"] == "sent"
    states = {
        each["baseData"]["properties"]["busway.task"]: each["baseData"]["properties"]["busway.state"]
        for each in data
        if each["baseType"] == "MetricData" and each["baseData"]["metrics"][0]["name"] == "busway.task.state"
    }
    assert set(states) == {"orders", "readings", "lost"}
    assert {"busway.source.backlog", "busway.dead_letters"} <= set(named)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"BUSWAY_TELEMETRY": "on"}, "BUSWAY_TELEMETRY: is 'on', expected one of off, otlp, azure-monitor"),
        (
            {"BUSWAY_TELEMETRY": "azure-monitor", "APPLICATIONINSIGHTS_CONNECTION_STRING": ""},
            "the app setting is missing",
        ),
        (
            {"BUSWAY_TELEMETRY": "azure-monitor", "APPLICATIONINSIGHTS_CONNECTION_STRING": "InstrumentationKey=hidden"},
            "is not a connection string of Application Insights",
        ),
    ],
)
def test_an_invalid_setting_is_named_without_its_secret(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        open_telemetry(settings)
    assert "hidden" not in "".join(traceback.format_exception(error.value))
