"""
The output for storage queues beside a hand-written loop with the same SDK: messages per second, in alternating runs.

    python -m benchmarks.storage_queues
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from azure.storage.queue.aio import QueueServiceClient

from shared.azure.senders.storage_queue import StorageQueueOutput
from shared.azure.storage_queues import queue_service_by
from shared.protocols import Outgoing
from tests.azurite import running_queues

_QUEUE = "orders"
_MESSAGES = 1000
_BATCH = 250
_SIZE = 1024


async def _loop(service: QueueServiceClient, texts: list[str]) -> None:
    """Send one message after the other, as most applications do."""
    queue = service.get_queue_client(_QUEUE)
    for text in texts:
        await queue.send_message(text, time_to_live=-1)


async def _gathered(service: QueueServiceClient, texts: list[str]) -> None:
    """Send 64 at a time."""
    queue, room = service.get_queue_client(_QUEUE), asyncio.Semaphore(64)

    async def one(text: str) -> None:
        async with room:
            await queue.send_message(text, time_to_live=-1)

    await asyncio.gather(*map(one, texts))


async def _output(output: StorageQueueOutput, texts: list[str]) -> None:
    messages = [Outgoing(text.encode(), None, None, None) for text in texts]
    for start in range(0, len(messages), _BATCH):
        answers = await output.send(_QUEUE, messages[start : start + _BATCH], timeout_seconds=60)
        if any(answer is not None for answer in answers):
            raise RuntimeError("a message was not accepted")


async def _measure(account: str, rounds: int) -> None:
    service, output = queue_service_by(account), StorageQueueOutput("store", lambda: queue_service_by(account))
    await service.create_queue(_QUEUE)
    texts = ["x" * _SIZE] * _MESSAGES
    ways: dict[str, Callable[[], Awaitable[None]]] = {
        "a loop, one after the other": lambda: _loop(service, texts),
        "a loop, 64 at a time": lambda: _gathered(service, texts),
        "Busway's output": lambda: _output(output, texts),
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started, used = time.perf_counter(), time.process_time()
            await way()
            wall[name].append(_MESSAGES / (time.perf_counter() - started))
            cpu[name].append((time.process_time() - used) / _MESSAGES * 1000)
            await service.get_queue_client(_QUEUE).clear_messages()
    for name in ways:
        rates = wall[name]
        low, middle, high = min(rates), statistics.median(rates), max(rates)
        own = statistics.median(cpu[name])
        print(f"{name:30} {middle:6,.0f} messages/s ({low:,.0f} to {high:,.0f}), {own:.2f} ms of CPU each")
    await output.close()
    await service.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, running_queues(Path(folder)) as account:
        asyncio.run(_measure(account, rounds))


if __name__ == "__main__":
    main()
