"""`busway forward` as a process that gets a signal: what is in hand is finished, or it says what is not."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from busway import PACKAGES
from busway_broker.config import HubConfig, NamespaceConfig
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from cli.local_services.kafka import KafkaCluster
from tests.forwarding import arrived, by_key, fill, keyed, new_topic, until

pytestmark = pytest.mark.slow

MESSAGES = 2_000
_SECONDS = 60
CONNECTIONS = "plant: {kind: event-hubs, setting: PLANT}\nstream: {kind: kafka, setting: STREAM}\n"
TASK = """\
task: to-kafka
source: {connection: plant, hub: readings}
routes: [{target: {connection: stream, topic: readings}}]
rejects: {connection: stream, topic: rejected}
"""

type Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as running:
        yield running


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([NamespaceConfig(name="plant", hubs=(HubConfig(name="returned", partition_count=2),))]) as it:
        yield it


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    name = new_topic(cluster)
    asyncio.run(fill(f"kafka://{cluster.servers}", name, keyed(MESSAGES)))
    return name


@pytest.fixture
def start(topic: str, cluster: KafkaCluster, broker: RunningBroker, tmp_path: Path) -> Iterator[Start]:
    """Return what starts `busway forward` with options."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    (tmp_path / "tasks/task.yaml").write_text(TASK)
    url = f"kafka://{cluster.servers}"
    settings = {"PLANT": broker.connection_string("plant"), "STREAM": url, "BUSWAY_CONFIG": str(tmp_path)}
    processes = list[subprocess.Popen[str]]()

    def started(*options: str) -> subprocess.Popen[str]:
        command = ["forward", f"stream/{topic}", "plant/returned", "--group", topic, *options]
        process = subprocess.Popen(  # noqa: S603 - fixed arguments
            [sys.executable, "-m", "cli", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": PACKAGES, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield started
    for each in processes:
        each.kill()
        each.communicate()


def slow_sends(broker: RunningBroker, seconds: float) -> Callable[[], bool]:
    """Make the hub answer late; return a function: whether it has something to answer."""
    faults = broker.faults("plant")
    faults.add(Fault(effect=Effect.DELAY, operations=frozenset({Operation.SEND}), delay=seconds))
    return lambda: bool(faults.plain()[0]["struck"])


def count(found: dict[str | None, list[int]]) -> int:
    return sum(map(len, found.values()))


def run_to_the_end(start: Start) -> None:
    process = start("--idle", "1")
    text, errors = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, text + errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_the_middle_of_a_batch_finishes_it_and_nothing_is_sent_twice(
    number: signal.Signals, topic: str, start: Start, broker: RunningBroker
) -> None:
    is_in_hand = slow_sends(broker, 0.5)
    process = start()
    until(is_in_hand)
    process.send_signal(number)
    text, errors = process.communicate(timeout=_SECONDS)
    sent = count(arrived(broker))
    assert (process.returncode, text) == (
        0,
        f"{sent} forwarded from stream/{topic} to plant/returned; stopped, nothing in hand\n",
    )
    assert errors == "stops after the batch in hand, within 15 s; a second signal ends it at once\n"
    assert 0 < sent <= 500
    broker.faults("plant").clear()
    run_to_the_end(start)
    assert arrived(broker) == by_key(MESSAGES)


def test_a_stop_without_a_batch_in_hand_ends_at_once(topic: str, start: Start, broker: RunningBroker) -> None:
    process = start()
    until(lambda: count(arrived(broker)) == MESSAGES)
    process.terminate()
    text, _ = process.communicate(timeout=_SECONDS)
    assert (process.returncode, text) == (
        0,
        f"{MESSAGES} forwarded from stream/{topic} to plant/returned; stopped, nothing in hand\n",
    )
    run_to_the_end(start)
    assert arrived(broker) == by_key(MESSAGES)


def test_a_stop_says_what_is_not_committed_if_the_hub_does_not_answer(
    topic: str, start: Start, broker: RunningBroker
) -> None:
    is_in_hand = slow_sends(broker, 600)
    process = start("--stop-within", "0.5")
    until(is_in_hand)
    process.terminate()
    text, errors = process.communicate(timeout=_SECONDS)
    assert process.returncode == 1
    assert text == f"0 forwarded from stream/{topic} to plant/returned\n"
    _, line = errors.splitlines()
    assert line.startswith(f"stream/{topic}: ")
    assert " records are not committed and come again, 0 of them sent: partition " in line
    assert " from offset 0" in line
    assert line.endswith("; stopped while it waited for an answer of the hub")
    broker.faults("plant").clear()
    run_to_the_end(start)
    # The hub has what it did not answer; each comes first in its place.
    assert {key: list(dict.fromkeys(numbers)) for key, numbers in arrived(broker).items()} == by_key(MESSAGES)
    assert count(arrived(broker)) <= MESSAGES + 500


def test_a_stop_says_what_is_not_committed_if_the_group_does_not_answer(
    start: Start, broker: RunningBroker, cluster: KafkaCluster
) -> None:
    is_in_hand = slow_sends(broker, 2)
    process = start("--stop-within", "8")
    until(is_in_hand)
    cluster.set_down(1)
    process.terminate()
    text, errors = process.communicate(timeout=_SECONDS)
    assert process.returncode == 1
    sent = int(text.split()[0])
    assert 0 < sent <= 500
    assert f": {sent} records are not committed and come again, {sent} of them sent: partition " in errors
    assert "waits for the topic: " in errors
    assert "refused" in errors


def test_a_second_signal_ends_it_at_once(start: Start, broker: RunningBroker) -> None:
    is_in_hand = slow_sends(broker, 600)
    process = start("--stop-within", "600")
    until(is_in_hand)
    process.terminate()
    assert process.stderr is not None
    assert process.stderr.readline().startswith("stops after the batch in hand")
    process.terminate()
    process.communicate(timeout=_SECONDS)
    assert process.returncode == -signal.SIGTERM
