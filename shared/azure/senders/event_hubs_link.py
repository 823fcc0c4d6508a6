"""
An open link to an event hub or to one of its partitions, through the azure-eventhub SDK.

Two private seams of the SDK are held here and nowhere else; its version is pinned, and
tests/contracts/test_event_hubs_seam.py fails when either changes:

1. Encoded events are put where the SDK keeps them once it has encoded an event, among the data sections of a batch. Its
   own way in (`EventData`, `add`) rebuilds an event from decoded parts and loses the types of its properties.
2. Batches are handed to the SDK's AMQP client itself. The producer above it sends one after the other, while those of
   different partition keys need not wait for each other, and it closes its link at every refusal.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Self, cast

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.eventhub import EventDataBatch
from azure.eventhub._pyamqp.constants import (
    MESSAGE_DELIVERY_DONE_STATES,
    LinkDeliverySettleReason,
    MessageDeliveryState,
)
from azure.eventhub._pyamqp.error import AMQPException, AuthenticationException
from azure.eventhub._pyamqp.message import _MessageDelivery
from azure.eventhub.aio import EventHubProducerClient
from azure.eventhub.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.eventhub.exceptions import AuthenticationError, EventHubError

# All that comes out of the SDK when the world is at fault, timeouts included.
WORLD_ERRORS = (AMQPException, AzureError, EventHubError, OSError)
AUTHENTICATION_ERRORS = (AuthenticationException, AuthenticationError, ClientAuthenticationError)


class PublisherLink:
    """A link that takes batches; one caller at a time, as the SDK's connection has a single reader."""

    def __init__(self, producer: Any) -> None:
        """Take over an open producer of the SDK."""
        self._producer = producer
        self.failure: Exception | None = None
        """What has ended the link, None while it can be used."""

    @classmethod
    async def open(cls, client: EventHubProducerClient, partition: str | None) -> Self:
        """Return an open link to the client's hub, or to a *partition* of it; raises one of WORLD_ERRORS."""
        producer = client._create_producer(partition_id=partition)
        try:
            await producer._open()
        except BaseException:
            await producer.close()
            raise
        return cls(producer)

    @property
    def limit(self) -> int:
        """The bytes that the hub takes in one batch, as its side of the link has announced."""
        size: int = self._producer._max_message_size_on_link
        return size

    async def deliver(self, batches: Sequence[EventDataBatch], deadline: float) -> list[Exception | None]:
        """
        Send all *batches* without waiting in between; return for each None once accepted, or what spoke against it.

        Units:   *deadline* is a time of the event loop. What has no answer when it comes, or when the link breaks, gets
                 the `failure`.
        """
        client = self._producer._handler
        deliveries = [_delivery(batch) for batch in batches]
        try:
            async with asyncio.timeout_at(deadline):
                for delivery in deliveries:
                    await client._transfer_message_async(delivery)
                while not all(map(_is_done, deliveries)) and await client.do_work_async():
                    pass
        except WORLD_ERRORS as error:
            self.failure = error
        if not all(map(_is_answered, deliveries)):
            # A link that the hub has detached ends its deliveries without a reason; the detaching has named one.
            self.failure = client._link._error or self.failure or ConnectionError("the link is closed")
        return [_answer(delivery) if _is_answered(delivery) else self.failure for delivery in deliveries]

    async def close(self) -> None:
        """Close link and connection."""
        await self._producer.close()


def raw_batch(contents: Sequence[bytes], partition_key: str | None) -> EventDataBatch:
    """Return the SDK's batch with the encoded events of *contents* as its data sections, for a partition key if any."""
    batch = EventDataBatch(partition_key=partition_key, amqp_transport=PyamqpTransportAsync)
    batch._message[5].extend(contents)
    batch._count = len(contents)
    return batch


def condition_of(error: Exception) -> str | None:
    """Return the AMQP condition that the service named, None where it named none."""
    return error.condition.decode() if isinstance(error, AMQPException) else None


def _delivery(batch: EventDataBatch) -> _MessageDelivery:
    # The SDK leaves the class without types.
    return _MessageDelivery(batch._message, MessageDeliveryState.WaitingToBeSent)  # type: ignore[no-untyped-call]


def _is_done(delivery: _MessageDelivery) -> bool:
    return delivery.state in MESSAGE_DELIVERY_DONE_STATES


def _is_answered(delivery: _MessageDelivery) -> bool:
    """Tell whether the hub has said what it makes of a batch: not when its link ended first."""
    return _is_done(delivery) and delivery.reason == LinkDeliverySettleReason.DISPOSITION_RECEIVED


def _answer(delivery: _MessageDelivery) -> Exception | None:
    return None if delivery.state == MessageDeliveryState.Ok else cast("Exception", delivery.error)
