"""
Service Bus triggers for functions that take one message, with and without sessions.

Up to maxConcurrentCalls messages are processed at a time, each with its own settlement; with sessions up to
maxConcurrentSessions sessions, one message after the other in each. Locks are renewed while the function runs, for at
most maxAutoLockRenewalDuration.

Source: ServiceBusListener.ProcessMessageAsync and ProcessSessionMessageAsync (Azure/azure-sdk-for-net, commit
515190d38f71), ReceiverManager.RenewMessageLockAsync and CalculateRenewDelay (sdk/servicebus/
Azure.Messaging.ServiceBus).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from local.host import frames
from local.host.dotnet_values import CannotReceive
from local.host.invocation import invoke_with_retries
from local.host.listener import Stopping, keep_listening
from local.host.raw_link import Delivery, LinkClosed, RawLink
from local.host.received_message import ReceivedMessage
from local.host.service_bus_connection import ServiceBusConnection
from local.host.settings import ServiceBusOptions
from local.host.triggers.service_bus_batch import settle
from local.host.triggers.service_bus_source import ServiceBusSource
from local.host.worker import Function, Worker
from local.host.worker_input import service_bus_input
from shared.clock import Clock
from shared.errors import TargetRefused, TargetUnavailable

_log = logging.getLogger(__name__)

_TRY_TIMEOUT = 60.0
_TIMEOUT = "com.microsoft:timeout"
_LONGEST_BUFFER = timedelta(seconds=10)


class ServiceBusSingleListener:
    """Invokes one function with single messages from one queue or subscription."""

    def __init__(
        self,
        function: Function,
        source: ServiceBusSource,
        options: ServiceBusOptions,
        worker: Worker,
        clock: Clock,
        *,
        stopping: Stopping,
        wire: bool,
    ) -> None:
        """Prepare; nothing is opened before `run`."""
        self.function = function
        self.is_listening = asyncio.Event()
        self._source = source
        self._options = options
        self._worker = worker
        self._clock = clock
        self._wire = wire
        self._stopping = stopping
        self._links: set[RawLink] = set()
        self._accepting: set[asyncio.Task[RawLink]] = set()

    async def run(self) -> None:
        """Listen until stopped; see `Listener`."""
        await keep_listening(self.function.name, self._stopping, self._listen)

    def stop(self) -> None:
        """Accept nothing more; see `Listener`."""
        self._stopping.request()
        for link in self._links:
            link.interrupt()
        for accepting in self._accepting:
            accepting.cancel()

    async def _listen(self, let_in: Callable[[], None]) -> None:
        connection = await self._source.open()
        try:
            if self._source.has_sessions:
                self.is_listening.set()
                async with asyncio.TaskGroup() as sessions:
                    for _ in range(self._options.max_concurrent_sessions):
                        sessions.create_task(self._sessions(connection, let_in))
            else:
                await self._messages(connection, let_in)
        except* (TargetUnavailable, TargetRefused) as errors:
            raise errors.exceptions[0] from errors
        finally:
            await connection.close()

    async def _messages(self, connection: ServiceBusConnection, let_in: Callable[[], None]) -> None:
        link = await connection.attach(self._options.prefetch_count)
        self._links.add(link)
        let_in()
        self.is_listening.set()
        running: set[asyncio.Task[None]] = set()
        try:
            while not self._stopping:
                free = self._options.max_concurrent_calls - len(running)
                if free == 0:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    running = {task for task in running if not task.done()}
                    continue
                deliveries = await link.receive(free, _TRY_TIMEOUT)
                if self._stopping:
                    await connection.raw.release(link, deliveries)
                    break
                running |= {asyncio.create_task(self._process_message(connection, link, one)) for one in deliveries}
                running = {task for task in running if not task.done()}
            await link.withdraw()
        finally:
            self._links.discard(link)
            if running:
                await asyncio.gather(*running, return_exceptions=True)

    async def _process_message(self, connection: ServiceBusConnection, link: RawLink, delivery: Delivery) -> None:
        async def renew() -> datetime:
            return await connection.renew_message_lock(delivery.tag)

        renewing = asyncio.create_task(self._renew(renew, delivery))
        try:
            await self._process(connection, link, delivery)
        except TargetUnavailable:
            return  # logged by `settle`; the receiving loop detects the lost connection itself
        finally:
            renewing.cancel()

    async def _sessions(self, connection: ServiceBusConnection, let_in: Callable[[], None]) -> None:
        while not self._stopping:
            attach = connection.attach(self._options.prefetch_count, session_wait=_TRY_TIMEOUT)
            accepting = asyncio.create_task(attach)
            self._accepting.add(accepting)
            try:
                link = await accepting
                let_in()
            except asyncio.CancelledError:
                if not self._stopping:
                    raise
                return
            except LinkClosed as error:
                if error.condition != _TIMEOUT:
                    raise
                continue  # no session had messages
            finally:
                self._accepting.discard(accepting)
            await self._session(connection, link)

    async def _session(self, connection: ServiceBusConnection, link: RawLink) -> None:
        session_id = str(link.session_id)

        async def renew() -> datetime:
            return await connection.renew_session_lock(session_id)

        self._links.add(link)
        idle = self._options.session_idle_timeout.total_seconds()
        try:
            while not self._stopping and (deliveries := await link.receive(1, idle)):
                renewing = asyncio.create_task(self._renew(renew, deliveries[0]))
                try:
                    await self._process(connection, link, deliveries[0])
                finally:
                    renewing.cancel()
        except LinkClosed as error:
            _log.warning("%s: session ended: %s", self.function.name, error)
            if connection.raw.is_broken:
                raise
        finally:
            self._links.discard(link)
            await connection.raw.detach(link)

    async def _process(self, connection: ServiceBusConnection, link: RawLink, delivery: Delivery) -> None:
        now = int(self._clock.now().timestamp() * 1000)
        receiver = connection.metadata(link)
        try:
            invocation = await invoke_with_retries(
                self._worker,
                self.function,
                lambda: service_bus_input(self.function, [delivery], now, receiver, wire=self._wire),
                self._stopping,
            )
        except CannotReceive as error:
            _log.error("%s: a message stays locked: %s", self.function.name, error)
            return
        if invocation.succeeded and not self._source.auto_complete:
            return
        outcome = frames.ACCEPTED if invocation.succeeded else frames.MODIFIED
        await settle(self.function, connection, link, [delivery], outcome)

    async def _renew(self, renew: Callable[[], Awaitable[datetime]], delivery: Delivery) -> None:
        """Renew a lock until cancelled, or until the configured duration has passed."""
        end = self._clock.now() + self._options.max_auto_lock_renewal_duration
        await asyncio.sleep(1.0)  # no lock is shorter than 5 s, and most functions return within that time
        try:
            until = ReceivedMessage(delivery.payload, delivery.tag).annotation_number("x-opt-locked-until")
            locked_until = datetime.fromtimestamp(until / 1000, UTC)
            while (now := self._clock.now()) < end:
                await asyncio.sleep(renewal_delay(locked_until - now).total_seconds())
                locked_until = await renew()
        except (TargetUnavailable, TargetRefused, CannotReceive) as error:
            _log.warning("%s: lock not renewed: %s", self.function.name, error)


def renewal_delay(remaining: timedelta) -> timedelta:
    """Return the delay before the renewal of a lock that lasts for *remaining*."""
    remaining = max(remaining, timedelta())
    return remaining - min(remaining / 2, _LONGEST_BUFFER)
