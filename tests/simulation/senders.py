"""
The sending side of a site: links for the real outputs to Service Bus and Event Hubs.

The outputs are the product's; what the SDK's links do over a socket, these do over a channel.
"""

import asyncio
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from azure.eventhub._pyamqp.error import AMQPException
from azure.servicebus.exceptions import ServiceBusError

from busway_broker import errors
from busway_broker.core.usage import Use, check_can
from busway_broker.errors import Refusal
from busway_broker.protocol import hub_links, publisher_link
from busway_broker.protocol.incoming_link import BATCH_FORMAT
from shared.ends.azure_amqp.encoded_transfer import EncodedMessage
from shared.ends.event_hubs.output import EventHubsOutput
from shared.ends.service_bus.output import ServiceBusOutput
from tests.simulation.faults import Operation
from tests.simulation.network import Channel, Cut, Network, entity_of
from tests.simulation.process import Process
from tests.simulation.site import Site

_HEAVY = b"heavy"
"""The name of a property: a message with it is too large for a target, and not for rejects."""
_NAME = re.compile(rb'"(\w+\.(?:west|east|north)\.\d+(?:/\d+)?)"')
"""In a body."""


def service_bus_output(network: Network, owner: Process, site: Site) -> ServiceBusOutput:
    """Return the output to the queues and topics of *site*."""
    client: Any = SimpleNamespace(get_queue_sender=lambda entity: entity, close=_nothing)

    async def open_link(entity: Any) -> Any:
        return await _opened(SenderLink, network, owner, site, str(entity))

    return ServiceBusOutput(site.name, lambda: client, open_link)


def event_hubs_output(network: Network, owner: Process, site: Site) -> EventHubsOutput:
    """Return the output to the hubs of *site*."""

    async def open_link(hub: Any, partition: str | None) -> Any:
        path = str(hub.name) if partition is None else f"{hub.name}/Partitions/{partition}"
        return await _opened(HubLink, network, owner, site, path)

    return EventHubsOutput(site.name, lambda hub: SimpleNamespace(name=hub, close=_nothing), open_link)  # type: ignore[arg-type,return-value] # a client of the SDK


def names_in(content: bytes) -> set[str]:
    """Return the names of the messages in *content*."""
    return {name.decode() for name in _NAME.findall(content)}


async def _nothing() -> None:
    pass


async def _opened[Link: "SenderLink"](
    kind: type[Link], network: Network, owner: Process, site: Site, path: str
) -> Link:
    link = kind(Channel(network, owner, site, f"{site.name}/{path}"), path, owner.batch_limit)
    try:
        await link.channel.request(Operation.ATTACH, link.check)
    except (Cut, Refusal) as error:
        link.channel.cut()
        raise kind.as_sdk_error(error) from error
    return link


class SenderLink:
    """A link to a queue or topic; see `shared.ends.service_bus.link.SenderLink`."""

    def __init__(self, channel: Channel, path: str, limit: int) -> None:
        """Send batches of *limit* bytes over *channel*."""
        self.channel = channel
        self.path = path
        self.limit = self.largest_message = limit
        self.failure: Exception | None = None
        self.lost = 0
        self._unanswered = 0
        self._is_retired = False
        channel.when_cut(self._fail)

    @staticmethod
    def as_sdk_error(error: Exception) -> Exception:
        """Return the error that the SDK raises."""
        if not isinstance(error, Refusal):
            return error
        raised = ServiceBusError(error.description)
        raised._condition = error.condition
        return raised

    def check(self) -> None:
        """Raise a Refusal if nothing can be sent to the entity."""
        entity = self.channel.site.namespace.target(self.path)
        check_can(Use.SEND, entity.path, entity.config.status)

    def publish(self, content: bytes, message_format: int) -> None:
        """Publish a message, or a batch as a whole."""
        only = self.channel.owner.refuses
        if _HEAVY in content and self.path != "rejected" and only in {None, (self.channel.site.name, self.path)}:
            raise Refusal(errors.MESSAGE_SIZE_EXCEEDED, "The received message is too large.")
        publisher_link.publish(self.channel.site.namespace.target(self.path), content, message_format)

    async def is_usable(self) -> bool:
        """Return whether the link is open."""
        return not self.channel.is_cut

    async def deliver(self, message: EncodedMessage, deadline: float) -> Exception | None:
        """Send a message or batch; return the SDK's error."""
        if self.channel.is_cut:
            return ConnectionError("the link is closed")
        self._unanswered += 1
        owner, names = self.channel.owner, names_in(message.content)
        owner.begins_to_send(self.channel.where, names)
        sent = [(self.channel.where, name) for name in names]
        owner.under_way.update(sent)

        def act() -> None:
            self.publish(message.content, message.message_format)
            self.channel.network.arrived |= {(entity_of(place), name) for place, name in sent}

        try:
            async with asyncio.timeout_at(deadline):
                await self.channel.request(Operation.SEND, act)
        except TimeoutError as error:
            return error
        except Cut:
            return self.failure
        except Refusal as refusal:
            answer = self.as_sdk_error(refusal)
            if refusal.condition == errors.MESSAGE_SIZE_EXCEEDED and not self.channel.is_cut:
                # The service closes the link instead of refusing the delivery; which one it was, it does not say.
                self.channel.network.faults.injected["link closed for a message too large (send)"] += 1
                self.channel.cut()
                self.failure = answer
            return answer
        finally:
            owner.under_way.subtract(sent)
            self._unanswered -= 1
            if self._is_retired and not self._unanswered:
                self.channel.cut()
        now = self.channel.network.loop.time()
        owner.sent.update(dict.fromkeys(sent, now))
        return None

    async def retire(self) -> None:
        """Close the link when every batch has its answer."""
        self._is_retired = True
        if not self._unanswered:
            self.channel.cut()

    async def close(self) -> None:
        """Close the link."""
        self.channel.cut()

    def _fail(self) -> None:
        self.failure, self.lost = ConnectionError("the link is closed"), self._unanswered


class HubLink(SenderLink):
    """A link to a hub or one of its partitions; see `shared.ends.event_hubs.internals.PublisherLink`."""

    @staticmethod
    def as_sdk_error(error: Exception) -> Exception:
        """Return the error that the SDK raises."""
        return AMQPException(error.condition.encode()) if isinstance(error, Refusal) else error

    def check(self) -> None:
        """Raise a Refusal if there is no such hub or partition."""
        hub, _, partition = self.path.partition("/Partitions/")
        if partition:
            self.channel.site.namespace.hub(hub).partition(partition)
        self.channel.site.namespace.hub(hub)

    def publish(self, content: bytes, message_format: int) -> None:
        """Append a batch."""
        name, _, partition = self.path.partition("/Partitions/")
        hub = self.channel.site.namespace.hub(name)
        hub_links.publish(hub, hub.partition(partition) if partition else None, content, message_format)

    async def deliver(self, batches: Sequence[bytes], deadline: float) -> list[Exception | None]:  # type: ignore[override] # another interface
        """Send all batches; return for each the SDK's error."""
        answers = await asyncio.gather(
            *(super(HubLink, self).deliver(EncodedMessage(batch, BATCH_FORMAT), deadline) for batch in batches)
        )
        late = next((answer for answer in answers if isinstance(answer, TimeoutError)), None)
        if late is not None:
            self.failure = late
        return [self.failure if isinstance(answer, TimeoutError) else answer for answer in answers]
