"""A task between two namespaces of the local broker in virtual time; batches come and are settled as the host does."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

from azure.servicebus.aio import ServiceBusClient

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.core.message import StoredMessage
from busway_broker.thread import RunningBroker
from functions.settlement import HostSettlement
from host.settlement.actions import Actions, ActionsCache
from host.settlement.outcome import ABANDONED, COMPLETED
from host.settlement.receiver import Receiver
from host.settlement.service import SettlementService
from host.triggers.service_bus_source import ServiceBusSource
from shared.clock import ManualClock
from shared.ends.azure_amqp.raw_link import Delivery, LinkClosed, RawLink
from shared.ends.namespace import Namespace
from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.connection import ServiceBusConnection
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import BuswayError
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import Editor, Output
from tests.fakes import JournalInMemory

LOCK = timedelta(seconds=60)
BATCH = 100


def namespaces(max_delivery_count: int = 10) -> list[NamespaceConfig]:
    def queue(name: str, *, sessions: bool = False) -> QueueConfig:
        return QueueConfig(
            name=name, lock_duration=LOCK, max_delivery_count=max_delivery_count, requires_session=sessions
        )

    west = NamespaceConfig(
        name="west", queues=(queue("plain"), queue("sessions", sessions=True), QueueConfig(name="rejected"))
    )
    east = NamespaceConfig(name="east", queues=(queue("plain"), queue("sessions", sessions=True)))
    return [west, east]


class WireLine:
    """
    The line from west/QUEUE to east/QUEUE over the wire.

    The outputs, the receiving and the settlement service are those of the product and of the local host; what the test
    holds is the clock. `at` runs something when a time of it comes.
    """

    def __init__(
        self,
        broker: RunningBroker,
        clock: ManualClock,
        *,
        queue: str = "plain",
        hold: timedelta = timedelta(minutes=15),
        editors: Sequence[Editor] = (),
        has_rejects: bool = True,
        has_locks: bool = True,
        rejects_in_a_row: int | None = 100,
        target: Output | None = None,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.journal = JournalInMemory()
        self.batches: list[int] = []
        self.failures: list[BuswayError] = []
        self._queue = queue
        self._sessions = queue == "sessions"
        self._at: list[tuple[float, Callable[[], None]]] = []
        self._closing: list[Output] = []
        output = target or self._opened(self._output("east"))
        rejects = Target(self._opened(self._output("west")), "west", "rejected") if has_rejects else None
        self._cache = ActionsCache()
        self._address: list[str] = []
        self.settlement = HostSettlement(self._address if has_locks else [])
        task = Task(
            "copy",
            Origin("west", queue),
            editors,
            Router([Route(Target(output, "east", queue))]),
            rejects,
            Keep(),
            LoopGuard(),
            settlement=self.settlement,
            hold=hold,
            rejects_in_a_row=rejects_in_a_row,
        )
        self.pipeline = Pipeline(task, self.journal, clock, self._sleep)

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something once so many seconds have passed."""
        self._at.append((self.clock.monotonic() + seconds, act))

    def run(self, until: Callable[[], bool], deliveries: int = 30) -> None:
        """Receive, carry and settle batches until the source is as wanted."""
        asyncio.run(self._run(until, deliveries))

    def stored(self, namespace: str, queue: str | None = None) -> list[StoredMessage]:
        """Return the messages that a queue holds."""
        path = self._queue if queue is None else queue
        return self.broker.inspect(namespace, lambda each: list(each.store(path).peek(0)))

    def dead(self) -> list[StoredMessage]:
        """Return what the source's dead-letter queue holds."""
        return self.stored("west", f"{self._queue}/$DeadLetterQueue")

    def is_drained(self) -> bool:
        """Return whether the source holds nothing more."""
        return not self.stored("west")

    def ids(self, namespace: str = "east", queue: str | None = None) -> list[str]:
        """Return the ids of what a queue holds, in order."""
        return [str(identity(message)) for message in self.stored(namespace, queue)]

    async def _run(self, until: Callable[[], bool], deliveries: int) -> None:
        service = SettlementService(self._cache)
        self._address += ["--host", "127.0.0.1", "--port", str(await service.start())]
        connection = await self._connected()
        try:
            while not until():
                assert len(self.batches) < deliveries, f"{len(self.batches)} deliveries and not done: {self.failures}"
                link = await connection.attach(session_wait=5.0 if self._sessions else None)
                try:
                    while not until() and (batch := await link.receive(BATCH, 0.2)):
                        if not await self._carry(connection, link, batch):
                            break
                except LinkClosed as error:
                    self.failures.append(error)
                finally:
                    await connection.raw.detach(link)
                # What the link was sent beyond the last batch stays locked, and time passes at our word only.
                await self._sleep(5)
        finally:
            await connection.close()
            await self.settlement.close()
            await service.stop()
            for output in self._closing:
                await output.close()

    async def _carry(self, connection: ServiceBusConnection, link: RawLink, batch: list[Delivery]) -> bool:
        self.batches.append(len(batch))
        outcome, actions = COMPLETED, Actions(Receiver(self._source, connection, link))
        held = self.settlement.hold(str(link.session_id)) if self._sessions else nullcontext()
        with self._cache.holding(actions, batch), held as session:
            try:
                await self.pipeline.run(
                    [delivery.payload for delivery in batch], None, [delivery.tag for delivery in batch], session
                )
            except BuswayError as error:
                self.failures.append(error)
                outcome = ABANDONED
            if self._sessions:
                link.raise_if_closed()
            return not await actions.settle_all(actions.unsettled(batch), outcome)

    async def _connected(self) -> ServiceBusConnection:
        connection = Namespace("west", self.broker.connection_string("west"))
        self._source = ServiceBusSource(connection, {"queue_name": self._queue}, self._sessions, auto_complete=True)
        return await self._source.open()

    async def _sleep(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        for when, act in sorted(self._at, key=lambda each: each[0]):
            if when <= end:
                self.broker.advance(max(when - self.clock.monotonic(), 0))
                self._at.remove((when, act))
                act()
        self.broker.advance(end - self.clock.monotonic())

    def _output(self, name: str) -> ServiceBusOutput:
        return ServiceBusOutput(name, lambda: self._client(name))

    def _client(self, name: str) -> ServiceBusClient:
        return service_bus_client("X", {"X": self.broker.connection_string(name)})

    def _opened(self, client: ServiceBusOutput) -> ServiceBusOutput:
        self._closing.append(client)
        return client


def identity(message: StoredMessage) -> object:
    value = Message.received(message.encode(), Origin("", "")).message_id
    return None if value is None else value.payload


def clock_now() -> ManualClock:
    """Return a clock that stands at this moment, so that the SDK's tokens are good."""
    return ManualClock(datetime.now(UTC))
