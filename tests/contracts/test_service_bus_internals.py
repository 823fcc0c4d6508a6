"""
What shared/azure/service_bus_internals.py assumes about azure-servicebus.

If a test fails after an update of the SDK, review that module before you deploy.
"""

import asyncio
import logging
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage
from azure.servicebus._common.message import ServiceBusMessageBatch
from azure.servicebus._pyamqp.aio._connection_async import Connection
from azure.servicebus._pyamqp.aio._sender_async import SenderLink
from azure.servicebus._pyamqp.aio._session_async import Session
from azure.servicebus._pyamqp.error import AMQPException, ErrorCondition
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from shared.amqp.sections import DATA, body_parts, split
from shared.azure.senders.service_bus import ServiceBusOutput
from shared.azure.service_bus_internals import condition_of, link_error, raw_batch, send_once
from shared.errors import MessageRejected, TargetRefused, TargetUnavailable
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Outgoing
from tests.contracts.service_bus_sdk import encoded_batch
from tests.messages import delivered

ROOT = Path(__file__).parents[2]
CONNECTION_STRING = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
SOMEWHERE = Origin("west", "q")
CONTENTS = [delivered(1, session_id="s"), delivered(2, body=b"y" * 300), b"\x00\x53\x75\xa0\x00"]


def outgoing(*, partition_key: str | None = None) -> list[Outgoing]:
    first = Outgoing(CONTENTS[0], "m-1", "s", partition_key)
    return [first, *(Outgoing(content, "other", "other", "other") for content in CONTENTS[1:])]


def test_the_version_that_this_was_read_in_is_the_one_installed() -> None:
    pinned = [
        line.strip()
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line.startswith("azure-servicebus")
    ]
    assert pinned == [f"azure-servicebus=={version('azure-servicebus')}"]


def test_the_data_sections_of_a_batch_are_the_bytes_that_were_given() -> None:
    sections = split(encoded_batch(raw_batch(outgoing(), 10_000)))
    assert [(number, value.payload) for number, value in body_parts(sections.body)] == [
        (DATA, each) for each in CONTENTS
    ]


def test_the_envelope_repeats_what_the_first_message_says() -> None:
    envelope = Message.received(encoded_batch(raw_batch(outgoing(partition_key="s"), 10_000)), SOMEWHERE)
    assert envelope.envelope() == ("m-1", "s", "s")
    assert envelope.sections.application_properties == b""


def test_a_first_message_without_any_gives_an_envelope_without_any() -> None:
    batch = raw_batch([Outgoing(CONTENTS[1], None, None, None)], 10_000)
    assert Message.received(encoded_batch(batch), SOMEWHERE).envelope() == (None, None, None)


def test_a_batch_of_ours_is_a_batch_as_the_sdk_makes_it() -> None:
    ours = raw_batch([Outgoing(b"", "m", "s", "s")], 10_000)

    async def theirs() -> Any:
        async with ServiceBusClient.from_connection_string(CONNECTION_STRING) as client:
            sender = client.get_queue_sender("q")
            sender._max_message_size_on_link = sender._max_batch_size_on_link = 10_000
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage(b"x", message_id="m", session_id="s", partition_key="s"))
            return batch

    made = asyncio.run(theirs())
    assert len(ours) == len(made) == 1
    assert type(ours._message) is type(made._message)
    assert len(ours._message) == len(made._message)
    assert ours._amqp_transport is made._amqp_transport
    for index, (our, their) in enumerate(zip(ours._message, made._message, strict=True)):
        if index != 5:
            assert our == their, index
    (their_data,) = made._message[5]
    assert isinstance(their_data, bytes | bytearray)


def test_a_sender_sends_our_batch_and_not_one_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of another transport than the sender's is rebuilt from the messages that the SDK knows: from none."""
    sent = []

    async def send() -> None:
        async with ServiceBusClient.from_connection_string(CONNECTION_STRING, retry_total=0) as client:
            sender = client.get_queue_sender("q")
            sender._max_message_size_on_link = sender._max_batch_size_on_link = 10_000

            async def take(message: ServiceBusMessageBatch, **_: float) -> None:
                sent.append(encoded_batch(message))

            monkeypatch.setattr(sender, "_send", take)
            await sender.send_messages(raw_batch(outgoing(), 10_000), timeout=5)
            await send_once(sender, raw_batch(outgoing(), 10_000), 5)

    asyncio.run(send())
    content, content_at_once = sent
    assert content == content_at_once
    assert [value.payload for _, value in body_parts(split(content).body)] == CONTENTS


def test_an_error_names_its_condition() -> None:
    assert condition_of(ServiceBusError("no", condition=b"amqp:not-allowed")) == "amqp:not-allowed"
    assert condition_of(ServiceBusError("no", condition=ErrorCondition.NotAllowed)) == "amqp:not-allowed"
    assert condition_of(ServiceBusError("no")) is None
    assert condition_of(OSError("no")) is None


@pytest.mark.parametrize(
    ("condition", "translated"),
    [
        (b"amqp:not-allowed", MessageRejected),
        (b"amqp:decode-error", MessageRejected),
        (b"amqp:link:message-size-exceeded", MessageRejected),
        (b"com.microsoft:argument-error", MessageRejected),
        (b"com.microsoft:argument-out-of-range", MessageRejected),
        (b"amqp:not-found", TargetRefused),
        (b"amqp:unauthorized-access", TargetRefused),
        (b"com.microsoft:auth-failed", TargetRefused),
        (b"com.microsoft:entity-disabled", TargetRefused),
        (b"amqp:resource-limit-exceeded", TargetRefused),
        (b"com.microsoft:server-busy", TargetUnavailable),
        (b"com.microsoft:timeout", TargetUnavailable),
        (b"amqp:internal-error", TargetUnavailable),
        (b"amqp:connection:forced", TargetUnavailable),
        (b"amqp:link:detach-forced", TargetUnavailable),
        (b"com.example:never-heard-of", TargetUnavailable),
    ],
)
def test_what_the_service_answers_is_translated(condition: bytes, translated: type[MessageRejected]) -> None:
    error = PyamqpTransport.create_servicebus_exception(
        logging.getLogger(__name__), AMQPException(condition, description="secret description")
    )
    answer = ServiceBusOutput("east", _never)._translated("orders", error)
    assert type(answer) is translated
    assert answer.__cause__ is error
    assert "east/orders" in str(answer)
    assert "secret" not in str(answer)


@pytest.mark.parametrize(
    ("error", "translated"),
    [
        (MessageSizeExceededError(message="big"), MessageRejected),
        (MessagingEntityNotFoundError(), TargetRefused),
        (MessagingEntityDisabledError(), TargetRefused),
        (ServiceBusAuthorizationError(), TargetRefused),
        (ServiceBusQuotaExceededError(), TargetRefused),
        (ClientAuthenticationError("no token"), TargetRefused),
        (ServiceBusError("Handler failed", error=ClientAuthenticationError("no token")), TargetRefused),
        (ServiceBusConnectionError(), TargetUnavailable),
        (OperationTimeoutError(), TargetUnavailable),
        (TimeoutError(), TargetUnavailable),
        (ConnectionRefusedError(), TargetUnavailable),
    ],
)
def test_what_the_sdk_raises_is_translated(error: Any, translated: type[MessageRejected]) -> None:
    assert type(ServiceBusOutput("east", _never)._translated("orders", error)) is translated


def test_a_busy_service_is_left_alone_for_a_while() -> None:
    answer = ServiceBusOutput("east", _never)._translated("orders", ServiceBusServerBusyError())
    assert isinstance(answer, TargetUnavailable)
    assert answer.retry_after is not None


def _never() -> ServiceBusClient:
    raise AssertionError


def test_a_sender_keeps_the_error_that_detached_its_link() -> None:
    """`link_error` reads it there; the SDK's own error for the batch says only that it failed."""

    async def open_and_detach() -> Any:
        async with ServiceBusClient.from_connection_string(CONNECTION_STRING) as client:
            sender = client.get_queue_sender("q")
            assert link_error(sender) is None
            sender._create_handler(None)
            assert link_error(sender) is None
            quiet = {"network_trace": False, "network_trace_params": {}}
            session = Session(Connection("amqps://localhost"), 0, **quiet)
            sender._handler._link = SenderLink(session, 0, target_address="q", **quiet)
            assert link_error(sender) is None
            detach = [0, True, [b"amqp:link:message-size-exceeded", b"too large", None]]
            await sender._handler._link._incoming_detach(detach)
            return link_error(sender)

    assert asyncio.run(open_and_detach()).condition == b"amqp:link:message-size-exceeded"
