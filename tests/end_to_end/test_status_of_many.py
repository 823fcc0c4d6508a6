"""`busway status` of a hundred tasks on this machine: status blobs of the real recorder, no hosts."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.assembly.status import open_store, recorder_of
from shared.message.arrival import Origin
from shared.protocols import BatchReport
from shared.status.publisher import Identity, Publisher
from shared.tasks.files import load
from tests.fakes import clock_at_delivery
from tests.site import Site

# azure-servicebus tests the truth value of XML elements.
pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")

MANY = 100
SECONDS = 30.0
QUEUES = ", ".join(f"orders-{number}" for number in range(MANY))
ENTITIES = "".join(f"{site}: {{queues: [{QUEUES}], topics: {{events: [app]}}}}\n" for site in ("west", "east"))


def task(number: int) -> str:
    entity = "topic: events" if number == 0 else f"queue: orders-{number}"
    return f"""
task: orders-of-the-{number:03}th-factory-west-to-east
source: {{connection: west, queue: orders-{number}}}
routes: [{{target: {{connection: east, {entity}}}}}]
heartbeat: {{every: PT1M}}
"""


@pytest.fixture
def site(tmp_path: Path, storage: str) -> Iterator[Site]:
    tasks = "---".join(map(task, range(MANY)))
    with Site(tmp_path, ENTITIES, tasks, storage=storage, has_admin=True) as site:
        asyncio.run(publish(site.folder, site.settings))
        yield site


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


def test_a_hundred_tasks_fit_80_columns_and_are_read_in_seconds(site: Site) -> None:
    began = time.monotonic()
    result = site.run("status", "--all")
    assert time.monotonic() - began < SECONDS
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0]) == (0, "100 tasks: 100 running; nothing waits.")
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("orders-of-the-") for line in lines) >= MANY
    # The dead letters of a topic are counted, too.
    assert "+" not in result.stdout
    shown = site.run("status").stdout
    heartbeats = "last heartbeats of 100 routes: 100 ms to 199 ms (orders-of-the-099th-factory-west-to-east"
    assert heartbeats in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80
