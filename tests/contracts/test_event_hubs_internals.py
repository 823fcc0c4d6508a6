"""
What shared/ends/event_hubs/internals.py assumes about azure-eventhub.

A failure here after an update of the SDK means: look at that module before anything is deployed.
"""

import asyncio
import inspect
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.eventhub import EventData
from azure.eventhub._pyamqp.aio._client_async import SendClientAsync
from azure.eventhub._pyamqp.aio._connection_async import Connection
from azure.eventhub._pyamqp.aio._sender_async import SenderLink
from azure.eventhub._pyamqp.aio._session_async import Session
from azure.eventhub._pyamqp.client import AMQPClient
from azure.eventhub._pyamqp.constants import (
    MESSAGE_DELIVERY_DONE_STATES,
    SEND_DISPOSITION_ACCEPT,
    SEND_DISPOSITION_REJECT,
    LinkDeliverySettleReason,
    MessageDeliveryState,
)
from azure.eventhub._pyamqp.error import AMQPConnectionError, AMQPLinkError, ErrorCondition, MessageException
from azure.eventhub._pyamqp.message import _MessageDelivery
from azure.eventhub.aio import EventHubProducerClient
from azure.eventhub.exceptions import AuthenticationError, EventHubError

from shared.amqp.sections import DATA, body_parts
from shared.ends.azure_amqp.encoded_transfer import BATCH
from shared.ends.batches import encode_batch, envelope_of
from shared.ends.conditions import Reaction
from shared.ends.event_hubs.internals import condition_of
from shared.ends.event_hubs.output import Publisher
from shared.errors import TargetRefused, TargetUnavailable
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Outgoing
from tests.contracts.conditions import ROWS_OF_CONDITIONS, check_is_of
from tests.contracts.event_hubs_sdk import encoded_batch
from tests.messages import delivered

ROOT = Path(__file__).parents[2]
CONNECTION_STRING = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
SOMEWHERE = Origin("west", "hub")
CONTENTS = [delivered(1), delivered(2, body=b"y" * 300), b"\x00\x53\x75\xa0\x00"]
NEVER: Any = None


def client() -> EventHubProducerClient:
    return EventHubProducerClient.from_connection_string(CONNECTION_STRING, eventhub_name="hub", retry_total=0)


def test_the_version_that_this_was_read_in_is_the_one_installed() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pinned = [line.strip() for line in lines if line.startswith("azure-eventhub")]
    assert pinned == [f"azure-eventhub=={version('azure-eventhub')}"] == ["azure-eventhub==5.15.1"]


@pytest.mark.parametrize("key", [None, "customer", "ä" * 128])
def test_a_batch_has_the_partition_key_as_that_of_the_sdk_has_it(key: str | None) -> None:
    """The SDK's has a header too, which asks for what a hub does with every event: to store it."""

    async def theirs() -> bytes:
        async with client() as producer:
            producer._max_message_size_on_link = 10_000
            batch = await producer.create_batch(partition_key=key)
            batch.add(EventData(b"x"))
            assert batch._message._code == BATCH
            return encoded_batch(batch)

    ours = Message.received(encode_batch(envelope_of(Outgoing(b"", None, None, key)), CONTENTS), SOMEWHERE)
    made = Message.received(asyncio.run(theirs()), SOMEWHERE)
    assert ours.envelope() == made.envelope() == (None, None, key)
    assert [(number, value.payload) for number, value in body_parts(ours.sections.body)] == [
        (DATA, content) for content in CONTENTS
    ]


@pytest.mark.parametrize(("partition", "target"), [(None, "/hub"), ("3", "/hub/Partitions/3")])
def test_a_producer_has_the_parts_that_are_opened_and_driven(partition: str | None, target: str) -> None:
    async def parts() -> None:
        async with client() as producer_client:
            producer: Any = producer_client._create_producer(partition_id=partition)
            assert producer._target.endswith(target)
            assert (producer._handler, producer._max_message_size_on_link) == (None, None)
            assert inspect.iscoroutinefunction(producer._open)
            producer._create_handler(await producer_client._create_auth_async())
            handler, producer._handler = producer._handler, None
            assert handler._link is None
            assert list(inspect.signature(handler._transfer_message_async).parameters) == [
                "message_delivery",
                "timeout",
            ]
            assert inspect.iscoroutinefunction(handler.do_work_async)

    asyncio.run(parts())


@pytest.fixture
def settled() -> Callable[..., Any]:
    """Settle a delivery the way the SDK's client does when the link reports a result."""
    handler = object.__new__(SendClientAsync)

    def settle(reason: LinkDeliverySettleReason, state: dict[str, list[list[bytes | None]]] | None = None) -> Any:
        delivery = _MessageDelivery(None, MessageDeliveryState.WaitingForSendAck)
        asyncio.run(handler._on_send_complete_async(delivery, reason, state))
        assert delivery.state in MESSAGE_DELIVERY_DONE_STATES
        assert delivery.reason == reason
        return delivery

    return settle


def test_a_delivery_keeps_what_the_hub_said(settled: Callable[..., Any]) -> None:
    taken = settled(LinkDeliverySettleReason.DISPOSITION_RECEIVED, {SEND_DISPOSITION_ACCEPT: []})
    assert (taken.state, taken.error) == (MessageDeliveryState.Ok, None)
    state = {SEND_DISPOSITION_REJECT: [[b"amqp:not-allowed", b"no", None]]}
    refused = settled(LinkDeliverySettleReason.DISPOSITION_RECEIVED, state)
    assert refused.state == MessageDeliveryState.Error
    assert condition_of(refused.error) == "amqp:not-allowed"
    lost = settled(LinkDeliverySettleReason.NOT_DELIVERED)
    assert lost.state == MessageDeliveryState.Error


def test_a_link_keeps_the_error_that_detached_it() -> None:
    async def detach() -> Any:
        quiet: dict[str, Any] = {"network_trace": False, "network_trace_params": {}}
        link: Any = SenderLink(Session(Connection("amqps://localhost"), 0, **quiet), 0, target_address="hub", **quiet)
        assert link._error is None
        await link._incoming_detach([0, True, [b"amqp:link:message-size-exceeded", b"too large", None]])
        return link._error

    assert condition_of(asyncio.run(detach())) == "amqp:link:message-size-exceeded"


def test_a_client_keeps_no_thread_beside_the_caller() -> None:
    """A keep-alive would read from the connection while a batch waits for its answer."""

    async def interval() -> Any:
        async with client() as producer_client:
            producer = producer_client._create_producer()
            producer._create_handler(await producer_client._create_auth_async())
            handler, producer._handler = producer._handler, None
            assert isinstance(handler, AMQPClient)
            return handler._keep_alive_interval

    assert not asyncio.run(interval())


def test_an_error_names_its_condition() -> None:
    assert condition_of(MessageException(b"amqp:not-allowed")) == "amqp:not-allowed"
    assert condition_of(AMQPLinkError(ErrorCondition.NotFound)) == "amqp:not-found"
    assert condition_of(OSError("no")) is None


@pytest.mark.parametrize(("condition", "row"), ROWS_OF_CONDITIONS)
def test_what_the_service_answers_is_translated(condition: str, row: Reaction) -> None:
    error = MessageException(condition.encode(), description="secret description")
    answer = Publisher("east/hub", NEVER, is_named=False).translated(error)
    check_is_of(answer, row)
    assert answer.__cause__ is error
    assert "east/hub" in str(answer)
    assert "secret" not in str(answer)


@pytest.mark.parametrize(
    ("error", "translated"),
    [
        (AuthenticationError("no"), TargetRefused),
        (ClientAuthenticationError("no token"), TargetRefused),
        (AMQPConnectionError(ErrorCondition.SocketError), TargetUnavailable),
        (EventHubError("no"), TargetUnavailable),
        (TimeoutError(), TargetUnavailable),
        (ConnectionRefusedError(), TargetUnavailable),
    ],
)
def test_what_the_sdk_raises_is_translated(error: Any, translated: type[TargetRefused]) -> None:
    assert type(Publisher("east/hub", NEVER, is_named=False).translated(error)) is translated
