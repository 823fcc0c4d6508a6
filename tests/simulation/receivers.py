"""
The receiving side of a site as the listeners of the local host see it.

The credit and waiting of a link are the real `RawLink`'s; instead of a socket it has a channel to the broker's stores.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from azure.servicebus.exceptions import ServiceBusError

from local.broker import errors
from local.broker.core.entity_links import Use
from local.broker.core.hub import Coordinate, Position
from local.broker.core.hub import Partition as HubPartition
from local.broker.core.ready_queue import MessageSession
from local.broker.core.session_store import SessionStore
from local.broker.core.store import MessageStore
from local.broker.core.usage import check_can_receive
from local.broker.errors import Refusal
from local.broker.protocol.consumer_link import settlement_of
from shared.amqp.codec import decode_all
from shared.azure.receivers import frames
from shared.azure.receivers.raw_link import Delivery, LinkClosed, RawLink, refused_or_closed
from tests.simulation.faults import Operation
from tests.simulation.network import Channel, Cut, Network
from tests.simulation.site import Site

if TYPE_CHECKING:
    from tests.simulation.instance import Instance

_LINK_IDLE = 600.0
_MOST_UNSETTLED = 5_000
_PARTITION_START = "-1"
_CODES = {
    frames.ACCEPTED: frames._STATES[frames.ACCEPTED],
    frames.RELEASED: frames._STATES[frames.RELEASED],
    frames.MODIFIED: frames._STATES[frames.MODIFIED],
}


class Ended(Exception):
    """The error with which the service ends a link."""

    def __init__(self, condition: str) -> None:
        """Keep the condition, as the SDK's errors do."""
        super().__init__(condition)
        self.condition = condition


class Consumer:
    """The service's end of a receiving link."""

    def __init__(self, carrier: "Carrier", raw: RawLink, store: MessageStore | None = None) -> None:
        """Receive from *store*, or without one from a partition."""
        self.is_destructive = False
        self.carrier = carrier
        self.raw = raw
        self.credit = 0
        self.delivery_count = 0
        self.is_over = False
        self.used_at = carrier.network.loop.time()
        self.session: MessageSession | None = None
        self.granted: asyncio.Future[MessageSession | None] | None = None
        self._store = store
        self._has_joined = False
        self._tags: dict[int, bytes] = {}

    # As the stores see it

    @property
    def connection(self) -> object:
        """Return the connection that it receives on."""
        return self.carrier

    def can_take(self) -> bool:
        """Return whether one more message can be delivered."""
        return self.credit > 0 and not self.is_over and len(self._tags) < _MOST_UNSETTLED

    def take(self, tag: bytes, message: bytes) -> None:
        """Deliver a message."""
        number = self.delivery_count
        self.credit -= 1
        self.delivery_count += 1
        self.used_at = self.carrier.network.loop.time()
        self._tags[number] = tag
        transfer = frames.Transfer(0, number, tag, more=False, aborted=False, payload=message)
        self.carrier.channel.answer(lambda: self._arrive(transfer))

    def session_granted(self, session: MessageSession) -> None:
        """Start with a session."""
        self.session = session
        if self.granted is not None and not self.granted.done():
            self.granted.set_result(session)

    def session_refused(self) -> None:
        """Stop waiting for a session."""
        if self.granted is not None and not self.granted.done():
            self.granted.set_result(None)

    def session_lost(self, refusal: Refusal) -> None:
        """End the link."""
        self.session = None
        self.end(refusal.condition)

    # As the connection sees it

    def join(self) -> None:
        """Start to receive from an entity without sessions."""
        assert self._store is not None
        self._store.join(self)
        self._has_joined = True

    def flow(self, delivery_count: int, credit: int, *, drain: bool) -> None:
        """Take the credit that the instance grants, and deliver."""
        if self.is_over:
            return
        self.used_at = self.carrier.network.loop.time()
        self.credit = max(delivery_count + credit - self.delivery_count, 0)
        self.pump()
        if drain:
            self.delivery_count += self.credit
            self.credit = 0
            count = self.delivery_count
            self.carrier.channel.answer(lambda: self.carrier.drained(self.raw, count))

    def pump(self) -> None:
        """Deliver what is ready."""
        if self.session is not None and isinstance(self._store, SessionStore):
            self._store.dispatch_session(self.session)
        elif self._store is not None and self._has_joined:
            self._store.dispatch()

    def settle(self, number: int, state: bytes) -> str | None:
        """Settle a message; return the condition if that fails."""
        self.used_at = self.carrier.network.loop.time()
        tag = self._tags.pop(number, None)
        if tag is None or self._store is None or self.is_over:
            return errors.MESSAGE_LOCK_LOST
        settlement = settlement_of(self._store, decode_all(state))
        assert settlement is not None
        try:
            settlement.settle(tag)
        except Refusal as refusal:
            return refusal.condition
        self.pump()
        return None

    def end(self, condition: str | None = None) -> None:
        """End the link at the service; with a *condition* the instance learns of it."""
        if self.is_over:
            return
        self.is_over = True
        store = self._store
        if isinstance(store, SessionStore):
            store.stop_waiting(self)
            if self.session is not None:
                session, self.session = self.session, None
                store.release_session(session, self)
        elif store is not None and self._has_joined:
            store.leave(self)
        self.carrier.leave(self)
        if condition is not None:
            self.carrier.channel.answer(lambda: self.carrier.detached(self.raw, condition))

    def force_detach(self, refusal: Refusal) -> None:
        """End the link because its entity goes or changes."""
        self.session = None
        self.end(refusal.condition)

    def _arrive(self, transfer: frames.Transfer) -> None:
        self.raw.transferred(transfer)
        self.raw.look()
        stray, self.raw.stray = self.raw.stray, []
        for each in stray:
            self.carrier.channel.send(lambda number=each.delivery_id: self._release(number))  # type: ignore[misc]

    def _release(self, number: int) -> None:
        self.settle(number, _CODES[frames.RELEASED])


class Carrier:
    """A connection to a site, as `RawConnection` is one to a real service."""

    def __init__(self, network: Network, owner: "Instance", site: Site, where: str) -> None:
        """Open it."""
        self.network = network
        self.where = where
        self.channel = Channel(network, owner, site, where)
        self._site = site
        self._consumers: dict[int, Consumer] = {}
        self._progress: asyncio.Event = asyncio.Event()
        self.channel.when_cut(self._break)
        self.channel.when_cut(self._end_all, at_service=True)

    @property
    def is_broken(self) -> bool:
        """Return whether the connection has ended."""
        return self.channel.is_cut

    def raise_if_broken(self) -> None:
        """Raise the error that ended it, if it has ended."""
        if self.is_broken:
            raise refused_or_closed(self.where, Cut(self.where))

    async def progress(self, seconds: float) -> None:
        """Wait until something has come, or until the timeout."""
        self._progress.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._progress.wait()
        except TimeoutError:
            return

    async def flow(self, raw: RawLink, credit: int, *, drain: bool = False) -> None:
        """Set the credit of a link."""
        self.raise_if_broken()
        raw.credit = credit
        count, consumer = raw.link.delivery_count, self._consumers.get(id(raw))
        if consumer is not None:
            self.channel.send(lambda: consumer.flow(count, credit, drain=drain))

    async def release(self, raw: RawLink, deliveries: Sequence[Delivery]) -> None:
        """Release deliveries, without an answer."""
        consumer = self._consumers.get(id(raw))
        for each in deliveries:
            if consumer is not None:
                self.channel.send(lambda number=each.delivery_id: consumer._release(number))  # type: ignore[misc]

    async def settle(
        self, raw: RawLink, deliveries: Sequence[Delivery], outcome: int, state: bytes | None = None
    ) -> dict[int, str]:
        """Settle deliveries; return the failures: delivery id → condition."""
        self.raise_if_broken()
        if raw.closed_with is not None:
            condition = getattr(raw.closed_with, "condition", str(raw.closed_with))
            return {each.delivery_id: condition for each in deliveries}
        consumer = self._consumers[id(raw)]
        encoded = state or _CODES[outcome]

        def act() -> dict[int, str]:
            answers = ((each.delivery_id, consumer.settle(each.delivery_id, encoded)) for each in deliveries)
            return {number: condition for number, condition in answers if condition is not None}

        try:
            async with asyncio.timeout(60.0):
                failures = await self.channel.request(Operation.SETTLE, act)
        except Cut as error:
            raise LinkClosed(f"{self.where}: closed", "closed") from error
        except TimeoutError:
            return {each.delivery_id: "no answer" for each in deliveries}
        await raw.restore(len(deliveries))
        return failures

    async def detach(self, raw: RawLink) -> None:
        """Close a link."""
        consumer = self._consumers.pop(id(raw), None)
        raw.link.state.name = "DETACHED"
        if consumer is not None and not self.is_broken:
            self.channel.send(consumer.end)

    async def attach(
        self,
        prefetch: int,
        join: Callable[[Consumer], None],
        store: MessageStore | None,
        *,
        drains: bool,
        settled: bool,
    ) -> tuple[RawLink, Consumer]:
        """Return a new link; *join* registers its consumer at the service."""
        session = SimpleNamespace(state=SimpleNamespace(name="MAPPED"))
        raw = RawLink(self, session, prefetch, drains=drains, is_settled=settled)
        raw.link = SimpleNamespace(state=SimpleNamespace(name="ATTACHED"), _error=None, delivery_count=0)
        consumer = Consumer(self, raw, store)
        self._consumers[id(raw)] = consumer

        def act() -> None:
            join(consumer)
            self.network.later(_LINK_IDLE, lambda: self._look(consumer))

        try:
            async with asyncio.timeout(30.0):
                await self.channel.request(Operation.ATTACH, act)
        except (Cut, Refusal, TimeoutError) as error:
            self._consumers.pop(id(raw), None)
            self.channel.cut()
            raise refused_or_closed(self.where, error) from error
        await raw.start()
        return raw, consumer

    def drained(self, raw: RawLink, delivery_count: int) -> None:
        """Let a link know that its credit is used up."""
        if id(raw) in self._consumers:
            raw.link.delivery_count = delivery_count
            raw.credit = 0
            raw._is_drained = True
            self._progress.set()

    def detached(self, raw: RawLink, condition: str) -> None:
        """Let a link know that the service has ended it."""
        if raw.link.state.name == "ATTACHED":
            raw.link.state.name = "DETACHED"
            raw.link._error = Ended(condition)
            raw.look()
            self._progress.set()

    def leave(self, consumer: Consumer) -> None:
        """Forget a consumer at the service."""
        self._site.namespace.links.leave(consumer)  # type: ignore[arg-type] # it is an EntityLink as far as this history needs

    async def close(self) -> None:
        """Close the connection."""
        self.channel.cut()

    def _look(self, consumer: Consumer) -> None:
        """End a link that was idle for too long (SR4)."""
        if consumer.is_over:
            return
        left = consumer.used_at + _LINK_IDLE - self.network.loop.time()
        if left <= 0:
            consumer.end(errors.DETACH_FORCED)
        else:
            self.network.later(left, lambda: self._look(consumer))

    def _break(self) -> None:
        for consumer in list(self._consumers.values()):
            consumer.raw.wake()
        self._progress.set()

    def _end_all(self) -> None:
        for consumer in list(self._consumers.values()):
            consumer.end()


class Node:
    """The `$management` node of an entity, which names a link in its requests."""

    def __init__(self, carrier: Carrier, store: MessageStore, consumer: Consumer | None) -> None:
        """Ask over the connection of the link."""
        self._carrier = carrier
        self._store = store
        self._consumer = consumer

    async def complete(self, tags: Sequence[bytes], _: object, timeout: float) -> None:  # noqa: ASYNC109 - the real signature
        """Complete messages."""
        await self._ask(Operation.SETTLE, lambda: _each(tags, self._store.complete), timeout)

    async def abandon(self, tags: Sequence[bytes], timeout: float) -> None:  # noqa: ASYNC109 - likewise
        """Abandon messages."""
        await self._ask(Operation.SETTLE, lambda: _each(tags, self._store.abandon), timeout)

    async def dead_letter(
        self,
        tags: Sequence[bytes],
        _: object,
        reason: str | None,
        description: str | None,
        timeout: float,  # noqa: ASYNC109 - likewise
    ) -> None:
        """Dead-letter messages."""
        texts = reason or "", description or ""
        await self._ask(
            Operation.SETTLE, lambda: _each(tags, lambda tag: self._store.dead_letter(tag, *texts)), timeout
        )

    async def renew_locks(self, tags: Sequence[bytes], timeout: float) -> list[int]:  # noqa: ASYNC109 - likewise
        """Renew the locks on messages; return their ends."""
        return await self._ask(Operation.RENEW, lambda: [self._store.renew_lock(tag) for tag in tags], timeout)

    async def renew_session_lock(self, session_id: str, timeout: float) -> int:  # noqa: ASYNC109 - likewise
        """Renew the lock on a session; return its end."""
        store = self._store
        assert isinstance(store, SessionStore)
        return await self._ask(Operation.RENEW, lambda: store.renew_session_lock(session_id), timeout)

    async def _ask[T](self, operation: Operation, act: Callable[[], T], timeout: float) -> T:  # noqa: ASYNC109 - likewise
        def noted() -> T:
            if self._consumer is not None:
                self._consumer.used_at = self._carrier.network.loop.time()
            return act()

        try:
            async with asyncio.timeout(timeout):
                return await self._carrier.channel.request(operation, noted)
        except (Refusal, Cut, TimeoutError) as error:
            failed = ServiceBusError(str(error))
            failed._condition = getattr(error, "condition", None)
            raise failed from error


def _each(tags: Sequence[bytes], act: Callable[[bytes], None]) -> None:
    for tag in tags:
        act(tag)


def _cancel(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.cancel()


class BusConnection:
    """A connection to a queue or subscription, as `ServiceBusConnection`."""

    def __init__(self, raw: Carrier, site: Site, path: str, *, has_sessions: bool) -> None:
        """Use *raw*."""
        self.raw = raw
        self.name = "simulated"
        self.namespace = site.name
        self._site = site
        self._path = path
        self._has_sessions = has_sessions
        self._consumers: dict[int, Consumer] = {}
        self._store = site.namespace.store(path)

    async def attach(
        self,
        prefetch: int = 0,
        session_wait: float | None = None,
        *,
        drains: bool = False,
        session_id: str | None = None,
    ) -> RawLink:
        """Return a new link, or LinkClosed if no session has messages; see `ServiceBusConnection.attach`."""
        assert session_id is None
        self.raw.raise_if_broken()
        namespace, loop = self._site.namespace, asyncio.get_running_loop()

        def join(consumer: Consumer) -> None:
            entity = namespace.entity_of(self._path)
            check_can_receive(entity.path, entity.config.status)
            if namespace.store(self._path) is not self._store:
                raise Refusal(errors.NOT_FOUND, "The messaging entity has been deleted.")
            namespace.links.join(entity.path.lower(), Use.RECEIVE, consumer)  # type: ignore[arg-type] # has force_detach
            if not isinstance(self._store, SessionStore):
                consumer.join()
                return
            wait = int((session_wait or 60.0) * 1000)
            self._store.accept_next(consumer, int(self._site.clock.now().timestamp() * 1000) + wait)

        granted: asyncio.Future[MessageSession | None] = loop.create_future()

        def join_with(consumer: Consumer) -> None:
            consumer.granted = granted
            self.raw.channel.when_cut(lambda: _cancel(granted))
            join(consumer)

        raw, consumer = await self.raw.attach(
            prefetch, join_with if self._has_sessions else join, self._store, drains=drains, settled=False
        )
        self._consumers[id(raw)] = consumer
        if self._has_sessions:
            try:
                session = await asyncio.shield(granted)
            except asyncio.CancelledError:
                if not self.raw.is_broken:
                    await self.raw.detach(raw)
                    raise
                raise LinkClosed(f"{self._path}: closed", "closed") from None
            if session is None:
                await self.raw.detach(raw)
                raise LinkClosed(f"{self._path}: no session", errors.TIMEOUT)
            raw.session_id = session.session_id
            raw.locked_until = datetime.fromtimestamp(session.locked_until / 1000, UTC).isoformat()
        raw.is_attached = True
        return raw

    def management(self, link: RawLink | None) -> Any:
        """Return the `$management` node; its requests keep *link* alive."""
        return Node(self.raw, self._store, None if link is None else self._consumers.get(id(link)))

    async def close(self) -> None:
        """Close the connection."""
        await self.raw.close()


class BusSource:
    """A queue or subscription of a site, as `ServiceBusSource`."""

    def __init__(self, network: Network, owner: "Instance", site: Site, path: str, *, has_sessions: bool) -> None:
        """Receive from *path*."""
        self.has_sessions = has_sessions
        self.auto_complete = True
        self._open: Callable[[], Awaitable[BusConnection]] = lambda: self._opened(network, owner, site, path)

    async def open(self) -> BusConnection:
        """Return a connection."""
        return await self._open()

    async def _opened(self, network: Network, owner: "Instance", site: Site, path: str) -> BusConnection:
        await asyncio.sleep(network.delay())
        if site.is_away:
            raise refused_or_closed(path, Cut(path))
        try:
            return BusConnection(
                Carrier(network, owner, site, f"{site.name}/{path}"), site, path, has_sessions=self.has_sessions
            )
        except Refusal as error:
            raise refused_or_closed(path, error) from error


class _Reader:
    """A reader of a partition at the service."""

    epoch = 0

    def __init__(self, consumer: Consumer, partition: HubPartition, start: int) -> None:
        self.consumer = consumer
        self.next = start
        self._partition = partition
        self._pump, consumer.pump = consumer.pump, self.wake  # type: ignore[method-assign] # events instead of messages

    def wake(self) -> None:
        """Send what the instance takes."""
        while self.consumer.can_take():
            event = self._partition.event(self.next)
            if event is None:
                return
            self.next = event.sequence_number + 1
            self.consumer.take(b"", event.encode())
            self.consumer._tags.clear()

    def stolen(self, refusal: Refusal) -> None:
        """End: another reader has taken the partition."""
        self.consumer.end(refusal.condition)


class HubSource:
    """An event hub of a site, as `EventHub`."""

    def __init__(self, network: Network, owner: "Instance", site: Site, name: str, consumer_group: str) -> None:
        """Read all partitions for *consumer_group*."""
        self.name = name
        self.consumer_group = consumer_group
        self.connection_name = site.name
        self.namespace = site.name
        self._network = network
        self._owner = owner
        self._site = site

    async def partition_ids(self) -> list[str]:
        """Return the partitions."""
        await asyncio.sleep(self._network.delay())
        if self._site.is_away:
            raise refused_or_closed(self.name, Cut(self.name))
        return [each.partition_id for each in self._site.namespace.hub(self.name).partitions]

    async def open(self, partition_id: str, position: object, prefetch: int, *, epoch: int | None = None) -> Any:
        """Return an open link to a partition after *position*."""
        assert epoch == 0
        where = f"{self.name}/{partition_id}"
        if self._site.is_away:
            await asyncio.sleep(self._network.delay())
            raise refused_or_closed(where, Cut(where))
        carrier = Carrier(self._network, self._owner, self._site, f"{self._site.name}/{where}")
        hub = self._site.namespace.hub(self.name)
        partition, group = hub.partition(partition_id), hub.consumer_group(self.consumer_group)
        offset = -1 if position == _PARTITION_START else int(str(position))

        def join(consumer: Consumer) -> None:
            start = partition.start(Position(Coordinate.OFFSET, offset, is_inclusive=False))
            reader = _Reader(consumer, partition, start)
            partition.join(group, reader)
            carrier.channel.when_cut(lambda: partition.leave(group, reader), at_service=True)

        raw, _ = await carrier.attach(prefetch, join, None, drains=False, settled=True)
        raw.is_attached = True
        return SimpleNamespace(link=raw, close=carrier.close)

    async def close(self) -> None:
        """Do nothing: each link has a connection of its own."""
