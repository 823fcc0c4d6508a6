"""
The local broker alone, in a process of its own, driven by Microsoft's clients.

CPU time is measured, not wall time: with the Python SDK, most of the wall time is the SDK's. The CPU figures with bars
are those of the machine for which the bars were set: `measurement.yardstick` runs beside them. The rate of the client
for JavaScript is wall time, and so needs a quiet machine.
"""

import asyncio
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from benchmarks.measurement import YARDSTICK_MICROSECONDS, Measurement, report, yardstick
from benchmarks.stack import (
    BODY_BYTES,
    FOLDER,
    SOURCE,
    TARGET,
    Stack,
    cpu_seconds,
    fill,
    resident_megabytes,
    running_broker,
)

ROUNDS = 3
SENT = 20_000
RECEIVED = 4_000
COPIED = 20_000
ENTITIES = 250
HELD = 1_000_000
STORED = 100_000
CONNECTIONS = 1_000
BATCH = 200
HELD_BATCH = 1_000
_PROPERTIES: dict[Any, Any] = {"kind": "order", "number": 4711}


async def cost() -> list[Measurement]:
    """Return the broker's CPU time for sending in batches, and for receiving and completing one by one."""
    async with running_broker() as stack:
        work = math.inf
        rounds = []
        with _awake():
            for _ in range(ROUNDS):
                work = min(work, yardstick())
                rounds.append(await asyncio.to_thread(_send_and_receive, stack))
    sending, receiving = (min(costs) for costs in zip(*rounds, strict=True))
    slowness = work / YARDSTICK_MICROSECONDS
    return [
        Measurement("broker: CPU per 1,000 batch-sent messages of 1 KB", sending / slowness, "s", 0.012),
        Measurement("broker: CPU per 1,000 received and completed", receiving / slowness, "s", 0.05),
        Measurement("same as clocked: sent", sending, "s"),
        Measurement("same as clocked: received and completed", receiving, "s"),
        Measurement("this machine: times the processor time of the bars'", slowness, "times"),
    ]


@contextmanager
def _awake() -> Iterator[None]:
    """
    Keep all cores busy at the lowest priority.

    A core of a virtual machine that sleeps between two messages bills its waking to the broker: four times what the
    broker itself takes for a message, measured.
    """
    command = [sys.executable, "-c", "import os\nos.nice(19)\nwhile True:\n    pass"]
    busy = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]  # noqa: S603 - our own command
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def _send_and_receive(stack: Stack) -> tuple[float, float]:
    """Return both costs per 1,000 messages, and leave the queue as it was."""
    with (
        ServiceBusClient.from_connection_string(stack.west) as client,
        client.get_queue_sender(SOURCE) as sender,
        client.get_queue_receiver(SOURCE) as receiver,
    ):
        batch = sender.create_message_batch()
        for number in range(BATCH):
            batch.add_message(
                ServiceBusMessage(b"x" * BODY_BYTES, message_id=str(number), application_properties=_PROPERTIES)
            )
        start = cpu_seconds(stack.broker.pid)
        for _ in range(SENT // BATCH):
            sender.send_messages(batch)
        sent = cpu_seconds(stack.broker.pid)
        left = RECEIVED
        while left:
            messages = receiver.receive_messages(min(100, left), max_wait_time=10)
            for message in messages:
                receiver.complete_message(message)
            left -= len(messages)
        received = cpu_seconds(stack.broker.pid)
    return (sent - start) / SENT * 1000, (received - sent) / RECEIVED * 1000


async def storage() -> list[Measurement]:
    """Return the broker's CPU time with its state in a file, and the time to start with stored messages."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--data", folder, "--no-fsync")
        async with running_broker(options=options) as stack:
            rounds = [await asyncio.to_thread(_send_and_receive, stack) for _ in range(ROUNDS)]
            await asyncio.to_thread(_hold, stack, STORED)
        started = time.monotonic()
        async with running_broker(options=options) as stack:
            seconds = time.monotonic() - started
            size = resident_megabytes(stack.broker)
    sending, receiving = (min(costs) for costs in zip(*rounds, strict=True))
    # The bars are a quarter above what two otherwise idle cores take: 27.5 ms, 185 ms, 2.3 s and 200 MB. A busy machine
    # adds a tenth to the CPU times. The time to start is wall time, of which 1.5 s are CPU time.
    return [
        Measurement("broker --data: CPU per 1,000 batch-sent messages of 1 KB", sending, "s", 0.035),
        Measurement("broker --data: CPU per 1,000 received and completed", receiving, "s", 0.23),
        Measurement(f"broker --data: start with {STORED:,} messages of 100 bytes", seconds, "s", 3),
        Measurement("broker --data: memory after that start", size, "MB", 250),
    ]


async def javascript_rate() -> list[Measurement]:
    """Return the rate of a copy loop with @azure/service-bus: receive 100, send a batch, complete all at once."""
    node = shutil.which("node")
    if node is None:
        sys.exit("node not found; install Node.js")
    async with running_broker() as stack:
        await fill(stack.west, COPIED)
        command = [node, "benchmarks/copy_loop.mjs", stack.west, stack.east, str(COPIED)]
        copying = await asyncio.create_subprocess_exec(*command, cwd=FOLDER, stdout=asyncio.subprocess.PIPE)
        output, _ = await copying.communicate()
    if copying.returncode:
        sys.exit("benchmarks/copy_loop.mjs failed; see above")
    copied = json.loads(output)
    share = copied["clientSeconds"] / copied["seconds"] * 100
    return [
        Measurement("broker: copied by @azure/service-bus", copied["rate"], "messages/s", 9000, "at least"),
        Measurement("same: CPU load of that client", share, "%"),
    ]


async def start() -> list[Measurement]:
    """Return the time from the start of the command to its ready lines, with many and with two entities."""
    queues = [{"Name": f"queue-{number}", "Properties": {}} for number in range(ENTITIES)]
    namespaces = [{"Name": "west", "Queues": queues, "Topics": []}, {"Name": "east", "Queues": [], "Topics": []}]
    config = Path("build") / "bench-entities.json"
    (FOLDER / config).write_text(json.dumps({"UserConfig": {"Namespaces": namespaces}}), encoding="utf-8")
    many = min([await _seconds_to_start(str(config)) for _ in range(ROUNDS)])
    few = min([await _seconds_to_start("benchmarks/broker.json") for _ in range(ROUNDS)])
    return [
        Measurement(f"broker: start with {ENTITIES} entities", many, "s", 0.7),
        Measurement("same with 2 entities", few, "s"),
    ]


async def _seconds_to_start(config: str) -> float:
    started = time.monotonic()
    async with running_broker(config):
        return time.monotonic() - started


async def memory() -> list[Measurement]:
    """Return the memory of a broker with a million messages of 100 bytes."""
    async with running_broker() as stack:
        empty = resident_megabytes(stack.broker)
        await asyncio.to_thread(_hold, stack, HELD)
        full = resident_megabytes(stack.broker)
    return [
        Measurement("broker: memory before the first message", empty, "MB"),
        Measurement(f"broker: memory with {HELD:,} messages of 100 bytes", full, "MB", 600),
    ]


def _hold(stack: Stack, count: int) -> None:
    with ServiceBusClient.from_connection_string(stack.west) as client, client.get_queue_sender(SOURCE) as sender:
        batch = sender.create_message_batch()
        for number in range(HELD_BATCH):
            batch.add_message(ServiceBusMessage(b"x" * 100, message_id=str(number)))
        for _ in range(count // HELD_BATCH):
            sender.send_messages(batch)


async def connections() -> list[Measurement]:
    """Return the number of connections served at the same time; all are open before the first sends."""
    async with running_broker() as stack:
        all_open = asyncio.Barrier(CONNECTIONS)
        started = time.monotonic()
        served = await asyncio.gather(*(_connect(stack, all_open) for _ in range(CONNECTIONS)))
        seconds = time.monotonic() - started
    return [
        Measurement(
            "broker: connections open and sending at once", sum(served), "connections", CONNECTIONS, "at least"
        ),
        Measurement("same: from the first to the last, in one client process", seconds, "s"),
    ]


async def _connect(stack: Stack, all_open: asyncio.Barrier) -> bool:
    """Send a message on a new connection once all are open; return whether it was accepted."""
    async with (
        AsyncServiceBusClient.from_connection_string(stack.east) as client,
        client.get_queue_sender(TARGET) as sender,
    ):
        await all_open.wait()
        await sender.send_messages(ServiceBusMessage(b"x"))
    return True


async def main() -> None:
    """Run all measurements, one after the other."""
    for measure in (cost, storage, javascript_rate, start, memory, connections):
        report(await measure())


if __name__ == "__main__":
    asyncio.run(main())
