"""
Events go through Kafka and back while the cluster refuses requests, and the nightly job reconciles what it finds.

That is the journal of two tasks and of `busway forward`; `busway trace` shows all three hops. It takes a minute, so
only `make faults` runs it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from azure.eventhub import EventData

from cli.local_services.kafka import KafkaCluster
from cli.spark import check_spark
from tests.azurite import running_azurite
from tests.end_to_end.busway_process import BuswayProcess
from tests.faults.night import reconciled
from tests.forwarding import PARTITIONS
from tests.kafka_reader import read_topic
from tests.site import Site

pytestmark = pytest.mark.slow

MESSAGES = 500
_NOT_ENOUGH_REPLICAS, _DISCONNECTED = 19, -195
ENTITIES = """
plant: {hubs: {readings: {partition_count: 2}}}
office: {hubs: {returned: {partition_count: 2}}}
east: {queues: [archive, rejected]}
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


def test_a_night_through_kafka_and_back_is_clean_and_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_spark()
    begun = datetime.now(UTC)
    checkpoints = {"BUSWAY_CHECKPOINTS": str(tmp_path / "checkpoints.json")}
    stream = "stream: {kind: kafka, setting: STREAM}"
    with (
        KafkaCluster(3) as cluster,
        running_azurite(tmp_path) as storage,
        Site(tmp_path, ENTITIES, TASKS, more=stream, storage=storage, settings=checkpoints) as site,
    ):
        cluster.create_topic("readings", PARTITIONS)
        monkeypatch.setenv("STREAM", f"kafka://{cluster.servers}")
        with site.running_host() as host:
            cluster.fail_requests(*[_NOT_ENOUGH_REPLICAS, _DISCONNECTED] * 2)
            send(site, range(MESSAGES))
            host.wait_for(lambda: count_of(cluster) >= MESSAGES, 120)
            forward = ["forward", "stream/readings", "office/returned", "--group", "to-office", "--idle", "2"]
            with BuswayProcess(*forward, folder=tmp_path, settings=site.settings) as forwarding:
                text = f"{MESSAGES} forwarded from stream/readings to office/returned\n"
                assert forwarding.result(120) == (0, text, "")
            host.wait_for(lambda: site.active("east/archive") >= MESSAGES)
        code, summary = reconciled(storage, tmp_path / "out", begun)
        trace = site.run("trace", "m-7").stdout
    assert (code, summary["verdict"]) == (0, "clean"), summary["sentence"]
    assert {task["task"]: task["verdicts"] for task in summary["tasks"]} == {
        "to-kafka": {"delivered": MESSAGES},
        "to-office": {"delivered": MESSAGES},
        "from-kafka": {"delivered": MESSAGES},
    }
    assert "stream/readings" in trace
    assert "office/returned" in trace
    assert "east/archive" in trace


def send(site: Site, numbers: Sequence[int]) -> None:
    for key in range(5):
        events = []
        for number in numbers[key::5]:
            event = EventData(b"%d" % number)
            event.message_id = f"m-{number}"
            events.append(event)
        site.publish_events("plant/readings", *events, partition_key=f"k{key}")


def count_of(cluster: KafkaCluster) -> int:
    return len(read_topic({"bootstrap.servers": cluster.servers}, "readings", PARTITIONS))
