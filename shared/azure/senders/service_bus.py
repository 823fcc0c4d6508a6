"""
Encoded messages to Service Bus, in batches, through the azure-servicebus SDK.

The SDK's own way in (`ServiceBusMessage`, `add_message`) rebuilds a message from decoded parts and loses the types of
its properties. So this module puts the bytes where the SDK keeps them once it has encoded a message: in the list of
data sections of a batch. That is private to the SDK, and so is how a failed send names its cause; both are touched in
this module alone, the SDK's version is pinned, and tests/contracts/test_service_bus_seam.py fails when either changes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from shared.azure.senders.batches import batch_size, split_by_size
from shared.azure.senders.conditions import (
    DISABLED,
    FULL,
    MISSING,
    SIZE_EXCEEDED,
    THROTTLED,
    TOO_LARGE,
    UNAUTHORIZED,
    UNREACHABLE,
    Reaction,
    about_the_link,
    as_error,
    reaction_to,
)
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing

_LOGGER = logging.getLogger(__name__)

_CLOSE_SECONDS = 1.0

# What the SDK raises without the condition that the service named.
_REACTIONS: dict[type[Exception], Reaction] = {
    ClientAuthenticationError: UNAUTHORIZED,
    MessageSizeExceededError: TOO_LARGE,
    MessagingEntityDisabledError: DISABLED,
    MessagingEntityNotFoundError: MISSING,
    ServiceBusAuthenticationError: UNAUTHORIZED,
    ServiceBusAuthorizationError: UNAUTHORIZED,
    ServiceBusQuotaExceededError: FULL,
    ServiceBusServerBusyError: THROTTLED,
}


class ServiceBusOutput:
    """Sends to the queues and topics of one namespace over one client, opened at the first message and kept."""

    def __init__(self, site: str, open_client: Callable[[], ServiceBusClient]) -> None:
        """Name the namespace in errors by its *site*."""
        self._site = site
        self._open_client = open_client
        self._client: ServiceBusClient | None = None
        self._senders: dict[str, ServiceBusSender] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a queue or topic in their order; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        # One call at a time per entity: the order holds, and the SDK's connection has a single reader.
        turn = self._locks.setdefault(entity, asyncio.Lock())
        try:
            async with asyncio.timeout_at(deadline):
                await turn.acquire()
        except TimeoutError as error:
            return [self._translated(entity, error)] * len(messages)
        answers: list[BuswayError | None] = []
        try:
            async with asyncio.timeout_at(deadline):
                limit = (await self._sender(entity).create_message_batch()).max_size_in_bytes
                for chunk in split_by_size(messages, limit):
                    await self._send_chunk(entity, chunk, limit, timeout_seconds, answers)
                    if _is_of_the_world(answers[-1]):
                        break
        except (AzureError, OSError) as error:
            # What is raised here came before the first batch, or from the clock.
            answers.append(about_the_link(self._translated(entity, error), f"{self._site}/{entity}"))
        finally:
            if answers and _needs_a_new_link(answers[-1]):
                await self._forget(entity)
            turn.release()
        return answers + [answers[-1]] * (len(messages) - len(answers))

    async def close(self) -> None:
        """Close all senders and the client."""
        senders, self._senders = self._senders, {}
        for sender in senders.values():
            await sender.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _send_chunk(
        self,
        entity: str,
        chunk: Sequence[Outgoing],
        limit: int,
        timeout_seconds: float,
        answers: list[BuswayError | None],
    ) -> None:
        """
        Send one batch; one that is refused for a message in it is halved until that message stands alone.

        What is known of its messages is appended to *answers* at once, so that a timeout loses none of it.
        """
        if len(chunk) == 1 and batch_size(chunk[0]) > limit:
            description = (
                f"{self._site}/{entity}: the message has {len(chunk[0].content)} bytes, expected at most {limit} in all"
            )
            answers.append(MessageRejected(SIZE_EXCEEDED, description))
            return
        try:
            if link_error(self._sender(entity)) is not None:
                await self._forget(entity)  # its last words were about an earlier message
            await send_once(self._sender(entity), raw_batch(chunk, limit), timeout_seconds)
        except (AzureError, OSError) as error:
            translated = self._translated(entity, error)
            if not isinstance(translated, MessageRejected) or len(chunk) == 1:
                answers.append(translated)
                return
        else:
            answers += [None] * len(chunk)
            return
        middle = len(chunk) // 2
        for half in (chunk[:middle], chunk[middle:]):
            await self._send_chunk(entity, half, limit, timeout_seconds, answers)
            if _is_of_the_world(answers[-1]):
                return

    def _sender(self, entity: str) -> ServiceBusSender:
        sender = self._senders.get(entity)
        if sender is None:
            if self._client is None:
                self._client = self._open_client()
            # The SDK's two kinds of sender differ in the name of this argument only.
            sender = self._senders[entity] = self._client.get_queue_sender(entity)
        return sender

    async def _forget(self, entity: str) -> None:
        sender = self._senders.pop(entity, None)
        if sender is not None:
            # Its connection has just failed, and the answer says so; that it cannot be closed in order adds nothing.
            with contextlib.suppress(AzureError, OSError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await sender.close()

    def _translated(self, entity: str, error: Exception) -> BuswayError:
        condition = condition_of(error)
        seen = f"{type(error).__name__}" + (f" ({condition})" if condition else "")
        kinds = (error, _inner(error))
        raised = next((row for kind, row in _REACTIONS.items() if any(isinstance(e, kind) for e in kinds)), UNREACHABLE)
        return as_error(reaction_to(condition, raised), f"{self._site}/{entity}", seen, error)


def raw_batch(chunk: Sequence[Outgoing], limit: int) -> ServiceBusMessageBatch:
    """Return the SDK's batch with the encoded messages of *chunk* as its data sections."""
    # A batch of another transport than its sender's would be made anew, without the sections put in here: sent empty.
    batch = ServiceBusMessageBatch(limit, amqp_transport=PyamqpTransportAsync)
    batch._message[5] = [message.content for message in chunk]
    batch._count = len(chunk)
    first = chunk[0]
    batch._amqp_transport.set_batch_envelope_properties(
        batch._message,
        first.message_id,
        first.session_id,
        first.partition_key,
    )
    return batch


async def send_once(sender: ServiceBusSender, batch: ServiceBusMessageBatch, timeout_seconds: float) -> None:
    """
    Send *batch* as `send_messages` does, but leave the link open when the target refuses a message.

    The SDK closes its connection after every refusal, and to open it again takes longer than to send a thousand
    messages. When the target detaches the link instead, the SDK knows why but says no more than that it failed; the
    error raised here has the reason. Raises ServiceBusError.
    """
    try:
        await sender._send(batch, timeout=timeout_seconds)
    except AMQPException as error:
        raise PyamqpTransportAsync.create_servicebus_exception(_LOGGER, error) from error
    except ServiceBusError as error:
        detached = link_error(sender)
        if detached is None:
            raise
        raise PyamqpTransportAsync.create_servicebus_exception(_LOGGER, detached) from error


def link_error(sender: ServiceBusSender) -> AMQPException | None:
    """Return the error with which the target has detached the link of *sender*, None while it has not."""
    handler: Any = sender._handler
    return None if handler is None or handler._link is None else handler._link._error


def condition_of(error: Exception) -> str | None:
    """Return the AMQP condition that the service named, None where it named none."""
    condition = error._condition if isinstance(error, ServiceBusError) else None
    return condition.decode() if isinstance(condition, bytes) else condition


def _is_of_the_world(answer: BuswayError | None) -> bool:
    return isinstance(answer, TargetUnavailable | TargetRefused)


def _needs_a_new_link(answer: BuswayError | None) -> bool:
    """Tell whether a sender may have lost its connection: not when it had an answer from the target."""
    return _is_of_the_world(answer) and not isinstance(getattr(answer, "__cause__", None), ServiceBusServerBusyError)


def _inner(error: Exception) -> BaseException | None:
    """Return what the SDK has wrapped: an identity without a token comes as an error of no special kind."""
    return error.inner_exception if isinstance(error, AzureError) else None
