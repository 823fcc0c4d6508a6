"""
The private names of the SDKs that messages are received through, below their decoders.

A new version of azure-servicebus or azure-eventhub that renames or changes one of them fails here, by name.
"""

import asyncio
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from azure.eventhub._constants import GEOREPLICATION_SYMBOL, TIMEOUT_SYMBOL
from azure.eventhub._utils import event_position_selector
from azure.eventhub.aio import EventHubConsumerClient
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus._common.constants import CONSUMER_IDENTIFIER, OPERATION_TIMEOUT
from azure.servicebus._pyamqp.utils import amqp_uint_value
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio._async_utils import create_authentication

SERVICE_BUS = "azure.servicebus._pyamqp"
_OPEN = "create_mgmt_client_async"
EVENT_HUBS = "azure.eventhub._pyamqp"


def module(name: str) -> ModuleType:
    return __import__(name, fromlist=["_"])


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


@pytest.fixture(params=[SERVICE_BUS, EVENT_HUBS])
def pyamqp(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_transport_has_the_parts_that_are_replaced_and_read(pyamqp: str) -> None:
    transport = module(f"{pyamqp}.aio._transport_async").AsyncTransport("localhost", use_tls=False)
    assert isinstance(transport.socket_lock, asyncio.Lock)
    assert transport._read_buffer.read() == b""
    assert transport.reader is None
    assert "timeout" in parameters(transport.receive_frame)
    assert len(parameters(transport.write)) == 1
    source = inspect.getsource(module(f"{pyamqp}.aio._transport_async").AsyncTransportMixin.read)
    assert "self.socket_lock" in source


def test_connection_reads_frames_through_the_transport_only(pyamqp: str) -> None:
    connection = module(f"{pyamqp}.aio._connection_async").Connection
    assert "self._transport.receive_frame(" in inspect.getsource(connection._read_frame)
    assert parameters(connection._process_incoming_frame) == {"self", "channel", "frame"}
    assert {"wait", "batch"} <= parameters(connection.listen)
    created = connection("amqps://localhost:5672", sasl_credential=None, use_tls=False)
    for name in ("_transport", "_error", "_last_frame_sent_time", "_last_frame_received_time"):
        assert hasattr(created, name), name


def test_an_empty_frame_is_no_frame_for_the_connection(pyamqp: str) -> None:
    connection = module(f"{pyamqp}.aio._connection_async").Connection("amqps://localhost:5672", use_tls=False)
    assert asyncio.run(connection._process_incoming_frame(None, None)) is True


def test_session_and_link_keep_what_is_read_and_written(pyamqp: str) -> None:
    session_class = module(f"{pyamqp}.aio._session_async").Session
    connection = module(f"{pyamqp}.aio._connection_async").Connection("amqps://localhost:5672", use_tls=False)
    session = connection.create_session(incoming_window=10, outgoing_window=10)
    assert isinstance(session, session_class)
    assert session.channel in connection._outgoing_endpoints
    assert (session.incoming_window, session.target_incoming_window) == (10, 10)
    for name in ("next_incoming_id", "remote_outgoing_window", "links", "_output_handles", "_outgoing_flow"):
        assert hasattr(session, name), name
    link = session.create_receiver_link(
        source_address="queue",
        link_credit=0,
        on_transfer=None,
        on_attach=None,
        properties={},
        send_settle_mode=0,
        rcv_settle_mode=1,
    )
    assert session.links[link.name] is link
    assert session._output_handles[link.handle] is link
    for name in ("remote_handle", "delivery_count", "current_link_credit", "state", "_error", "_incoming_flow"):
        assert hasattr(link, name), name
    assert {"link_credit"} <= parameters(link.flow)
    assert "self._on_attach(AttachFrame(*frame))" in inspect.getsource(
        module(f"{pyamqp}.aio._link_async").Link._incoming_attach
    )


def test_link_states_have_the_names_that_are_compared(pyamqp: str) -> None:
    states = module(f"{pyamqp}.constants").LinkState
    assert {"DETACHED", "ERROR", "ATTACHED"} <= set(states.__members__)


def test_client_authenticates_in_steps_and_closes(pyamqp: str) -> None:
    client = module(f"{pyamqp}.aio._client_async").AMQPClientAsync
    for name in ("open_async", "auth_complete_async", "close_async"):
        assert inspect.iscoroutinefunction(getattr(client, name)), name


def test_frame_decoder_takes_a_memoryview_without_the_frame_header(pyamqp: str) -> None:
    decode_frame = module(f"{pyamqp}._decode").decode_frame
    performative, fields = decode_frame(memoryview(b"\x00\x53\x15\xc0\x06\x05\x42\x43\x43\x41\x40"))
    assert (performative, fields[:4]) == (0x15, [False, 0, 0, True])


def test_service_bus_receiver_gives_source_credential_and_management() -> None:
    async def look() -> None:
        client = ServiceBusClient.from_connection_string(
            "Endpoint=sb://localhost:5672;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
        )
        receiver = client.get_queue_receiver("queue", session_id=NEXT_AVAILABLE_SESSION)
        source = receiver._get_source()
        assert source.address == "amqps://localhost:5672/queue"
        assert source.filters == {b"com.microsoft:session-filter": None}
        assert "config" in parameters(getattr(receiver._amqp_transport, _OPEN))
        for name in ("_config", "_error_policy", "_name", "_properties", "_running", "_handler"):
            assert hasattr(receiver, name), name
        # Their copies send requests that name another link, over the same connection.
        assert "self._amqp_transport.get_handler_link_name(self._handler)" in inspect.getsource(
            receiver._mgmt_request_response
        )
        assert "await self._close_handler()" in inspect.getsource(receiver._handle_exception)
        assert {"mgmt_operation", "message", "callback", "timeout"} <= parameters(
            receiver._mgmt_request_response_with_retry
        )
        await client.close()

    asyncio.run(look())
    assert inspect.iscoroutinefunction(create_authentication)
    assert all((CONSUMER_IDENTIFIER, OPERATION_TIMEOUT))
    assert amqp_uint_value(5) == {"TYPE": "UINT", "VALUE": 5}


def test_event_hubs_client_gives_address_source_and_credential() -> None:
    async def look() -> None:
        client = EventHubConsumerClient.from_connection_string(
            "Endpoint=sb://localhost:5672;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true",
            "$Default",
            eventhub_name="hub",
        )
        assert client._address.path == "/hub"
        assert "localhost:5672" in client._address.hostname
        assert hasattr(client, "_config")
        assert inspect.iscoroutinefunction(client._create_auth_async)
        transport = client._amqp_transport
        assert parameters(transport.create_mgmt_client) == {"address", "mgmt_auth", "config"}
        assert transport.create_source("a", "-1", b"selector").filters
        assert transport.create_link_properties({TIMEOUT_SYMBOL: 0})
        await client.close()

    asyncio.run(look())
    assert GEOREPLICATION_SYMBOL
    assert event_position_selector("5") == b"amqp.annotation.x-opt-offset > '5'"
