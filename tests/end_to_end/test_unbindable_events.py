"""Events that Azure's host cannot pass to a function, and checkpoints that a hub refuses: nothing is lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData

from tests.site import Site

ENTITIES = "{hubs: {hubs: [hub], geo_replicated: false}, queues: {queues: [readings, rejected]}}"
TASK = """
task: readings
source: {connection: hubs, hub: hub}
routes: [{target: {connection: queues, queue: readings}}]
rejects: {connection: queues, queue: rejected}
"""
DIGEST = b"\x00\xff\x10"


def event(body: str, **properties: Any) -> EventData:
    made = EventData(body)
    made.properties = dict(properties.items())
    made.message_id = f"id-{body}"
    return made


def test_the_batch_stays_in_the_hub_and_an_event_with_a_map_property_blocks_its_partition(tmp_path: Path) -> None:
    with (
        Site(tmp_path, ENTITIES.replace("[hub]", "{hub: {partition_count: 2}}"), TASK) as site,
        site.running_host() as host,
    ):
        site.publish_events("hubs/hub", event("before"), partition_id="0")
        host.wait_for(lambda: site.active("queues/readings") == 1)
        site.publish_events("hubs/hub", event("one"), event("two", digest=DIGEST), event("three"), partition_id="0")
        failed = "could not bind messages: HostCannotBind: a binary, list or array as a property"
        host.wait_for(lambda: host.log().count(failed) >= 2)  # it is tried again
        site.publish_events("hubs/hub", event("one", origin={"floor": 1}), partition_id="1")
        host.wait_for(lambda: "the partition is blocked" in host.log())
        assert (site.active("queues/readings"), site.active("queues/rejected")) == (1, 0)


@pytest.mark.parametrize("is_replicated", [True, False])
def test_an_offset_of_before_a_replication_starts_again_and_one_behind_the_end_does_not(
    tmp_path: Path, *, is_replicated: bool
) -> None:
    # EH09: azure-sdk-for-net 47303; EH04: 30931 for Python, 9213 for .NET
    checkpoints = tmp_path / "checkpoints.json"
    checkpoints.write_text(json.dumps({"HUBS/hub/$Default/0": "100000"}))
    entities = ENTITIES.replace("false", str(is_replicated).lower())
    with Site(tmp_path, entities, TASK, settings={"BUSWAY_CHECKPOINTS": str(checkpoints)}) as site:
        site.publish_events("hubs/hub", event("one"), event("two"))
        with site.host() as host:
            if is_replicated:
                host.wait_for(lambda: site.active("queues/readings") == 2)
                assert "starts at its default position" in host.log()
            else:
                host.wait_for(lambda: host.log().count("closed with com.microsoft:argument-error") >= 2)
                assert site.active("queues/readings") == 0
