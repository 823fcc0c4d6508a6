"""
What busway_clients adds to the SDK: sends against plain sends of the same run, and de-duplication without a wire.

Ratios are of medians of sends that take turns in random order, so that a busy machine slows all alike.
"""

import asyncio
import random
import statistics
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSender
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.aio import ServiceBusSender as AsyncServiceBusSender

import busway_clients
import busway_clients.aio
from benchmarks.measurement import Measurement, report
from benchmarks.stack import BODY_BYTES, SOURCE, TARGET, Stack, running_broker
from benchmarks.worker_cost import message
from busway_clients import MemoryStore
from busway_clients.receivers.deduplication import Deduplication
from busway_clients.steps import run

SENDS = 400
WARM_UP = 50
MESSAGES = 5_000
ROUNDS = 5
ACTIVE_BAR, PASSIVE_BAR, DEDUPLICATION_BAR = 1.15, 1.05, 10.0
_BODY = b"x" * BODY_BYTES


def sync_ratios(stack: Stack) -> list[Measurement]:
    """Return what the synchronous senders cost, as ratios."""
    with (
        ServiceBusClient.from_connection_string(stack.west) as west,
        ServiceBusClient.from_connection_string(stack.east) as east,
        west.get_queue_sender(SOURCE) as plain_west,
        east.get_queue_sender(TARGET) as plain_east,
        west.get_queue_sender(SOURCE) as our_west,
        east.get_queue_sender(TARGET) as our_east,
        ThreadPoolExecutor(2) as threads,
        busway_clients.ActiveSender({"west": our_west, "east": our_east}) as active,
        busway_clients.PassiveSender({"west": our_west, "east": our_east}) as passive,
    ):

        def plain(sender: ServiceBusSender) -> float:
            return _timed(lambda: sender.send_messages(ServiceBusMessage(_BODY)))

        def slower_of_two() -> float:
            return _timed(lambda: [*threads.map(plain, (plain_west, plain_east))])

        ways = (
            slower_of_two,
            lambda: _timed(lambda: active.send(ServiceBusMessage(_BODY))),
            lambda: plain(plain_west),
            lambda: _timed(lambda: passive.send(ServiceBusMessage(_BODY))),
        )
        samples = []
        for _ in range(WARM_UP + SENDS):
            taken = {index: ways[index]() for index in _in_some_order(len(ways))}
            samples.append([taken[index] for index in range(len(ways))])
    return _ratios("", samples[WARM_UP:])


async def async_ratios(stack: Stack) -> list[Measurement]:
    """Return what the asynchronous senders cost, as ratios."""
    async with (
        AsyncServiceBusClient.from_connection_string(stack.west) as west,
        AsyncServiceBusClient.from_connection_string(stack.east) as east,
        west.get_queue_sender(SOURCE) as plain_west,
        east.get_queue_sender(TARGET) as plain_east,
        west.get_queue_sender(SOURCE) as our_west,
        east.get_queue_sender(TARGET) as our_east,
    ):
        active = busway_clients.aio.ActiveSender({"west": our_west, "east": our_east})
        passive = busway_clients.aio.PassiveSender({"west": our_west, "east": our_east})

        async def plain(sender: AsyncServiceBusSender) -> float:
            return await _timed_async(lambda: sender.send_messages(ServiceBusMessage(_BODY)))

        async def both(first: Coroutine[Any, Any, float], second: Coroutine[Any, Any, float]) -> None:
            await asyncio.gather(first, second)

        ways = (
            lambda: _timed_async(lambda: both(plain(plain_west), plain(plain_east))),
            lambda: _timed_async(lambda: active.send(ServiceBusMessage(_BODY))),
            lambda: plain(plain_west),
            lambda: _timed_async(lambda: passive.send(ServiceBusMessage(_BODY))),
        )
        samples = []
        for _ in range(WARM_UP + SENDS):
            taken = {index: await ways[index]() for index in _in_some_order(len(ways))}
            samples.append([taken[index] for index in range(len(ways))])
    return _ratios(", aio", samples[WARM_UP:])


def deduplication_cost() -> Measurement:
    """Return the processor time of a message that has two copies, per copy; nothing goes over a wire."""
    messages = [each for _ in range(MESSAGES // 2) for each in _copies(str(uuid.uuid4()))]
    best = float("inf")
    for _ in range(ROUNDS):
        deduplication = Deduplication(MemoryStore())
        processed: list[ServiceBusReceivedMessage] = []
        started = time.process_time_ns()
        for each in messages:
            run(deduplication.handle(_NoWire(), each, processed.append))
        best = min(best, (time.process_time_ns() - started) / len(messages) / 1000)
        if len(processed) != MESSAGES // 2:
            raise SystemExit(f"{len(processed)} of {MESSAGES // 2} messages were processed")
    return Measurement("de-duplication in memory, per message", best, "µs", DEDUPLICATION_BAR)


class _NoWire:
    """A receiver that settles nothing."""

    session = None

    def receive_messages(self, max_message_count: int | None = 1, max_wait_time: float | None = None) -> None:
        """Nothing comes."""

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Nothing to be done."""

    abandon_message = renew_message_lock = complete_message

    def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Nothing to be done."""


def _copies(message_id: str) -> tuple[ServiceBusReceivedMessage, ServiceBusReceivedMessage]:
    encoded = message(0, round(datetime.now(UTC).timestamp() * 1000), 5)
    first, second = (ServiceBusReceivedMessage.from_bytes(encoded) for _ in range(2))
    for each in (first, second):
        each.message_id = message_id
    return first, second


def _in_some_order(count: int) -> list[int]:
    """Return *count* numbers shuffled: what a send leaves for the broker to do slows down the one behind it."""
    return random.sample(range(count), count)


def _ratios(kind: str, samples: list[list[float]]) -> list[Measurement]:
    slower, active, plain, passive = (statistics.median(column) for column in zip(*samples, strict=True))
    return [
        Measurement(f"active send / slower of two plain ones{kind}", active / slower, "", ACTIVE_BAR),
        Measurement(f"passive send / plain send{kind}", passive / plain, "", PASSIVE_BAR),
        Measurement(f"a plain send{kind}", plain * 1000, "ms"),
    ]


def _timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


async def _timed_async(act: Callable[[], Coroutine[Any, Any, object]]) -> float:
    started = time.perf_counter()
    await act()
    return time.perf_counter() - started


async def main() -> None:
    """Measure and report."""
    measurements = [deduplication_cost()]
    async with running_broker() as stack:
        measurements += await asyncio.to_thread(sync_ratios, stack)
        measurements += await async_ratios(stack)
    report(measurements)


if __name__ == "__main__":
    asyncio.run(main())
