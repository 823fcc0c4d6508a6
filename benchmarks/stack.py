"""Broker and host as processes, and the plain SDK to fill and empty queues."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageSizeExceededError

from cli.children import Child

FOLDER = Path(__file__).parent.parent.resolve()
SOURCE = "source"
TARGET = "target"
READY_SECONDS = 30.0
BODY_BYTES = 1024


class Stack(NamedTuple):
    """A running broker, and the connection strings of its two namespaces."""

    broker: Child
    west: str
    east: str


@asynccontextmanager
async def running_broker(config: str = "benchmarks/broker.json", options: Sequence[str] = ()) -> AsyncIterator[Stack]:
    """Run a broker with the two namespaces of *config*, by default those with the queues source and target."""
    (FOLDER / "build").mkdir(exist_ok=True)
    ports = ["--port", str(free_port()), "--admin-port", "0"]
    command = [sys.executable, "-m", "cli", "broker", "--config", config, *ports, *options]
    broker = await Child.start("broker", command, FOLDER / "build" / "bench-broker.log", FOLDER, {})
    try:
        west, east = [match[1] for match in await broker.matches(r"^ready \S+ (\S+)", 2, READY_SECONDS)]
        yield Stack(broker, west, east)
    finally:
        await broker.stop()


@asynccontextmanager
async def running_host(stack: Stack) -> AsyncIterator[Child]:
    """Run the function app with the task of benchmarks/config, which copies from west to east."""
    settings = {"WEST": stack.west, "EAST": stack.east, "BUSWAY_CONFIG": "benchmarks/config"}
    command = [sys.executable, "-m", "cli", "host"]
    host = await Child.start("host", command, FOLDER / "build" / "bench-host.log", FOLDER, settings)
    try:
        await host.matches(r"^ready", 1, READY_SECONDS)
        yield host
    finally:
        await host.stop()


async def fill(connection_string: str, count: int, body_bytes: int = BODY_BYTES) -> None:
    """Send *count* messages with five properties to the source queue."""
    properties: dict[Any, Any] = {f"property-{number}": f"value {number}" for number in range(5)}
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(SOURCE) as to,
    ):
        for start in range(0, count, 200):
            batch = await to.create_message_batch()
            for number in range(start, min(start + 200, count)):
                message = ServiceBusMessage(
                    b"x" * body_bytes, message_id=str(number), application_properties=properties
                )
                try:
                    batch.add_message(message)
                except MessageSizeExceededError:
                    await to.send_messages(batch)
                    batch = await to.create_message_batch()
                    batch.add_message(message)
            await to.send_messages(batch)


async def empty(connection_string: str, count: int) -> None:
    """Receive *count* messages from the target queue; TimeoutError after a minute without any."""
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(TARGET, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver,
    ):
        while count > 0:
            taken = await receiver.receive_messages(min(count, 500), max_wait_time=60)
            if not taken:
                raise TimeoutError(f"received no message from the target for a minute; {count} are missing")
            count -= len(taken)


async def span_seconds(connection_string: str, count: int) -> float:
    """Return the time between the first and the last of *count* messages to reach the target queue."""
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(TARGET) as receiver,
    ):
        deadline = asyncio.get_running_loop().time() + 300
        first = await receiver.peek_messages(1, sequence_number=1)
        while not first:
            await asyncio.sleep(0.05)
            first = await receiver.peek_messages(1, sequence_number=1)
        number = first[0].sequence_number or 0
        while asyncio.get_running_loop().time() < deadline:
            last = await receiver.peek_messages(1, sequence_number=number + count - 1)
            if last and last[0].enqueued_time_utc and first[0].enqueued_time_utc:
                return (last[0].enqueued_time_utc - first[0].enqueued_time_utc).total_seconds()
            await asyncio.sleep(0.2)
    raise TimeoutError(f"fewer than {count} messages reached the target within five minutes")


def resident_megabytes(child: Child) -> float:
    """Return the resident memory of a child process."""
    for line in Path(f"/proc/{child.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{child.pid}/status has no VmRSS")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of the threads of a process, user and system."""
    # In nanoseconds; /proc/PID/stat counts in hundredths of a second.
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9


def worker_of(host: Child) -> int:
    """Return the process id of the worker that a host has started."""
    (worker,) = Path(f"/proc/{host.pid}/task/{host.pid}/children").read_text(encoding="ascii").split()
    return int(worker)


def free_port() -> int:
    """Return a free port whose successor is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
