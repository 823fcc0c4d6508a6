"""
Messages processed once, by a journal in Azurite: one worker, sessions side by side, an application that does nothing.

The rate is taken from the first message given to the application to the last, and so is the processor time of the
worker, this process: it tells what the worker can do where the machine has more to do than this. Azurite, broker and
worker share the machine; on Azure a write takes the time of a round trip, and lanes are what makes up for it.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from benchmarks.measurement import Measurement, report
from benchmarks.stack import BODY_BYTES, FOLDER, READY_SECONDS, SOURCE, running_broker
from busway_clients.aio.sessions import JournaledConsumer
from busway_clients.aio.sessions.tables import TableStore
from busway_clients.sessions import Delivery, Settings, Source
from cli.children import Child

SESSIONS = 8
MESSAGES = 600
BAR = 200
TOGETHER = 10
ACCOUNT = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;"
)


@asynccontextmanager
async def running_tables() -> AsyncIterator[str]:
    """Run Azurite and give the connection string of its table service."""
    program = FOLDER / "node_modules/azurite/dist/src/azurite.js"
    ports = [
        "--blobPort=0",
        "--queuePort=0",
        "--tablePort=0",
        "--inMemoryPersistence",
        "--disableTelemetry",
        "--silent",
    ]
    command = ["node", str(program), *ports, "--skipApiVersionCheck"]
    azurite = await Child.start("azurite", command, FOLDER / "build/bench-azurite.log", FOLDER, {})
    try:
        [line] = await azurite.matches(r"Table service is successfully listening at (\S+)", 1, READY_SECONDS)
        yield f"{ACCOUNT}TableEndpoint={line[1]}/devstoreaccount1;"
    finally:
        await azurite.stop()


class Rate(NamedTuple):
    """What was measured; *processor* is in milliseconds a message."""

    a_second: float
    processor: float


async def rate(record_every: int, sessions: int) -> Rate:
    """Process with so many messages taken on record together, and so many sessions, each in a lane of its own."""
    settings = Settings(record_every=record_every, batch=20, idle_seconds=0.5, accept_seconds=1)
    times: list[float] = []
    processor: list[float] = []
    done = asyncio.Event()

    async def apply(_: Delivery) -> None:
        times.append(time.perf_counter())
        processor.append(time.process_time())
        if len(times) == MESSAGES:
            done.set()

    async with (
        running_broker("benchmarks/sessions.json") as stack,
        running_tables() as tables,
        ServiceBusClient.from_connection_string(stack.west, retry_total=0) as client,
    ):
        await _fill(client, sessions)
        store = TableStore.from_connection_string(tables, "journal")
        consumer = JournaledConsumer(
            client, Source(SOURCE), store, apply, site="west", settings=settings, lanes=sessions
        )
        async with consumer:
            await asyncio.wait(
                [asyncio.ensure_future(done.wait()), asyncio.ensure_future(consumer.join())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        await store.close()
    between = len(times) - 1
    return Rate(between / (times[-1] - times[0]), (processor[-1] - processor[0]) / between * 1000)


async def _fill(client: ServiceBusClient, sessions: int) -> None:
    async with client.get_queue_sender(SOURCE) as sender:
        for number in range(0, MESSAGES, TOGETHER):
            session = f"session-{number * sessions // MESSAGES}"
            await sender.send_messages(
                [
                    ServiceBusMessage(b"x" * BODY_BYTES, session_id=session, message_id=str(uuid.uuid4()))
                    for _ in range(TOGETHER)
                ]
            )


async def main() -> None:
    """Measure both ways of recording."""
    each = await rate(1, SESSIONS)
    alone = await rate(1, 1)
    together = await rate(TOGETHER, SESSIONS)
    what = f"{MESSAGES} in {SESSIONS} sessions"
    report(
        [
            Measurement(
                f"journaled, each message on record by itself, {what}", each.a_second, "messages/s", BAR, "at least"
            ),
            Measurement("  processor time of the worker", each.processor, "ms a message"),
            Measurement("  in a single session", alone.a_second, "messages/s"),
            Measurement(
                f"journaled, {TOGETHER} on record together, {what}", together.a_second, "messages/s", BAR, "at least"
            ),
        ]
    )


if __name__ == "__main__":
    asyncio.run(main())
