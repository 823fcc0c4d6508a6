"""
A replay in processes that are killed on their way.

It takes a minute: `BUSWAY_SLOW=1 .venv/bin/python -m pytest tests/faults/test_replay.py`.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubProducerClient

from busway_broker.core.namespace import Namespace
from busway_broker.thread import RunningBroker
from shared.message.arrival import Origin
from shared.message.message import Message
from tests.end_to_end.busway_process import PACKAGES
from tests.end_to_end.repair_site import CONNECTIONS, EAST, TASKS, WEST

pytestmark = pytest.mark.slow

COUNT, KILLS = 3_000, 5


def test_a_replay_that_is_killed_five_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    (tmp_path / "tasks" / "all.yaml").write_text(TASKS)
    chance = random.Random(61)
    with RunningBroker([WEST, EAST]) as broker:
        send_events(broker)
        for number in range(KILLS):
            before = len(arrived(broker))
            options = ("--resume",) if number else ("--from", "start")
            process = start(broker, tmp_path, *options, "--rate", "400")
            while process.poll() is None and len(arrived(broker)) < before + chance.randrange(1, 250):
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            assert process.returncode == -signal.SIGKILL, out + err
            assert max(Counter(arrived(broker)).values(), default=1) == 1
        process = start(broker, tmp_path, "--resume")
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        found = arrived(broker)
    assert sorted(found) == [*range(COUNT)]
    for partition in (0, 1):
        numbers = [each for each in found if each % 2 == partition]
        assert numbers == sorted(numbers)


def send_events(broker: RunningBroker) -> None:
    """Send events, the even ones to one partition, the odd ones to the other."""
    address = broker.connection_string("west")
    with EventHubProducerClient.from_connection_string(address, eventhub_name="telemetry") as producer:
        for partition in (0, 1):
            batch = producer.create_batch(partition_id=str(partition))
            for n in range(partition, COUNT, 2):
                event = EventData(b"%d" % n)
                event.message_id = f"e-{n}"
                batch.add(event)
            producer.send_batch(batch)


def start(broker: RunningBroker, folder: Path, *options: str) -> "subprocess.Popen[str]":
    settings = {name.upper(): broker.connection_string(name) for name in ("west", "east")}
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "cli", "replay", "telemetry", "--config", str(folder), *options, "--yes"],
        env={**os.environ, **settings, "PYTHONPATH": PACKAGES},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def arrived(broker: RunningBroker) -> list[int]:
    """Return the numbers of the events in the target queue, in its order."""

    def peek(namespace: Namespace) -> list[bytes]:
        return [each.encode() for each in namespace.queue("events").backlog.store.peek(0)]

    bodies = [Message.received(each, Origin("east", "events")).body for each in broker.inspect("east", peek)]
    return [int(each or b"-1") for each in bodies]
