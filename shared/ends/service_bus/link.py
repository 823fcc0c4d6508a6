"""
A link to a queue or topic with several batches in flight, over the private AMQP client of the azure-servicebus SDK.

The SDK's sender waits for the answer to a batch before it sends the next, so that a link carries one batch in each
round trip. Here one task at a time, the pump, writes and reads the connection as long as a batch has no answer, and
callers give it batches at any time. Batches leave in the order in which they are given.

A message that is larger than a batch may be (Premium namespaces with large messages) leaves alone.

Nobody reads while every batch has its answer. The service ends a link that was not used for ten minutes
(Azure/azure-sdk-for-python 38627), so `is_usable` looks at what has arrived before a quiet link is used again.

While the SDK reads, it holds the lock that it needs to write. `_Reading` ends such a read when there is something to
write; to the SDK that is the end of its waiting time.

The SDK's version is pinned; tests/wire/test_transfers_in_flight.py fails if any of this changes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self, cast

from azure.core.exceptions import AzureError
from azure.servicebus._pyamqp.constants import (
    MESSAGE_DELIVERY_DONE_STATES,
    ConnectionState,
    LinkDeliverySettleReason,
    LinkState,
    MessageDeliveryState,
    SessionTransferState,
)
from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus._pyamqp.message import _MessageDelivery
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.exceptions import ServiceBusError

from shared.ends.azure_amqp.encoded_transfer import EncodedMessage, transfer_encoded_messages
from shared.ends.azure_amqp.token_answers import name_refused_tokens

_LOGGER = logging.getLogger(__name__)
_CLOSE_SECONDS = 1.0
_QUIET_SECONDS = 0.2

type Frame = tuple[int | None, object]


class SenderLink:
    """An open link; any number of callers may deliver at the same time."""

    def __init__(self, sender: ServiceBusSender, limit: int) -> None:
        """Take over an open sender of the SDK, whose batches may have *limit* bytes."""
        self.limit = limit
        """The most bytes in one batch, as announced by the service."""
        self.largest_message = max(limit, sender._max_message_size_on_link)
        """The most bytes in one message that is sent alone."""
        self.failure: Exception | None = None
        """The error that ended the link, None while it is usable."""
        self.lost = 0
        """The number of batches that had no answer when the link ended."""
        self._sender = sender
        client: Any = sender._handler
        self._client = client
        self._reading = _Reading(client._connection._transport)
        transfer_encoded_messages(client._link, SessionTransferState.OKAY)
        self._unanswered: dict[asyncio.Future[Exception | None], _MessageDelivery] = {}
        self._unsent: list[asyncio.Future[Exception | None]] = []
        self._pump: asyncio.Task[None] | None = None
        self._is_retired = False
        self._is_closed = False
        self._answered_at = 0.0

    @classmethod
    async def open(cls, sender: ServiceBusSender) -> Self:
        """Open the link of *sender*; raises the SDK's errors."""
        name_refused_tokens(sender, AMQPException)
        limit = (await sender.create_message_batch()).max_size_in_bytes
        return cls(sender, limit)

    async def is_usable(self) -> bool:
        """Return whether the link is open; if it was quiet, whether it still is after what has arrived meanwhile."""
        if self.failure is not None or self._is_closed:
            return False
        if self._pump is not None or asyncio.get_running_loop().time() < self._answered_at + _QUIET_SECONDS:
            return True
        try:
            with self._reading.without_waiting():
                while await self._client.do_work_async() and self._reading.has_read:
                    pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the next batch takes another link
            self.failure = _as_service_bus_error(self._detached() or error)
            return False
        client = self._client
        states = client._link.state, client._connection.state
        return states == (LinkState.ATTACHED, ConnectionState.OPENED)

    async def deliver(self, message: EncodedMessage, deadline: float) -> Exception | None:
        """
        Send *message*, which may be a batch, and return None if it was accepted, or the SDK's error.

        Units:   *deadline* is a time of the event loop; a batch without an answer by then gets TimeoutError. A batch
                 whose answer is lost with the link gets the `failure`, one that comes later a ConnectionError.
        """
        if self.failure is not None or self._is_closed:
            # The failure may be the fault of a message.
            return ConnectionError("the link is closed")
        # The SDK has no types here.
        delivery = _MessageDelivery(message, MessageDeliveryState.WaitingToBeSent)  # type: ignore[no-untyped-call]
        answer: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._unanswered[answer] = delivery
        self._unsent.append(answer)
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
        else:
            self._reading.interrupt()
        try:
            async with asyncio.timeout_at(deadline):
                return await answer
        except TimeoutError as error:
            return error
        finally:
            self._unanswered.pop(answer, None)
            if self._is_retired and not self._unanswered and self._pump is not None:
                # It may be writing to a peer that no longer reads, which never ends by itself.
                self._pump.cancel()

    async def retire(self) -> None:
        """Close the link as soon as every batch in flight has its answer, or no longer waits for it."""
        self._is_retired = True
        if not self._unanswered:
            await self.close()

    async def close(self) -> None:
        """Close the link; batches in flight get the `failure`."""
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pump
        await self._close()

    async def _run(self) -> None:
        """Write and read until every batch has its answer or the link has failed."""
        try:
            while self._unanswered:
                await self._exchange()
        except Exception as error:  # noqa: BLE001 - whatever ends the pump, each caller must get an answer
            self.failure = _as_service_bus_error(self._detached() or error)
        finally:
            self._pump = None
            self._answered_at = asyncio.get_running_loop().time()
            if self._unanswered:
                self.failure = self.failure or ConnectionError("the link is closed")
            waiting = [answer for answer in self._unanswered if not answer.done()]
            self.lost = len(waiting)
            for answer in waiting:
                answer.set_result(self.failure)
            if self._is_retired:
                await self._close()

    async def _exchange(self) -> None:
        """Write the batches that are not sent yet, read what has come, and hand out the answers."""
        unsent, self._unsent = self._unsent, []
        for answer in unsent:
            if answer in self._unanswered:  # its caller still waits
                await self._client._transfer_message_async(self._unanswered[answer])
        if not await self._client.do_work_async():
            raise ConnectionError("the connection is closed")
        self._answer()

    def _detached(self) -> Exception | None:
        """Return the error with which the service has detached the link."""
        link = self._client._link
        return None if link is None else link._error

    def _answer(self) -> None:
        """Hand out the answers that have arrived."""
        for answer, delivery in self._unanswered.items():
            if delivery.state not in MESSAGE_DELIVERY_DONE_STATES or answer.done():
                continue
            if delivery.reason != LinkDeliverySettleReason.DISPOSITION_RECEIVED:
                # The service has detached the link, which ends its deliveries without an answer.
                raise self._detached() or ConnectionError("the link is closed")
            accepted = delivery.state == MessageDeliveryState.Ok
            answer.set_result(None if accepted else _as_service_bus_error(cast("Exception", delivery.error)))

    async def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # The connection may have failed already; an error while closing it adds nothing to the one reported.
        with contextlib.suppress(AzureError, AMQPException, OSError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._sender.close()


class _Reading:
    """The reading of frames from a transport of the SDK, which `interrupt` ends as its timeout does."""

    def __init__(self, transport: Any) -> None:
        self._receive: Callable[..., Awaitable[Frame]] = transport.receive_frame
        self._waiting: asyncio.Timeout | None = None
        self._is_interrupted = False
        self._waits = True
        self.has_read = False
        transport.receive_frame = self._receive_frame

    def interrupt(self) -> None:
        """End the read that is waiting, or else the next one."""
        self._is_interrupted = True
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    @contextlib.contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Read only what has arrived; `has_read` says whether there was a frame."""
        self._waits = self._is_interrupted = False
        try:
            yield
        finally:
            self._waits = True

    async def _receive_frame(self, timeout: float | None = None, **options: object) -> Frame:  # noqa: ASYNC109 - the SDK's signature
        if self._is_interrupted:
            self._is_interrupted = False
            return None, None
        try:
            async with asyncio.timeout(timeout if self._waits else 0) as self._waiting:
                self.has_read = True
                return await self._receive(timeout=None, **options)
        except TimeoutError:
            self._is_interrupted = self.has_read = False
            return None, None
        finally:
            self._waiting = None


def _as_service_bus_error(error: Exception) -> Exception:
    """Return the error that the SDK's own sender would raise."""
    if not isinstance(error, AMQPException):
        return error
    made: ServiceBusError = PyamqpTransportAsync.create_servicebus_exception(_LOGGER, error)
    made.__cause__ = error
    return made
