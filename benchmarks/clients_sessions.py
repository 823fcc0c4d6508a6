"""
Messages processed once, by a journal in Azurite: one worker, sessions side by side, an application that does nothing.

The rate is taken from the first message given to the application to the last. Azurite, broker and worker share this
machine; on Azure a transaction takes the time of a round trip, and lanes are what makes up for it.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from benchmarks.measurement import Measurement, report
from benchmarks.stack import BODY_BYTES, FOLDER, READY_SECONDS, SOURCE, running_broker
from busway_clients.sessions import Delivery, Settings, Source
from busway_clients.sessions.aio import JournaledConsumer
from busway_clients.sessions.aio.tables import TableStore
from cli.children import Child

SESSIONS = 8
EACH = 75
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


async def rate(record_every: int, lanes: int) -> float:
    """Return messages a second with so many taken on record together, and so many sessions side by side."""
    settings = Settings(record_every=record_every, batch=20, idle_seconds=0.5, accept_seconds=1)
    times: list[float] = []
    done = asyncio.Event()

    async def apply(_: Delivery) -> None:
        times.append(time.perf_counter())
        if len(times) == SESSIONS * EACH:
            done.set()

    async with (
        running_broker("benchmarks/sessions.json") as stack,
        running_tables() as tables,
        ServiceBusClient.from_connection_string(stack.west, retry_total=0) as client,
    ):
        await _fill(client)
        store = TableStore.from_connection_string(tables, "journal")
        consumer = JournaledConsumer(client, Source(SOURCE), store, apply, site="west", settings=settings, lanes=lanes)
        async with consumer:
            await asyncio.wait(
                [asyncio.ensure_future(done.wait()), asyncio.ensure_future(consumer.join())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        await store.close()
    return (len(times) - 1) / (times[-1] - times[0])


async def _fill(client: ServiceBusClient) -> None:
    async with client.get_queue_sender(SOURCE) as sender:
        for session in range(SESSIONS):
            await sender.send_messages(
                [
                    ServiceBusMessage(b"x" * BODY_BYTES, session_id=f"session-{session}", message_id=str(uuid.uuid4()))
                    for _ in range(EACH)
                ]
            )


async def main() -> None:
    """Measure both ways of recording."""
    each = await rate(1, SESSIONS)
    alone = await rate(1, 1)
    together = await rate(TOGETHER, SESSIONS)
    what = f"{SESSIONS} sessions of {EACH}"
    report(
        [
            Measurement(f"journaled, each message on record by itself, {what}", each, "messages/s", BAR, "at least"),
            Measurement("  one session at a time", alone, "messages/s"),
            Measurement(f"journaled, {TOGETHER} on record together, {what}", together, "messages/s", BAR, "at least"),
        ]
    )


if __name__ == "__main__":
    asyncio.run(main())
