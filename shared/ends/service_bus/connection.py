"""A connection to a Service Bus entity with links that pass on the bytes of messages."""

import random
from collections.abc import Mapping

from azure.servicebus.aio import ServiceBusClient

from shared.amqp.values import NULL, string, uint
from shared.ends.azure_amqp.raw_connection import RawConnection
from shared.ends.azure_amqp.raw_link import RawLink
from shared.ends.namespace import Namespace
from shared.ends.service_bus.clients import client_of
from shared.ends.service_bus.internals import peer_of
from shared.ends.service_bus.management import ManagementConnection


class ServiceBusConnection:
    """An open connection to one queue or subscription; `open` makes it."""

    def __init__(self, client: ServiceBusClient, path: str, *, sessions: bool) -> None:
        """Keep what `close` closes."""
        self.raw: RawConnection
        self._client = client
        self._path = path
        self._has_sessions = sessions
        self.namespace = ""

    @classmethod
    async def open(cls, namespace: Namespace, entity: Mapping[str, str], *, sessions: bool) -> "ServiceBusConnection":
        """
        Return an open connection to *entity*: queue_name, or topic_name and subscription_name.

        Raises: TargetUnavailable and TargetRefused.
        """
        client = client_of(namespace)
        path = entity.get("queue_name") or f"{entity['topic_name']}/Subscriptions/{entity['subscription_name']}"
        self = cls(client, path, sessions=sessions)
        self.namespace = namespace.host_name
        try:
            self.raw = await RawConnection.open("/".join(entity.values()), peer_of(client), path)
        except BaseException:
            await self.close()
            raise
        return self

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
        properties = {"com.microsoft:receiver-name": string(self.name)}
        if session_wait is not None:
            properties["com.microsoft:timeout"] = uint(session_timeout(session_wait, random.random()))
        session = NULL if session_id is None else string(session_id)
        filters = {"com.microsoft:session-filter": session} if self._has_sessions else None
        return await self.raw.attach(self._path, properties, prefetch, filters=filters, drains=drains)

    @property
    def name(self) -> str:
        """The name of this client in traces of the service."""
        return self.raw.name

    def management(self, link: RawLink | None) -> ManagementConnection:
        """Return the `$management` node of the entity; its requests name *link*, which keeps the link alive."""

        async def connect() -> RawConnection:
            return self.raw

        is_open = link is not None and link.closed_with is None
        return ManagementConnection(self._path, connect, link.name if link is not None and is_open else None)

    async def close(self) -> None:
        """Close the connection."""
        if hasattr(self, "raw"):
            await self.raw.close()
        await self._client.close()


def session_timeout(seconds: float, jitter: float) -> int:
    """Return the milliseconds that .NET asks the service to wait for a session; *jitter* lies between 0 and 1."""
    return max(int(seconds * 1000 - 100 * jitter) - 20, 0)
