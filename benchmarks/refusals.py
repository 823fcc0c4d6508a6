"""
What the refusals of Service Bus cost the output, with a round trip of 80 ms between it and the local broker.

    python -m benchmarks.refusals   # a JSON line for each row

- A target that is partitioned and detects duplicates takes no batches: messages per second.
- One message that the service cannot store among 249 good ones: seconds until these are there.
- A night without messages, after which the service has ended link and connection: seconds until the first is accepted.
  The broker's clock makes the night; how long the machine waits for it does not count.
"""

import asyncio
import datetime as dt
import time

from benchmarks.delaying_proxy import serve
from benchmarks.measurement import Measurement, report
from benchmarks.stack import free_port
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.amqp.values import string
from shared.clock import ManualClock
from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.output import ServiceBusOutput
from shared.protocols import Outgoing
from tests.messages import delivered

ROUND_TRIP_MS = 80.0
BATCH = 250
_SECONDS = 120.0
_NIGHT = (601.0, 301.0)
_QUEUES = (
    QueueConfig(name="plain"),
    QueueConfig(name="parts", enable_partitioning=True),
    QueueConfig(name="unique", enable_partitioning=True, requires_duplicate_detection=True),
)


def outgoing(number: int, key: str | None = None, property_size: int = 10) -> Outgoing:
    """Return a message of 1 KB."""
    named = {"note": string("x" * property_size)}
    content = delivered(None, message_id=f"m-{number}", session_id=key, body=b"x" * 1024, named=named)
    return Outgoing(content, f"m-{number}", key, None)


async def seconds_of(output: ServiceBusOutput, queue: str, messages: list[Outgoing]) -> tuple[float, int]:
    """Return how long a call takes, and how many of its messages are accepted."""
    started = time.perf_counter()
    answers = await output.send(queue, messages, timeout_seconds=_SECONDS)
    return time.perf_counter() - started, sum(answer is None for answer in answers)


async def measure(broker: RunningBroker, port: int) -> list[Measurement]:
    """Return all rows."""
    setting = broker.connection_string("n").replace(f"localhost:{broker.port('n')}", f"localhost:{port}")
    output = ServiceBusOutput("n", lambda: service_bus_client("N", {"N": setting}))
    rows = []
    numbers = iter(range(1_000_000))
    try:
        for queue in ("plain", "parts", "unique"):
            for keys in (0, 25, BATCH):
                first, *calls = [
                    [outgoing(n := next(numbers), f"k{n % keys}" if keys else None) for _ in range(BATCH)]
                    for _ in range(5)
                ]
                await seconds_of(output, queue, first)  # opens the link, and learns what the queue takes
                found = [await seconds_of(output, queue, call) for call in calls]
                rate = sum(count for _, count in found) / sum(seconds for seconds, _ in found)
                rows.append(Measurement(f"{queue}, {keys or 'no'} keys in {BATCH} messages", rate, "messages/s"))
        call = [outgoing(next(numbers), property_size=40_000 if n == BATCH // 2 else 10) for n in range(BATCH)]
        seconds, accepted = await seconds_of(output, "plain", call)
        rows.append(Measurement(f"a property of 40 KB: {accepted} others", seconds, "s"))
        warm, _ = await seconds_of(output, "plain", [outgoing(next(numbers))])
        for passed in _NIGHT:
            await asyncio.to_thread(broker.advance, passed)
            await asyncio.sleep(1)
        cold, accepted = await seconds_of(output, "plain", [outgoing(next(numbers))])
        rows.append(Measurement("a message on a link in use", warm, "s"))
        rows.append(Measurement(f"after a night of silence: {accepted} message", cold, "s"))
    finally:
        await output.close()
    return rows


async def main() -> None:
    """Print all rows."""
    clock = ManualClock(dt.datetime.now(dt.UTC))
    with RunningBroker([NamespaceConfig(name="n", queues=_QUEUES)], clock) as broker:
        port = free_port()
        proxy = asyncio.create_task(serve(port, broker.port("n"), ROUND_TRIP_MS / 2000))
        await asyncio.sleep(0.2)
        report(await measure(broker, port))
        proxy.cancel()


if __name__ == "__main__":
    asyncio.run(main())
