"""The nightly timer of the app itself, in the local host."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.nightly.results import run_of
from tests.azurite import running_azurite
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.management import Management

NAMESPACE = NamespaceConfig(name="west", queues=(QueueConfig(name="orders"), QueueConfig(name="copies")))
TASK = """
task: copy
source: {connection: west, queue: orders}
routes: [{target: {connection: west, queue: copies}}]
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[ContainerClient]:
    with (
        running_azurite(tmp_path) as storage,
        ContainerClient.from_connection_string(storage, "reconciliation") as client,
    ):
        client.create_container()
        yield client


def test_the_app_starts_the_job_and_its_invocation_fails_when_there_are_findings(
    container: ContainerClient, tmp_path: Path
) -> None:
    (tmp_path / "config" / "tasks").mkdir(parents=True)
    (tmp_path / "config" / "connections.yaml").write_text("west: {kind: service-bus, setting: WEST}\n")
    (tmp_path / "config" / "tasks" / "copy.yaml").write_text(TASK)
    signature = generate_container_sas(
        container.account_name,
        container.container_name,
        account_key=container.credential.account_key,
        permission=ContainerSasPermissions.from_string("rwdlc"),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    with RunningBroker([NAMESPACE]) as broker, Management() as management:
        settings = {
            **management.identity(),
            "BUSWAY_CONFIG": str(tmp_path / "config"),
            "BUSWAY_RECONCILIATION": f"{container.url}?{signature}",
            "BUSWAY_NIGHTLY_JOB": management.job,
            "BUSWAY_NIGHTLY_SCHEDULE": "* * * * * *",
            "WEST": broker.connection_string("west"),
        }
        with HostProcess(str(ROOT), tmp_path, settings) as host:
            host.wait_until_ready()
            host.wait_for(lambda: management.started)
            day = datetime.fromisoformat(management.started[0]["containers"][0]["args"][-1]).date()
            found = {"exit_code": 1, "verdict": "findings", "sentence": "5 messages: 1 missing.", "tasks": []}
            container.upload_blob(f"runs/{run_of(day)}/summary.json", json.dumps(found))
            host.wait_for(lambda: "DutyFailed" in host.log())
            assert host.stop() == 0
    assert len(management.started) == 1
    assert f"nightly reconciliation of {day}: findings. 5 messages: 1 missing. Page: " in host.log()
    assert signature not in host.log()
