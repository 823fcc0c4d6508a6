"""The host's other triggers: event hubs, timers and HTTP requests."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData

from shared.amqp import sections
from shared.amqp.codec import decode_all, plain
from tests.end_to_end.host_process import HostProcess
from tests.site import Site

ENTITIES = """
ns:
  queues: {raw: , raw-single: , session-single: {requires_session: true}}
  topics: {sessions: {subscriptions: {all: {requires_session: true}}}}
  hubs: {hub: {partition_count: 2, consumer_groups: [single]}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site"), ENTITIES) as site:
        yield site


@pytest.fixture(scope="module")
def settings(site: Site) -> dict[str, str]:
    address, checkpoints = site.settings["NS"], site.folder / "checkpoints.json"
    return {"SB": address, "EH": address, "RAW_QUEUE": "raw", "BUSWAY_CHECKPOINTS": str(checkpoints)}


@pytest.fixture(scope="module")
def host(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    with HostProcess("noting", tmp_path_factory.mktemp("host"), settings) as process:
        process.wait_until_ready()
        yield process
        assert process.stop() == 0


def send(site: Site, *bodies: str, **where: Any) -> None:
    events = [EventData(body) for body in bodies]
    for event in events:
        event.properties = {"number": 5}
    site.publish_events("ns/hub", *events, **where)


def test_events_arrive_in_batches_per_partition_in_order(host: HostProcess, site: Site) -> None:
    for partition in ("0", "1"):
        send(site, *(f"in order {partition} {index}" for index in range(25)), partition_id=partition)
    host.wait_for(lambda: len([body for body in host.bodies("raw_events") if "in order" in body]) == 50)
    for partition in ("0", "1"):
        bodies = [body for body in host.bodies("raw_events") if body.startswith(f"in order {partition}")]
        assert bodies == [f"in order {partition} {index}" for index in range(25)]
    assert max(len(messages) for messages in host.invocations("raw_events")) == 10


def test_sdk_type_of_an_event_has_no_lock_token(host: HostProcess, site: Site) -> None:
    send(site, "annotated", partition_key="key")
    host.wait_for(lambda: "annotated" in host.bodies("raw_events"))
    (message,) = [message for message in host.messages("raw_events") if message["body"] == "annotated"]
    split = sections.split(bytes.fromhex(message["amqp"]))
    assert plain(decode_all(split.application_properties)) == {"number": 5}
    assert "'x-opt-partition-key': 'key'" in str(plain(decode_all(split.message_annotations)))


def test_function_that_takes_one_event_is_invoked_for_each(host: HostProcess, site: Site) -> None:
    send(site, "each 1", "each 2", partition_key="key")
    host.wait_for(lambda: {"each 1", "each 2"} <= set(host.bodies("raw_event")))
    assert {len(messages) for messages in host.invocations("raw_event")} == {1}


def test_failing_events_are_retried_by_the_policy_and_then_skipped(host: HostProcess, site: Site) -> None:
    send(site, "fail forever", partition_id="0")
    send(site, "after the failure", partition_id="0")
    host.wait_for(lambda: "after the failure" in host.bodies("raw_events"))
    assert host.bodies("raw_events").count("fail forever") == 3


def test_timer_fires_every_second(host: HostProcess) -> None:
    host.wait_for(lambda: len(host.invocations("tick")) >= 2)
    assert host.messages("tick")[0]["past_due"] is False


def request(
    host: HostProcess, path: str, data: bytes | None = None, method: str | None = None
) -> tuple[int, HTTPMessage, str]:
    url = f"http://127.0.0.1:{host.http_port}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as response:
        return response.status, response.headers, response.read().decode()


def test_http_function_gets_route_query_and_body_and_its_response_is_returned(host: HostProcess) -> None:
    status, headers, body = request(host, "/api/hello/bob?q=1", b"text")
    assert (status, headers["X-Test"], body) == (201, "yes", "bob 1 text")
    assert request(host, "/api/hello")[2] == "None None "


@pytest.mark.parametrize(("path", "method", "status"), [("/api/hello/a", "PUT", 405), ("/api/none", "GET", 404)])
def test_other_requests_are_refused(host: HostProcess, path: str, method: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        request(host, path, method=method)
    error.value.close()
    assert error.value.code == status


def test_restarted_host_continues_after_the_checkpoints(
    host: HostProcess, site: Site, settings: dict[str, str], tmp_path: Path
) -> None:
    for partition in ("0", "1"):
        send(site, f"before the restart {partition}", partition_id=partition)
    expected = {f"before the restart {partition}" for partition in ("0", "1")}
    host.wait_for(lambda: all(expected <= set(host.bodies(name)) for name in ("raw_events", "raw_event")))
    assert host.stop() == 0
    send(site, "after the restart", partition_id="1")
    with HostProcess("noting", tmp_path, settings) as again:
        again.wait_until_ready()
        again.wait_for(lambda: bool(again.bodies("raw_events") and again.bodies("raw_event")))
        assert again.bodies("raw_events") == again.bodies("raw_event") == ["after the restart"]
