"""The applications that send, with Microsoft's SDK."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import groupby
from typing import Any, cast

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from cli.demo.messages import Sample
from cli.property_types import sdk_form
from shared.amqp.sections import Sections
from shared.amqp.values import string
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import TargetUnavailable
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import Outgoing

_BATCH_MESSAGES = 20
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
        output = ServiceBusOutput(samples[0].site, lambda: ServiceBusClient.from_connection_string(connection_string))
        async with (
            AsyncExitStack() as opened,
            ServiceBusClient.from_connection_string(connection_string) as client,
            # The SDK's two kinds of sender differ only in the name of this argument.
            client.get_queue_sender(samples[0].pattern) as sender,
        ):
            opened.push_async_callback(output.close)
            due = loop.time()
            for start in range(0, len(samples), _BATCH_MESSAGES):
                group = samples[start : start + _BATCH_MESSAGES]
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
    message = Message(Sections(), Arrival(Origin(sample.site, sample.pattern), None, None, None, None, None))
    message.message_id = string(sample.message_id)
    message.session_id = sample.session_id
    message.subject = template.subject
    message.content_type = template.content_type
    message.correlation_id = None if template.correlation_id is None else string(template.correlation_id)
    message.to = template.to
    message.reply_to = template.reply_to
    message.time_to_live = sample.time_to_live
    if sample.partition_key is not None:
        message.set_annotations({"x-opt-partition-key": string(sample.partition_key)})
    message.set_properties(sample.properties)
    message.body = template.body
    return Outgoing(message.encode(), sample.message_id, sample.session_id, sample.partition_key)
