"""`busway checkpoints` with the local broker, and with blobs in Azurite as the Functions host writes them."""

import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.storage.blob import ContainerClient
from typer.testing import CliRunner

from busway_broker.thread import RunningBroker
from cli.main import app
from shared.stores.host_checkpoints import CONTAINER
from tests.azurite import running_azurite
from tests.end_to_end.repair_site import CONNECTIONS, EAST, TASKS, WEST
from tests.impatience import impatient_clients

GROUP = "localhost/telemetry/$default"


class App:
    """The settings of an app, its storage, and its hub with four events in each of two partitions."""

    def __init__(self, broker: RunningBroker, storage: str, folder: Path) -> None:
        (folder / "tasks").mkdir()
        (folder / "connections.yaml").write_text(CONNECTIONS)
        (folder / "tasks" / "all.yaml").write_text(TASKS)
        self.folder = folder
        self.settings = {"WEST": broker.connection_string("west"), "EAST": broker.connection_string("east")}
        with EventHubProducerClient.from_connection_string(self.settings["WEST"], eventhub_name="telemetry") as hub:
            for partition in ("0", "1"):
                batch = hub.create_batch(partition_id=partition)
                for _ in range(4):
                    batch.add(EventData(b"event"))
                hub.send_batch(batch)
        self.settings["AzureWebJobsStorage"] = storage
        self.container = ContainerClient.from_connection_string(storage, CONTAINER)
        if self.container.exists():
            for name in self.container.list_blob_names():
                self.container.delete_blob(name)
        else:
            self.container.create_container()

    def write(self, name: str, content: bytes = b"", **metadata: str) -> None:
        self.container.upload_blob(f"{GROUP}/{name}", content, metadata=metadata, overwrite=True)

    def names(self) -> list[str]:
        return [name.removeprefix(f"{GROUP}/") for name in self.container.list_blob_names()]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        result = CliRunner().invoke(
            app, ["checkpoints", *arguments, "--config", str(self.folder)], env={**self.settings, "COLUMNS": "80"}
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess((), result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, str]]:
    with (
        impatient_clients(),
        running_azurite(tmp_path_factory.mktemp("storage")) as storage,
        RunningBroker([WEST, EAST]) as broker,
    ):
        yield broker, storage


@pytest.fixture
def site(services: tuple[RunningBroker, str], tmp_path: Path) -> Iterator[App]:
    broker, storage = services
    broker.reset()
    made = App(broker, storage, tmp_path)
    yield made
    made.container.close()


def test_only_checkpoints_of_an_earlier_hub_are_deleted_and_only_while_the_app_is_stopped(site: App) -> None:
    site.write("checkpoint/0", offset="96", sequencenumber="2", clientidentifier="host")
    site.write("checkpoint/1", offset="4096", sequencenumber="90", clientidentifier="host")
    site.write("1", b'{"Offset": "4096", "SequenceNumber": 88}')
    site.write("checkpoint/7", offset="1", sequencenumber="1")
    site.write("ownership/1", ownerid="host")
    shown = site.run("telemetry")
    assert shown.returncode == 1, shown.stdout + shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0] == "west/telemetry/$Default, read by telemetry"
    assert lines[2].split() == ["0", "2", "0", "3"]
    assert lines[3].split(maxsplit=4) == ["1", "90", "0", "3", "of an earlier hub: behind the last event, 3"]
    assert "of an earlier hub: the hub has no such partition" in lines[4]
    refused = site.run("telemetry", "--reset", "--yes")
    assert (refused.returncode, "the app reads partition 1" in refused.stderr) == (1, True), refused.stderr
    shown = site.run("telemetry", "--reset")
    assert "would delete the checkpoints of partition 1, 7\n" in shown.stdout
    assert shown.stderr == "Nothing was changed: --yes does it.\n"
    assert len(site.names()) == 5
    site.write("ownership/1", ownerid="")
    done = site.run("telemetry", "--reset", "--yes")
    assert (done.returncode, "deleted the checkpoints of partition 1, 7" in done.stdout) == (0, True), done.stderr
    assert site.names() == ["checkpoint/0", "ownership/1"]
    assert site.run("telemetry").returncode == 0
    assert "nothing to reset" in site.run("telemetry", "--reset").stdout
    assert site.run("telemetry", "--reset", "--partition", "0", "--yes").returncode == 0
    assert site.names() == ["ownership/1"]


def test_a_checkpoint_older_than_its_event_belongs_to_an_earlier_hub(
    site: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write("checkpoint/1", offset="64", sequencenumber="2")
    assert site.run("telemetry").returncode == 0
    # As if it had been written an hour ago.
    monkeypatch.setattr("cli.checkpoints.hub_checkpoints._CLOCKS", timedelta(hours=-1))
    shown = site.run("telemetry")
    assert (shown.returncode, "written before the hub had this event" in shown.stdout) == (1, True)


def test_wrong_names_and_a_missing_account_are_reported(site: App) -> None:
    for arguments, text in (
        (("telemetri",), "is not a task that reads an event hub (expected one of telemetry)"),
        (("orders",), "is not a task that reads an event hub"),
        (("telemetry", "--yes"), "--yes: only goes with --reset"),
        (("telemetry", "--reset", "--partition", "3"), "--partition 3: has no checkpoint"),
    ):
        failed = site.run(*arguments)
        assert (failed.returncode, text in failed.stderr) == (1, True), failed.stderr
    site.settings["AzureWebJobsStorage"] = ""
    assert "AzureWebJobsStorage: the app setting is missing" in site.run("telemetry").stderr
