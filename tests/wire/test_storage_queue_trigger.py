"""The trigger of the local host for storage queues, on Azurite."""

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import override

import pytest
from azure.storage.queue import QueueServiceClient

from host.listener import Stopping
from host.protos import TypedData
from host.settings import QueuesOptions, Settings, load_host_options
from host.triggers.storage_queue import StorageQueueListener
from host.worker import Attempt, Function, Invocation, Outputs
from tests.architecture.imports import ROOT
from tests.wire.storage_texts import NO_QUEUE, SECONDS, account, service, with_another_key

__all__ = ["account", "service"]

# The trigger of the local host, on Azurite


@dataclass
class WorkerThatFails:
    """Runs no function: the first calls fail."""

    failures: int = 0
    seen: list[tuple[bytes, Mapping[str, TypedData]]] = field(default_factory=list)
    outputs: Outputs | None = None

    async def invoke(self, attempt: Attempt) -> Invocation:
        self.seen.append((attempt.data.data, attempt.trigger_metadata))
        self.failures -= 1
        return Invocation("it failed" if self.failures >= 0 else None)


def listened_until(
    condition: Callable[[], object], account: str, worker: WorkerThatFails, queue: str = "orders", **options: object
) -> None:
    """Let the host deliver what is in the queue until the condition holds."""
    trigger = {"name": "messages", "queueName": queue, "connection": "STORE", "dataType": "BINARY"}
    function = Function("1", "copy", trigger, {}, None)
    chosen = QueuesOptions(message_encoding=str(options.pop("encoding", "none")), **options)  # type: ignore[arg-type] # fields

    async def run() -> None:
        stopping = Stopping()
        listener = StorageQueueListener(function, Settings({"STORE": account}), chosen, worker, stopping)
        task = asyncio.create_task(listener.run())
        async with asyncio.timeout(SECONDS):
            while not await asyncio.to_thread(condition):
                await asyncio.to_thread(time.sleep, 0.02)
        listener.stop()
        await task

    asyncio.run(run())


def listened(account: str, worker: WorkerThatFails, service: QueueServiceClient, **options: object) -> None:
    """Let the host deliver what is in the queue `orders` until it is empty."""
    queue = service.get_queue_client("orders")
    listened_until(lambda: not queue.get_queue_properties().approximate_message_count, account, worker, **options)  # type: ignore[arg-type] # fields of the options


def test_a_message_is_deleted_when_its_function_has_succeeded(account: str, service: QueueServiceClient) -> None:
    for text in ("plain", '{"id": "not this one"}'):
        service.get_queue_client("orders").send_message(text)
    worker = WorkerThatFails(failures=1)
    listened(account, worker, service)
    assert sorted(each for each, _ in worker.seen) in (
        [b"plain", b"plain", b'{"id": "not this one"}'],
        [b"plain", b'{"id": "not this one"}', b'{"id": "not this one"}'],
    )
    assert {each["Id"].data for _, each in worker.seen if "not" in each["Id"].data} == set()
    assert sorted(int(each["DequeueCount"].data) for _, each in worker.seen) == [1, 1, 2]


def test_a_message_that_fails_too_often_goes_to_the_poison_queue(account: str, service: QueueServiceClient) -> None:
    service.get_queue_client("orders").send_message("bad")
    worker = WorkerThatFails(failures=9)
    listened(account, worker, service, max_dequeue_count=3)
    assert len(worker.seen) == 3
    (poison,) = service.get_queue_client("orders-poison").receive_messages()
    assert poison.content == "bad"


@pytest.mark.usefixtures("service")
def test_a_source_that_cannot_be_read_is_reported_with_what_was_tried(
    account: str, caplog: pytest.LogCaptureFixture
) -> None:
    for source, queue in ((account, "other"), (with_another_key(account), "orders")):
        caplog.clear()
        listened_until(lambda: "listening again" in caplog.text, source, WorkerThatFails(), queue)
        start = f"copy: queue {queue}: cannot read messages:"
        denied = "access is denied, the storage account answers 403 "
        assert caplog.messages[0].startswith(f"{start} {NO_QUEUE if queue == 'other' else denied}")


@dataclass
class WorkerThatDeletes(WorkerThatFails):
    """Deletes the message that the function has, or its queue, before the function ends."""

    delete: Callable[[], object] = lambda: None

    @override
    async def invoke(self, attempt: Attempt) -> Invocation:
        await asyncio.to_thread(self.delete)
        return await super().invoke(attempt)


@pytest.mark.parametrize("failures", [0, 1])
def test_a_message_or_queue_that_is_gone_after_the_function_is_reported_with_what_was_tried(
    account: str, service: QueueServiceClient, caplog: pytest.LogCaptureFixture, failures: int
) -> None:
    queue = service.get_queue_client("orders")
    identity = queue.send_message("first").id
    worker = WorkerThatDeletes(failures, delete=queue.clear_messages)
    gone = f"copy: message {identity} is with another receiver"
    listened_until(lambda: gone in caplog.messages, account, worker)
    identity = queue.send_message("second").id
    worker = WorkerThatDeletes(failures, delete=lambda: service.delete_queue("orders"))
    tried = f"copy: queue orders: cannot {'update' if failures else 'delete'} message {identity}: {NO_QUEUE}"
    listened_until(lambda: f"{tried}; the message is delivered again" in caplog.messages, account, worker)


def test_with_the_default_encoding_other_texts_go_to_the_poison_queue(
    account: str, service: QueueServiceClient
) -> None:
    for text in ("no base64", base64.b64encode(b"good").decode()):
        service.get_queue_client("orders").send_message(text)
    worker = WorkerThatFails()
    listened(account, worker, service, encoding="base64")
    assert [each for each, _ in worker.seen] == [b"good"]
    (poison,) = service.get_queue_client("orders-poison").receive_messages()
    assert poison.content == "no base64"


def test_the_host_file_of_the_app_passes_texts_on_as_they_are() -> None:
    options = load_host_options(ROOT).queues
    assert (options.message_encoding, options.max_dequeue_count) == ("none", 1000)
