"""Queues and subscriptions of a site, as the listeners of the local host see them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from azure.servicebus.exceptions import ServiceBusError

from busway_broker import errors
from busway_broker.core.entity_links import Use
from busway_broker.core.ready_queue import MessageSession
from busway_broker.core.session_store import SessionStore
from busway_broker.core.store import MessageStore
from busway_broker.core.usage import check_can_receive
from busway_broker.errors import Refusal
from shared.ends.azure_amqp.raw_link import LinkClosed, RawLink, refused_or_closed
from tests.simulation.carrier import Carrier
from tests.simulation.consumer import Consumer
from tests.simulation.faults import Operation
from tests.simulation.network import Cut, Network
from tests.simulation.site import Site

if TYPE_CHECKING:
    from tests.simulation.instance import Instance


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
