"""A broker with `--data`, killed and started again while clients of the SDKs use it."""

import collections
import contextlib
import itertools
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.exceptions import ServiceBusError

from broker.tests.broker_process import ROOT, BrokerProcess

LIVES = 6
QUEUE = "orders"

pytestmark = pytest.mark.long


def stored(folder: Path, *options: str, prefix: Sequence[str] = ()) -> BrokerProcess:
    namespace = {"Name": "west", "Queues": [{"Name": QUEUE}]}
    return BrokerProcess(folder, [namespace], "--data", folder / "data", *options, prefix=prefix)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = stored(tmp_path).start()
    yield running
    running.end()


def take_all(client: ServiceBusClient, **options: Any) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    receiver = client.get_queue_receiver(QUEUE, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, **options)
    with receiver:
        while batch := receiver.receive_messages(500, max_wait_time=1):
            found += batch
    return found


def test_accepted_messages_survive_a_kill_and_settled_ones_do_not(broker: BrokerProcess) -> None:
    numbers = itertools.count()
    accepted: set[str] = set()
    attempted: set[str | None] = set()
    settled: set[str | None] = set()
    chance = random.Random(7)

    def send() -> None:
        with broker.client("west") as client, client.get_queue_sender(QUEUE) as sender:
            while True:
                ids = [str(next(numbers)) for _ in range(chance.choice((1, 1, 20)))]
                sender.send_messages([ServiceBusMessage("x" * 200, message_id=each) for each in ids])
                accepted.update(ids)

    def receive() -> None:
        with broker.client("west") as client, client.get_queue_receiver(QUEUE) as receiver:
            while True:
                for message in receiver.receive_messages(20, max_wait_time=1):
                    attempted.add(message.message_id)
                    receiver.complete_message(message)
                    settled.add(message.message_id)

    def until_killed(work: Callable[[], None]) -> None:
        with contextlib.suppress(Exception):  # the SDK raises different errors for a lost broker
            work()

    for _ in range(LIVES):
        threads = [threading.Thread(target=until_killed, args=(work,)) for work in (send, receive)]
        for thread in threads:
            thread.start()
        enough, deadline = len(settled) + 20, time.monotonic() + 30
        while len(settled) < enough and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.5))
        broker.end()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        broker.start()

    with broker.client("west") as client:
        left = [each.message_id for each in take_all(client)]
    assert len(settled) > 100
    assert len(accepted) > 200
    assert accepted - attempted <= set(left)
    assert not settled & set(left)
    assert [each for each, count in collections.Counter(left).items() if count > 1] == []
    assert set(left) <= {str(number) for number in range(next(numbers))}


def test_a_broker_that_is_stopped_and_one_without_fsync_keep_their_state(tmp_path: Path) -> None:
    broker = stored(tmp_path, "--no-fsync").start()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with broker.client("west") as client, client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("body"))
        broker.end(number)
        broker.start()
    with broker.client("west") as client:
        assert len(take_all(client)) == 2
    broker.end()


def test_a_second_broker_on_the_same_folder_ends_with_the_reason(broker: BrokerProcess) -> None:
    second = subprocess.run(  # noqa: S603 - the command is this project's own
        broker.command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=20
    )
    assert second.returncode == 1
    assert "another broker uses this folder" in second.stderr


def test_a_broker_that_cannot_store_answers_nothing_and_ends_with_the_reason(tmp_path: Path) -> None:
    limited = stored(tmp_path, prefix=["sh", "-c", 'ulimit -f 1000 && exec "$@"', "sh"]).start()
    accepted: list[str] = []

    def send() -> None:
        with limited.client("west") as client, client.get_queue_sender(QUEUE) as sender:
            for number in range(100):
                sender.send_messages(ServiceBusMessage("x" * 50_000, message_id=str(number)))
                accepted.append(str(number))

    with pytest.raises(ServiceBusError):
        send()
    code, errors = limited.wait()
    assert code == 1
    assert re.search(r"broker\.sqlite: cannot be written: ", errors)
    assert 0 < len(accepted) < 100
    following = stored(tmp_path).start()
    with following.client("west") as client:
        assert [each.message_id for each in take_all(client)] == accepted
    following.end()
