"""`busway forward` from Kafka itself to a hub of the local broker: killed in the middle, and a second member."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.stack import PACKAGES
from local.broker.config import HubConfig, NamespaceConfig
from local.broker.thread import RunningBroker
from shared.message.message import Message
from tests.forwarding import by_key, fill, keyed
from tests.messages import ORIGIN
from tests.other_brokers.kafka import Kafka

MESSAGES = 5_000
_SECONDS = 120


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    missing = Kafka.missing()
    if missing is not None:
        pytest.skip(missing)
    broker = Kafka(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([NamespaceConfig(name="plant", hubs=(HubConfig(name="returned", partition_count=2),))]) as it:
        yield it


@pytest.fixture
def start(kafka: Kafka, broker: RunningBroker, tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Return what starts `busway forward` for a topic."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(
        "plant: {kind: event-hubs, setting: PLANT}\nstream: {kind: kafka, setting: STREAM}\n"
    )
    (tmp_path / "tasks/task.yaml").write_text(
        "task: to-kafka\n"
        "source: {connection: plant, hub: readings}\n"
        "routes: [{target: {connection: stream, topic: readings}}]\n"
        "rejects: {connection: stream, topic: rejected}\n"
    )
    settings = {"PLANT": broker.connection_string("plant"), "STREAM": kafka.url, "BUSWAY_CONFIG": str(tmp_path)}

    def started(topic: str) -> subprocess.Popen[str]:
        command = ["forward", f"stream/{topic}", "plant/returned", "--group", topic, "--idle", "5"]
        return subprocess.Popen(  # noqa: S603 - fixed arguments
            [sys.executable, "-m", "cli", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": PACKAGES, **settings},
            stdout=subprocess.PIPE,
            text=True,
        )

    return started


def arrived(broker: RunningBroker) -> dict[str | None, list[int]]:
    """Return the numbers of the events in the hub, by key."""
    found: dict[str | None, list[int]] = {}
    contents = broker.inspect(
        "plant",
        lambda plant: [event.encode() for each in plant.hubs["returned"].partitions for event in each.events],
    )
    for content in contents:
        message = Message.received(content, ORIGIN)
        found.setdefault(message.partition_key, []).append(int(message.body or b""))
    return found


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < end, "not reached"
        time.sleep(0.02)


def assert_nothing_lost_or_reordered(broker: RunningBroker) -> None:
    found = arrived(broker)
    # What comes again was not committed; each comes first in its place.
    assert {key: list(dict.fromkeys(numbers)) for key, numbers in found.items()} == by_key(MESSAGES)


def test_a_kill_in_the_middle_loses_nothing_and_keeps_the_order_of_keys(
    kafka: Kafka, broker: RunningBroker, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    topic = kafka.create("killed-forward")
    asyncio.run(fill(kafka.url, topic, keyed(MESSAGES)))
    first = start(topic)
    until(lambda: arrived(broker))
    first.kill()
    first.communicate()
    assert sum(map(len, arrived(broker).values())) < MESSAGES, "all were sent before the kill"
    second = start(topic)
    text, _ = second.communicate(timeout=_SECONDS)
    assert second.returncode == 0
    assert f"forwarded from stream/{topic} to plant/returned" in text
    assert_nothing_lost_or_reordered(broker)


def test_a_second_process_takes_partitions_and_nothing_is_lost(
    kafka: Kafka, broker: RunningBroker, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    topic = kafka.create("shared-forward")
    asyncio.run(fill(kafka.url, topic, keyed(MESSAGES)[: MESSAGES // 2]))
    first = start(topic)
    until(lambda: arrived(broker))
    second = start(topic)
    asyncio.run(fill(kafka.url, topic, keyed(MESSAGES)[MESSAGES // 2 :]))
    for each in (first, second):
        each.communicate(timeout=_SECONDS)
        assert each.returncode == 0
    assert_nothing_lost_or_reordered(broker)
