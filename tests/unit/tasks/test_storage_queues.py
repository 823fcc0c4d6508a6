"""Connections of kind storage-queue: what tasks may ask of them, and what is opened for them."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from azure.functions.queue import QueueMessage

from cli.topology.deployment import deployment_of
from cli.topology.needs import needs_of
from cli.topology.topology_file import read_topology
from functions.raw_message import queue_content
from shared.assembly.losses import loss_watches
from shared.assembly.outputs import open_outputs
from shared.assembly.pipelines import assemble
from shared.ends.kind import Holds
from shared.ends.storage_queue.output import StorageQueueOutput
from shared.errors import ConfigError
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.review import review
from shared.review.entities import Entities
from shared.tasks.files import load
from tests.azurite import ACCOUNT
from tests.fakes import OutputThatAccepts
from tests.messages import message
from tests.unit.tasks import task_files

CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
hubs: {kind: event-hubs, setting: HUBS}
store: {kind: storage-queue, setting: STORE}
"""
SETTINGS = {
    "WEST": "Endpoint=sb://west.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=azE=",
    "HUBS": "Endpoint=sb://hubs.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=azE=",
    "STORE": f"{ACCOUNT}QueueEndpoint=http://127.0.0.1:1/devstoreaccount1;",
    "JOURNAL": f"{ACCOUNT}BlobEndpoint=http://127.0.0.1:1/devstoreaccount1;",
}
REJECTS = "rejects: {connection: west, queue: rejected}\n"


def written(folder: Path, task: str, journal: str = "", *, connections: str = CONNECTIONS) -> Path:
    return task_files.written(folder, task, connections, journal)


def into(target: str = "queue: orders", source: str = "connection: west, queue: orders", more: str = REJECTS) -> str:
    return f"task: copy\nsource: {{{source}}}\nroutes:\n  - target: {{connection: store, {target}}}\n{more}"


def out_of(source: str = "queue: orders", more: str = REJECTS, route: str = "") -> str:
    target = "target: {connection: west, queue: orders}"
    return f"task: copy\nsource: {{connection: store, {source}}}\nroutes:\n  - {{{target}{route}}}\n{more}"


_ELSEWHERE = out_of("queue: others, encoding: base64").replace("store", "west")
SINGLY = "the host delivers each message of a storage queue by itself"
BEATS = "heartbeat: {every: PT1M}\n" + REJECTS
NOT_THERE = "source: has sessions or dead_letter, which a storage queue does not have"
OTHER_KIND = "routes[0].target.connection: 'store' is of kind storage-queue, expected service-bus or amqp"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (into("topic: orders"), OTHER_KIND),
        (into("queue: Orders"), "routes[0].target.queue: 'Orders' is not a name of a storage queue, expected 3 to 63"),
        (into("queue: a--b"), "routes[0].target.queue: 'a--b' is not a name of a storage queue"),
        (into(source="connection: west, queue: orders, sessions: true"), "keeps an order of messages, and a storage"),
        (into(more="editors: [{partition: {property: a}}]\n" + REJECTS), "keeps an order of messages, and a storage"),
        (into(more=BEATS), "heartbeat: has a target of kind storage-queue, which hides"),
        (into().replace("orders}\nrejects", "orders}\n    via: binding\nrejects"), "routes[0].via: 'store' is of kind"),
        (out_of(route=", body_only: true"), "routes[0]: has body_only, expected only with `via: binding`"),
        (_ELSEWHERE, "source: has an encoding"),
        (out_of().replace("orders}}", "orders, encoding: text}}"), "routes[0].target: has an encoding, expected"),
        (out_of(more=""), "has no rejects, expected a queue, topic or hub for rejected messages"),
        (out_of("queue: orders, sessions: true"), NOT_THERE),
        (out_of("queue: orders, dead_letter: true"), NOT_THERE),
        (out_of("queue: orders, from: envelope"), "source.from: is envelope, expected none: envelopes of a storage"),
        (out_of(f"queue: {'a' * 60}"), "is not a name of a storage queue, expected 3 to 56 lower-case letters"),
        (out_of(more="lanes: 2\n" + REJECTS), "has lanes, dispatch or throughput, expected none of them: " + SINGLY),
        (out_of(more=BEATS), "heartbeat: has heartbeats, expected none: the host delivers each message"),
        (out_of(route=", via: binding"), f"routes: has `via: binding`, expected none: {SINGLY} (send with the SDK)"),
    ],
)
def test_a_storage_queue_is_refused_where_it_cannot_do_what_is_asked(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text))
    assert expected in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_journal_in_an_event_hub_cannot_be_written_for_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"source: the journal is in an event hub, and {SINGLY}"):
        load(written(tmp_path, out_of(), "event_hub: {connection: hubs, hub: journal}\n"))


def test_a_tap_cannot_watch_a_storage_queue(tmp_path: Path) -> None:
    tap = "---\ntask: tap\nsource: {connection: store, queue: orders}\ntap: {of: copy, side: source}\n"
    with pytest.raises(ConfigError, match="'store' is of kind storage-queue, expected service-bus"):
        load(written(tmp_path, out_of() + tap, "blob: {setting: JOURNAL}\n"))


@pytest.mark.parametrize("make", [into, out_of])
@pytest.mark.parametrize("end", ["queue: orders", "queue: orders, encoding: base64"])
def test_a_task_is_reviewed_planned_and_opened(tmp_path: Path, make: Callable[[str], str], end: str) -> None:
    configuration = load(written(tmp_path, make(end), "blob: {setting: JOURNAL}\n"))
    assert [str(each) for each in review(configuration, Entities({}))] == []
    needs = needs_of(configuration, read_topology(tmp_path))
    assert set(needs.namespaces) == {"WEST", "HUBS"}
    assert [site["alias"] for site in deployment_of(configuration, needs)["sites"]] == ["west", "hubs"]
    assert isinstance(open_outputs(configuration, SETTINGS)["store"], StorageQueueOutput)
    assert configuration.entities(Holds.TEXTS) == {"STORE": {"orders"}}
    watched = loss_watches(configuration, SETTINGS).watches
    assert len(watched) == (make is into)


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_compacted_hub_is_not_watched_for_losses(tmp_path: Path, *, is_compacted: bool) -> None:
    # EH22: what compaction removes leaves a gap in the numbers.
    source = f"connection: hubs, hub: readings, compacted: {str(is_compacted).lower()}"
    configuration = load(written(tmp_path, into(source=source), "blob: {setting: JOURNAL}\n"))
    assert bool(loss_watches(configuration, SETTINGS).watches) != is_compacted


def test_an_event_hub_gives_up_its_order(tmp_path: Path) -> None:
    configuration = load(written(tmp_path, into(source="connection: hubs, hub: readings")))
    (task,) = assemble(configuration, dict.fromkeys(configuration.connections, OutputThatAccepts()))
    (target,) = task.router.route(message(1))
    assert target.texts is not None
    assert target.texts.source_kind == "event-hubs"


def test_missing_and_wrong_settings_are_reported(tmp_path: Path) -> None:
    configuration = load(written(tmp_path, into()))
    with pytest.raises(ConfigError) as caught:
        open_outputs(configuration, SETTINGS | {"STORE": ""})
    assert str(caught.value) == (
        "connections.yaml: store: app setting STORE: the app setting is missing (set STORE to a connection string"
        " or STORE__queueServiceUri to https://ACCOUNT.queue.core.windows.net)"
    )


def passed(**fields: object) -> QueueMessage:
    return QueueMessage(**fields)  # type: ignore[no-untyped-call] # the package is not typed


def test_what_the_host_passes_becomes_a_message() -> None:
    at = datetime(2026, 11, 23, 12, 0, 5, tzinfo=UTC)
    delivered = passed(
        id="7d3", body=b'{"id": "other"}', dequeue_count=3, insertion_time=at, expiration_time=at.replace(minute=1)
    )
    received = Message.received(queue_content(delivered), Origin("store", "orders"))
    assert (received.body, received.time_to_live) == (b'{"id": "other"}', 60_000)
    assert received.arrival.enqueued_time == round(at.timestamp() * 1000)
    for_ever = passed(
        id="7d3",
        body=b"",
        dequeue_count=1,
        insertion_time=at.replace(tzinfo=None),
        expiration_time=datetime(9999, 12, 31),  # noqa: DTZ001 - as the host sends it
    )
    again = Message.received(queue_content(for_ever), Origin("store", "orders"))
    assert (again.body, again.time_to_live, again.arrival) == (b"", None, received.arrival)
    with pytest.raises(ValueError, match="without id or insertion time"):
        queue_content(passed(id="7d3", body=b""))
