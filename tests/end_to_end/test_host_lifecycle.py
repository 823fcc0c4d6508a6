"""The host in failures of its surroundings, and when it is stopped."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub._pyamqp.types import TYPE, VALUE, AMQPTypes

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker
from shared.amqp import sections
from shared.amqp.codec import decode_all, plain
from tests.end_to_end.host_process import HostProcess
from tests.wire.settling import is_held, send

pytestmark = pytest.mark.long


def namespace() -> NamespaceConfig:
    queues = (
        *(QueueConfig(name=name) for name in ("raw", "raw-single")),
        QueueConfig(name="session-single", requires_session=True, lock_duration=timedelta(seconds=5)),
    )
    subscriptions = (SubscriptionConfig(name="all", requires_session=True),)
    return NamespaceConfig(
        name="ns",
        queues=queues,
        topics=(TopicConfig(name="sessions", subscriptions=subscriptions),),
        hubs=(HubConfig(name="hub", consumer_groups=("single",)),),
    )


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([namespace()]) as running:
        yield running


def start(broker: RunningBroker, folder: Path, *arguments: str, **settings: str) -> HostProcess:
    address = broker.connection_string("ns")
    return HostProcess("noting", folder, {"SB": address, "EH": address, "RAW_QUEUE": "raw", **settings}, *arguments)


def left(broker: RunningBroker, path: str) -> int:
    return broker.inspect("ns", lambda namespace: len(list(namespace.store(path).peek(0))))


def header(message: Any) -> Any:
    return plain(decode_all(sections.split(bytes.fromhex(message["amqp"])).header))


def test_lock_of_a_session_is_renewed_for_a_time_from_its_acceptance(broker: RunningBroker, tmp_path: Path) -> None:
    """FN59: azure-sdk-for-net 35267."""
    limit = {"AzureFunctionsJobHost__extensions__serviceBus__maxAutoLockRenewalDuration": "00:00:06"}
    with start(broker, tmp_path, **limit) as host:
        host.wait_until_ready()
        send(broker, "session-single", "sleep 4", "sleep 14", session_id="a")
        host.wait_for(lambda: host.bodies("session_single").count("sleep 14") == 2, 40)
        assert host.bodies("session_single").count("sleep 4") == 1
        host.wait_for(lambda: "1 messages not settled, they will come again" in host.log())


def test_draining_host_keeps_and_renews_sessions_of_single_dispatch(broker: RunningBroker, tmp_path: Path) -> None:
    """FN23: azure-sdk-for-net 58170."""
    with start(broker, tmp_path, "--ending=drain") as host:
        host.wait_until_ready()
        send(broker, "raw", "sleep 14")  # keeps the host draining
        send(broker, "session-single", "sleep 1", session_id="a")
        host.wait_for(lambda: host.bodies("raw_batch") and host.bodies("session_single"))
        host.terminate()
        host.wait_for(lambda: left(broker, "session-single") == 0)
        send(broker, "session-single", "waits", session_id="a")
        time.sleep(6)  # a session lasts 5 s without a renewal
        assert is_held(broker, "session-single", "a")
        assert host.stop() == 0
        assert host.bodies("session_single") == ["sleep 1"]
    assert not is_held(broker, "session-single", "a")


def test_new_owner_of_a_partition_repeats_what_the_old_one_still_processes(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """EH13, FN25: azure-sdk-for-net 17651, 29335. The simulation has other hosts that take partitions."""
    file = tmp_path / "checkpoints.json"
    # The function has two retries, of which only the owner makes use (EH14: azure-sdk-for-net 42299).
    body = "sleep 4 fail"
    with (
        start(broker, tmp_path, "--steal-after=1", BUSWAY_CHECKPOINTS=str(file)) as host,
        EventHubProducerClient.from_connection_string(broker.connection_string("ns"), eventhub_name="hub") as producer,
    ):
        host.wait_until_ready()
        producer.send_event(EventData(body), partition_id="0")
        host.wait_for(lambda: host.bodies("raw_events"))
        begun = time.monotonic()
        host.wait_for(lambda: host.bodies("raw_events") == [body] * 2)
        assert time.monotonic() - begun < 4  # the first still runs
        host.wait_for(lambda: "raw_events/0: another owner has the partition" in host.log())
        assert not file.exists()  # the old one has stored no checkpoint, and the new one still runs
        producer.send_event(EventData("next"), partition_id="0")
        host.wait_for(lambda: "next" in host.bodies("raw_events"))
        assert host.bodies("raw_events") == [body] * 4 + ["next"]


def test_missing_entity_and_event_that_dotnet_cannot_bind_stop_nothing_else(
    broker: RunningBroker, tmp_path: Path
) -> None:
    with start(broker, tmp_path, RAW_QUEUE="absent") as host:
        host.wait_for(lambda: "amqp:not-found" in host.log())
        send(broker, "raw-single", "still served")
        host.wait_for(lambda: host.bodies("raw_single") == ["still served"])
        assert "raw_batch: absent: the service refused with amqp:not-found" in host.log()
        address = broker.connection_string("ns")
        with EventHubProducerClient.from_connection_string(address, eventhub_name="hub") as producer:
            event = EventData("binary property")
            event.properties = {"binary": {TYPE: AMQPTypes.binary, VALUE: b"\x00"}}
            producer.send_event(event)
            host.wait_for(lambda: "raw_events: 1 events are passed over" in host.log())
            producer.send_event(EventData("next"))
        host.wait_for(lambda: host.bodies("raw_events") == ["next"])
        assert "SerializationException" in host.log()
        assert host.stop() == 0


def test_missing_setting_ends_the_host_with_every_problem(broker: RunningBroker, tmp_path: Path) -> None:
    address = broker.connection_string("ns")
    with HostProcess("noting", tmp_path, {"EH": address}) as host:
        host.wait_for(lambda: "ConfigError" in host.log())
    assert "app setting SB is not set" in host.log()
    assert "app setting RAW_QUEUE is not set" in host.log()
    assert "raw_batch.messages" in host.log()


def test_wire_mode_passes_the_bytes_unchanged_and_an_idle_host_stops_immediately(
    broker: RunningBroker, tmp_path: Path
) -> None:
    with start(broker, tmp_path, "--wire") as host:
        host.wait_until_ready()
        send(broker, "raw", "wire")
        host.wait_for(lambda: host.bodies("raw_batch"))
        assert header(host.messages("raw_batch")[0])[4] == 0
        host.wait_for(lambda: left(broker, "raw") == 0)
        started = time.monotonic()
        assert host.stop() == 0
        assert time.monotonic() - started < 8
