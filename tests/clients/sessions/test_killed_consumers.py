"""Consumers in processes of their own that are killed, kill -9, between two steps; a file tells what they have done."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from busway_clients.sessions import Journal, Settings, State
from tests.clients.applications import ENVIRONMENT
from tests.clients.sessions.consumers import Regions
from tests.clients.sessions.region import new_store
from tests.site import until

NAMES = ["m1", "m2", "m3"]
CONSUMER = textwrap.dedent(
    """
    import os, signal, sys
    from azure.servicebus import ServiceBusClient
    from busway_clients.sessions import JournaledConsumer, Settings, Source, SqliteStore

    place, queue, journal, effects, end = sys.argv[1:]

    def ends(step):
        if step == end:
            os.kill(os.getpid(), signal.SIGKILL)

    class Store(SqliteStore):
        def write(self, partition, writes):
            states = str([dict(write.properties) for write in writes])
            versions = super().write(partition, writes)
            if partition != "journal":
                ends("claimed")
            if '"m2":{"State":"completed"' in states:
                ends("recorded")
            return versions

    def apply(delivery):
        if delivery.message_id == "m2":
            ends("given")
        with open(effects, "a") as file:
            file.write(f"{delivery.message_id} {delivery.may_have_run}\\n")
        if delivery.message_id == "m2":
            ends("applied")

    client = ServiceBusClient.from_connection_string(place, retry_total=0)
    settings = Settings(lease_seconds=1, accept_seconds=5)
    JournaledConsumer(client, Source(queue), Store(journal), apply, site="west", settings=settings, lanes=1).run()
    """
)


@pytest.mark.parametrize(
    ("end", "before", "after", "left_in_west"),
    [
        ("claimed", [], ["m1 True", "m2 False", "m3 False"], NAMES),
        ("given", ["m1 False"], ["m2 True", "m3 False"], NAMES[1:]),
        ("applied", ["m1 False", "m2 False"], ["m2 True", "m3 False"], NAMES[1:]),
        # The write that recorded m2 has begun m3, so that nobody can know whether it was given.
        ("recorded", ["m1 False", "m2 False"], ["m3 True"], NAMES[1:]),
    ],
)
def test_killed_consumer_repeats_no_recorded_event_and_unsure_ones_are_reported(  # noqa: PLR0917 - fixtures
    regions: Regions, tmp_path: Path, end: str, before: Any, after: Any, left_in_west: Any
) -> None:
    name = regions.queue()
    regions.send(NAMES, "s")
    journal, effects = tmp_path / "journal.db", tmp_path / "effects"
    effects.touch()
    command = [
        sys.executable,
        "-c",
        CONSUMER,
        regions.broker.connection_string("west"),
        name,
        str(journal),
        str(effects),
        end,
    ]
    killed = subprocess.run(command, env=ENVIRONMENT, timeout=60, check=False)  # noqa: S603 - our own script
    assert killed.returncode == -signal.SIGKILL
    assert effects.read_text().splitlines() == before
    until(lambda: regions.broker.counts("west")[name].active == len(left_in_west))

    done: list[str] = []

    def apply(delivery: Any) -> None:
        done.append(f"{delivery.message_id} {delivery.may_have_run}")

    store = new_store(journal)
    for site in ("east", "west"):
        with regions.consumer(site, store, apply, lease_seconds=1):
            regions.until_empty(sites=[site])
    assert done == after
    entries = Journal(store, Settings()).record("s", NAMES).entries
    assert {entry.state for entry in entries.values()} == {State.COMPLETED}
