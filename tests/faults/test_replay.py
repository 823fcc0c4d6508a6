"""
A replay in processes that are killed on their way.

It takes a minute: `BUSWAY_SLOW=1 .venv/bin/python -m pytest tests/faults/test_replay.py`.
"""

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from azure.eventhub import EventData

from tests.end_to_end.repair_site import RepairSite

pytestmark = pytest.mark.slow

COUNT, KILLS = 3_000, 5


def test_a_replay_that_is_killed_five_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    chance = random.Random(61)
    with RepairSite(tmp_path) as site:
        for partition in (0, 1):
            # The even ones are in one partition, the odd ones in the other.
            for first in range(partition, COUNT, 1_000):
                events = [_event(n) for n in range(first, min(first + 1_000, COUNT), 2)]
                site.publish_events("west/telemetry", *events, partition_id=str(partition))
        for number in range(KILLS):
            before = len(arrived(site))
            options = ("--resume",) if number else ("--from", "start")
            process = site.start("replay", "telemetry", *options, "--rate", "400", "--yes")
            while process.poll() is None and len(arrived(site)) < before + chance.randrange(1, 250):
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            assert process.returncode == -signal.SIGKILL, out + err
            assert max(Counter(arrived(site)).values(), default=1) == 1
        process = site.start("replay", "telemetry", "--resume", "--yes")
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        found = arrived(site)
    assert sorted(found) == [*range(COUNT)]
    for partition in (0, 1):
        numbers = [each for each in found if each % 2 == partition]
        assert numbers == sorted(numbers)


def _event(number: int) -> EventData:
    event = EventData(b"%d" % number)
    event.message_id = f"e-{number}"
    return event


def arrived(site: RepairSite) -> list[int]:
    """Return the numbers of the events in the target queue, in its order."""
    return [int(message.body or b"-1") for message in site.there("east/events")]
