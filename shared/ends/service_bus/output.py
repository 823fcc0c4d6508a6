"""Sends encoded messages to Service Bus, in batches, through the azure-servicebus SDK."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

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

from shared.access.identity import lacks_a_right
from shared.ends.batches import batch_size, encode_batch, envelope_of, split_by_size
from shared.ends.conditions import (
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
from shared.ends.sdk_amqp.encoded_transfer import ONE_MESSAGE, EncodedMessage
from shared.ends.service_bus.internals import condition_of
from shared.ends.service_bus.link import SenderLink
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing

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

    def __init__(
        self,
        site: str,
        open_client: Callable[[], ServiceBusClient],
        open_link: Callable[[ServiceBusSender], Awaitable[SenderLink]] = SenderLink.open,
    ) -> None:
        """Use *site* as the namespace's name in errors."""
        self._site = site
        self._open_client = open_client
        self._open_link = open_link
        self._client: ServiceBusClient | None = None
        self._places: dict[str, _Place] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a queue or topic in order, beside other calls; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        place = self._places.setdefault(entity, _Place(f"{self._site}/{entity}", self._link_to(entity)))
        try:
            link = await place.opened(deadline)
        except (AzureError, OSError) as error:
            return [about_the_link(translated(place.name, error), place.name)] * len(messages)
        answers: list[BuswayError | None] = []
        for chunk in split_by_size(messages, link.limit):
            answers += await _send_chunk(place, chunk, link.largest_message, deadline)
            if _is_not_the_messages_fault(answers[-1]):
                break
        return answers + [answers[-1]] * (len(messages) - len(answers))

    async def close(self) -> None:
        """Close all links and the client."""
        places, self._places = self._places, {}
        for place in places.values():
            await place.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _link_to(self, entity: str) -> Callable[[], Awaitable[SenderLink]]:
        def open_link() -> Awaitable[SenderLink]:
            if self._client is None:
                self._client = self._open_client()
            # The SDK's queue and topic senders differ only in the name of this argument.
            return self._open_link(self._client.get_queue_sender(entity))

        return open_link


class _Place:
    """A queue or topic, and the link to it, which is opened when it is needed."""

    def __init__(self, name: str, open_link: Callable[[], Awaitable[SenderLink]]) -> None:
        self.name = name
        self._open_link = open_link
        self._link: SenderLink | None = None
        self._opening = asyncio.Lock()
        # Batches that were in flight when the service closed the link because of one of them. Until so many have had
        # their answer they are sent one by one, which shows the one.
        self._suspects = 0
        self._alone = asyncio.Lock()

    async def opened(self, deadline: float) -> SenderLink:
        """Return the open link; raises the SDK's errors, and TimeoutError at *deadline*."""
        async with asyncio.timeout_at(deadline), self._opening:
            if self._link is not None and not await self._link.is_usable():
                ended, self._link = self._link, None
                await ended.retire()
            if self._link is None:
                self._link = await self._open_link()
            return self._link

    async def deliver(self, chunk: Sequence[Outgoing], deadline: float) -> BuswayError | None:
        """Send one batch; return None if it was accepted, or the error."""
        try:
            if not self._suspects:
                return await self._deliver(chunk, deadline)
            async with asyncio.timeout_at(deadline):
                await self._alone.acquire()
            try:
                return await self._deliver(chunk, deadline)
            finally:
                self._alone.release()
        except (AzureError, OSError) as error:
            return about_the_link(translated(self.name, error), self.name)

    async def close(self) -> None:
        """Close the link."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _deliver(self, chunk: Sequence[Outgoing], deadline: float) -> BuswayError | None:
        link = await self.opened(deadline)
        envelope = envelope_of(chunk[0])
        if len(chunk) == 1 and batch_size(envelope, chunk[0].content) > link.limit:
            message = EncodedMessage(chunk[0].content, ONE_MESSAGE)
        else:
            message = EncodedMessage(encode_batch(envelope, [each.content for each in chunk]))
        error = await link.deliver(message, deadline)
        answer = None if error is None else translated(self.name, error)
        is_lost = error is not None and error is link.failure
        if isinstance(answer, MessageRejected) and is_lost and link.lost > 1:
            self._suspects = max(self._suspects, link.lost)
            text = (
                "the target closed the link because of one of several batches; the next attempt sends them one by one"
            )
            answer = TargetUnavailable(f"{self.name}: {text}")
            answer.__cause__ = error
        elif self._suspects and not _needs_a_new_link(answer):
            self._suspects -= 1
        if is_lost or _needs_a_new_link(answer):
            if self._link is link:
                self._link = None
            await link.retire()
        return answer


async def _send_chunk(
    place: _Place, chunk: Sequence[Outgoing], largest_message: int, deadline: float
) -> list[BuswayError | None]:
    """Send one batch; if it is refused because of a message in it, halve it until that message is alone."""
    size = len(chunk[0].content)
    if len(chunk) == 1 and size > largest_message:
        text = f"{place.name}: the message has {size} bytes, expected at most {largest_message}"
        return [MessageRejected(SIZE_EXCEEDED, text)]
    answer = await place.deliver(chunk, deadline)
    if not isinstance(answer, MessageRejected) or len(chunk) == 1:
        return [answer] * len(chunk)
    middle = len(chunk) // 2
    answers = await _send_chunk(place, chunk[:middle], largest_message, deadline)
    if _is_not_the_messages_fault(answers[-1]):
        return answers
    return answers + await _send_chunk(place, chunk[middle:], largest_message, deadline)


def translated(where: str, error: Exception) -> BuswayError:
    """Return the error of Busway for one that the SDK raised about the entity *where*."""
    condition = condition_of(error)
    seen = f"{type(error).__name__}" + (f" ({condition})" if condition else "")
    kinds = (error, _inner(error))
    found = next((row for kind, row in _REACTIONS.items() if any(isinstance(e, kind) for e in kinds)), UNREACHABLE)
    raised = UNAUTHORIZED if lacks_a_right(error) else found
    return as_error(reaction_to(condition, raised), where, seen, error)


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
