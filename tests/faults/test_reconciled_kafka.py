"""
Events go through Kafka and back while the cluster refuses requests, and the nightly job reconciles what it finds.

That is the journal of two tasks and of `busway forward`; `busway trace` shows all three hops. It takes a minute, so
only `make faults` runs it.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.storage.blob import ContainerClient

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from cli.local_services.kafka import KafkaCluster
from cli.spark import check_spark, run_job
from tests.azurite import running_azurite
from tests.end_to_end.busway_process import BuswayProcess
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.forwarding import PARTITIONS
from tests.kafka_reader import read_topic

pytestmark = pytest.mark.slow

MESSAGES = 500
_LINES = 18
_NOT_ENOUGH_REPLICAS, _DISCONNECTED = 19, -195
CONNECTIONS = """\
plant: {kind: event-hubs, setting: PLANT}
office: {kind: event-hubs, setting: OFFICE}
east: {kind: service-bus, setting: EAST}
stream: {kind: kafka, setting: STREAM}
"""
TASKS = """\
task: to-kafka
source: {connection: plant, hub: readings, binary_properties: false}
routes: [{target: {connection: stream, topic: readings}}]
rejects: {connection: east, queue: rejected}
---
task: from-kafka
source: {connection: office, hub: returned, binary_properties: false}
routes: [{target: {connection: east, queue: archive}}]
rejects: {connection: east, queue: rejected}
"""
PLANT = NamespaceConfig(name="plant", hubs=(HubConfig(name="readings", partition_count=2),))
OFFICE = NamespaceConfig(name="office", hubs=(HubConfig(name="returned", partition_count=2),))
EAST = NamespaceConfig(name="east", queues=tuple(QueueConfig(name=each) for each in ("archive", "rejected")))


def test_a_night_through_kafka_and_back_is_clean_and_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_spark()
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    (tmp_path / "journal.yaml").write_text("blob: {setting: JOURNAL}\n")
    (tmp_path / "tasks" / "all.yaml").write_text(TASKS)
    begun = datetime.now(UTC)
    with (
        KafkaCluster(3) as cluster,
        RunningBroker([PLANT, OFFICE, EAST]) as broker,
        running_azurite(tmp_path) as storage,
    ):
        cluster.create_topic("readings", PARTITIONS)
        settings = {
            "BUSWAY_CONFIG": str(tmp_path),
            "BUSWAY_CHECKPOINTS": str(tmp_path / "checkpoints.json"),
            "PLANT": broker.connection_string("plant"),
            "OFFICE": broker.connection_string("office"),
            "EAST": broker.connection_string("east"),
            "STREAM": f"kafka://{cluster.servers}",
            "JOURNAL": storage,
        }
        monkeypatch.setenv("STREAM", settings["STREAM"])
        with HostProcess(str(ROOT), tmp_path, settings) as host:
            host.wait_until_ready(60)
            cluster.fail_requests(*[_NOT_ENOUGH_REPLICAS, _DISCONNECTED] * 2)
            send(settings["PLANT"], range(MESSAGES))
            host.wait_for(lambda: count_of(cluster) >= MESSAGES, 120)
            forward = ["forward", "stream/readings", "office/returned", "--group", "to-office", "--idle", "2"]
            with BuswayProcess(*forward, folder=tmp_path, settings=settings) as forwarding:
                text = f"{MESSAGES} forwarded from stream/readings to office/returned\n"
                assert forwarding.result(120) == (0, text, "")
            host.wait_for(lambda: archived(broker) >= MESSAGES)
            assert host.stop(30) == 0
        out = tmp_path / "out"
        url = ContainerClient.from_connection_string(storage, "journal").url
        start = begun.replace(minute=0, second=0, microsecond=0)
        end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        hours = ["--start", start.strftime("%Y-%m-%dT%H"), "--end", end.strftime("%Y-%m-%dT%H")]
        code = run_job(url, out, [*hours, "--grace-minutes", "0", "--writers-stopped", "--memory", "1g"], storage)
        with BuswayProcess("trace", "m-7", folder=tmp_path, settings=settings) as tracing:
            trace = "\n".join(tracing.lines(_LINES))
    (summary,) = (json.loads(path.read_text()) for path in out.glob("runs/*/summary.json"))
    assert (code, summary["verdict"]) == (0, "clean"), summary["sentence"]
    assert {task["task"]: task["verdicts"] for task in summary["tasks"]} == {
        "to-kafka": {"delivered": MESSAGES},
        "to-office": {"delivered": MESSAGES},
        "from-kafka": {"delivered": MESSAGES},
    }
    assert "stream/readings" in trace
    assert "office/returned" in trace
    assert "east/archive" in trace


def send(connection_string: str, numbers: Sequence[int]) -> None:
    with EventHubProducerClient.from_connection_string(connection_string, eventhub_name="readings") as client:
        for key in range(5):
            batch = client.create_batch(partition_key=f"k{key}")
            for number in numbers:
                if number % 5 == key:
                    event = EventData(b"%d" % number)
                    event.message_id = f"m-{number}"
                    batch.add(event)
            client.send_batch(batch)


def count_of(cluster: KafkaCluster) -> int:
    return len(read_topic({"bootstrap.servers": cluster.servers}, "readings", PARTITIONS))


def archived(broker: RunningBroker) -> int:
    return broker.inspect("east", lambda east: sum(1 for _ in east.store("archive").peek(0)))
