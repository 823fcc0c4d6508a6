"""
Connections to the queues and subscriptions of a site.

All but the connection itself is the product's: its links, its requests to `$management`, and what opens both.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from busway_broker import errors
from busway_broker.core.namespace import Namespace
from busway_broker.core.ready_queue import MessageSession
from busway_broker.core.session_store import SessionStore
from busway_broker.core.usage import Use, check_can
from busway_broker.errors import Refusal
from busway_broker.protocol.claims import Claims
from busway_broker.protocol.management import entity_node
from busway_broker.protocol.requests import Node, Request, Response, by_text
from shared.amqp.peer_error import PeerError
from shared.amqp.requests import Answer
from shared.amqp.values import Value
from shared.ends.azure_amqp.raw_link import LinkClosed, RawLink, refused_or_closed
from shared.ends.service_bus.connection import ServiceBusConnection
from tests.simulation.carrier import Carrier
from tests.simulation.consumer import Consumer
from tests.simulation.faults import Operation
from tests.simulation.network import Cut, Network
from tests.simulation.process import Process
from tests.simulation.site import Site

_TIMEOUT = "com.microsoft:timeout"
_SESSION_FILTER = "com.microsoft:session-filter"
_OPERATIONS = {
    "com.microsoft:update-disposition": Operation.SETTLE,
    "com.microsoft:renew-lock": Operation.RENEW,
    "com.microsoft:renew-session-lock": Operation.RENEW,
    "com.microsoft:peek-message": Operation.PEEK,
}


class BusConnection(Carrier):
    """A connection to an entity of Service Bus, as `RawConnection`."""

    def __init__(self, network: Network, owner: Process, site: Site, path: str) -> None:
        """Open it; Refusal if there is no such entity."""
        super().__init__(network, owner, site, f"{site.name}/{path}")
        self.name = "simulated"
        self.claims = Claims(site.namespace)
        self._nodes: dict[str, Node] = {}

    @property
    def namespace(self) -> Namespace:
        """Return the namespace, as the nodes of the broker ask for it."""
        return self._site.namespace

    def use_link(self, name: str) -> None:
        """Count a request about a link as a use of it."""
        for consumer in self._consumers.values():
            if consumer.raw.name == name:
                consumer.used_at = self.network.loop.time()

    async def attach(
        self,
        path: str,
        properties: Mapping[str, Value],
        prefetch: int = 0,
        *,
        filters: Mapping[str, Value] | None = None,
        drains: bool = False,
        is_settled: bool = False,
    ) -> RawLink:
        """Return a new link, or LinkClosed if no session has messages; see `RawConnection.attach`."""
        self.raise_if_broken()
        loop, namespace, store = asyncio.get_running_loop(), self.namespace, self.namespace.store(path)
        session_id = None if filters is None else filters[_SESSION_FILTER].payload
        granted: asyncio.Future[MessageSession | None] = loop.create_future()

        def join(consumer: Consumer) -> None:
            entity = namespace.entity_of(path)
            check_can(Use.RECEIVE, entity.path, entity.config.status)
            if namespace.store(path) is not store:
                raise Refusal(errors.NOT_FOUND, "The messaging entity has been deleted.")
            namespace.links.join(entity.path.lower(), Use.RECEIVE, consumer)  # type: ignore[arg-type] # has force_detach
            if filters is None or not isinstance(store, SessionStore):
                consumer.join()
                return
            consumer.granted = granted
            self.channel.when_cut(lambda: _cancel(granted))
            if isinstance(session_id, str):
                consumer.session_granted(store.accept(session_id, consumer))
                return
            wait = int(str(properties[_TIMEOUT].payload))
            store.accept_next(consumer, int(self._site.clock.now().timestamp() * 1000) + wait)

        raw, _ = await self.join(prefetch, join, store, drains=drains, settled=is_settled)
        if filters is not None:
            await self._grant(raw, granted)
        raw.is_attached = True
        return raw

    async def _grant(self, raw: RawLink, granted: "asyncio.Future[MessageSession | None]") -> None:
        """Wait for the session of a link."""
        try:
            session = await asyncio.shield(granted)
        except asyncio.CancelledError:
            if not self.is_broken:
                await self.detach(raw)
                raise
            raise LinkClosed(f"{self.where}: closed", "closed") from None
        if session is None:
            await self.detach(raw)
            raise LinkClosed(f"{self.where}: no session", errors.TIMEOUT)
        raw.session_id = session.session_id
        raw.locked_until = datetime.fromtimestamp(session.locked_until / 1000, UTC).isoformat()

    async def request(self, node: str, properties: Mapping[str, Value], content: Value, seconds: float) -> Answer:
        """Return the answer of a node; see `RawConnection.request`."""
        self.raise_if_broken()
        request = Request(b"", None, dict(properties), by_text(content), content)
        operation = _OPERATIONS.get(request.operation, Operation.MANAGE)

        def act() -> Response | None:
            link = properties.get("associated-link-name")
            if link is not None:
                self.use_link(str(link.payload))
            path = node.removesuffix("/$management")
            if path not in self._nodes:
                entity = self.namespace.entity_of(path)
                check_can(Use.MANAGE, entity.path, entity.config.status)
                # It outlives an entity that is deleted, and shows what that had (SR21).
                self._nodes[path] = entity_node(self, path)  # type: ignore[arg-type] # with what a node asks for
            request.most = self.channel.most
            return self._nodes[path].answer(request)

        async with asyncio.timeout(seconds):
            try:
                response = await self.channel.request(operation, act)
            except Refusal as refusal:
                raise PeerError(refusal.condition, refusal.description) from refusal
            if response is None:
                await asyncio.get_running_loop().create_future()
        assert response is not None
        return Answer(response.status, response.condition, response.description, response.body)


def _cancel(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.cancel()


async def open_bus(network: Network, owner: Process, site: Site, path: str) -> BusConnection:
    """Return a connection to the entity at *path*; raises TargetUnavailable and TargetRefused."""
    await asyncio.sleep(network.delay())
    if site.is_away:
        raise refused_or_closed(path, Cut(path))
    try:
        site.namespace.entity_of(path)
        return BusConnection(network, owner, site, path)
    except Refusal as error:
        raise refused_or_closed(path, error) from error


class BusSource:
    """A queue or subscription of a site, as `ServiceBusSource`."""

    def __init__(self, network: Network, owner: Process, site: Site, path: str, *, has_sessions: bool) -> None:
        """Receive from *path*."""
        self.has_sessions = has_sessions
        self.auto_complete = True
        self._path = path
        self._namespace = site.name
        self._open: Callable[[], Awaitable[BusConnection]] = lambda: open_bus(network, owner, site, path)

    async def open(self) -> ServiceBusConnection:
        """Return a connection."""
        client: Any = SimpleNamespace(close=_nothing)
        opened = ServiceBusConnection(client, self._path, sessions=self.has_sessions)
        opened.namespace = self._namespace
        opened.raw = await self._open()  # type: ignore[assignment] # with the methods that it calls
        return opened


async def _nothing(*_: Sequence[object]) -> None:
    pass
