"""A broker that keeps its state, killed and started again under the SDKs' hands."""

import collections
import contextlib
import gc
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue

LIVES = 6
ROOT = Path(__file__).parents[2]
QUEUE = "orders"

# The SDKs forget to close the socket of a connection that broke.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", autouse=True)
def _collected_sockets():
    yield
    gc.collect()


class Broker:
    """`busway broker --data` as a process of its own."""

    def __init__(self, folder, *options) -> None:
        config = {
            "UserConfig": {
                "Namespaces": [
                    {
                        "Name": "west",
                        "Queues": [{"Name": QUEUE}, {"Name": "by-session", "Properties": {"RequiresSession": True}}],
                        "Topics": [{"Name": "news", "Subscriptions": [{"Name": "one"}, {"Name": "two"}]}],
                    }
                ],
                "NamespaceConfig": [{"Name": "hubs", "Entities": [{"Name": "events", "PartitionCount": 2}]}],
            }
        }
        self._config = folder / "Config.json"
        self._config.write_text(json.dumps(config))
        self._data = folder / "data"
        self._options = options
        self.strings: dict[Any, Any] = {}

    def start(self):
        command = [sys.executable, "-m", "cli", "broker", "--port", "0", "--config", self._config]
        self._process = subprocess.Popen(  # noqa: S603 - the command is this project's own
            [*command, "--data", self._data, *self._options], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        for _ in range(2):
            _, name, string = self._output.readline().split()
            self.strings[name] = string
        return self

    def end(self, number=signal.SIGKILL) -> None:
        os.kill(self._process.pid, number)
        self._process.wait(10)
        self._output.close()

    def client(self):
        return ServiceBusClient.from_connection_string(self.strings["west"], retry_total=0)


@pytest.fixture
def broker(tmp_path: Path):
    running = Broker(tmp_path)
    with contextlib.closing(_Ending(running.start())):
        yield running


class _Ending:
    def __init__(self, broker) -> None:
        self._broker = broker

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._broker.end()


def take_all(client, name=QUEUE, **options):
    found = []
    receiver = client.get_queue_receiver(name, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, **options)
    with receiver:
        while batch := receiver.receive_messages(500, max_wait_time=1):
            found += batch
    return found


def test_what_was_accepted_outlives_the_process_and_what_was_settled_does_not(broker) -> None:
    numbers = itertools.count()
    accepted, attempted, settled = set(), set(), set()
    chance = random.Random(7)

    def send() -> None:
        with broker.client() as client, client.get_queue_sender(QUEUE) as sender:
            while True:
                ids = [str(next(numbers)) for _ in range(chance.choice((1, 1, 20)))]
                sender.send_messages([ServiceBusMessage("x" * 200, message_id=each) for each in ids])
                accepted.update(ids)

    def receive() -> None:
        with broker.client() as client, client.get_queue_receiver(QUEUE) as receiver:
            while True:
                for each in receiver.receive_messages(20, max_wait_time=1):
                    attempted.add(each.message_id)
                    receiver.complete_message(each)
                    settled.add(each.message_id)

    def until_killed(work) -> None:
        with contextlib.suppress(Exception):  # whatever the SDK makes of a broker that is gone
            work()

    for _ in range(LIVES):
        threads = [threading.Thread(target=until_killed, args=(work,)) for work in (send, receive)]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0.3, 1.0))
        broker.end()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        broker.start()

    with broker.client() as client:
        left = [each.message_id for each in take_all(client)]
    assert len(settled) > 100
    assert len(accepted) > 200
    assert accepted - attempted <= set(left)
    assert not settled & set(left)
    assert [each for each, count in collections.Counter(left).items() if count > 1] == []
    assert set(left) <= {str(number) for number in range(next(numbers))}


def test_every_kind_of_state_outlives_the_process(broker) -> None:
    with broker.client() as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages([ServiceBusMessage("body", message_id=f"id-{number}") for number in range(4)])
        with client.get_queue_receiver(QUEUE) as receiver:
            deferred, dead, failed, done = receiver.receive_messages(4, max_wait_time=5)
            receiver.defer_message(deferred)
            receiver.dead_letter_message(dead, reason="late", error_description="too late")
            receiver.abandon_message(failed)
            receiver.complete_message(done)
        with client.get_queue_sender("by-session") as sender:
            sender.send_messages(ServiceBusMessage("in session", session_id="a"))
        with client.get_queue_receiver("by-session", session_id="a") as receiver:
            receiver.session.set_state(b"half done")
        with client.get_topic_sender("news") as sender:
            sender.send_messages(ServiceBusMessage("to both", message_id="news"))
    producer = EventHubProducerClient.from_connection_string(broker.strings["hubs"], eventhub_name="events")
    with producer:
        producer.send_batch([EventData("event")], partition_id="1")

    broker.end()
    broker.start()

    with broker.client() as client:
        with client.get_queue_receiver(QUEUE) as receiver:
            [again] = receiver.receive_deferred_messages(deferred.sequence_number)
            assert again.message_id == "id-0"
            receiver.complete_message(again)
            [once_more] = receiver.receive_messages(2, max_wait_time=1)
            assert (once_more.message_id, once_more.delivery_count) == ("id-2", 1)
            assert once_more.sequence_number == failed.sequence_number
            assert once_more.enqueued_time_utc == failed.enqueued_time_utc
        [buried] = take_all(client, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert (buried.message_id, buried.dead_letter_reason) == ("id-1", "late")
        with client.get_queue_receiver("by-session", session_id="a") as receiver:
            assert receiver.session.get_state() == b"half done"
            assert [str(each) for each in receiver.receive_messages(1, max_wait_time=1)] == ["in session"]
        for name in ("one", "two"):
            with client.get_subscription_receiver("news", name) as receiver:
                assert [each.message_id for each in receiver.receive_messages(1, max_wait_time=1)] == ["news"]
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("next"))
        assert [each.sequence_number for each in take_all(client)][-1] == 5
    consumer = EventHubConsumerClient.from_connection_string(broker.strings["hubs"], "$Default", eventhub_name="events")
    with consumer:
        assert consumer.get_partition_properties("1")["last_enqueued_sequence_number"] == 0


def test_a_broker_that_is_stopped_and_one_without_fsync_keep_their_state(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "--no-fsync").start()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with broker.client() as client, client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("body"))
        broker.end(number)
        broker.start()
    with broker.client() as client:
        assert len(take_all(client)) == 2
    broker.end()


def test_a_second_broker_on_the_same_folder_says_why_it_does_not_start(broker) -> None:
    command = [sys.executable, "-m", "cli", "broker", "--port", "0", "--config", broker._config, "--data", broker._data]
    second = subprocess.run(  # noqa: S603 - the command is this project's own
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=20
    )
    assert second.returncode == 1
    assert "another broker uses it" in second.stderr
