"""What is measured in a status, and how often each value is exported."""

from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider

from shared.assembly.measurements import EVERY_MINUTE, measurements, measurements_schedule
from shared.errors import ConfigError
from shared.protocols import Measurement
from shared.status.model import DeadLetters, Health, Heartbeat, Place, State, Status, TaskStatus
from shared.tasks.files import Configuration, load
from shared.telemetry import names
from shared.telemetry.instruments import Instruments

TASKS = """
task: orders
source: {connection: west, topic: orders, subscription: replication}
routes: [{target: {connection: east, topic: orders}}]
---
task: jobs
source: {connection: west, queue: jobs}
routes: [{target: {connection: east, queue: jobs}}]
"""
ORDERS = {
    names.TASK: "orders",
    names.SOURCE: "west/orders/Subscriptions/replication",
    names.SYSTEM: names.SERVICE_BUS,
    names.DESTINATION: "orders",
    names.SUBSCRIPTION: "replication",
}
JOBS = {
    names.TASK: "jobs",
    names.SOURCE: "west/jobs",
    names.SYSTEM: names.SERVICE_BUS,
    names.DESTINATION: "jobs",
}


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    (tmp_path / "tasks").mkdir()
    lines = ("west: {kind: service-bus, setting: WEST}", "east: {kind: service-bus, setting: EAST}", "")
    (tmp_path / "connections.yaml").write_text("\n".join(lines))
    (tmp_path / "tasks" / "all.yaml").write_text(TASKS)
    return load(tmp_path)


def a_task(name: str, state: State, **fields: object) -> TaskStatus:
    place = Place("west", name)
    return TaskStatus(task=name, state=state, source=place, source_kind="service-bus", targets=[], **fields)  # type: ignore[arg-type] # a test's


def test_every_known_figure_has_a_value_and_an_unknown_one_has_none(configuration: Configuration) -> None:
    topic = Place("east", "orders")
    tasks = [
        a_task(
            "orders",
            State.HELD,
            lag=61.5,
            backlog=1000,
            dead_letters=[
                DeadLetters(Place("west", "orders/Subscriptions/replication"), 0),
                DeadLetters(topic, 7, subscriptions={"billing": 7, "audit": 0}),
            ],
        ),
        a_task(
            "jobs",
            State.UNKNOWN,
            dead_letters=[DeadLetters(Place("east", "jobs"), unknown="no permission")],
            heartbeats=[
                Heartbeat(route=0, target=Place("east", "jobs"), every=60.0, arrived="x", latency=0.25),
                Heartbeat(route=1, target=Place("east", "more"), every=60.0, arrived="x", latency=0.25, missed=True),
            ],
        ),
    ]
    status = Status(time="2026-01-01T00:00:00Z", health=Health.OK, sentence="", tasks=tasks, sites=[], instances=None)
    assert measurements(configuration, status) == [
        Measurement("busway.task.state", 1, {**ORDERS, "busway.state": "held"}),
        Measurement("busway.source.lag", 61.5, ORDERS),
        Measurement("busway.source.backlog", 1000, ORDERS),
        Measurement("busway.dead_letters", 0, {**ORDERS, "busway.entity": "west/orders/Subscriptions/replication"}),
        Measurement("busway.dead_letters", 7, {**ORDERS, "busway.entity": "east/orders/Subscriptions/billing"}),
        Measurement("busway.dead_letters", 0, {**ORDERS, "busway.entity": "east/orders/Subscriptions/audit"}),
        Measurement("busway.task.state", 1, {**JOBS, "busway.state": "unknown"}),
        Measurement("busway.heartbeat.missed", 0, {**JOBS, "busway.route": "0", "busway.target": "east/jobs"}),
        Measurement("busway.heartbeat.latency", 0.25, {**JOBS, "busway.route": "0", "busway.target": "east/jobs"}),
        Measurement("busway.heartbeat.missed", 1, {**JOBS, "busway.route": "1", "busway.target": "east/more"}),
    ]


def test_a_value_is_exported_once_and_the_last_look_replaces_the_one_before() -> None:
    reader = InMemoryMetricReader()
    instruments = Instruments(MeterProvider([reader]).get_meter("t"), TracerProvider().get_tracer("t"))

    def exported() -> dict[str, float]:
        data = reader.get_metrics_data()
        found: dict[str, float] = {}
        for of in [] if data is None else data.resource_metrics:
            for metric in of.scope_metrics[0].metrics:
                for point in metric.data.data_points:
                    assert isinstance(point, NumberDataPoint)
                    found[metric.name] = point.value
        return found

    assert exported() == {}
    instruments.measured([Measurement("busway.source.lag", 5.0, JOBS), Measurement("busway.source.backlog", 1, JOBS)])
    instruments.measured([Measurement("busway.source.lag", 6.0, JOBS)])
    assert exported() == {"busway.source.lag": 6.0}
    # Another instance measures now, and this one must not repeat what it saw.
    assert exported() == {}


@pytest.mark.parametrize(
    ("setting", "schedule"),
    [(None, EVERY_MINUTE), ("", EVERY_MINUTE), ("off", None), ("0 */5 * * * *", "0 */5 * * * *")],
)
def test_measurements_are_on_unless_switched_off(setting: str | None, schedule: str | None) -> None:
    settings = {} if setting is None else {"BUSWAY_MEASUREMENTS": setting}
    assert measurements_schedule(settings) == schedule


def test_a_schedule_of_five_fields_is_refused() -> None:
    with pytest.raises(ConfigError, match="BUSWAY_MEASUREMENTS"):
        measurements_schedule({"BUSWAY_MEASUREMENTS": "*/5 * * * *"})
