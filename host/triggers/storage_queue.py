"""
Triggers of storage queues, for functions that take one message.

1. Up to batchSize messages are received at a time, while at most newBatchThreshold are processed. An empty queue
   is asked again after a delay that doubles up to maxPollingInterval.
2. A message is invisible for ten minutes, which are renewed every five while its function runs. If the host is killed,
   it is delivered again when they are over.
3. A message is deleted when its function has succeeded. Otherwise it is visible again after visibilityTimeout, or, at
   its delivery number maxDequeueCount, moved to the queue NAME-poison, where it lives for seven days.
4. With messageEncoding base64, the default, a text that is not base64 is moved there without an invocation.

Source: QueueListener.cs, QueueProcessor.cs and QueueServiceClientProvider.cs of Azure/azure-sdk-for-net,
sdk/storage/Microsoft.Azure.WebJobs.Extensions.Storage.Queues.
"""

import asyncio
import base64
import binascii
import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from host.invocation import invoke_with_retries
from host.listener import Stopping, keep_listening
from host.protos import TypedData
from host.settings import QueuesOptions, Settings
from host.worker import Function, Worker
from host.worker_input import Input, json_data
from shared.ends.storage_queue.clients import POISON_SUFFIX, queue_service
from shared.ends.storage_queue.errors import source_error
from shared.errors import ConfigError, Problem, TargetRefused, TargetUnavailable
from shared.stores.storage_errors import error_code

_log = logging.getLogger(__name__)

_INVISIBLE_SECONDS = 600
_RENEWAL_SECONDS = 300
_SHORTEST_DELAY = 0.1


class StorageQueueListener:
    """Invokes one function with the messages of one queue."""

    def __init__(
        self, function: Function, settings: Settings, options: QueuesOptions, worker: Worker, stopping: Stopping
    ) -> None:
        """Read the binding; a ConfigError if it names no queue."""
        path = f"{function.name}.{function.parameter}"
        self._queue = settings.resolve(str(function.trigger.get("queueName") or ""), f"{path}.queueName")
        if not self._queue:
            raise ConfigError([Problem(path, "expected queueName")])
        if str(function.trigger.get("dataType")).upper() != "BINARY":
            raise ConfigError([Problem(path, "this host passes bytes alone, expected `data_type` BINARY")])
        self._setting = str(function.trigger.get("connection") or "AzureWebJobsStorage")
        self._settings = settings.values
        self.function = function
        self.is_listening = asyncio.Event()
        self._options = options
        self._worker = worker
        self._stopping = stopping
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Listen until stopped; see `Listener`."""
        service = queue_service(self._setting, self._settings)
        try:
            await keep_listening(self.function.name, self._stopping, lambda let_in: self._listen(service, let_in))
            if self._running:
                await asyncio.wait(self._running)
        finally:
            for task in self._running:  # the worker is killed: it will not answer them
                task.cancel()
            await service.close()

    def stop(self) -> None:
        """Accept nothing more; see `Listener`."""
        self._stopping.request()

    async def _listen(self, service: QueueServiceClient, let_in: Callable[[], None]) -> None:
        queue, delay = service.get_queue_client(self._queue), _SHORTEST_DELAY
        while not self._stopping:
            if len(self._running) > self._options.new_batch_threshold:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                continue
            with _trying("read messages", self._queue):
                messages = [
                    message
                    async for message in queue.receive_messages(
                        visibility_timeout=_INVISIBLE_SECONDS, max_messages=self._options.batch_size
                    )
                ]
            let_in()
            self.is_listening.set()
            for message in messages:
                task = asyncio.create_task(self._process(service, queue, message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if messages:
                delay = _SHORTEST_DELAY
            else:
                await self._stopping.wait(delay)
                delay = min(2 * delay, self._options.max_polling_interval.total_seconds())

    async def _process(self, service: QueueServiceClient, queue: QueueClient, message: QueueMessage) -> None:
        try:
            await self._invoke(service, queue, message)
        except _WithAnotherReceiver:
            _log.warning("%s: message %s is with another receiver", self.function.name, message.id)
        except (TargetRefused, TargetUnavailable) as error:
            _log.warning("%s: %s; the message is delivered again", self.function.name, error)

    async def _invoke(self, service: QueueServiceClient, queue: QueueClient, message: QueueMessage) -> None:
        count, most = message.dequeue_count or 0, self._options.max_dequeue_count
        body = self._body(str(message.content))
        if count > most or body is None:
            await self._move_to_poison(service, queue, message)
            return
        renewing = asyncio.create_task(self._renew(queue, message))
        try:
            invocation = await invoke_with_retries(
                self._worker, self.function, lambda: _input(message, body), self._stopping
            )
        finally:
            renewing.cancel()
        if invocation.succeeded:
            await self._delete(queue, message)
        elif count >= most:
            await self._move_to_poison(service, queue, message)
        else:
            seconds = round(self._options.visibility_timeout.total_seconds())
            with _trying(f"update message {message.id}", self._queue):
                await queue.update_message(message, visibility_timeout=seconds)

    def _body(self, text: str) -> bytes | None:
        if self._options.message_encoding == "none":
            return text.encode()
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None

    async def _renew(self, queue: QueueClient, message: QueueMessage) -> None:
        while True:
            await asyncio.sleep(_RENEWAL_SECONDS)
            try:
                with _trying(f"update message {message.id}", self._queue):
                    renewed = await queue.update_message(message, visibility_timeout=_INVISIBLE_SECONDS)
            except (_WithAnotherReceiver, TargetRefused, TargetUnavailable) as error:
                _log.warning("%s: not renewed: %s", self.function.name, error)
                return
            message.pop_receipt = renewed.pop_receipt

    async def _move_to_poison(self, service: QueueServiceClient, queue: QueueClient, message: QueueMessage) -> None:
        poison = service.get_queue_client(self._queue + POISON_SUFFIX)
        _log.warning("%s: moving message %s to %s", self.function.name, message.id, poison.queue_name)
        with _trying(f"write message {message.id}", poison.queue_name):
            with contextlib.suppress(ResourceExistsError):
                await poison.create_queue()
            await poison.send_message(message.content)
        await self._delete(queue, message)

    async def _delete(self, queue: QueueClient, message: QueueMessage) -> None:
        with _trying(f"delete message {message.id}", self._queue):
            await queue.delete_message(message)


class _WithAnotherReceiver(Exception):
    """The message was invisible for too long, or is deleted."""


@contextlib.contextmanager
def _trying(action: str, queue: str) -> Iterator[None]:
    """Translate the SDK's errors, with what was tried."""
    try:
        yield
    except (AzureError, OSError) as error:
        if error_code(error) in {"MessageNotFound", "PopReceiptMismatch"}:
            raise _WithAnotherReceiver(f"queue {queue}: cannot {action}: another receiver has it") from error
        raise source_error(f"queue {queue}", action, error) from error


def _input(message: QueueMessage, body: bytes) -> Input:
    """Return the input of a function for one message: its body, and the trigger metadata."""
    metadata = {
        "QueueTrigger": TypedData(string=body.decode(errors="replace")),
        "Id": TypedData(string=str(message.id)),
        "PopReceipt": TypedData(string=str(message.pop_receipt)),
        "DequeueCount": json_data(message.dequeue_count),
        "InsertionTime": _time(message.inserted_on),
        "ExpirationTime": _time(message.expires_on),
        "NextVisibleTime": _time(message.next_visible_on),
    }
    return Input(TypedData(bytes=body), metadata)


def _time(time: datetime | None) -> TypedData:
    return json_data((time or datetime.max.replace(tzinfo=UTC)).isoformat())
