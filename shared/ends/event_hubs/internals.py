"""
The private parts of the azure-eventhub SDK that Busway uses; no other module touches them.

1. Encoded batches are transferred as they are (`encoded_transfer`).
2. Batches go to the SDK's AMQP client directly. The producer above it sends one batch after the other, although batches
   of different partition keys need not wait for each other, and it closes its link at every refusal.

The SDK's version is pinned; tests/contracts/test_event_hubs_internals.py fails if any of this changes.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Self, cast

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.eventhub._pyamqp.constants import (
    MESSAGE_DELIVERY_DONE_STATES,
    LinkDeliverySettleReason,
    MessageDeliveryState,
    SessionTransferState,
)
from azure.eventhub._pyamqp.error import AMQPException, AuthenticationException
from azure.eventhub._pyamqp.message import _MessageDelivery
from azure.eventhub.aio import EventHubProducerClient
from azure.eventhub.exceptions import AuthenticationError, EventHubError

from shared.ends.azure_amqp.encoded_transfer import EncodedMessage, transfer_encoded_messages
from shared.ends.azure_amqp.token_answers import name_refused_tokens

# Everything that the SDK raises for failures of the network or the service, timeouts included.
WORLD_ERRORS = (AMQPException, AzureError, EventHubError, OSError)
AUTHENTICATION_ERRORS = (AuthenticationException, AuthenticationError, ClientAuthenticationError)


class PublisherLink:
    """An open link to a hub or a partition; one caller at a time, as the SDK's connection has a single reader."""

    def __init__(self, producer: Any) -> None:
        """Take over an open producer of the SDK."""
        self._producer = producer
        transfer_encoded_messages(producer._handler._link, SessionTransferState.OKAY)
        self.failure: Exception | None = None
        """The error that ended the link, None while it is usable."""

    @classmethod
    async def open(cls, client: EventHubProducerClient, partition: str | None) -> Self:
        """Return an open link to the client's hub, or to a *partition* of it; raises one of WORLD_ERRORS."""
        producer = client._create_producer(partition_id=partition)
        name_refused_tokens(producer, AMQPException)
        try:
            await producer._open()
        except BaseException:
            await producer.close()
            raise
        return cls(producer)

    @property
    def limit(self) -> int:
        """The most bytes that the hub accepts in one batch, as announced when the link was attached."""
        size: int = self._producer._max_message_size_on_link
        return size

    async def deliver(self, batches: Sequence[bytes], deadline: float) -> list[Exception | None]:
        """
        Send all *batches* without waiting in between; return for each None if it was accepted, or the error.

        Units:   *deadline* is a time of the event loop. Batches without an answer by then, or when the link breaks,
                 get the `failure`.
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
            # When the hub detaches the link, its deliveries end without a reason; the detach frame has one.
            self.failure = client._link._error or self.failure or ConnectionError("the link is closed")
        return [_answer(delivery) if _is_answered(delivery) else self.failure for delivery in deliveries]

    async def close(self) -> None:
        """Close the link and its connection."""
        await self._producer.close()


def condition_of(error: Exception) -> str | None:
    """Return the AMQP condition that the service sent, None if it sent none."""
    return error.condition.decode() if isinstance(error, AMQPException) else None


def _delivery(batch: bytes) -> _MessageDelivery:
    # The SDK has no types here.
    return _MessageDelivery(EncodedMessage(batch), MessageDeliveryState.WaitingToBeSent)  # type: ignore[no-untyped-call]


def _is_done(delivery: _MessageDelivery) -> bool:
    return delivery.state in MESSAGE_DELIVERY_DONE_STATES


def _is_answered(delivery: _MessageDelivery) -> bool:
    """Return whether the hub has accepted or refused a batch; it has not if the link ended first."""
    return _is_done(delivery) and delivery.reason == LinkDeliverySettleReason.DISPOSITION_RECEIVED


def _answer(delivery: _MessageDelivery) -> Exception | None:
    return None if delivery.state == MessageDeliveryState.Ok else cast("Exception", delivery.error)
