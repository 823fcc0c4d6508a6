"""
Service Bus triggers for functions that take one message, with and without sessions.

1. Up to maxConcurrentCalls messages are processed at a time, each with its own settlement. With sessions up to
   maxConcurrentSessions sessions, in each up to maxConcurrentCallsPerSession messages.
2. Each call asks for one message. A session is closed when a call has waited for sessionIdleTimeout in vain. Two
   sessions for each processor are accepted at a time. A session is also closed once the function has released it.
3. While the host drains, a session gets no calls any more, but is kept and renewed (FN23: azure-sdk-for-net 58170).
4. Locks are renewed for at most maxAutoLockRenewalDuration: that of a message while its function runs, that of a
   session from its acceptance.

Source: ServiceBusListener.ProcessMessageAsync and ProcessSessionMessageAsync (Azure/azure-sdk-for-net, commit
515190d38f71), ServiceBusProcessor.ReconcileConcurrencyAsync, ReceiverManager.RenewMessageLockAsync and
CalculateRenewDelay, SessionReceiverManager (sdk/servicebus/Azure.Messaging.ServiceBus).
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from host.dotnet_values import CannotReceive
from host.settlement.actions import Actions
from host.settlement.failure import Failure
from host.settlement.outcome import ABANDONED, COMPLETED
from host.settlement.receiver import Receiver, message_locked_until
from host.triggers.service_bus_listener import TRY_SECONDS, ServiceBusListener
from shared.clock import SystemClock
from shared.ends.azure_amqp.raw_link import Delivery, RawLink
from shared.ends.service_bus.connection import ServiceBusConnection
from shared.errors import TargetRefused, TargetUnavailable

_log = logging.getLogger(__name__)

_NO_RENEWAL = timedelta(seconds=1)
"""No lock is shorter than 5 s, and most functions return within this time."""
_POLL_SECONDS = 0.01
_ACCEPTS_BY_PROCESSOR = 2
_LONGEST_BUFFER = timedelta(seconds=10)


@dataclass(eq=False)
class ServiceBusSingleListener(ServiceBusListener):
    """Invokes one function with single messages from one queue or subscription."""

    _accepts: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        """Accept sessions as slowly as .NET does."""
        calls = self.options.max_concurrent_sessions * self.options.max_concurrent_calls_per_session
        self._accepts = asyncio.Semaphore(min(calls, _ACCEPTS_BY_PROCESSOR * (os.cpu_count() or 1)))

    async def _listen(self, let_in: Callable[[], None]) -> None:
        connection = await self.source.open()
        try:
            if self.source.has_sessions:
                self.is_listening.set()
                async with asyncio.TaskGroup() as sessions:
                    for _ in range(self.options.max_concurrent_sessions):
                        sessions.create_task(self._sessions(connection, let_in))
            else:
                await self._messages(connection, let_in)
        except* (TargetUnavailable, TargetRefused) as errors:
            raise errors.exceptions[0] from errors
        finally:
            await connection.close()

    async def _messages(self, connection: ServiceBusConnection, let_in: Callable[[], None]) -> None:
        link = await connection.attach(self.options.prefetch_count)
        let_in()
        self.is_listening.set()

        receiver = Receiver(self.source, connection, link)

        async def process(delivery: Delivery) -> None:
            renew = partial(receiver.renew_message_lock, delivery)
            renewing = asyncio.create_task(self._renew(renew, partial(message_locked_until, delivery)))
            try:
                await self._process(receiver, delivery)
            finally:
                renewing.cancel()

        most = self.options.max_concurrent_calls
        await self._pump(receiver, process, most, TRY_SECONDS, until_idle=False)
        await link.withdraw()

    async def _sessions(self, connection: ServiceBusConnection, let_in: Callable[[], None]) -> None:
        while not self.stopping:
            if (link := await self._next_session(connection, let_in)) is not None:
                await self._session(connection, link)

    async def _accept(self, connection: ServiceBusConnection) -> RawLink:
        async with self._accepts:
            return await connection.attach(self.options.prefetch_count, session_wait=TRY_SECONDS)

    async def _session(self, connection: ServiceBusConnection, link: RawLink) -> None:
        receiver = Receiver(self.source, connection, link)
        most = self.options.max_concurrent_calls_per_session
        idle = self.options.session_idle_timeout.total_seconds()
        # Once for the session, not for each message: a session that is never idle loses its lock in the end.
        renewing = asyncio.create_task(self._renew(receiver.renew_session_lock, lambda: _session_locked_until(link)))
        async with self._holding(connection, link):
            try:
                await self._pump(receiver, partial(self._process, receiver), most, idle, until_idle=True)
                if self.stopping:
                    await self.stopping.over()
            finally:
                renewing.cancel()

    async def _pump(
        self,
        receiver: Receiver,
        process: Callable[[Delivery], Awaitable[None]],
        most: int,
        wait: float,
        *,
        until_idle: bool,
    ) -> None:
        """
        Process up to *most* messages at a time until the link is interrupted.

        With *until_idle* it ends when none came for *wait* seconds.
        """
        link = receiver.link
        running: set[asyncio.Task[None]] = set()

        async def one(delivery: Delivery) -> None:
            try:
                await process(delivery)
            except TargetUnavailable:
                return  # logged by `settle`; the receiving loop detects the lost connection itself
            finally:
                running.discard(asyncio.current_task())
                if most > 1 and not link.is_interrupted and link.closed_with is None:
                    link.offer(most - len(running))

        self._links[link] = None
        try:
            while not self.stopping and not link.is_interrupted:
                if len(running) >= most:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    continue
                deliveries = await link.receive(most - len(running), wait, gathers=False)
                if self.stopping or link.is_interrupted:
                    await receiver.connection.raw.release(link, deliveries)
                    return
                running |= {asyncio.create_task(one(delivery)) for delivery in deliveries}
                if not deliveries and until_idle:
                    if not running:
                        return
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            for task in running:  # the worker is killed: it will not answer them
                task.cancel()
            raise
        finally:
            self._links.pop(link, None)
            if running:
                await asyncio.gather(*running, return_exceptions=True)

    async def _process(self, receiver: Receiver, delivery: Delivery) -> None:
        actions = Actions(receiver)
        if self.losing.divide(self.function.name, [delivery])[1]:
            await self._settle(actions, [delivery], COMPLETED)
            return
        with self.cache.holding(actions, [delivery]):
            try:
                invocation = await self._invoke(receiver, [delivery])
            except CannotReceive as error:
                _log.error("%s: a message stays locked: %s", self.function.name, error)
                return
            if actions.releases_session:
                receiver.link.interrupt()
            if invocation.succeeded and not self.source.auto_complete:
                return
            outcome = COMPLETED if invocation.succeeded else ABANDONED
            await self._settle(actions, actions.unsettled([delivery]), outcome)

    async def _renew(self, renew: Callable[[], Awaitable[datetime]], first_end: Callable[[], datetime]) -> None:
        """Renew a lock until cancelled, or until the configured duration has passed."""
        longest = self.options.max_auto_lock_renewal_duration
        end = datetime.max.replace(tzinfo=UTC) if longest == timedelta.max else self.clock.now() + longest
        await self._pause(_NO_RENEWAL)
        try:
            locked_until = first_end()
            while (now := self.clock.now()) < end:
                await self._pause(renewal_delay(locked_until - now))
                locked_until = await renew()
        except (TargetUnavailable, Failure, CannotReceive) as error:
            _log.warning("%s: lock not renewed: %s", self.function.name, error)

    async def _pause(self, duration: timedelta) -> None:
        """Sleep by this host's clock, which a test may move; it does not move for a sleeper."""
        if isinstance(self.clock, SystemClock):
            await asyncio.sleep(duration.total_seconds())
            return
        end = self.clock.now() + duration
        while self.clock.now() < end:  # noqa: ASYNC110 - the clock of a test sets no event
            await asyncio.sleep(_POLL_SECONDS)


def _session_locked_until(link: RawLink) -> datetime:
    if link.locked_until is None:
        raise TargetUnavailable("the service did not say until when the session is locked")
    return datetime.fromisoformat(link.locked_until)


def renewal_delay(remaining: timedelta) -> timedelta:
    """Return the delay before the renewal of a lock that lasts for *remaining*."""
    remaining = max(remaining, timedelta())
    return remaining - min(remaining / 2, _LONGEST_BUFFER)
