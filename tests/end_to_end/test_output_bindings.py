"""Routes with `via: binding`: the host sends, in envelopes that another task opens, or bodies alone."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.end_to_end.host_process import HostProcess
from tests.site import Site

ENTITIES = """
west: {queues: [orders, notes, readings]}
east: {queues: [carrier, orders, notes, readings, rejected], hubs: {carrier-hub: {partition_count: 1}}}
"""
MORE = "hub-east: {kind: event-hubs, setting: EAST, site: east}"
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("bindings"), ENTITIES, TASKS, more=MORE) as site:
        yield site


@pytest.fixture(scope="module")
def host(site: Site) -> Iterator[HostProcess]:
    with site.running_host() as host:
        yield host


def take(site: Site, queue: str, count: int) -> list[Any]:
    """Take *count* messages of a queue of *east*, which has no others."""
    taken = site.take(f"east/{queue}", count)
    assert site.active(f"east/{queue}") == 0
    return taken


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


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("queue", ["orders", "readings"])
def test_messages_pass_through_envelopes_with_all_their_sections(site: Site, queue: str) -> None:
    site.send(f"west/{queue}", *(order(number) for number in range(25)))
    taken = {str(message.message_id): message for message in take(site, queue, 25)}
    assert sorted(taken) == sorted(f"order-{number}" for number in range(25))
    one = taken["order-7"]
    assert b"".join(one.body) == b"\xff\x007"
    assert (one.session_id, one.subject, one.correlation_id) == ("customer-1", "order", "c")
    properties = one.application_properties
    assert properties is not None
    assert (properties[b"amount"], properties[b"express"], properties[b"count"]) == (12.5, True, 7)
    assert properties[b"id"] == uuid.UUID(int=7)
    assert properties[b"repl-path"] == b"west;east"


@pytest.mark.usefixtures("host")
def test_bodies_arrive_alone_and_exactly(site: Site) -> None:
    texts = ["plain", '{"a": 1e3, "a": 2}', "[1, 2]", "[INFO] x [ok]", "2026-11-22T10:00:00+02:00", "žluť 🐎", ""]
    site.send("west/notes", *(ServiceBusMessage(text.encode(), message_id=f"n-{n}") for n, text in enumerate(texts)))
    taken = take(site, "notes", len(texts))
    assert [b"".join(message.body).decode() for message in taken] == texts
    assert {message.content_type for message in taken} == {"text/plain"}
    names = {name for message in taken for name in message.application_properties or {}}
    assert names == {b"$AzureWebJobsParentId"}


@pytest.mark.usefixtures("host")
def test_binary_body_goes_to_rejects(site: Site) -> None:
    site.send(
        "west/notes", ServiceBusMessage(b"\xff\xfe", message_id="binary"), ServiceBusMessage(b"text", message_id="t")
    )
    assert [b"".join(message.body) for message in take(site, "notes", 1)] == [b"text"]
    (rejected,) = take(site, "rejected", 1)
    assert (rejected.message_id, b"".join(rejected.body)) == ("binary", b"\xff\xfe")


def test_own_function_is_warned_of_forms_that_azure_rewrites(tmp_path: Path) -> None:
    with Site(tmp_path, ENTITIES) as site, HostProcess("setting", tmp_path, site.settings) as host:
        host.wait_until_ready()
        site.send("west/orders", "object", "list", "bytes", "text")
        found = [b"".join(message.body) for message in site.take("east/notes", 5)]
    expected = [b'{\n  "a": 2\n}', b"x", b'{\n  "b": 1\n}', b"System.Byte[]", b"x"]
    assert sorted(found) == sorted(expected)
    for warning in ("a text in braces is parsed", "a text in brackets is split", "sends the text System.Byte[]"):
        assert warning in host.log()
