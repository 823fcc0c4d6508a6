"""The function app of this repository on the local host and broker: messages and targets that are at fault."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from shared.amqp import sections
from shared.line import rejection
from tests.end_to_end.host_process import HostProcess
from tests.site import Site

ENTITIES = """
west:
  queues:
    orders: {max_message_size: 1048576, lock_duration: 6}
    visits: {lock_duration: 6}
    lost: {lock_duration: 6}
    unlistened: {lock_duration: 6}
    rejected: {max_message_size: 1048576}
    strict: {lock_duration: 6}
    strict-sessions: {lock_duration: 6, requires_session: true}
east: {queues: {orders: , visits: {requires_session: true}, strict: , strict-sessions: }}
"""
MORE = "away: {kind: service-bus, setting: AWAY}\ngrid: {kind: event-grid, setting: GRID}"
KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
AWAY = f"Endpoint=sb://localhost:9;{KEY}"
"""The discard port, where nothing listens."""
TASKS = """
task: orders
source: {connection: west, queue: orders}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: west, queue: rejected}
---
task: visits
source: {connection: west, queue: visits}
routes: [{target: {connection: east, queue: visits}}]
rejects: {connection: west, queue: rejected}
---
task: events
source: {connection: grid, webhook: events}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: west, queue: rejected}
---
task: strict
source: {connection: west, queue: strict}
routes: [{target: {connection: east, queue: strict}}]
---
task: strict-sessions
source: {connection: west, queue: strict-sessions, sessions: true}
routes: [{target: {connection: east, queue: strict-sessions}}]
---
task: lost
source: {connection: west, queue: lost}
routes: [{target: {connection: east, queue: nowhere}}]
rejects: {connection: west, queue: rejected}
---
task: unlistened
source: {connection: west, queue: unlistened}
routes: [{target: {connection: away, queue: orders}}]
rejects: {connection: west, queue: rejected}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("replication"), ENTITIES, TASKS, more=MORE, settings={"AWAY": AWAY}) as site:
        yield site


@pytest.fixture(scope="module")
def host(site: Site) -> Iterator[HostProcess]:
    with site.host() as process:
        process.wait_until_ready()
        yield process


_ORIGIN = "WebHook-Request-Origin: expected eventgrid.azure.net, or that of another cloud of Azure"


def by_id(messages: list[Any]) -> dict[str, Any]:
    return {message.message_id: message for message in messages}


def text(message: Any, name: str) -> str:
    return str(message.application_properties[name.encode()].decode())


@pytest.mark.usefixtures("host")
def test_a_body_over_the_targets_limit_is_rejected_alone(site: Site) -> None:
    big = ServiceBusMessage(b"x" * 400_000, message_id="big", session_id="s")
    site.send(
        "west/orders",
        ServiceBusMessage(b"1", message_id="n1"),
        big,
        ServiceBusMessage(b"2", message_id="n2"),
    )
    assert set(by_id(site.take("east/orders", 2))) == {"n1", "n2"}
    rejected = by_id(site.take("west/rejected", 1))["big"]
    assert text(rejected, rejection.REASON) == "MessageSizeExceeded"
    assert "east/orders" in text(rejected, rejection.DESCRIPTION)
    assert text(rejected, rejection.TASK) == "orders"
    assert b"".join(rejected.body) == b"x" * 400_000
    assert rejected.session_id == "s"
    assert b"repl-path" not in rejected.application_properties


@pytest.mark.usefixtures("host")
def test_a_message_without_room_for_the_stamps_is_rejected_in_a_wrapper(site: Site) -> None:
    properties: dict[Any, Any] = {f"p{number}": "v" * 16_000 for number in range(4)} | {"rest": "v" * 1_420}
    full = ServiceBusMessage(b"full", message_id="full", application_properties=properties)
    site.send("west/orders", full, ServiceBusMessage(b"3", message_id="n3"))
    assert set(by_id(site.take("east/orders", 1))) == {"n3"}
    (rejected,) = site.take("west/rejected", 1)
    assert rejected.content_type == rejection.WRAPPED_CONTENT_TYPE
    inner = sections.split(b"".join(rejected.body))
    assert [value.payload for _, value in sections.body_parts(inner.body)] == [b"full"]
    assert len(inner.application_properties) > 65_000


@pytest.mark.usefixtures("host")
def test_a_stamp_of_a_wrong_type_is_rejected(site: Site) -> None:
    odd = ServiceBusMessage(b"odd", message_id="odd", application_properties={"repl-path": 7})
    site.send("west/orders", odd, ServiceBusMessage(b"4", message_id="n4"))
    assert set(by_id(site.take("east/orders", 1))) == {"n4"}
    rejected = by_id(site.take("west/rejected", 1))["odd"]
    assert text(rejected, rejection.DESCRIPTION) == "property repl-path: got a int, expected a string"


@pytest.mark.usefixtures("host")
def test_a_message_without_session_for_a_session_queue_is_rejected(site: Site) -> None:
    site.send(
        "west/visits",
        ServiceBusMessage(b"1", message_id="v1", session_id="s"),
        ServiceBusMessage(b"2", message_id="v2"),
        ServiceBusMessage(b"3", message_id="v3", session_id="s"),
    )
    assert list(by_id(site.take("east/visits", 2, session_id="s"))) == ["v1", "v3"]
    rejected = by_id(site.take("west/rejected", 1))["v2"]
    assert text(rejected, rejection.REASON) == "TargetRefusedMessage"
    assert "amqp:not-allowed" in text(rejected, rejection.DESCRIPTION)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("queue", ["strict", "strict-sessions"])
def test_without_rejects_only_the_bad_message_is_dead_lettered(site: Site, host: HostProcess, queue: str) -> None:
    sessions: dict[str, Any] = {"session_id": "s"} if queue == "strict-sessions" else {}
    messages: list[Any] = [ServiceBusMessage(b"x", message_id=f"s{number}", **sessions) for number in range(5)]
    messages[2].application_properties = {"repl-path": 7}
    site.send(f"west/{queue}", *messages)
    assert set(by_id(site.take(f"east/{queue}", 4))) == {"s0", "s1", "s3", "s4"}
    host.wait_for(lambda: not site.active(f"west/{queue}"), 20)
    (dead,) = site.take(f"west/{queue}", 1, sub_queue="deadletter")
    assert (dead.message_id, dead.dead_letter_reason) == ("s2", "MalformedMessage")
    assert dead.dead_letter_error_description == f"{queue}, stamped: property repl-path: got a int, expected a string"
    site.send(f"west/{queue}", ServiceBusMessage(b"x", message_id="next", **sessions))
    assert set(by_id(site.take(f"east/{queue}", 1))) == {"next"}


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(("rest", "has_reason"), [(800, True), (1_450, False)])
def test_a_bad_message_whose_headers_are_full_stops_no_other(site: Site, rest: int, *, has_reason: bool) -> None:
    properties: dict[Any, Any] = {f"p{number}": "v" * 16_000 for number in range(4)} | {"rest": "v" * rest}
    full = ServiceBusMessage(b"full", message_id="full", application_properties=properties | {"repl-path": 7})
    site.send("west/strict", full, ServiceBusMessage(b"4", message_id="n4"))
    assert set(by_id(site.take("east/strict", 1))) == {"n4"}
    (dead,) = site.take("west/strict", 1, sub_queue="deadletter")
    assert dead.message_id == "full"
    assert (dead.dead_letter_reason == "MalformedMessage") is has_reason


@pytest.mark.parametrize(
    ("queue", "error"),
    [("lost", "east/nowhere: the target refuses"), ("unlistened", "away/orders: the target cannot be")],
)
def test_messages_for_a_missing_target_stay_at_the_source(
    site: Site, host: HostProcess, queue: str, error: str
) -> None:
    site.send(f"west/{queue}", ServiceBusMessage(b"kept", message_id="kept"))
    host.wait_for(lambda: f"{queue}: the batch waits and is retried: {error}" in host.log(), 30)
    assert len(site.there(f"west/{queue}")) == 1
    assert "SAS_KEY_VALUE" not in host.log()


def answered(host: HostProcess, method: str, body: bytes | None) -> int:
    """Return the status with which the webhook refuses a request of a stranger."""
    headers = {"Authorization": "s3cret", "WebHook-Request-Origin": "s3cret.example"}
    address = f"http://127.0.0.1:{host.http_port}/api/events/events?code=s3cret"
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(urllib.request.Request(address, body, headers, method=method))
    error.value.close()
    return error.value.code


def test_requests_that_the_webhook_refuses_are_logged_without_anything_of_them(host: HostProcess) -> None:
    assert answered(host, "POST", b"s3cret") == 400
    assert answered(host, "POST", b'{"s3cret": 1}') == 400
    assert answered(host, "POST", b"s3cret" * 400_000) == 413
    assert answered(host, "OPTIONS", None) == 403
    lines = [line for line in host.log().splitlines() if "events: the webhook answers" in line]
    assert [line.partition("events: ")[2] for line in lines] == [
        "the webhook answers a request with 400: expected CloudEvents or events of Event Grid: the body is not JSON",
        "the webhook answers a request with 413: the request has 2400000 bytes, expected at most 2097152",
        f"the webhook answers a request with 403: {_ORIGIN}",
    ]
    assert "s3cret" not in host.log()


def test_a_stopping_host_releases_held_batches(site: Site, host: HostProcess) -> None:
    """The last test of this module: the host is gone then."""
    site.send("west/unlistened", ServiceBusMessage(b"kept", message_id="held"))
    host.wait_for(lambda: "unlistened: the batch waits" in host.log(), 30)
    assert host.stop() == 0
    assert site.active("west/unlistened")
    assert not site.broker.counts("west")["unlistened"].dead_lettered
