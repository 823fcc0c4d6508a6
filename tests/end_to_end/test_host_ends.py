"""How the local host stops, times out and loses its worker: as the real host was measured to do (H1 to H6)."""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.broker.config import NamespaceConfig, QueueConfig
from local.broker.thread import RunningBroker
from tests.broker.settling import Refused, SettlementClient
from tests.end_to_end.host_process import HostProcess

GRACE_SECONDS = 4


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    lock = timedelta(minutes=5)
    queues = tuple(QueueConfig(name=name, lock_duration=lock) for name in ("first", "second"))
    with RunningBroker([NamespaceConfig(name="ns", queues=queues)]) as running:
        yield running


@pytest.fixture
def host(broker: RunningBroker, tmp_path: Path) -> Iterator[HostProcess]:
    settings = {"SB": broker.connection_string("ns")}
    with HostProcess("ending", tmp_path, settings, f"--grace={GRACE_SECONDS}") as process:
        process.wait_until_ready()
        yield process


def send(broker: RunningBroker, queue: str, *bodies: str) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("ns")) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def left(broker: RunningBroker, queue: str) -> list[tuple[int, bool]]:
    """Return delivery count and whether it is locked of each message."""
    return broker.inspect(
        "ns", lambda each: [(one.delivery_count, one.lock_token is not None) for one in each.store(queue).peek(0)]
    )


def pids(host: HostProcess, function: str) -> list[int]:
    return [message["pid"] for message in host.messages(function)]


def test_stop_kills_what_outlives_the_grace_and_tells_the_app_nothing(host: HostProcess, broker: RunningBroker) -> None:
    send(broker, "first", "rest 7.5")  # just below the function timeout
    host.wait_for(lambda: host.bodies("first"))
    started = time.monotonic()
    assert host.stop() == 0
    assert GRACE_SECONDS <= time.monotonic() - started < GRACE_SECONDS + 3
    assert host.bodies("first done") == []
    assert host.bodies("goodbye") == []
    assert left(broker, "first") == [(0, True)]  # not settled: it comes again when its lock ends


def test_listeners_go_on_receiving_during_the_grace(host: HostProcess, broker: RunningBroker) -> None:
    send(broker, "first", *["rest 0.5"] * 40)
    host.wait_for(lambda: host.bodies("first"))
    assert host.stop() == 0
    # One at a time: without new ones during the grace it would be one or two.
    assert 4 <= len(host.bodies("first done")) <= 12
    assert len(left(broker, "first")) == 40 - len(host.bodies("first done"))


def test_grace_ends_early_once_nothing_runs(host: HostProcess, broker: RunningBroker) -> None:
    send(broker, "first", "rest 0.5")
    host.wait_for(lambda: host.bodies("first"))
    started = time.monotonic()
    assert host.stop() == 0
    assert time.monotonic() - started < GRACE_SECONDS
    assert host.bodies("first done") == ["rest 0.5"]
    assert left(broker, "first") == []


def test_timeout_kills_the_worker_and_everything_in_it(host: HostProcess, broker: RunningBroker) -> None:
    send(broker, "first", "rest 60")
    host.wait_for(lambda: host.bodies("first"))
    time.sleep(2)  # the second would end in time, but after the timeout of the first
    send(broker, "second", "rest 7")
    host.wait_for(lambda: host.bodies("second"))
    host.wait_for(lambda: "ran for more than 0:00:08; the worker is killed" in host.log())
    killed = time.monotonic()
    time.sleep(1)
    assert left(broker, "first") == left(broker, "second") == [(0, True)]  # the listeners have not heard yet
    host.wait_for(lambda: len(host.bodies("first")) >= 2 and len(host.bodies("second")) >= 2, 40)
    assert time.monotonic() - killed >= 9.5
    assert host.bodies("second done") == []  # it ran for less than the timeout, in the same worker
    assert host.bodies("goodbye") == []
    assert len(set(pids(host, "first")[:2])) == 2


def test_death_of_the_worker_fails_what_is_in_flight_at_once(host: HostProcess, broker: RunningBroker) -> None:
    send(broker, "second", "rest 3")
    host.wait_for(lambda: host.bodies("second"))
    send(broker, "first", "die")
    host.wait_for(lambda: "first: invocation failed: the worker process ended unexpectedly" in host.log())
    host.wait_for(lambda: "second: invocation failed: the worker process ended unexpectedly" in host.log())
    host.wait_for(lambda: host.bodies("second done"))
    assert len(set(pids(host, "second"))) >= 2
    assert host.stop() == 0


def test_retry_of_host_json_applies_to_service_bus_with_one_invocation_id(
    host: HostProcess, broker: RunningBroker
) -> None:
    send(broker, "first", "break")
    host.wait_for(lambda: len(host.bodies("first")) >= 4)
    messages = host.messages("first")[:4]
    # Each delivery is tried twice before it is abandoned; autoCompleteMessages of host.json has no effect.
    assert [message["delivery_count"] for message in messages] == [1, 1, 2, 2]
    ids = [message["invocation"] for message in messages]
    assert ids[0] == ids[1] != ids[2] == ids[3]


def test_worker_gets_the_address_of_the_settlement_service(host: HostProcess, broker: RunningBroker) -> None:
    async def ask(port: int) -> None:
        client = SettlementClient(port)
        with pytest.raises(Refused, match=r"LockToken x not found\."):
            await client.call("Complete", locktoken="x")
        await client.close()

    send(broker, "first", "well")
    host.wait_for(lambda: host.bodies("first done"))
    words = host.messages("first")[0]["arguments"]
    names, values = words[::2], words[1::2]
    found = dict(zip(names, values, strict=True))
    asyncio.run(ask(int(found["--port"])))
    assert found["--host"] == "127.0.0.1"
    assert found["--functions-uri"] == f"http://127.0.0.1:{found['--port']}/"
    assert found["--grpcMaxMessageLength"] == found["--functions-grpc-max-message-length"] == "2147483647"
    assert (found["--workerId"], found["--requestId"]) == (
        found["--functions-worker-id"],
        found["--functions-request-id"],
    )


def test_success_completes_whatever_host_json_says(host: HostProcess, broker: RunningBroker) -> None:
    send(broker, "first", "well")
    host.wait_for(lambda: host.bodies("first done") == ["well"] and left(broker, "first") == [])
