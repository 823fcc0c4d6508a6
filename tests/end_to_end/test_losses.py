"""Losses within minutes: the host settles messages without an invocation; the watch finds these and no others."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from shared.assembly.losses import loss_watches
from shared.assembly.status import StatusReader
from shared.losses.report import Found
from shared.tasks.files import load
from tests.end_to_end.host_process import HostProcess
from tests.site import Site

pytestmark = pytest.mark.long

EVERY = 7
MESSAGES = 60
AFTERWARDS = 10
SCHEDULED = 5
LOST = re.compile(r"(\S+): lost on purpose: sequence number (\d+)")
MINUTE = timedelta(seconds=60)

ENTITIES = """
west:
  queues: {jobs: , singles: {enable_partitioning: true}}
  topics: {orders: {subscriptions: {copy: {requires_session: true}}}, news: [copy]}
  hubs: {readings: {partition_count: 2}}
east: {queues: [all, rejected], hubs: {readings: {partition_count: 2}}}
"""
TASKS = """
task: jobs
source: {connection: west, queue: jobs}
routes: [{target: {connection: east, queue: all}}]
lanes: 2
---
task: singles
source: {connection: west, queue: singles}
routes: [{target: {connection: east, queue: all}}]
dispatch: single
---
task: orders
source: {connection: west, topic: orders, subscription: copy, sessions: true}
routes: [{target: {connection: east, queue: all}}]
---
task: news
source: {connection: west, topic: news, subscription: copy}
routes: [{target: {connection: east, queue: all}}]
---
task: readings
source: {connection: hub-west, hub: readings}
routes: [{target: {connection: hub-east, hub: readings}}]
rejects: {connection: east, queue: rejected}
"""
QUEUES = ("jobs", "singles")
TOPICS = ("orders", "news")


class Drill(NamedTuple):
    """What the host lost on purpose, what the watches found by the minute, and what was at the source all the time."""

    lost: Mapping[str, set[int]]
    lost_first: Mapping[str, set[int]]
    found: list[dict[str, set[int]]]
    held: set[int]
    scheduled: set[int]
    status: dict[str, int]
    attention: str


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory, storage: str) -> Iterator[Drill]:
    with Site(tmp_path_factory.mktemp("losses"), ENTITIES, TASKS, storage=storage) as site:
        yield asyncio.run(run(site))


async def run(site: Site) -> Drill:
    configuration, settings = load(site.folder), site.settings
    opened = loss_watches(configuration, settings)
    watches = opened.watches
    began = datetime.now(UTC)
    for watch in watches:
        assert await watch.look(began - MINUTE) == []
    host = site.host(f"--lose-every={EVERY}", BUSWAY_LOSS_WATCH="off")
    with ServiceBusClient.from_connection_string(settings["WEST"]) as west:
        await asyncio.to_thread(send, west, settings["WEST"], MESSAGES)
        with west.get_queue_receiver("jobs", receive_mode=ServiceBusReceiveMode.PEEK_LOCK) as other, host:
            # Another consumer defers one message, dead-letters one, and keeps the others locked.
            taken = await asyncio.to_thread(other.receive_messages, 6, 5)
            other.defer_message(taken[0])
            other.dead_letter_message(taken[1], reason="ByAnotherConsumer")
            held = {message.sequence_number or 0 for message in taken}
            await asyncio.to_thread(host.wait_until_ready)
            await asyncio.to_thread(host.wait_for, lambda: count(host) >= 5 * MESSAGES - len(held))
            first = losses(host)
            scheduled = await asyncio.to_thread(send, west, settings["WEST"], AFTERWARDS)
            everything = 5 * (MESSAGES + AFTERWARDS) + SCHEDULED - len(held)
            await asyncio.to_thread(host.wait_for, lambda: count(host) >= everything)
            lost = losses(host)
            found: list[dict[str, set[int]]] = []
            for minute in range(5):
                looks = [(watch.task, await watch.look(began + minute * MINUTE)) for watch in watches]
                found.append({task: numbers(each) for task, each in looks})
    await opened.close()
    reader = StatusReader(configuration, settings)
    status = await reader.read()
    await reader.close()
    counts = {task.task: 0 if task.losses is None else task.losses.messages for task in status.tasks}
    return Drill(lost, first, found, held, set(scheduled), counts, status.sentence)


def send(west: ServiceBusClient, west_setting: str, count: int) -> list[int]:
    scheduled: list[int] = []
    for queue in QUEUES:
        with west.get_queue_sender(queue) as sender:
            # A scheduled message has one number while it waits, and another one afterwards.
            due = datetime.now(UTC) + timedelta(milliseconds=300)
            if queue == "jobs" and count == AFTERWARDS:
                # Due before a look can see it, and after the last look.
                scheduled += sender.schedule_messages([ServiceBusMessage(b"soon") for _ in range(SCHEDULED)], due)
                scheduled += sender.schedule_messages([ServiceBusMessage(b"later")], due + timedelta(days=1))
            # Three partitions of the partitioned queue: after each loss, others follow in its partition.
            jobs = [ServiceBusMessage(b"job %d" % each, partition_key=f"key-{each % 3}") for each in range(count)]
            for key in range(3):
                sender.send_messages(jobs[key::3])
    for topic in TOPICS:
        with west.get_topic_sender(topic) as sender:
            sender.send_messages([ServiceBusMessage(b"news", session_id=f"s{each % 5}") for each in range(count)])
    with EventHubProducerClient.from_connection_string(west_setting, eventhub_name="readings") as producer:
        for partition in producer.get_partition_ids():
            producer.send_batch([EventData(b"reading") for _ in range((count + 1) // 2)], partition_id=partition)
    return scheduled


def losses(host: HostProcess) -> dict[str, set[int]]:
    """Return what the host lost by task; of a hub, with the partition in the upper bits."""
    lost: dict[str, set[int]] = {}
    for name, number in LOST.findall(host.log()):
        function, _, partition = name.partition("/")
        lost.setdefault(re.sub(r"-lane-\d+$", "", function), set()).add(int(number) + (int(partition or 0) << 32))
    return lost


def count(host: HostProcess) -> int:
    """Return how many messages the host has lost or passed to a function."""
    batches = re.findall(r": (\d+) messages in \d+ ms: ", host.log())
    return sum(map(int, batches)) + len(LOST.findall(host.log()))


def numbers(found: list[Found]) -> set[int]:
    # The numbers of a partitioned entity name the partition.
    return {
        number if number >> 48 else number + (part << 32)
        for part, loss in found
        for number in range(loss.first, loss.last + 1)
    }


def test_every_loss_is_found_within_three_looks(drill: Drill) -> None:
    assert set(drill.lost_first) == {"jobs", "singles", "orders", "news", "readings"}
    for task, lost in drill.lost_first.items():
        found = set().union(*(each[task] for each in drill.found[:3]))
        # The watch begins with the first number that is received.
        all_lost, begin = drill.lost[task] | drill.held, 0 if task == "readings" else 1
        expected = {each for each in lost if set(range((each >> 32 << 32) + begin, each)) - all_lost}
        assert len(expected) > len(lost) / 2
        assert expected <= found, task


def test_nothing_else_is_found(drill: Drill) -> None:
    assert len(drill.held) == 6
    for task, lost in drill.lost.items():
        found = [number for each in drill.found for number in each[task]]
        assert len(found) == len(set(found)), f"{task}: reported twice"
        # Which of the missing numbers were those of scheduled messages cannot be known, only how many.
        assert set(found) <= lost | (drill.scheduled if task == "jobs" else set()), task


def test_the_status_needs_attention_and_counts_them(drill: Drill) -> None:
    for task, lost in drill.lost_first.items():
        # A scheduled message that was lost leaves both of its numbers.
        assert len(lost) - 2 <= drill.status[task] <= len(drill.lost[task]) + (SCHEDULED if task == "jobs" else 0)
    assert "left its source unrecorded" in drill.attention
