"""A batch of small messages that become large does not take the memory of the worker."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
MIB = 2**20

# Prints the largest memory of the process before and after the batch, in bytes, and how many messages were sent.
PROGRAM = """
import asyncio, gzip, resource
from shared.tasks.steps import STEPS
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.ttl import Keep
from tests.fakes import JournalInMemory, clock_at_delivery, sleep_by, task_facts
from tests.messages import ORIGIN, delivered

sent = []

class Output:
    async def send(self, entity, messages, *, timeout_seconds):
        sent.extend(len(each.content) for each in messages)
        return [None] * len(messages)

class Journal(JournalInMemory):
    async def _keep(self, records):
        pass

body = gzip.compress(bytes(16 * 2**20 - 1000))
batch = [delivered(number, body=body) for number in range(30)]
editors = [STEPS["decompress"].model_validate({"decompress": {"encoding": "gzip"}}).editor(task_facts())]
task = Task("copy", ORIGIN, editors, Router([Route(Target(Output(), "east", "orders"))]), None, Keep(), None)
clock = clock_at_delivery()
line = Pipeline(task, Journal(), clock, sleep_by(clock))
asyncio.run(line.run([delivered(1000, body=body)]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
sent.clear()
asyncio.run(line.run(batch))
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, len(sent), sum(sent))
"""


def peak() -> tuple[int, int, int]:
    """Return the memory that the batch takes at most, the number of messages sent, and their bytes."""
    run = subprocess.run(  # noqa: S603 - a program of this test
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True
    )
    before, after, count, size = map(int, run.stdout.split())
    return after - before, count, size


def test_thirty_bodies_of_16_mib_take_the_memory_of_a_few() -> None:
    memory, count, size = peak()
    assert count == 30
    assert size > 30 * 15 * MIB
    assert memory < 250 * MIB
