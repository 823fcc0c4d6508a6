"""The nightly timer of the app itself, in the local host."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

from shared.nightly.results import run_of
from tests.management import Management
from tests.site import Site

TASK = """
task: copy
source: {connection: west, queue: orders}
routes: [{target: {connection: west, queue: copies}}]
"""


def test_the_app_starts_the_job_and_its_invocation_fails_when_there_are_findings(storage: str, tmp_path: Path) -> None:
    container = ContainerClient.from_connection_string(storage, "reconciliation")
    container.create_container()
    signature = generate_container_sas(
        container.account_name,
        container.container_name,
        account_key=container.credential.account_key,
        permission=ContainerSasPermissions.from_string("rwdlc"),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    with (
        container,
        Management() as management,
        Site(tmp_path, "west: {queues: [orders, copies]}", TASK, settings=management.identity()) as site,
    ):
        nightly = {
            "BUSWAY_RECONCILIATION": f"{container.url}?{signature}",
            "BUSWAY_NIGHTLY_JOB": management.job,
            "BUSWAY_NIGHTLY_SCHEDULE": "* * * * * *",
        }
        with site.running_host(**nightly) as host:
            host.wait_for(lambda: management.started)
            day = datetime.fromisoformat(management.started[0]["containers"][0]["args"][-1]).date()
            found = {"exit_code": 1, "verdict": "findings", "sentence": "5 messages: 1 missing.", "tasks": []}
            container.upload_blob(f"runs/{run_of(day)}/summary.json", json.dumps(found))
            host.wait_for(lambda: "DutyFailed" in host.log())
    assert len(management.started) == 1
    assert f"nightly reconciliation of {day}: findings. 5 messages: 1 missing. Page: " in host.log()
    assert signature not in host.log()
