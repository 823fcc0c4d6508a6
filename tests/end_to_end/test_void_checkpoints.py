"""What the host does with a checkpoint that the hub refuses."""

import json
from pathlib import Path

import pytest

from busway_broker.config import HubConfig, NamespaceConfig
from busway_broker.thread import RunningBroker
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.end_to_end.test_binary_properties import CONNECTIONS, SITE, TASK, event, publish


@pytest.mark.parametrize("is_replicated", [True, False])
def test_an_offset_of_before_a_replication_starts_again_and_one_behind_the_end_does_not(
    tmp_path: Path, *, is_replicated: bool
) -> None:
    # EH09: azure-sdk-for-net 47303; EH04: 30931 for Python, 9213 for .NET
    folder = tmp_path / "config"
    (folder / "tasks").mkdir(parents=True)
    (folder / "connections.yaml").write_text(CONNECTIONS)
    (folder / "tasks" / "readings.yaml").write_text(TASK)
    (tmp_path / "checkpoints.json").write_text(json.dumps({"HUBS/hub/$Default/0": "100000"}))
    hubs = NamespaceConfig(name="hubs", hubs=(HubConfig(name="hub"),), geo_replicated=is_replicated)
    with RunningBroker([SITE, hubs]) as broker:
        settings = {
            "BUSWAY_CONFIG": str(folder),
            "BUSWAY_CHECKPOINTS": str(tmp_path / "checkpoints.json"),
            "HUBS": broker.connection_string("hubs"),
            "QUEUES": broker.connection_string("site"),
        }
        publish(broker, event("one"), event("two"), namespace="hubs")
        with HostProcess(str(ROOT), tmp_path, settings) as host:
            if is_replicated:
                host.wait_for(lambda: broker.counts("site")["readings"].active == 2)
                assert "starts at its default position" in host.log()
            else:
                host.wait_for(lambda: host.log().count("closed with com.microsoft:argument-error") >= 2)
                assert broker.counts("site")["readings"].active == 0
