"""
A connection that receives, as the product's links see it.

The credit and the waiting of a link are those of the real `RawLink`; instead of a socket it has a channel.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from local.broker import errors
from local.broker.core.store import MessageStore
from local.broker.errors import Refusal
from shared.azure.receivers.raw_link import Delivery, LinkClosed, RawLink, refused_or_closed
from tests.simulation.consumer import STATES, Consumer
from tests.simulation.faults import Operation
from tests.simulation.network import Channel, Cut, Network
from tests.simulation.site import Site

if TYPE_CHECKING:
    from tests.simulation.instance import Instance

_LINK_IDLE = 600.0


class Ended(Exception):
    """The error with which the service ends a link."""

    def __init__(self, condition: str) -> None:
        """Keep the condition, as the SDK's errors do."""
        super().__init__(condition)
        self.condition = condition


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
        encoded = state or STATES[outcome]

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
