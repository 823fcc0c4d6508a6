"""The applications that send and receive, with Microsoft's SDK."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any, cast

from azure.core.exceptions import AzureError
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from cli.composed import composed
from cli.demo.exact_types import kept_bytes
from cli.demo.messages import Pattern, Sample
from cli.demo.observations import APPLICATION, AUXILIARY, EVENTS, JOBS, PAYMENTS, Observations, Place, Receipt
from cli.property_types import sdk_form
from cli.signals import together
from shared.ends.namespace import Namespace
from shared.ends.service_bus.clients import client_of
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import TargetUnavailable
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import visited_sites
from shared.protocols import Outgoing
from shared.resend.peek import peek
from shared.resend.places import DEAD_LETTERS
from shared.resend.places import Place as QueuePlace

_RECEIVED_AT_ONCE = 50
_WAIT_SECONDS = 1.0
# How long a session may be empty before the next one, and how long to wait for a session.
_SILENT_SECONDS = 0.5
_SESSION_WAIT_SECONDS = 5.0
_SESSIONS_AT_ONCE = 8
# Without prefetch the SDK releases messages that arrive between two calls, and the next call may get a later one first.
_PREFETCHED = 50
_COUNTED = 10
_RETRIES = 3  # as many as the SDK makes


def _client(connection_string: str) -> ServiceBusClient:
    return client_of(Namespace("", connection_string), retries=_RETRIES)


@dataclass
class Consumers:
    """The applications of one site, which record what they receive in *observations*."""

    site: str
    connection_string: str
    observations: Observations

    async def run(self) -> None:
        """Receive until cancelled; raises TargetUnavailable if the broker fails."""
        try:
            async with _client(self.connection_string) as client:
                payments = client.get_subscription_receiver(Pattern.ACTIVE_PASSIVE, APPLICATION)
                await together(
                    *(self._take_sessions(client) for _ in range(_SESSIONS_AT_ONCE)),
                    self._take_all(payments, PAYMENTS, self._complete),
                    self._take_all(client.get_queue_receiver(JOBS), JOBS, self._work),
                    self._take_all(client.get_queue_receiver(AUXILIARY), AUXILIARY, self._complete),
                )
        except AzureError as error:
            raise TargetUnavailable(f"{self.site}: receive failed, {type(error).__name__}: {error}") from error

    async def _take_sessions(self, client: ServiceBusClient) -> None:
        """Receive one session after the other, each until it is empty."""
        while True:
            receiver = client.get_subscription_receiver(
                Pattern.ALL_ACTIVE,
                APPLICATION,
                session_id=NEXT_AVAILABLE_SESSION,
                max_wait_time=_SESSION_WAIT_SECONDS,
                prefetch_count=_PREFETCHED,
            )
            with contextlib.suppress(OperationTimeoutError):
                async with receiver:
                    while messages := await receiver.receive_messages(_RECEIVED_AT_ONCE, max_wait_time=_SILENT_SECONDS):
                        await asyncio.gather(*(self._complete(receiver, EVENTS, message) for message in messages))

    async def _take_all(
        self,
        receiver: ServiceBusReceiver,
        entity: str,
        take: Callable[[ServiceBusReceiver, str, ServiceBusReceivedMessage], Awaitable[None]],
    ) -> None:
        async with receiver:
            while True:
                messages = await receiver.receive_messages(_RECEIVED_AT_ONCE, max_wait_time=_WAIT_SECONDS)
                await asyncio.gather(*(take(receiver, entity, message) for message in messages))
                # A receiver that has lost its link can return at once, and must not block the others.
                await asyncio.sleep(0)

    async def _complete(self, receiver: ServiceBusReceiver, entity: str, message: ServiceBusReceivedMessage) -> None:
        place = Place(self.site, entity)
        received = Message.received(kept_bytes(message), Origin(*place))
        self.observations.note(Receipt(place, str(message.message_id), received))
        await receiver.complete_message(message)

    async def _work(self, receiver: ServiceBusReceiver, entity: str, message: ServiceBusReceivedMessage) -> None:
        """Do a job, or fail on as many sites as the message demands."""
        message_id = str(message.message_id)
        sample = self.observations.samples.get(message_id)
        visited = visited_sites(Message.received(kept_bytes(message), Origin(self.site, entity)))
        if sample is None or len(visited) >= sample.failures:
            await self._complete(receiver, entity, message)
            return
        await receiver.abandon_message(message)
        self.observations.note_failure(message_id, self.site, time.time_ns() // 1_000_000)


async def set_aside(site: str, connection_string: str) -> list[str]:
    """Return a line for each queue of rejects and dead letters that is not empty; raises TargetUnavailable."""
    lines = []
    owners = (JOBS, EVENTS, PAYMENTS)
    for entity in (*(f"{pattern}-rejected" for pattern in Pattern), *(f"{owner}{DEAD_LETTERS}" for owner in owners)):
        place = QueuePlace(site, site, site, entity)
        async with contextlib.aclosing(peek(place, {site: connection_string}, most=_COUNTED)) as found:
            count = len([each async for each in found])
        if count:
            lines.append(f"{place}: {count} messages{' or more' * (count == _COUNTED)}, expected none")
    return lines


_SENT_AT_ONCE = 20
_SEND_SECONDS = 60.0


async def feed(
    connection_string: str, samples: Sequence[Sample], pause_seconds: float, on_sent: Callable[[Sequence[Sample]], None]
) -> None:
    """
    Send *samples*, all of one site and pattern, in their order, with *pause_seconds* from one message to the next.

    Raises TargetUnavailable when the broker does not take them.
    """
    where = f"{samples[0].site}/{samples[0].pattern}"
    loop = asyncio.get_running_loop()
    try:
        output = ServiceBusOutput(samples[0].site, lambda: _client(connection_string))
        async with (
            AsyncExitStack() as opened,
            _client(connection_string) as client,
            # The SDK's two kinds of sender differ only in the name of this argument.
            client.get_queue_sender(samples[0].pattern) as sender,
        ):
            opened.push_async_callback(output.close)
            due = loop.time()
            for start in range(0, len(samples), _SENT_AT_ONCE):
                group = samples[start : start + _SENT_AT_ONCE]
                await _send(sender, output, group)
                on_sent(group)
                due += len(group) * pause_seconds
                await asyncio.sleep(max(due - loop.time(), 0))
    except AzureError as error:
        raise TargetUnavailable(f"{where}: sending failed, {type(error).__name__}: {error}") from error


async def _send(sender: ServiceBusSender, output: ServiceBusOutput, samples: Sequence[Sample]) -> None:
    for is_foreign, group in groupby(samples, lambda sample: sample.is_foreign):
        if is_foreign:
            messages = [encoded(sample) for sample in group]
            answers = await output.send(samples[0].pattern, messages, timeout_seconds=_SEND_SECONDS)
            for error in answers:
                if error is not None:
                    raise error
        else:
            async for batch in _batches(sender, map(sdk_message, group)):
                await sender.send_messages(batch)


async def _batches(
    sender: ServiceBusSender, messages: Iterator[ServiceBusMessage]
) -> AsyncIterator[ServiceBusMessageBatch]:
    batch = await sender.create_message_batch()
    for message in messages:
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            yield batch
            batch = await sender.create_message_batch()
            batch.add_message(message)
    yield batch


def sdk_message(sample: Sample) -> ServiceBusMessage:
    """Return *sample* as an application would build it."""
    template = sample.template
    life = sample.time_to_live
    return ServiceBusMessage(
        template.body,
        message_id=sample.message_id,
        session_id=sample.session_id,
        partition_key=sample.partition_key,
        subject=template.subject,
        content_type=template.content_type,
        correlation_id=template.correlation_id,
        to=template.to,
        reply_to=template.reply_to,
        time_to_live=None if life is None else timedelta(milliseconds=life),
        # The SDK's annotation leaves out the types that its encoder knows beyond plain scalars.
        application_properties=cast("Any", {name: sdk_form(value) for name, value in sample.properties.items()}),
    )


def encoded(sample: Sample) -> Outgoing:
    """
    Return *sample* as the bytes that a client with every AMQP type would send.

    For messages with a char, which .NET's and Java's clients send and the Python SDK cannot encode.
    """
    template = sample.template
    message = composed(
        template.body,
        sample.properties,
        message_id=sample.message_id,
        session_id=sample.session_id,
        partition_key=sample.partition_key,
        subject=template.subject,
        content_type=template.content_type,
        correlation_id=template.correlation_id,
        to=template.to,
        reply_to=template.reply_to,
        time_to_live=sample.time_to_live,
    )
    return Outgoing(message.encode(), sample.message_id, sample.session_id, sample.partition_key)
