"""`busway forward` when it is killed and when its group changes: nothing is lost, and each key keeps its order."""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cli.kafka_consumer import GroupReader
from cli.local_services.kafka import KafkaCluster
from shared.errors import TargetUnavailable
from shared.journal.record import Role
from shared.journal.task import TaskJournal
from tests.forwarding import TargetThatFailsFirst, by_key, fill, forwarding, keyed, new_topic, run
from tests.memory_sink import MemorySink

pytestmark = pytest.mark.slow

DOWN = TargetUnavailable("down")
_SECONDS = 60


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaCluster]:
    with KafkaCluster() as running:
        monkeypatch.setenv("STREAM", f"kafka://{running.servers}")
        yield running


def test_a_run_goes_on_where_the_one_before_has_ended(cluster: KafkaCluster) -> None:
    url, topic, target = f"kafka://{cluster.servers}", new_topic(cluster), TargetThatFailsFirst()

    async def scenario() -> None:
        await fill(url, topic, keyed(20))
        await run(forwarding(topic, target))
        await fill(url, topic, keyed(40)[20:])
        await run(forwarding(topic, target))

    asyncio.run(scenario())
    assert target.bodies == by_key(40)


def test_a_batch_that_was_not_committed_is_sent_again_and_nothing_is_lost(cluster: KafkaCluster) -> None:
    url, topic = f"kafka://{cluster.servers}", new_topic(cluster)

    async def scenario() -> tuple[TargetThatFailsFirst, TargetThatFailsFirst]:
        await fill(url, topic, keyed(100))
        sent = asyncio.Event()
        first, second = TargetThatFailsFirst(DOWN, then=sent.set), TargetThatFailsFirst()
        stopped = asyncio.create_task(run(forwarding(topic, first)))
        await sent.wait()
        stopped.cancel()
        await asyncio.gather(stopped, return_exceptions=True)
        await run(forwarding(topic, second))
        return first, second

    first, second = asyncio.run(scenario())
    assert first.messages
    assert second.bodies == by_key(100)


def test_a_member_that_joins_in_the_middle_of_a_batch_takes_partitions_and_nothing_is_lost(
    cluster: KafkaCluster,
) -> None:
    url, topic, sink = f"kafka://{cluster.servers}", new_topic(cluster), MemorySink()

    async def scenario() -> list[TargetThatFailsFirst]:
        await fill(url, topic, keyed(1_000))
        sent = asyncio.Event()
        # The first has a batch that it cannot send while the second joins.
        targets = [TargetThatFailsFirst(*[DOWN] * 5, then=sent.set), TargetThatFailsFirst()]
        journal = TaskJournal("to-hub", sink, is_hub=True, is_required=True)
        running = [asyncio.create_task(run(forwarding(topic, targets[0], journal=journal)))]
        await sent.wait()
        running.append(asyncio.create_task(run(forwarding(topic, targets[1], journal=journal))))
        await asyncio.gather(*running)
        return targets

    arrived: dict[str | None, set[int]] = {}
    targets = asyncio.run(scenario())
    for target in targets:
        for key, numbers in target.bodies.items():
            # Each comes first in its place; what comes again was not committed.
            firsts = list(dict.fromkeys(numbers))
            assert firsts == sorted(firsts), key
            arrived.setdefault(key, set()).update(numbers)
    assert arrived == {key: set(numbers) for key, numbers in by_key(1_000).items()}
    outcomes = Counter(record["outcome"] for record in sink.records("to-hub", Role.TARGET))
    copies = sum(len(numbers) for target in targets for numbers in target.bodies.values())
    assert outcomes["sent"] == copies, "each copy is in the journal"
    assert outcomes.total() == len(sink.records("to-hub", Role.SOURCE)), "also what was left to the other member"


def reader_of(topic: str) -> GroupReader:
    return GroupReader("stream", "STREAM", os.environ, topic, f"of-{topic}", report=print)


def taken(reader: GroupReader, until: Callable[[], bool]) -> list[tuple[int, int]]:
    """Return the partitions and offsets that a member takes until a condition holds."""
    found, end = list[tuple[int, int]](), time.monotonic() + _SECONDS
    while not until():
        assert time.monotonic() < end, "not reached"
        found += [(each.partition(), each.offset()) for each in reader.take(10, 0.2)]
    return found


def taken_to_the_end(reader: GroupReader) -> list[tuple[int, int]]:
    return taken(reader, lambda: reader.has_seen_the_end)


def test_partitions_that_go_and_come_back_during_an_outage_give_all_records_again(cluster: KafkaCluster) -> None:
    topic = new_topic(cluster)
    asyncio.run(fill(f"kafka://{cluster.servers}", topic, keyed(100)))
    first, has_left = reader_of(topic), threading.Event()
    assert taken_to_the_end(first)

    def join_and_leave() -> None:
        second = reader_of(topic)
        taken_to_the_end(second)
        second.close()
        has_left.set()

    with ThreadPoolExecutor(1) as thread:
        joined = thread.submit(join_and_leave)
        while not has_left.is_set():
            first.wait(0.5)
        # The partitions come back while it waits: the mock cluster gives them 9 s after a member has left.
        first.wait(11)
        joined.result()
    assert len(set(taken_to_the_end(first))) == 100
    first.close()


def test_a_member_without_partitions_has_seen_the_end_and_one_that_waits_for_them_has_not(
    cluster: KafkaCluster,
) -> None:
    topic = "one-partition"
    cluster.create_topic(topic)
    asyncio.run(fill(f"kafka://{cluster.servers}", topic, keyed(100)))
    first = reader_of(topic)
    taken_to_the_end(first)
    second = reader_of(topic)
    with ThreadPoolExecutor(2) as threads:
        readers = (first, second)
        # The first loses its partition, or has it again, once the brokers know of the second.
        taken(first, lambda: not first.has_seen_the_end)
        calls = [threads.submit(taken_to_the_end, reader) for reader in readers]
        found = [len(set(call.result())) for call in calls]
    assert sorted(found) == [0, 100]
    for reader in readers:
        reader.close()
