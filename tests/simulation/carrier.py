"""
A connection that receives, as the product's links see it.

The credit and the waiting of a link are those of the real `RawLink`; instead of a socket it has a channel.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from busway_broker import errors
from busway_broker.core.store import MessageStore
from busway_broker.errors import Refusal
from shared.amqp.performatives import OUTCOME_STATES, Attach, Flow
from shared.ends.azure_amqp.raw_link import Delivery, LinkClosed, RawLink, refused_or_closed
from tests.simulation.consumer import Consumer
from tests.simulation.faults import Operation
from tests.simulation.network import Channel, Cut, Network
from tests.simulation.process import Process
from tests.simulation.site import Site

_LINK_IDLE = 600.0


class Ended(Exception):
    """The error with which the service ends a link."""

    def __init__(self, condition: str) -> None:
        """Keep the condition, as the SDK's errors do."""
        super().__init__(condition)
        self.condition = condition


class SimulatedLink(RawLink):
    """A link whose flows and settlements go over a channel."""

    def __init__(self, carrier: "Carrier", prefetch: int, *, drains: bool, settled: bool) -> None:
        """Start without credit and messages."""
        session: Any = SimpleNamespace(emit_link_flow=self._flow)
        attach = Attach(f"link-{next(carrier.numbers)}", 0, True, 0, 0, None, None, None, None, (), None)
        super().__init__(carrier, session, attach, prefetch, drains=drains, is_settled=settled)
        self._carrier = carrier

    def settle(self, delivery_ids: Iterable[int], state: bytes, *, settled: bool) -> None:
        """Release deliveries: all others are settled by `Carrier.settle`."""
        assert settled
        for number in delivery_ids:
            self._carrier.network.has_released = True
            self._carrier.give(self, number, state)

    def _flow(self, _handle: int, delivery_count: int, link_credit: int, *, drain: bool = False) -> None:
        self._carrier.flow(self, delivery_count, link_credit, drain=drain)


class Carrier:
    """A connection to a site, as `RawConnection` is one to a real service."""

    def __init__(self, network: Network, owner: Process, site: Site, where: str) -> None:
        """Open it."""
        self.network = network
        self.where = where
        self.channel = Channel(network, owner, site, where)
        self.numbers = itertools.count(1)
        self._site = site
        self._consumers: dict[int, Consumer] = {}
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

    def flow(self, raw: RawLink, delivery_count: int, credit: int, *, drain: bool) -> None:
        """Let the service have the credit of a link."""
        consumer = self._consumers.get(id(raw))
        if consumer is not None:
            self.channel.send(lambda: consumer.flow(delivery_count, credit, drain=drain))

    async def release(self, raw: RawLink, deliveries: Sequence[Delivery]) -> None:
        """Release deliveries, without an answer."""
        raw.release(deliveries)

    def give(self, raw: RawLink, number: int, state: bytes) -> None:
        """Give a state to a delivery, without an answer."""
        consumer = self._consumers.get(id(raw))
        if consumer is not None:
            self.channel.send(lambda: consumer.give(number, state))

    async def settle(
        self, raw: RawLink, deliveries: Sequence[Delivery], outcome: int, state: bytes | None = None
    ) -> dict[int, str]:
        """Settle deliveries; return the failures: delivery id → condition."""
        self.raise_if_broken()
        if raw.closed_with is not None:
            condition = getattr(raw.closed_with, "condition", str(raw.closed_with))
            return {delivery.delivery_id: condition for delivery in deliveries}
        consumer = self._consumers[id(raw)]
        encoded = state or OUTCOME_STATES[outcome]

        def act() -> dict[int, str]:
            answers = (
                (delivery.delivery_id, consumer.settle(delivery.delivery_id, encoded)) for delivery in deliveries
            )
            return {number: condition for number, condition in answers if condition is not None}

        try:
            async with asyncio.timeout(60.0):
                failures = await self.channel.request(Operation.SETTLE, act)
        except Cut as error:
            raise LinkClosed(f"{self.where}: closed", "closed") from error
        except TimeoutError:
            return {delivery.delivery_id: "no answer" for delivery in deliveries}
        raw.restore(len(deliveries))
        return failures

    async def detach(self, raw: RawLink) -> None:
        """Close a link."""
        consumer = self._consumers.pop(id(raw), None)
        raw.end(Ended("closed by this side"))
        if consumer is not None and not self.is_broken:
            self.channel.send(consumer.end)

    async def join(
        self,
        prefetch: int,
        join: Callable[[Consumer], None],
        store: MessageStore | None,
        *,
        drains: bool,
        settled: bool,
    ) -> tuple[RawLink, Consumer]:
        """Return a new link; *join* registers its consumer at the service."""
        raw = SimulatedLink(self, prefetch, drains=drains, settled=settled)
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
        raw.start()
        return raw, consumer

    def drained(self, raw: RawLink, delivery_count: int) -> None:
        """Let a link know that its credit is used up."""
        if id(raw) in self._consumers:
            raw.on_flow(Flow(None, 0, 0, 0, 0, delivery_count, 0, drain=True, echo=False))

    def detached(self, raw: RawLink, condition: str) -> None:
        """Let a link know that the service has ended it."""
        raw.end(Ended(condition))

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

    def _end_all(self) -> None:
        for consumer in list(self._consumers.values()):
            consumer.end()
