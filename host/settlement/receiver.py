"""
A receiver as Azure.Messaging.ServiceBus has it: the link that holds messages, or a session and its messages.

1. It settles over the link that received. When the link has gone, messages without sessions are settled over
   `$management`, since version 7.16 (SR5: azure-sdk-for-net 30310); those of a session fail with SessionLockLost (SR3).
2. It renews over `$management` and names its link in the request, which keeps the link alive (SR16:
   azure-sdk-for-python 10209).

Source: AmqpReceiver (Azure/azure-sdk-for-net, sdk/servicebus/Azure.Messaging.ServiceBus/src/Amqp).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import OperationTimeoutError

from host.annotations import annotations_of, number_of
from host.settlement.failure import SESSION_LOCK_LOST, Failure, ServiceBusFailure
from host.settlement.outcome import Outcome
from host.triggers.service_bus_source import ServiceBusSource
from shared.ends.azure_amqp.raw_link import Delivery, RawLink
from shared.ends.service_bus.connection import ServiceBusConnection
from shared.ends.service_bus.internals import condition_of
from shared.ends.service_bus.management import ManagementConnection
from shared.errors import TargetUnavailable

_REQUEST_SECONDS = 60.0
_TIMEOUT = "com.microsoft:timeout"
_NO_CONNECTION = "the connection is lost"
_IN_SESSION = (
    "System.InvalidOperationException: Messages cannot be locked when working with session-enabled entities. Locks are"
    " handled at the session level.In order to manually renew the session lock, bind to the"
    " 'ServiceBusSessionMessageActions' type and call 'RenewSessionLockAsync'."
)


class Receiver:
    """A link and the connection that it is on."""

    def __init__(self, source: ServiceBusSource, connection: ServiceBusConnection, link: RawLink) -> None:
        """Receive on *link*, which belongs to *connection*; a connection of its own to *source* is the last resort."""
        self.link = link
        self.connection = connection
        self._source = source

    @property
    def session_id(self) -> str | None:
        """Return the session that it holds, None for an entity without sessions."""
        return self.link.session_id if self._source.has_sessions else None

    @property
    def is_lost(self) -> bool:
        """Return whether the link has ended."""
        return self.link.closed_with is not None or self.connection.raw.is_broken

    async def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> dict[int, str]:
        """Settle messages and return the failures: delivery id → condition."""
        try:
            failures = await self.connection.raw.settle(self.link, deliveries, outcome.code, outcome.state)
        except TargetUnavailable:
            if self.session_id is not None:
                raise
            failures = dict.fromkeys((delivery.delivery_id for delivery in deliveries), _NO_CONNECTION)
        if failures and self.session_id is None and self.is_lost:
            lost = [delivery for delivery in deliveries if delivery.delivery_id in failures]
            return await self.settle_without_link(lost, outcome)
        return failures

    async def settle_without_link(self, deliveries: Sequence[Delivery], outcome: Outcome) -> dict[int, str]:
        """Settle messages that the link does not know any more, and return the failures: in a session all."""
        if self.session_id is not None:
            return {delivery.delivery_id: SESSION_LOCK_LOST for delivery in deliveries}
        connection = self.connection
        if connection.raw.is_broken:
            connection = await self._source.open()
        management = connection.management(self.link)

        async def settle(delivery: Delivery) -> str | None:
            try:
                await outcome.request(management, delivery.tag)
            except (AzureError, OSError) as error:
                return _condition(error) or type(error).__name__
            return None

        try:
            answers = await asyncio.gather(*(settle(delivery) for delivery in deliveries))
        finally:
            if connection is not self.connection:
                await connection.close()
        return {one.delivery_id: error for one, error in zip(deliveries, answers, strict=True) if error is not None}

    def check_session(self) -> None:
        """Raise a Failure if it has lost its session."""
        if self.session_id is not None and self.is_lost:
            raise ServiceBusFailure(SESSION_LOCK_LOST)

    async def renew_message_lock(self, delivery: Delivery) -> datetime:
        """Renew the lock of a message and return its end; a Failure if that fails, and always in a session."""
        if self.session_id is not None:
            raise Failure(_IN_SESSION)
        (end,) = await self._request(lambda management: management.renew_locks([delivery.tag], _REQUEST_SECONDS))
        return _moment(end)

    async def renew_session_lock(self) -> datetime:
        """Renew the lock of the session and return its end; a Failure if that fails."""
        session_id = str(self.session_id)
        end = _moment(await self._request(lambda node: node.renew_session_lock(session_id, _REQUEST_SECONDS)))
        self.link.locked_until = end.isoformat()
        return end

    async def session_state(self) -> bytes:
        """Return the state of the session, empty if it has none; a Failure if that fails."""
        session_id = str(self.session_id)
        return await self._request(lambda node: node.session_state(session_id, _REQUEST_SECONDS)) or b""

    async def set_session_state(self, state: bytes) -> None:
        """Set the state of the session; a Failure if that fails."""
        session_id = str(self.session_id)
        await self._request(lambda node: node.set_session_state(session_id, state, _REQUEST_SECONDS))

    async def _request[T](self, ask: Callable[[ManagementConnection], Awaitable[T]]) -> T:
        self.check_session()
        try:
            return await ask(self.connection.management(self.link))
        except (AzureError, OSError) as error:
            raise ServiceBusFailure(_condition(error), str(error)) from error


def message_locked_until(delivery: Delivery) -> datetime:
    """Return the end of the lock that came with a message of an entity without sessions."""
    return _moment(number_of(annotations_of(delivery.payload), "x-opt-locked-until"))


def _condition(error: Exception) -> str | None:
    return _TIMEOUT if isinstance(error, OperationTimeoutError) else condition_of(error)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
