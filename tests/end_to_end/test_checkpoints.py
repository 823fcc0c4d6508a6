"""`busway checkpoints` with the local broker, and with blobs in Azurite as the Functions host writes them."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from shared.stores.host_checkpoints import CONTAINER
from tests.end_to_end.repair_site import RepairSite

GROUP = "localhost/telemetry/$default"


class CheckpointSite(RepairSite):
    """A hub with four events in each of two partitions, and checkpoints in the app's storage."""

    def __init__(self, folder: Path, storage: str) -> None:
        super().__init__(folder)
        self.settings["AzureWebJobsStorage"] = storage
        self.container = ContainerClient.from_connection_string(storage, CONTAINER)

    def write(self, name: str, content: bytes = b"", **metadata: str) -> None:
        self.container.upload_blob(f"{GROUP}/{name}", content, metadata=metadata, overwrite=True)

    def names(self) -> list[str]:
        return [name.removeprefix(f"{GROUP}/") for name in self.container.list_blob_names()]


@pytest.fixture
def site(storage: str, tmp_path: Path) -> Iterator[CheckpointSite]:
    with CheckpointSite(tmp_path, storage) as site, site.container:
        for partition in ("0", "1"):
            site.publish_events("west/telemetry", *["event"] * 4, partition_id=partition)
        site.container.create_container()
        yield site
        site.container.delete_container()


def test_only_checkpoints_of_an_earlier_hub_are_deleted_and_only_while_the_app_is_stopped(site: CheckpointSite) -> None:
    site.write("checkpoint/0", offset="96", sequencenumber="2", clientidentifier="host")
    site.write("checkpoint/1", offset="4096", sequencenumber="90", clientidentifier="host")
    site.write("1", b'{"Offset": "4096", "SequenceNumber": 88}')
    site.write("checkpoint/7", offset="1", sequencenumber="1")
    site.write("ownership/1", ownerid="host")
    shown = site.run("checkpoints", "telemetry")
    assert shown.exit_code == 1, shown.stdout + shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0] == "west/telemetry/$Default, read by telemetry"
    assert lines[2].split() == ["0", "2", "0", "3"]
    assert lines[3].split(maxsplit=4) == ["1", "90", "0", "3", "of an earlier hub: behind the last event, 3"]
    assert "of an earlier hub: the hub has no such partition" in lines[4]
    refused = site.run("checkpoints", "telemetry", "--reset", "--yes")
    assert (refused.exit_code, "the app reads partition 1" in refused.stderr) == (1, True), refused.stderr
    shown = site.run("checkpoints", "telemetry", "--reset")
    assert "would delete the checkpoints of partition 1, 7\n" in shown.stdout
    assert shown.stderr == "Nothing was changed: --yes does it.\n"
    assert len(site.names()) == 5
    site.write("ownership/1", ownerid="")
    done = site.run("checkpoints", "telemetry", "--reset", "--yes")
    assert (done.exit_code, "deleted the checkpoints of partition 1, 7" in done.stdout) == (0, True), done.stderr
    assert site.names() == ["checkpoint/0", "ownership/1"]
    assert site.run("checkpoints", "telemetry").exit_code == 0
    assert "nothing to reset" in site.run("checkpoints", "telemetry", "--reset").stdout
    assert site.run("checkpoints", "telemetry", "--reset", "--partition", "0", "--yes").exit_code == 0
    assert site.names() == ["ownership/1"]


def test_a_checkpoint_older_than_its_event_belongs_to_an_earlier_hub(
    site: CheckpointSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write("checkpoint/1", offset="64", sequencenumber="2")
    assert site.run("checkpoints", "telemetry").exit_code == 0
    # As if it had been written an hour ago.
    monkeypatch.setattr("cli.checkpoints.hub_checkpoints._CLOCKS", timedelta(hours=-1))
    shown = site.run("checkpoints", "telemetry")
    assert (shown.exit_code, "written before the hub had this event" in shown.stdout) == (1, True)


def test_wrong_names_and_a_missing_account_are_reported(site: CheckpointSite) -> None:
    for arguments, text in (
        (("telemetri",), "is not a task that reads an event hub (expected one of telemetry)"),
        (("orders",), "is not a task that reads an event hub"),
        (("telemetry", "--yes"), "--yes: only goes with --reset"),
        (("telemetry", "--reset", "--partition", "3"), "--partition 3: has no checkpoint"),
    ):
        failed = site.run("checkpoints", *arguments)
        assert (failed.exit_code, text in failed.stderr) == (1, True), failed.stderr
    site.settings["AzureWebJobsStorage"] = ""
    assert "AzureWebJobsStorage: the app setting is missing" in site.run("checkpoints", "telemetry").stderr
