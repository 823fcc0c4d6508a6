"""`busway status` of a hundred tasks on this machine: status blobs of the real recorder, no hosts."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker
from cli.main import app
from shared.assembly.status import open_store, recorder_of
from shared.message.arrival import Origin
from shared.protocols import BatchReport
from shared.status.publisher import Identity, Publisher
from shared.tasks.files import load
from tests.azurite import running_azurite
from tests.fakes import clock_at_delivery

# azure-servicebus tests the truth value of XML elements.
pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")

MANY = 100
SITES = ("west", "east")
SECONDS = 30.0
CONNECTIONS = "".join(f"{site}: {{kind: service-bus, setting: {site.upper()}}}\n" for site in SITES)


def task(number: int) -> str:
    entity = "topic: events" if number == 0 else f"queue: orders-{number}"
    return f"""
task: orders-of-the-{number:03}th-factory-west-to-east
source: {{connection: west, queue: orders-{number}}}
routes: [{{target: {{connection: east, {entity}}}}}]
heartbeat: {{every: PT1M}}
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("many")
    (folder / "tasks").mkdir()
    (folder / "connections.yaml").write_text(CONNECTIONS)
    (folder / "tasks" / "all.yaml").write_text("---".join(map(task, range(MANY))))
    (folder / "journal.yaml").write_text("blob: {setting: AzureWebJobsStorage, container: journal}\n")
    queues = tuple(QueueConfig(name=f"orders-{number}") for number in range(MANY))
    topics = (TopicConfig(name="events", subscriptions=(SubscriptionConfig(name="app"),)),)
    sites = [NamespaceConfig(name=site, queues=queues, topics=topics) for site in SITES]
    with running_azurite(folder) as storage, RunningBroker(sites) as broker, RunningAdmin(broker) as admin:
        found = {"AzureWebJobsStorage": storage, "BUSWAY_CONFIG": str(folder)}
        for site in SITES:
            found[site.upper()] = broker.connection_string(site) + ";UseDevelopmentEmulator=true"
            found[f"{site.upper()}__administration"] = admin.address(site)
        asyncio.run(publish(folder, found))
        yield found


async def publish(folder: Path, settings: dict[str, str]) -> None:
    """Publish what one instance reports: a batch and a heartbeat of every task."""
    configuration = load(folder)
    recorders = [recorder_of(each) for each in configuration.tasks]
    sent = round(time.time() * 1000)
    for number, recorder in enumerate(recorders):
        recorder.batch(BatchReport(Origin("west", "orders"), 5, (), clock_at_delivery().now(), 0.01, 0, None))
        recorder.heartbeat_sent(0, sent, None)
        recorder.heartbeat(0, sent, 100 + number, None)
    store = open_store(configuration, settings)
    await Publisher(lambda: store, recorders, Identity("one")).publish()
    await store.close()


def test_a_hundred_tasks_fit_80_columns_and_are_read_in_seconds(settings: dict[str, str]) -> None:
    began = time.monotonic()
    result = CliRunner(env=settings).invoke(app, ["status", "--all", "--config", settings["BUSWAY_CONFIG"]])
    assert time.monotonic() - began < SECONDS
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0]) == (0, "100 tasks: 100 running; nothing waits.")
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("orders-of-the-") for line in lines) >= MANY
    # The dead letters of a topic are counted, too.
    assert "+" not in result.stdout


def test_without_all_their_heartbeats_are_a_summary(settings: dict[str, str]) -> None:
    result = CliRunner(env=settings).invoke(app, ["status", "--config", settings["BUSWAY_CONFIG"]])
    text = " ".join(result.stdout.split())
    assert "last heartbeats of 100 routes: 100 ms to 199 ms (orders-of-the-099th-factory-west-to-east" in text
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_document_has_every_task(settings: dict[str, str]) -> None:
    result = CliRunner(env=settings).invoke(app, ["status", "--json", "--config", settings["BUSWAY_CONFIG"]])
    tasks = json.loads(result.stdout)["tasks"]
    assert len(tasks) == MANY
    assert {each["backlog"] for each in tasks} == {0}
    assert {each["messages"] for task in tasks for each in task["dead_letters"]} == {0}
