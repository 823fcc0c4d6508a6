"""Processing each message once across regions, with azure.servicebus.aio: tasks, one per session."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver

from busway_clients.sessions.aio.journal import Journal
from busway_clients.sessions.arrivals import Arrival, arrival_of
from busway_clients.sessions.consumer_parts import (
    BEATS,
    LOCK_RENEWAL_SECONDS,
    LOG,
    Source,
    fault_of,
    is_worth_a_pause,
    receiving,
    settings_for,
    unique_name,
)
from busway_clients.sessions.drive import drive_async
from busway_clients.sessions.effects import (
    Commit,
    Complete,
    DeadLetter,
    Delivery,
    Effect,
    Read,
    Receive,
    Register,
    Run,
    Tell,
    Wait,
)
from busway_clients.sessions.errors import JournalError
from busway_clients.sessions.heartbeat import beat
from busway_clients.sessions.memory import Memory
from busway_clients.sessions.messages import Messages, visit_of
from busway_clients.sessions.plan import Worker
from busway_clients.sessions.rows import AsyncRowStore
from busway_clients.sessions.settings import Settings
from busway_clients.sessions.visit import Ending, Visit


class JournaledConsumer:
    """
    Gives each message of a queue or subscription to *apply*, once across all sites that share the journal.

    As `busway_clients.sessions.JournaledConsumer`, with *lanes* tasks instead of threads; all in the event loop that
    calls `start`. An *apply* that does not await holds up the renewal of its own lease.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        source: Source,
        store: AsyncRowStore,
        apply: Callable[[Delivery], Awaitable[None]],
        *,
        site: str,
        settings: Settings | None = None,
        lanes: int = 4,
    ) -> None:
        self.settings = settings_for(source, settings or Settings())
        self.journal = Journal(store, self.settings)
        self._client = client
        self._source = source
        self._apply = apply
        self._site = site
        self._lanes = lanes
        self._memory = Memory()
        self._name = unique_name(site)
        self._visits = itertools.count(1)
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        try:
            await self.join()
        except JournalError:
            if kind is None:
                raise

    async def start(self) -> None:
        """Open the journal and begin; raises JournalMismatch, JournalUnavailable and JournalRefused."""
        await self.journal.open()
        self._stopping.clear()
        self._tasks = [asyncio.create_task(self._lane()) for _ in range(self._lanes)]

    def stop(self) -> None:
        """Begin no further message; what is being worked on is finished and settled."""
        self._stopping.set()

    async def join(self) -> None:
        """Wait until all has stopped; raises what has stopped it, if it was not `stop`."""
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def run(self) -> None:
        """
        Process until `stop` is called.

        Raises what `start` does, and JournalRefused later too. A store that is away later is waited for.
        """
        await self.start()
        await self.join()

    # A lane: a receiver after the other, the messages of each

    async def _lane(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    await self._next_receiver()
                except Exception as error:  # noqa: BLE001 - what ends the lane is raised anew
                    if is_worth_a_pause(error, self._source, self._site):
                        await self.wait(self.settings.poll_seconds)
        finally:
            # Whatever ends one lane ends all.
            self._stopping.set()

    async def _next_receiver(self) -> None:
        async with contextlib.AsyncExitStack() as ends:
            renewer = AutoLockRenewer(max_lock_renewal_duration=LOCK_RENEWAL_SECONDS)
            ends.push_async_callback(renewer.close)
            receiver = await ends.enter_async_context(self._receiver())
            session = receiver.session.session_id if self._source.has_sessions else None
            if self._source.has_sessions:
                renewer.register(receiver, receiver.session)
            lane = _Lane(self, receiver, None if self._source.has_sessions else renewer)
            ending = await (await ends.enter_async_context(lane)).make(visit_of(session, self.worker))
        if ending is not Ending.EMPTY:
            # The next one available may be the same again.
            await self.wait(self.settings.poll_seconds)

    def _receiver(self) -> ServiceBusReceiver:
        options: dict[str, Any] = {"max_wait_time": self.settings.accept_seconds}
        if self._source.has_sessions:
            options["session_id"] = NEXT_AVAILABLE_SESSION
        if self._source.subscription is not None:
            return self._client.get_subscription_receiver(self._source.entity, self._source.subscription, **options)
        return self._client.get_queue_receiver(self._source.entity, **options)

    def arrival(self, message: ServiceBusReceivedMessage) -> Arrival:
        """Return what *message* is to the journal."""
        return arrival_of(message, self._site, self.settings.identity, self.settings.number)

    def worker(self) -> Worker:
        """Return who makes the next visit."""
        name = f"{self._name}/{next(self._visits)}"
        return Worker(name, self._site, self.settings, self._memory, is_stopping=self._stopping.is_set)

    async def apply(self, delivery: Delivery) -> None:
        """Give a message to the application."""
        await self._apply(delivery)

    async def wait(self, seconds: float) -> None:
        """Let time pass, less if it is to stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


class _Lane:
    """
    Makes a visit with one receiver: does what it asks for, and renews its lease meanwhile.

    *renewer* is for the locks of the messages, None where there are sessions.
    """

    def __init__(
        self, consumer: JournaledConsumer, receiver: ServiceBusReceiver, renewer: AutoLockRenewer | None
    ) -> None:
        self._consumer = consumer
        self._receiver = receiver
        self._renewer = renewer
        self._writing = asyncio.Lock()
        self._visit: Visit | Messages | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing

    async def make(self, visit: Visit | Messages) -> Ending:
        """Make a visit, to its end."""
        self._visit = visit
        ending: Ending = await drive_async(visit.steps(), self._perform)
        return ending

    async def _perform(self, effect: Effect) -> Any:  # noqa: ANN401 - one case per kind of effect
        journal = self._consumer.journal
        match effect:
            case Commit():
                async with self._writing:
                    await journal.commit(effect, time.monotonic())
            case Read():
                async with self._writing:
                    return await journal.read(effect)
            case Register():
                await journal.register(effect)
            case Receive():
                return await self._receive(effect.count)
            case Run():
                try:
                    await self._consumer.apply(effect.delivery)
                except Exception as error:  # noqa: BLE001 - whatever the application raises is a failed attempt
                    return fault_of(error)
            case Complete():
                with receiving():
                    await self._receiver.complete_message(effect.arrival.message)
            case DeadLetter():
                with receiving():
                    await self._receiver.dead_letter_message(
                        effect.arrival.message, reason=effect.reason, error_description=effect.description
                    )
            case Wait():
                await self._consumer.wait(effect.seconds)
            case Tell():
                LOG.warning("%s", effect.text)
        return None

    async def _receive(self, count: int) -> Sequence[Arrival]:
        with receiving():
            messages = await self._receiver.receive_messages(count, max_wait_time=self._consumer.settings.idle_seconds)
        if self._renewer is not None:
            for message in messages:
                self._renewer.register(self._receiver, message)
        return [self._consumer.arrival(message) for message in messages]

    async def _renew(self) -> None:
        seconds = self._consumer.settings.heartbeat_seconds
        while True:
            await asyncio.sleep(seconds / BEATS)
            if self._visit is None:
                continue
            hold = self._visit.hold
            if hold is None or hold.is_lost or not hold.needs_beat(time.monotonic(), seconds):
                continue
            try:
                await drive_async(beat(hold), self._perform)
            except JournalError as error:
                # The visit finds out by itself; the next beat may succeed.
                LOG.warning("%s", error)
