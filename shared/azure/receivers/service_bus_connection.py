"""
Opening a connection to a Service Bus entity through azure-servicebus, for `raw_connection` to read.

The SDK's own receiver opens a TCP connection for each session and polls every 50 ms while a link opens. Therefore only
its connection, credential and management requests are used, and links are attached to the one connection, as .NET does.
tests/contracts/test_receive_seam.py checks the private names of the SDK.
"""

import asyncio
import copy
import random
from collections.abc import Mapping
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus._common.constants import CONSUMER_IDENTIFIER, OPERATION_TIMEOUT
from azure.servicebus._pyamqp._decode import decode_frame
from azure.servicebus._pyamqp.constants import ReceiverSettleMode, SenderSettleMode
from azure.servicebus._pyamqp.utils import amqp_uint_value
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.aio._async_utils import create_authentication

from shared.azure.connections import tls
from shared.azure.identity import async_credential
from shared.azure.receivers.connection import Connection
from shared.azure.receivers.raw_connection import OPEN_VALUES, MicrosoftSasl, RawConnection
from shared.azure.receivers.raw_link import RawLink, refused_or_closed
from shared.azure.service_bus_internals import ManagementConnection
from shared.errors import BuswayError

_OPEN_SECONDS = 30.0


class ServiceBusConnection:
    """An open connection to one queue or subscription; `open` makes it."""

    def __init__(self, client: ServiceBusClient, receiver: ServiceBusReceiver, credential: Any) -> None:
        """Keep what `close` closes."""
        self.raw: RawConnection
        self._client = client
        self._receiver: Any = receiver
        self._credential = credential
        self.namespace = ""

    @classmethod
    async def open(cls, connection: Connection, entity: Mapping[str, str], *, sessions: bool) -> "ServiceBusConnection":
        """
        Return an open connection to *entity*: queue_name, or topic_name and subscription_name.

        Raises: TargetUnavailable and TargetRefused.
        """
        credential = None
        if connection.connection_string is not None:
            client = ServiceBusClient.from_connection_string(connection.connection_string, ssl_context=tls())
        else:
            credential = async_credential()
            client = ServiceBusClient(str(connection.fully_qualified_namespace), credential, ssl_context=tls())
        arguments: dict[str, Any] = {**entity, **({"session_id": NEXT_AVAILABLE_SESSION} if sessions else {})}
        get = client.get_queue_receiver if "queue_name" in entity else client.get_subscription_receiver
        self = cls(client, get(**arguments), credential)
        self.namespace = connection.host_name
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                self.raw = await self._open("/".join(entity.values()))
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self, where: str) -> RawConnection:
        receiver = self._receiver
        try:
            amqp = receiver._amqp_transport.create_mgmt_client_async(
                receiver._config,
                auth=await create_authentication(receiver),  # type: ignore[no-untyped-call] # the SDK does not type it
                retry_policy=receiver._error_policy,
                client_name=receiver._name,
                properties=receiver._properties,
                **OPEN_VALUES,
            )
            amqp._auth.sasl = MicrosoftSasl()
            amqp._keep_alive_interval = 0
            receiver._handler = amqp
            await amqp.open_async()
            while not await amqp.auth_complete_async():
                pass  # each call reads from the socket
        except BuswayError:
            raise
        except Exception as error:  # errors of the SDK, azure-core or the socket
            raise refused_or_closed(where, error) from error
        receiver._running = True
        return await RawConnection.take_over(where, amqp, decode_frame)

    async def attach(
        self,
        prefetch: int = 0,
        session_wait: float | None = None,
        *,
        drains: bool = False,
        session_id: str | None = None,
    ) -> RawLink:
        """
        Return a new link: to the entity, or to its next session when the connection was opened for sessions.

        With *session_id* it is a link to that session, or LinkClosed if another receiver has it.

        Units: *session_wait* is how many seconds the service waits for a session before it answers with
        com.microsoft:timeout, which is a LinkClosed here. .NET asks for 20 to 120 ms less. *drains*: whether calls that
        return fewer messages than asked for drain the link, see `RawLink`.
        """
        properties: dict[Any, Any] = {CONSUMER_IDENTIFIER: self._receiver._name}
        if session_id is not None:
            self._receiver._session_id = session_id
        if session_wait is not None:
            properties[OPERATION_TIMEOUT] = amqp_uint_value(session_timeout(session_wait, random.random()))  # type: ignore[no-untyped-call] # likewise
        return await self.raw.attach(
            self._receiver._get_source(),
            properties,
            prefetch,
            drains=drains,
            send_settle_mode=SenderSettleMode.Unsettled,
            rcv_settle_mode=ReceiverSettleMode.Second,
        )

    @property
    def name(self) -> str:
        """The name of this client in traces of the service."""
        return str(self._receiver._name)

    def management(self, link: RawLink | None) -> ManagementConnection:
        """
        Return the `$management` node of the entity; its requests name *link*, which keeps the link alive.

        Source: pull request 10209 of azure-sdk-for-python.
        """
        # Copies, because the SDK takes the name from its own link, of which it has one; the connection is shared.
        receiver = copy.copy(self._receiver)
        receiver._handler = copy.copy(receiver._handler)
        receiver._handler._link = None if link is None or link.closed_with is not None else link.link
        receiver._close_handler = _stay_open
        return ManagementConnection(receiver)

    async def close(self) -> None:
        """Close the connection and the credential."""
        if hasattr(self, "raw"):
            await self.raw.close()
        await self._client.close()
        if self._credential is not None:
            await self._credential.close()


def session_timeout(seconds: float, jitter: float) -> int:
    """Return the milliseconds that .NET asks the service to wait for a session; *jitter* lies between 0 and 1."""
    return max(int(seconds * 1000 - 100 * jitter) - 20, 0)


async def _stay_open() -> None:
    """Replace the SDK's closing of the connection after an error that concerns one message or session."""
