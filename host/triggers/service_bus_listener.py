"""What both listeners of Service Bus triggers do: listen, invoke their function with messages, settle them."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field

from host.invocation import invoke_with_retries
from host.listener import Stopping, keep_listening
from host.platform import Losing
from host.settings import ServiceBusOptions
from host.settlement.actions import Actions, ActionsCache
from host.settlement.outcome import Outcome
from host.settlement.receiver import Receiver
from host.triggers.service_bus_source import ServiceBusSource
from host.worker import Function, Invocation, Worker
from host.worker_input import receiver_metadata, service_bus_input
from shared.clock import Clock
from shared.ends.azure_amqp.raw_link import Delivery, LinkClosed, RawLink
from shared.ends.service_bus.connection import ServiceBusConnection
from shared.errors import TargetUnavailable

_log = logging.getLogger(__name__)

TRY_SECONDS = 60.0
_TIMEOUT = "com.microsoft:timeout"


@dataclass(eq=False)
class ServiceBusListener(ABC):
    """Invokes one function with messages from one queue or subscription; nothing is opened before `run`."""

    function: Function
    source: ServiceBusSource
    options: ServiceBusOptions
    worker: Worker
    clock: Clock
    _: KW_ONLY
    stopping: Stopping
    wire: bool
    losing: Losing
    cache: ActionsCache
    is_listening: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # In the order in which they began: a set would end them in that of their addresses.
    _links: dict[RawLink, None] = field(default_factory=dict, init=False)
    _accepting: dict[asyncio.Task[RawLink], None] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Listen until stopped; see `Listener`."""
        await keep_listening(self.function.name, self.stopping, self._listen)

    def stop(self) -> None:
        """Accept nothing more; see `Listener`."""
        self.stopping.request()
        for link in self._links:
            link.interrupt()
        for accepting in self._accepting:
            accepting.cancel()

    @abstractmethod
    async def _listen(self, let_in: Callable[[], None]) -> None:
        """Receive and process messages over one connection, until stopped."""

    @abstractmethod
    async def _accept(self, connection: ServiceBusConnection) -> RawLink:
        """Return the link of the next session; raises LinkClosed if none has messages."""

    async def _next_session(self, connection: ServiceBusConnection, let_in: Callable[[], None]) -> RawLink | None:
        """Return the next session, None if none has messages or the host stops."""
        accepting = asyncio.create_task(self._accept(connection))
        self._accepting[accepting] = None
        try:
            link = await accepting
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            return None
        except LinkClosed as error:
            if error.condition != _TIMEOUT:
                raise
            return None
        finally:
            self._accepting.pop(accepting, None)
        let_in()
        return link

    @asynccontextmanager
    async def _holding(self, connection: ServiceBusConnection, link: RawLink) -> AsyncIterator[None]:
        """Close a session in the end; its loss is logged, that of the connection raised."""
        try:
            yield
        except LinkClosed as error:
            _log.warning("%s: session ended: %s", self.function.name, error)
            if connection.raw.is_broken:
                raise
        finally:
            self._links.pop(link, None)
            await connection.raw.detach(link)

    async def _invoke(self, receiver: Receiver, deliveries: Sequence[Delivery]) -> Invocation:
        """Run the function; raises CannotReceive for messages that .NET cannot read."""
        now = int(self.clock.now().timestamp() * 1000)
        connection, link = receiver.connection, receiver.link
        return await invoke_with_retries(
            self.worker,
            self.function,
            lambda: service_bus_input(
                self.function,
                deliveries,
                now,
                receiver_metadata(connection.namespace, connection.name, link.locked_until),
                wire=self.wire,
            ),
            self.stopping,
        )

    async def _settle(self, actions: Actions, deliveries: Sequence[Delivery], outcome: Outcome) -> int:
        """
        Settle, and return the number of settlements that the service did not confirm.

        They are logged: a message whose lock was lost is delivered again, unless another receiver has settled it.
        """
        name = self.function.name
        try:
            failures = await actions.settle_all(deliveries, outcome)
        except TargetUnavailable as error:
            _log.warning("%s: %d messages not settled, they will come again: %s", name, len(deliveries), error)
            raise
        if failures:
            reasons = ", ".join(sorted(set(failures.values())))
            _log.warning("%s: %d messages not settled, they will come again: %s", name, len(failures), reasons)
        return len(failures)
