"""
10,000 messages from queue to queue over the local broker: Busway in its host against a hand-written loop.

The rate is measured between the first and the last enqueued time in the target, so start-up does not count. There is no
round trip to speak of: broker and clients are on one machine.
"""

import asyncio

from azure.servicebus.aio import ServiceBusClient

from benchmarks.measurement import Measurement, report
from benchmarks.stack import SOURCE, TARGET, Stack, empty, fill, running_broker, running_host, span_seconds

COUNT = 10_000
BATCH = 100


async def busway_rate() -> float:
    """Return messages a second through the host."""
    async with running_broker() as stack:
        await fill(stack.west, COUNT)
        async with running_host(stack):
            return COUNT / await span_seconds(stack.east, COUNT)


async def loop_rate(*, settles_together: bool) -> float:
    """Return messages a second through the loop: receive 100, send them as a batch, complete each."""
    async with running_broker() as stack:
        await fill(stack.west, COUNT)
        copying = asyncio.create_task(_copy(stack, settles_together=settles_together))
        rate = COUNT / await span_seconds(stack.east, COUNT)
        await copying
        await empty(stack.east, COUNT)
        return rate


async def _copy(stack: Stack, *, settles_together: bool) -> None:
    left = COUNT
    async with (
        ServiceBusClient.from_connection_string(stack.west) as west,
        ServiceBusClient.from_connection_string(stack.east) as east,
        west.get_queue_receiver(SOURCE) as receiver,
        east.get_queue_sender(TARGET) as sender,
    ):
        while left:
            messages = await receiver.receive_messages(min(BATCH, left))
            await sender.send_messages(list(messages))
            if settles_together:
                await asyncio.gather(*(receiver.complete_message(message) for message in messages))
            else:
                for message in messages:
                    await receiver.complete_message(message)
            left -= len(messages)


async def main() -> None:
    """Measure Busway and both ways to settle; the faster loop is the bar."""
    busway = await busway_rate()
    serial = await loop_rate(settles_together=False)
    together = await loop_rate(settles_together=True)
    best = max(serial, together)
    report(
        [
            Measurement(f"{COUNT:,} messages queue to queue, busway host", busway, "messages/s"),
            Measurement("same, azure-servicebus.aio loop, completes in turn", serial, "messages/s"),
            Measurement("same, azure-servicebus.aio loop, completes together", together, "messages/s"),
            Measurement("queue to queue: busway over the faster loop", busway / best, "times", 1.0, "at least"),
        ]
    )


if __name__ == "__main__":
    asyncio.run(main())
