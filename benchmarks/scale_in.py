"""
Locked messages that an instance leaves behind when it is scaled in, by `prefetchCount`.

The app copies a full queue with one lane, 5 ms from the source and 80 ms from the target. In the middle it is stopped
in order, as the platform does, or killed. Right afterwards another receiver takes all messages that it can get; the
others wait until their lock ends, here for a minute. Beside that: the messages/s until the end.

    python -m benchmarks.scale_in
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from typing import Literal

from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient

from benchmarks.measurement import Measurement, report
from benchmarks.ocean import NEAR_MS, Case, distant, write_app
from benchmarks.stack import FOLDER, READY_SECONDS, SOURCE, fill, running_broker, span_seconds, worker_of
from cli.children import Child

MESSAGES = 6_000
END_AFTER = 2_000
FAR_MS = 80.0
PREFETCH_COUNTS = (0, 250, 1000)
_SETTING = "AzureFunctionsJobHost__extensions__serviceBus__prefetchCount"
_PEEKED = 250
_WAIT_SECONDS = 2


async def measured(prefetch: int, end: Literal["stopped", "killed"]) -> Measurement:
    """Return the number of messages that are locked after the app has ended."""
    folder = FOLDER / "build/bench-scale-in"
    write_app(folder, Case(FAR_MS, 1, has_journal=False))
    async with AsyncExitStack() as ends:
        stack = await ends.enter_async_context(running_broker())
        await fill(stack.west, MESSAGES)
        settings = {
            "WEST": await ends.enter_async_context(distant(stack.west, NEAR_MS / 2)),
            "EAST": await ends.enter_async_context(distant(stack.east, FAR_MS / 2)),
            "PYTHONPATH": str(FOLDER),
            _SETTING: str(prefetch),
        }
        command = [sys.executable, "-m", "cli", "host"]
        host = await Child.start("host", command, FOLDER / "build/bench-scale-in.log", folder, settings)
        ends.push_async_callback(host.stop)
        await host.matches(r"^ready", 1, READY_SECONDS)
        rate = END_AFTER / await span_seconds(stack.east, END_AFTER)
        if end == "killed":
            for process in (worker_of(host), host.pid):
                os.kill(process, signal.SIGKILL)
        await host.stop()
        locked = await _locked(stack.west)
    return Measurement(f"prefetchCount {prefetch}, {end}", locked, "locked", beside={"messages/s before": rate})


async def _locked(connection_string: str) -> int:
    """Return how many messages of the source are there and cannot be received."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        there = 0
        async with client.get_queue_receiver(SOURCE) as receiver:
            while peeked := await receiver.peek_messages(_PEEKED):
                there += len(peeked)
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with client.get_queue_receiver(SOURCE, receive_mode=mode) as receiver:
            while taken := await receiver.receive_messages(_PEEKED, max_wait_time=_WAIT_SECONDS):
                there -= len(taken)
    return there


async def main() -> None:
    """Measure each number both ways."""
    for prefetch in PREFETCH_COUNTS:
        report([await measured(prefetch, "stopped"), await measured(prefetch, "killed")])


if __name__ == "__main__":
    asyncio.run(main())
