"""The host on the local broker: what functions receive, and how their messages are settled."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from busway_broker.core.namespace import Namespace
from shared.amqp import sections
from shared.amqp.codec import decode_all, plain
from tests.end_to_end.host_process import HostProcess
from tests.site import Site

ENTITIES = """
sb:
  queues:
    raw: {max_delivery_count: 3, lock_duration: 5}
    raw-single: {lock_duration: 5, max_delivery_count: 3}
    session-single: {requires_session: true, lock_duration: 5}
    session-pairs: {requires_session: true, lock_duration: 5}
  topics: {sessions: {subscriptions: {all: {requires_session: true}}}}
  hubs: {hub: {consumer_groups: [single]}}
"""
"""One broker and one host for all tests here; each test tells its messages by a word of its own in the body."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site"), ENTITIES) as site:
        yield site


@pytest.fixture(scope="module")
def host(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    address = site.settings["SB"]
    with HostProcess(
        "noting", tmp_path_factory.mktemp("host"), {"SB": address, "EH": address, "RAW_QUEUE": "raw"}
    ) as process:
        process.wait_until_ready()
        yield process
        assert process.stop() == 0


def received(host: HostProcess, function: str, word: str) -> list[dict[str, Any]]:
    return [message for message in host.messages(function) if word in message["body"]]


def section(message: Any, name: str) -> Any:
    return plain(decode_all(getattr(sections.split(bytes.fromhex(message["amqp"])), name)))


def test_batches_of_an_sdk_type_have_at_most_the_configured_size(host: HostProcess, site: Site) -> None:
    site.send("sb/raw", *(ServiceBusMessage(f"batched {index}") for index in range(50)))
    host.wait_for(lambda: len(received(host, "raw_batch", "batched")) == 50)
    assert [message["body"] for message in received(host, "raw_batch", "batched")] == [
        f"batched {i}" for i in range(50)
    ]
    assert max(len(messages) for messages in host.invocations("raw_batch")) == 20


def test_sdk_type_gets_the_message_as_azures_host_encodes_it(host: HostProcess, site: Site) -> None:
    site.send("sb/raw", ServiceBusMessage("encoded", time_to_live=timedelta(minutes=2), subject="s", message_id="m"))
    host.wait_for(lambda: bool(received(host, "raw_batch", "encoded")))
    (message,) = received(host, "raw_batch", "encoded")
    header, properties = section(message, "header"), section(message, "properties")
    assert header[2] == 120_000
    assert header[4] == 1  # the first delivery, as .NET counts
    assert len(properties) == 13
    assert properties[8] - properties[9] == 120_000
    assert (properties[0], properties[3]) == ("m", "s")
    assert section(message, "message_annotations")["x-opt-sequence-number"] > 0


def test_failed_batch_is_abandoned_as_a_whole_and_finally_dead_lettered(host: HostProcess, site: Site) -> None:
    site.send("sb/raw", ServiceBusMessage("fail dead"), ServiceBusMessage("neighbour dead"))
    host.wait_for(lambda: len(received(host, "dead_letters", "dead")) == 2)
    counts = [section(message, "header")[4] for message in received(host, "raw_batch", "fail dead")]
    assert counts == [1, 2, 3]


def test_large_message_arrives_complete(host: HostProcess, site: Site) -> None:
    site.send("sb/raw", ServiceBusMessage("large " + "x" * 200_000))
    host.wait_for(lambda: bool(received(host, "raw_batch", "large")))
    assert received(host, "raw_batch", "large")[0]["size"] == 200_006


def test_single_messages_run_concurrently_and_keep_their_locks(host: HostProcess, site: Site) -> None:
    site.send("sb/raw-single", *(ServiceBusMessage(f"sleep 7 {index}") for index in range(4)))
    started = time.monotonic()
    host.wait_for(lambda: len(host.bodies("raw_single")) >= 4)
    assert time.monotonic() - started < 6
    site.send("sb/raw-single", ServiceBusMessage("after"))
    host.wait_for(lambda: "after" in host.bodies("raw_single"), 30)
    time.sleep(0.5)
    assert len([body for body in host.bodies("raw_single") if body.startswith("sleep 7")]) == 4


def test_sessions_are_delivered_one_after_the_other_in_order(host: HostProcess, site: Site) -> None:
    # An empty id is that of a session too.
    names = ("", "s1", "s2", "s3", "s4")
    messages = [ServiceBusMessage(f"{index % 5} {index}", session_id=names[index % 5]) for index in range(100)]
    site.send("sb/sessions", *messages)
    host.wait_for(lambda: len(host.messages("session_batch")) == 100)
    for invocation in host.invocations("session_batch"):
        assert len({message["body"].split()[0] for message in invocation}) == 1
    for session in range(5):
        numbers = [int(body.split()[1]) for body in host.bodies("session_batch") if body.split()[0] == str(session)]
        assert numbers == sorted(numbers)
        assert len(numbers) == 20


def test_session_of_a_single_function_keeps_order_through_a_failure(host: HostProcess, site: Site) -> None:
    bodies = ["a 0", "sleep 0.01 1", "a 2"]
    site.send("sb/session-single", *(ServiceBusMessage(body, session_id="only") for body in bodies))
    host.wait_for(lambda: len(host.bodies("session_single")) == 3)
    assert host.bodies("session_single") == bodies


def test_sessions_of_a_single_function_run_side_by_side_and_keep_their_locks(host: HostProcess, site: Site) -> None:
    bodies = [f"sleep {seconds} beside {session}" for session in "xyz" for seconds in (6, 0)]
    site.send("sb/session-single", *(ServiceBusMessage(body, session_id=body[-1]) for body in bodies))
    started = time.monotonic()
    host.wait_for(lambda: len(received(host, "session_single", "sleep 0 beside")) == 3, 20)
    assert time.monotonic() - started < 12, "the sessions ran one after the other"
    # A lock of 5 s that was not renewed would bring the first message of each session again.
    assert len(received(host, "session_single", "beside")) == 6


def test_calls_of_one_session_run_side_by_side_if_host_json_says_so(site: Site, tmp_path: Path) -> None:
    settings = {
        "SB": site.settings["SB"],
        "AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentCallsPerSession": "2",
        "AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentSessions": "1",
    }
    messages = [ServiceBusMessage(f"sleep 2 {n} {session}", session_id=session) for session in "pq" for n in range(2)]
    site.send("sb/session-pairs", *messages)
    with HostProcess("pairing", tmp_path, settings) as pairing:
        pairing.wait_until_ready()
        started = time.monotonic()
        pairing.wait_for(lambda: len(pairing.bodies("session_pairs")) == 2)
        # Both of one session, and none of the other: only one session is held at a time.
        assert len({body[-1] for body in pairing.bodies("session_pairs")}) == 1
        pairing.wait_for(lambda: len(pairing.bodies("session_pairs")) == 4)
        assert 1.9 < time.monotonic() - started < 5.9  # one call after the other: 6
        assert pairing.stop() == 0


def test_every_message_is_settled_in_the_end(host: HostProcess, site: Site) -> None:
    paths = ("raw", "raw/$DeadLetterQueue", "raw-single", "sessions/Subscriptions/all", "session-single")

    def left(namespace: Namespace) -> Any:
        return [path for path in paths if list(namespace.store(path).peek(0))]

    host.wait_for(lambda: site.broker.inspect("sb", left) == [])
    assert "not settled" not in host.log()
