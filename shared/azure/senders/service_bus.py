"""Sends encoded messages to Service Bus, in batches, through the azure-servicebus SDK."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
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
from shared.azure.service_bus_internals import condition_of, link_error, raw_batch, send_once
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing

_CLOSE_SECONDS = 1.0

# Errors that the SDK raises without the AMQP condition.
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
    """Sends to the queues and topics of one namespace over one client, opened at the first send and kept."""

    def __init__(self, site: str, open_client: Callable[[], ServiceBusClient]) -> None:
        """Use *site* as the namespace's name in errors."""
        self._site = site
        self._open_client = open_client
        self._client: ServiceBusClient | None = None
        self._senders: dict[str, ServiceBusSender] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a queue or topic in order; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        # One call at a time per entity, to keep the order; and the SDK's connection has a single reader.
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
                    if _is_not_the_messages_fault(answers[-1]):
                        break
        except (AzureError, OSError) as error:
            # Raised before the first batch, or by the timeout.
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
        Send one batch; if it is refused because of a message in it, halve it until that message is alone.

        Each answer is appended to *answers* as soon as it is known, so that a timeout loses none.
        """
        if len(chunk) == 1 and batch_size(chunk[0]) > limit:
            description = (
                f"{self._site}/{entity}: the message has {len(chunk[0].content)} bytes, expected at most {limit}"
            )
            answers.append(MessageRejected(SIZE_EXCEEDED, description))
            return
        try:
            if link_error(self._sender(entity)) is not None:
                await self._forget(entity)  # its error is about an earlier message
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
            if _is_not_the_messages_fault(answers[-1]):
                return

    def _sender(self, entity: str) -> ServiceBusSender:
        sender = self._senders.get(entity)
        if sender is None:
            if self._client is None:
                self._client = self._open_client()
            # The SDK's queue and topic senders differ only in the name of this argument.
            sender = self._senders[entity] = self._client.get_queue_sender(entity)
        return sender

    async def _forget(self, entity: str) -> None:
        sender = self._senders.pop(entity, None)
        if sender is not None:
            # The connection has just failed; an error while closing it adds nothing to the one reported.
            with contextlib.suppress(AzureError, OSError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await sender.close()

    def _translated(self, entity: str, error: Exception) -> BuswayError:
        condition = condition_of(error)
        seen = f"{type(error).__name__}" + (f" ({condition})" if condition else "")
        kinds = (error, _inner(error))
        raised = next((row for kind, row in _REACTIONS.items() if any(isinstance(e, kind) for e in kinds)), UNREACHABLE)
        return as_error(reaction_to(condition, raised), f"{self._site}/{entity}", seen, error)


def _is_not_the_messages_fault(answer: BuswayError | None) -> bool:
    return isinstance(answer, TargetUnavailable | TargetRefused)


def _needs_a_new_link(answer: BuswayError | None) -> bool:
    """Return whether the sender may have lost its connection; it has not if the target answered."""
    return _is_not_the_messages_fault(answer) and not isinstance(
        getattr(answer, "__cause__", None), ServiceBusServerBusyError
    )


def _inner(error: Exception) -> BaseException | None:
    """Return the error that the SDK wrapped: a failure to get a token comes as a plain ServiceBusError."""
    return error.inner_exception if isinstance(error, AzureError) else None
