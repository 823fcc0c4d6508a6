"""Connections of kind event-grid: what tasks may ask of them, and what is opened for them."""

from datetime import timedelta
from pathlib import Path

import pytest

from cli.topology.deployment import deployment_of
from cli.topology.needs import needs_of
from cli.topology.topology_file import read_topology
from shared.assembly.losses import loss_watches
from shared.assembly.outputs import open_outputs
from shared.assembly.pipelines import assemble
from shared.ends.event_grid.output import EventGridOutput
from shared.errors import ConfigError, MessageRejected
from shared.review import review
from shared.review.entities import Entities
from shared.tasks.files import load
from tests.fakes import OutputThatAccepts
from tests.messages import message
from tests.unit.tasks.test_storage_queues import REJECTS, SETTINGS, written

CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
hubs: {kind: event-hubs, setting: HUBS}
grid: {kind: event-grid, setting: GRID}
"""
GRID = "Endpoint=https://orders.example/api/events;SharedAccessKey=azE="


def to_grid(target: str = "topic: orders", source: str = "queue: orders", more: str = REJECTS, route: str = "") -> str:
    ends = f"source: {{connection: west, {source}}}\nroutes:\n  - {{target: {{connection: grid, {target}}}{route}}}\n"
    return f"task: copy\n{ends}{more}"


def from_grid(source: str = "webhook: orders", more: str = REJECTS, route: str = "") -> str:
    target = "target: {connection: west, queue: orders}"
    return f"task: copy\nsource: {{connection: grid, {source}}}\nroutes:\n  - {{{target}{route}}}\n{more}"


BY_REQUEST = "each request of Event Grid is answered by itself"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (to_grid("queue: orders"), "'grid' is of kind event-grid, expected service-bus or amqp or storage-queue"),
        (to_grid(source="queue: orders, sessions: true"), "keeps an order of messages, and Event Grid has none"),
        (to_grid(route=", via: binding"), "'grid' is of kind event-grid, which has no output binding"),
        (to_grid(more="heartbeat: {every: PT1M}\n" + REJECTS), "has a target of kind event-grid, which hides no"),
        (from_grid("queue: orders"), "'grid' is of kind event-grid, expected service-bus or storage-queue"),
        (from_grid("webhook: a/b"), "source.webhook"),
        (from_grid("webhook: a, queue: b"), "names queue and webhook, expected one"),
        (from_grid().replace("grid", "west", 1), "'west' is of kind service-bus, expected event-grid"),
        (from_grid(more=""), "has no rejects, expected a queue, topic or hub for rejected messages"),
        (from_grid("webhook: orders, sessions: true"), "has sessions, dead_letter or from, expected none of them"),
        (from_grid("webhook: orders, from: envelope"), "has sessions, dead_letter or from, expected none of them"),
        (from_grid(more="lanes: 2\n" + REJECTS), f"expected none of them: {BY_REQUEST}"),
        (
            from_grid(more="heartbeat: {every: PT1M}\n" + REJECTS),
            "has heartbeats, expected none: each request of Event",
        ),
        (from_grid(route=", via: binding"), f"has `via: binding`, expected none: {BY_REQUEST}"),
    ],
)
def test_event_grid_is_refused_where_it_cannot_do_what_the_task_asks(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text, connections=CONNECTIONS))
    assert expected in str(caught.value)


def test_a_journal_in_an_event_hub_cannot_be_written_for_one_request(tmp_path: Path) -> None:
    journal = "event_hub: {connection: hubs, hub: journal}\n"
    with pytest.raises(ConfigError, match=f"source: the journal is in an event hub, and {BY_REQUEST}"):
        load(written(tmp_path, from_grid(), journal, connections=CONNECTIONS))


@pytest.mark.parametrize("is_source", [True, False])
def test_a_task_is_reviewed_planned_and_opened(tmp_path: Path, *, is_source: bool) -> None:
    text = from_grid() if is_source else to_grid()
    configuration = load(written(tmp_path, text, "blob: {setting: JOURNAL}\n", connections=CONNECTIONS))
    assert [str(each) for each in review(configuration, Entities({}))] == []
    needs = needs_of(configuration, read_topology(tmp_path))
    assert [site["alias"] for site in deployment_of(configuration, needs)["sites"]] == ["west", "hubs"]
    # A task that only has a webhook needs no address of the topic.
    settings = SETTINGS if is_source else SETTINGS | {"GRID": GRID}
    assert isinstance(open_outputs(configuration, settings)["grid"], EventGridOutput)
    assert configuration.webhooks() == {"GRID": {"orders"} if is_source else set()}
    assert bool(loss_watches(configuration, settings).watches) != is_source


def test_a_missing_setting_is_reported(tmp_path: Path) -> None:
    configuration = load(written(tmp_path, to_grid(), connections=CONNECTIONS))
    with pytest.raises(ConfigError, match="grid: app setting GRID: the app setting is missing"):
        open_outputs(configuration, SETTINGS)


def test_a_webhook_answers_before_event_grid_stops_waiting(tmp_path: Path) -> None:
    configuration = load(written(tmp_path, from_grid(), connections=CONNECTIONS))
    (task,) = assemble(configuration, dict.fromkeys(configuration.connections, OutputThatAccepts()))
    assert task.hold < timedelta(seconds=30)


def test_a_body_alone_must_be_a_cloud_event(tmp_path: Path) -> None:
    configuration = load(written(tmp_path, to_grid(route=", body_only: true"), connections=CONNECTIONS))
    (task,) = assemble(configuration, dict.fromkeys(configuration.connections, OutputThatAccepts()))
    (target,) = task.router.route(message(1))
    event = b'{"specversion":"1.0","id":"7","source":"/shop","type":"order"}'
    assert target.outgoing(message(1, body=event)).content == event
    with pytest.raises(MessageRejected, match="InvalidEvent: event has no source"):
        target.outgoing(message(1, body=b'{"specversion":"1.0","id":"7","type":"order"}'))
