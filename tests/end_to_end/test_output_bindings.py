"""Routes with `via: binding`: the host sends, in envelopes that another task opens, or bodies alone."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from tests.end_to_end.host_process import ROOT, HostProcess

WEST = NamespaceConfig(name="west", queues=tuple(QueueConfig(name=name) for name in ("orders", "notes", "readings")))
EAST = NamespaceConfig(
    name="east",
    queues=tuple(QueueConfig(name=name) for name in ("carrier", "orders", "notes", "readings", "rejected")),
    hubs=(HubConfig(name="carrier-hub", partition_count=1),),
)
CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
hub-east: {kind: event-hubs, setting: EAST, site: east}
"""
TASKS = """
task: orders-to-carrier
source: {connection: west, queue: orders}
routes: [{target: {connection: east, queue: carrier}, via: binding}]
rejects: {connection: east, queue: rejected}
---
task: carrier-to-orders
source: {connection: east, queue: carrier, from: envelope}
loop_prevention: off
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: east, queue: rejected}
---
task: notes
source: {connection: west, queue: notes}
routes: [{target: {connection: east, queue: notes}, via: binding, body_only: true}]
rejects: {connection: east, queue: rejected}
---
task: readings-to-hub
source: {connection: west, queue: readings}
routes: [{target: {connection: hub-east, hub: carrier-hub}, via: binding}]
rejects: {connection: east, queue: rejected}
---
task: hub-to-readings
source: {connection: hub-east, hub: carrier-hub, from: envelope}
loop_prevention: off
routes: [{target: {connection: east, queue: readings}}]
rejects: {connection: east, queue: rejected}
"""


class App:
    """The function app on a broker, and an application at each site."""

    def __init__(self, folder: Path, broker: RunningBroker) -> None:
        (folder / "tasks").mkdir()
        (folder / "connections.yaml").write_text(CONNECTIONS)
        (folder / "tasks" / "all.yaml").write_text(TASKS)
        self.broker = broker
        self.strings = {site.upper(): broker.connection_string(site) for site in ("west", "east")}
        self.host = HostProcess(str(ROOT), folder, {"BUSWAY_CONFIG": str(folder), **self.strings})

    def send(self, queue: str, *messages: ServiceBusMessage) -> None:
        with (
            ServiceBusClient.from_connection_string(self.strings["WEST"]) as client,
            client.get_queue_sender(queue) as sender,
        ):
            sender.send_messages(list(messages))

    def take(self, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
        taken: list[ServiceBusReceivedMessage] = []
        with (
            ServiceBusClient.from_connection_string(self.strings["EAST"]) as client,
            client.get_queue_receiver(queue) as receiver,
        ):
            while len(taken) < count:
                more = receiver.receive_messages(count - len(taken), max_wait_time=20)
                assert more, f"{queue}: {len(taken)} of {count} arrived\n{self.host.log()[-3000:]}"
                for message in more:
                    receiver.complete_message(message)
                taken += more
            assert receiver.receive_messages(1, max_wait_time=1) == []
        return taken


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with RunningBroker([WEST, EAST]) as broker:
        app = App(tmp_path, broker)
        with app.host:
            app.host.wait_until_ready()
            yield app


def order(number: int) -> ServiceBusMessage:
    return ServiceBusMessage(
        b"\xff\x00" + str(number).encode(),
        message_id=f"order-{number}",
        session_id="customer-1",
        subject="order",
        content_type="application/octet-stream",
        correlation_id="c",
        application_properties={"amount": 12.5, "express": True, "count": number, "id": uuid.UUID(int=7)},
    )


@pytest.mark.parametrize(("queue", "target"), [("orders", "orders"), ("readings", "readings")])
def test_messages_pass_through_envelopes_with_all_their_sections(app: App, queue: str, target: str) -> None:
    app.send(queue, *(order(number) for number in range(25)))
    taken = {str(message.message_id): message for message in app.take(target, 25)}
    assert sorted(taken) == sorted(f"order-{number}" for number in range(25))
    one = taken["order-7"]
    assert b"".join(one.body) == b"\xff\x007"
    assert (one.session_id, one.subject, one.correlation_id) == ("customer-1", "order", "c")
    properties = one.application_properties
    assert properties is not None
    assert (properties[b"amount"], properties[b"express"], properties[b"count"]) == (12.5, True, 7)
    assert properties[b"id"] == uuid.UUID(int=7)
    assert properties[b"repl-path"] == b"west;east"


def test_bodies_arrive_alone_and_exactly(app: App) -> None:
    texts = ["plain", '{"a": 1e3, "a": 2}', "[1, 2]", "[INFO] x [ok]", "2026-11-22T10:00:00+02:00", "žluť 🐎", ""]
    app.send("notes", *(ServiceBusMessage(text.encode(), message_id=f"n-{n}") for n, text in enumerate(texts)))
    taken = app.take("notes", len(texts))
    assert [b"".join(message.body).decode() for message in taken] == texts
    assert {message.content_type for message in taken} == {"text/plain"}
    names = {name for message in taken for name in message.application_properties or {}}
    assert names == {b"$AzureWebJobsParentId"}


def test_binary_body_goes_to_rejects(app: App) -> None:
    app.send("notes", ServiceBusMessage(b"\xff\xfe", message_id="binary"), ServiceBusMessage(b"text", message_id="t"))
    assert [b"".join(message.body) for message in app.take("notes", 1)] == [b"text"]
    (rejected,) = app.take("rejected", 1)
    assert (rejected.message_id, b"".join(rejected.body)) == ("binary", b"\xff\xfe")


def test_output_that_fails_brings_the_batch_back_and_nothing_is_lost(app: App) -> None:
    fault = Fault(effect=Effect.FILL, entity="carrier", operations=frozenset((Operation.SEND,)), times=3)
    app.broker.faults("east").add(fault)
    app.send("orders", *(order(number) for number in range(5)))
    taken = app.take("orders", 5)
    assert sorted(str(message.message_id) for message in taken) == [f"order-{number}" for number in range(5)]
    assert "invocation failed: output output_0: " in app.host.log()


def test_own_function_is_warned_of_forms_that_azure_rewrites(tmp_path: Path) -> None:
    with RunningBroker([WEST, EAST]) as broker:
        settings = {site.upper(): broker.connection_string(site) for site in ("west", "east")}
        host = HostProcess(str(ROOT / "tests/end_to_end/apps/setting"), tmp_path, settings)
        with host:
            host.wait_until_ready()
            with (
                ServiceBusClient.from_connection_string(settings["WEST"]) as client,
                client.get_queue_sender("orders") as sender,
            ):
                sender.send_messages([ServiceBusMessage(form) for form in ("object", "list", "bytes", "text")])
            found: list[bytes] = []
            with (
                ServiceBusClient.from_connection_string(settings["EAST"]) as client,
                client.get_queue_receiver("notes") as receiver,
            ):
                while len(found) < 5:
                    more = receiver.receive_messages(5, max_wait_time=20)
                    assert more, host.log()[-3000:]
                    found += [b"".join(message.body) for message in more]
    expected = [b'{\n  "a": 2\n}', b"x", b'{\n  "b": 1\n}', b"System.Byte[]", b"x"]
    assert sorted(found) == sorted(expected)
    for warning in ("a text in braces is parsed", "a text in brackets is split", "sends the text System.Byte[]"):
        assert warning in host.log()
