"""
What shared/ends/service_bus/internals.py assumes about azure-servicebus.

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
from azure.servicebus._pyamqp.error import AMQPException, ErrorCondition
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus._pyamqp.message import Message as SdkMessage
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

from shared.amqp.sections import DATA, body_parts
from shared.ends.azure_amqp.encoded_transfer import BATCH, ONE_MESSAGE
from shared.ends.batches import encode_batch, envelope_of
from shared.ends.conditions import DISABLED, FULL, MISSING, THROTTLED, TOO_LARGE, UNAUTHORIZED, UNREACHABLE, Reaction
from shared.ends.service_bus.internals import condition_of
from shared.ends.service_bus.send_errors import translated
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Outgoing
from tests.contracts.conditions import ROWS_OF_CONDITIONS, check_is_of
from tests.contracts.service_bus_sdk import encoded_batch
from tests.messages import delivered

ROOT = Path(__file__).parents[2]
CONNECTION_STRING = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
SOMEWHERE = Origin("west", "q")
CONTENTS = [delivered(1, session_id="s"), delivered(2, body=b"y" * 300), b"\x00\x53\x75\xa0\x00"]


def test_the_version_that_this_was_read_in_is_the_one_installed() -> None:
    pinned = [
        line.strip()
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line.startswith("azure-servicebus")
    ]
    assert pinned == [f"azure-servicebus=={version('azure-servicebus')}"]


@pytest.mark.parametrize("key", [None, "s"])
@pytest.mark.parametrize(("identity", "session"), [("m", "s"), ("ä" * 128, None)])
def test_the_envelope_of_a_batch_says_what_that_of_the_sdk_says(
    identity: str, session: str | None, key: str | None
) -> None:
    key = None if session is None else key  # the SDK wants the two to be equal

    async def theirs() -> bytes:
        async with ServiceBusClient.from_connection_string(CONNECTION_STRING) as client:
            sender = client.get_queue_sender("q")
            sender._max_message_size_on_link = sender._max_batch_size_on_link = 10_000
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage(b"x", message_id=identity, session_id=session, partition_key=key))
            return encoded_batch(batch)

    ours = Message.received(encode_batch(envelope_of(Outgoing(b"", identity, session, key)), CONTENTS), SOMEWHERE)
    made = Message.received(asyncio.run(theirs()), SOMEWHERE)
    assert ours.envelope() == made.envelope() == (identity, session, key)
    assert ours.sections.header == made.sections.header == b""
    assert ours.sections.application_properties == made.sections.application_properties == b""
    assert [(number, value.payload) for number, value in body_parts(ours.sections.body)] == [
        (DATA, content) for content in CONTENTS
    ]


def test_a_first_message_without_an_id_gives_an_envelope_without_one() -> None:
    for first in (Outgoing(b"", None, "s", None), Outgoing(b"", None, None, None)):
        batch = encode_batch(envelope_of(first), CONTENTS)
        assert Message.received(batch, SOMEWHERE).envelope() == (None, first.session_id, None)


def test_the_format_of_a_batch_is_that_of_the_sdk() -> None:
    # The SDK sets them after its class statements.
    assert (vars(BatchMessage)["_code"], vars(SdkMessage)["_code"]) == (BATCH, ONE_MESSAGE)


def test_an_error_names_its_condition() -> None:
    assert condition_of(ServiceBusError("no", condition=b"amqp:not-allowed")) == "amqp:not-allowed"
    assert condition_of(ServiceBusError("no", condition=ErrorCondition.NotAllowed)) == "amqp:not-allowed"
    assert condition_of(ServiceBusError("no")) is None
    assert condition_of(OSError("no")) is None


@pytest.mark.parametrize(("condition", "row"), ROWS_OF_CONDITIONS)
def test_what_the_service_answers_is_translated(condition: str, row: Reaction) -> None:
    error = PyamqpTransport.create_servicebus_exception(
        logging.getLogger(__name__), AMQPException(condition.encode(), description="secret description")
    )
    answer = translated("east/orders", error)
    check_is_of(answer, row)
    assert answer.__cause__ is error
    assert "east/orders" in str(answer)
    assert "secret" not in str(answer)


@pytest.mark.parametrize(
    ("error", "row"),
    [
        (MessageSizeExceededError(message="big"), TOO_LARGE),
        (MessagingEntityNotFoundError(), MISSING),
        (MessagingEntityDisabledError(), DISABLED),
        (ServiceBusAuthorizationError(), UNAUTHORIZED),
        (ServiceBusQuotaExceededError(), FULL),
        (ServiceBusServerBusyError(), THROTTLED),
        (ClientAuthenticationError("no token"), UNAUTHORIZED),
        (ServiceBusError("Handler failed", error=ClientAuthenticationError("no token")), UNAUTHORIZED),
        (ServiceBusConnectionError(), UNREACHABLE),
        (OperationTimeoutError(), UNREACHABLE),
        (TimeoutError(), UNREACHABLE),
        (ConnectionRefusedError(), UNREACHABLE),
    ],
)
def test_what_the_sdk_raises_is_translated(error: Any, row: Reaction) -> None:
    check_is_of(translated("east/orders", error), row)
