"""Messages to one namespace, in batches as large as its link allows; the flow of both senders."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from busway_clients.senders.outcome import Delivery
from busway_clients.steps import Call, Steps

TIMEOUT = 60.0

Prepared = ServiceBusMessage | AmqpAnnotatedMessage


class SdkSender(Protocol):
    """What is used of an SDK's sender of either kind, or of one that stands for it."""

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> Any:  # noqa: ANN401 - what the SDK gives
        """Return a batch, or an awaitable of it."""

    def send_messages(self, message: Any, *, timeout: float | None = None) -> Any:  # noqa: ANN401 - what the SDK takes
        """Send, or return an awaitable that does."""


def deliver(
    sender: SdkSender, ids: Sequence[str], messages: Sequence[Prepared], timeout: float | None
) -> Steps[Delivery]:
    """
    Send *messages* in their order and stop at the first error, so that what was accepted is the first of them.

    Each batch is accepted as a whole or not at all. Units: timeout in seconds, for all together, retries of the SDK
    among them; None for no end.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    taken = 0
    try:
        if len(messages) == 1:
            yield _sending(sender, messages[0], timeout)
            return Delivery(tuple(ids))
        for size, payload in (yield from _batches(sender, messages)):
            yield _sending(sender, payload, _remaining(deadline))
            taken += size
    except Exception as error:  # noqa: BLE001 - whatever it is belongs to the outcome
        return Delivery(tuple(ids[:taken]), tuple(ids[taken:]), error)
    return Delivery(tuple(ids))


def _remaining(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise OperationTimeoutError(message="No time was left for the batch.")
    return remaining


def _batches(sender: SdkSender, messages: Sequence[Prepared]) -> Steps[list[tuple[int, Any]]]:
    """Return what is to be handed to the SDK, each with its number of messages; one that fills a batch goes alone."""
    batches: list[tuple[int, Any]] = []
    batch = None
    for message in messages:
        if batch is None:
            batch = yield Call(sender.create_message_batch)
        if _fits(batch, message):
            continue
        if len(batch):
            batches.append((len(batch), batch))
            batch = yield Call(sender.create_message_batch)
            if _fits(batch, message):
                continue
        # An entity for large messages takes alone what no batch can hold, and says so itself if it does not.
        batches.append((1, message))
        batch = None
    if batch is not None and len(batch):
        batches.append((len(batch), batch))
    return batches


def _fits(batch: Any, message: Prepared) -> bool:  # noqa: ANN401 - the SDK's batch
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    return True


def _sending(sender: SdkSender, payload: Any, timeout: float | None) -> Call:  # noqa: ANN401 - a message or a batch
    send: Callable[..., Any] = sender.send_messages
    return Call(lambda: send(payload, timeout=timeout))
