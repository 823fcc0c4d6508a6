"""
The private names of the SDKs that connections with Busway's own AMQP get addresses and credentials from.

A new version of azure-servicebus or azure-eventhub that renames or changes one of them fails here, by name.
"""

import asyncio
from typing import Any

import pytest
from azure.eventhub._constants import JWT_TOKEN_SCOPE as HUBS_SCOPE
from azure.eventhub._utils import event_position_selector
from azure.eventhub.aio import EventHubConsumerClient
from azure.servicebus._common.constants import JWT_TOKEN_SCOPE as SERVICE_BUS_SCOPE
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessagingEntityNotFoundError, SessionLockLostError

from shared.amqp.errors import AmqpError
from shared.ends.event_hubs import receiver
from shared.ends.service_bus import internals
from shared.ends.service_bus.internals import peer_of, raise_as_sdk, raise_refused

EMULATOR = "Endpoint=sb://localhost:5672;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
AZURE = "Endpoint=sb://west.servicebus.windows.net;SharedAccessKeyName=n;SharedAccessKey=k"


@pytest.mark.parametrize(
    ("text", "host_name", "is_encrypted"),
    [(EMULATOR, "localhost:5672", False), (AZURE, "west.servicebus.windows.net", True)],
)
def test_service_bus_client_gives_address_and_credential(text: str, host_name: str, is_encrypted: bool) -> None:
    async def look() -> tuple[Any, Any]:
        async with ServiceBusClient.from_connection_string(text) as client:
            peer = peer_of(client)
            return peer, await peer.credential.get_token("sb://localhost/q")

    peer, token = asyncio.run(look())
    assert (peer.host_name, peer.tls is not None) == (host_name, is_encrypted)
    assert peer.credential.token_type == b"servicebus.windows.net:sastoken"
    assert "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Fq&sig=" in str(token.token)


def test_event_hubs_client_gives_address_and_credential() -> None:
    async def look() -> None:
        client: Any = EventHubConsumerClient.from_connection_string(EMULATOR, "$Default", eventhub_name="hub")
        assert (client._address.hostname, client._address.path) == ("localhost:5672", "/hub")
        assert client._config.use_tls is False
        assert client._credential.token_type == b"servicebus.windows.net:sastoken"
        assert (await client._credential.get_token("sb://localhost/hub")).expires_on > 0
        await client.close()

    asyncio.run(look())
    assert event_position_selector("5") == b"amqp.annotation.x-opt-offset > '5'"


def test_scopes_are_those_of_the_sdks() -> None:
    assert (internals._SCOPE, receiver._SCOPE) == (SERVICE_BUS_SCOPE, HUBS_SCOPE)


def test_an_error_of_a_connection_is_that_of_the_sdk() -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        raise_as_sdk(AmqpError("amqp:not-found", "no queue q"))
    with pytest.raises(SessionLockLostError, match="it is gone"):
        raise_refused(410, "com.microsoft:session-lock-lost", "it is gone")
    with pytest.raises(ConnectionResetError):
        raise_as_sdk(ConnectionResetError())
