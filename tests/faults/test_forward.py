"""`busway forward` when it is killed and when its group changes: nothing is lost, and each key keeps its order."""

import asyncio
from collections.abc import Iterator

import pytest

from local.kafka.cluster import KafkaCluster
from shared.errors import TargetUnavailable
from tests.forwarding import TargetThatFailsFirst, by_key, fill, forwarding, keyed, new_topic, run

DOWN = TargetUnavailable("down")


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
    url, topic = f"kafka://{cluster.servers}", new_topic(cluster)

    async def scenario() -> list[TargetThatFailsFirst]:
        await fill(url, topic, keyed(1_000))
        sent = asyncio.Event()
        # The first has a batch that it cannot send while the second joins.
        targets = [TargetThatFailsFirst(*[DOWN] * 5, then=sent.set), TargetThatFailsFirst()]
        running = [asyncio.create_task(run(forwarding(topic, targets[0])))]
        await sent.wait()
        running.append(asyncio.create_task(run(forwarding(topic, targets[1]))))
        await asyncio.gather(*running)
        return targets

    arrived: dict[str | None, set[int]] = {}
    for target in asyncio.run(scenario()):
        for key, numbers in target.bodies.items():
            # Each comes first in its place; what comes again was not committed.
            firsts = list(dict.fromkeys(numbers))
            assert firsts == sorted(firsts), key
            arrived.setdefault(key, set()).update(numbers)
    assert arrived == {key: set(numbers) for key, numbers in by_key(1_000).items()}
