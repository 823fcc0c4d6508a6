"""
Service Bus triggers for functions that take batches, with and without sessions.

One batch is in flight per function: receive, invoke, complete or abandon what the function has not settled itself. The
listener renews no lock. With sessions the next session is accepted, its messages are received until sessionIdleTimeout
passes without one or the function releases it, and it is closed.
A message that .NET cannot read fails the receive call: nothing is invoked, and the locks of the batch expire.

Source: ServiceBusListener.RunBatchReceiveLoopAsync and TriggerAndCompleteMessagesInternal (Azure/azure-sdk-for-net,
sdk/servicebus/Microsoft.Azure.WebJobs.Extensions.ServiceBus/src/Listeners, commit 515190d38f71).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from host.dotnet_values import CannotReceive
from host.settlement.actions import Actions
from host.settlement.outcome import ABANDONED, COMPLETED
from host.settlement.receiver import Receiver
from host.triggers.gathering import Gathering
from host.triggers.service_bus_listener import TRY_SECONDS, ServiceBusListener
from shared.ends.azure_amqp.raw_link import Delivery, LinkClosed, RawLink
from shared.ends.service_bus.connection import ServiceBusConnection

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ServiceBusBatchListener(ServiceBusListener):
    """Invokes one function with batches from one queue or subscription."""

    async def _listen(self, let_in: Callable[[], None]) -> None:
        connection = await self.source.open()
        try:
            if self.source.has_sessions:
                self.is_listening.set()
                idle = self.options.session_idle_timeout.total_seconds()
                while not self.stopping:
                    if (link := await self._next_session(connection, let_in)) is not None:
                        async with self._holding(connection, link):
                            await self._batches(Receiver(self.source, connection, link), idle, until_idle=True)
            else:
                link = await connection.attach(self.options.prefetch_count)
                let_in()
                self.is_listening.set()
                await self._batches(Receiver(self.source, connection, link), TRY_SECONDS, until_idle=False)
                await link.withdraw()
        finally:
            self._links.clear()
            await connection.close()

    async def _accept(self, connection: ServiceBusConnection) -> RawLink:
        return await connection.attach(self.options.prefetch_count, session_wait=TRY_SECONDS, drains=True)

    async def _batches(self, receiver: Receiver, wait: float, *, until_idle: bool) -> None:
        """Process batches until stopped, until the session is released, or with *until_idle* until none has come."""
        loop, most = asyncio.get_running_loop(), self.options.max_message_batch_size
        gathering = Gathering(self.options.min_message_batch_size, most, self.options.max_batch_wait_time)
        idle_at = loop.time() + wait
        is_end = False
        self._links[receiver.link] = None
        while not self.stopping and not is_end:
            left = idle_at - loop.time()
            seconds = gathering.wait(left)
            deliveries = await receiver.link.receive(most, seconds)
            if self.stopping:
                await receiver.connection.raw.release(receiver.link, deliveries)
                return
            is_end = until_idle and not deliveries and seconds == left
            batch = gathering.take(deliveries, is_end=is_end)
            while batch:
                is_end = await self._is_released_in(batch, receiver) or is_end
                batch = gathering.take(is_end=True) if is_end else []
            if deliveries or seconds == left:
                idle_at = loop.time() + wait

    async def _is_released_in(self, batch: Sequence[Delivery], receiver: Receiver) -> bool:
        """Process a batch, and return whether the function has released the session."""
        actions = Actions(receiver)
        with self.cache.holding(actions, batch):
            await self._process(actions, batch)
        return actions.releases_session

    async def _process(self, actions: Actions, deliveries: Sequence[Delivery]) -> None:
        receiver = actions.receiver
        deliveries, lost = self.losing.divide(self.function.name, deliveries)
        if lost:
            await self._settle(actions, lost, COMPLETED)
        if not deliveries:
            return
        link = receiver.link
        try:
            invocation = await self._invoke(receiver, deliveries)
        except CannotReceive as error:
            _log.error("%s: %d messages stay locked: %s", self.function.name, len(deliveries), error)
            if self.source.has_sessions:
                raise LinkClosed(str(error), error.reason) from error
            return
        if invocation.succeeded and not self.source.auto_complete:
            return
        if self.source.has_sessions:
            link.raise_if_closed()  # the session is lost, so that no answer would come
        outcome = COMPLETED if invocation.succeeded else ABANDONED
        unsettled = await self._settle(actions, actions.unsettled(deliveries), outcome)
        if unsettled and self.source.has_sessions:
            # As in .NET's receive loop, a failed settlement closes the session's receiver.
            raise LinkClosed(f"{unsettled} messages of session {link.session_id} not settled", "not settled")
