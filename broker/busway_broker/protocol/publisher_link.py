"""Links that a client sends on to a queue or topic."""

from dataclasses import replace
from functools import partial

from busway_broker.core.content import Content, read_batch, read_content, unprocessable
from busway_broker.core.entities import Queue, Topic
from busway_broker.core.namespace import deleted
from busway_broker.core.rule_properties import RuleProperties
from busway_broker.core.sequence_numbers import Part
from busway_broker.core.transaction import Transaction, Work
from busway_broker.errors import LinkRefusal, Refusal
from busway_broker.protocol.incoming_link import BATCH_FORMAT, IncomingLink
from busway_broker.protocol.link_session import LinkSession
from shared.amqp.errors import NOT_ALLOWED
from shared.amqp.performatives import Attach
from shared.amqp.values import map_, symbol, ulong

LARGEST_BATCH = 1024 * 1024
"""The bytes of a batch in the Premium tier, however large a message may be."""
_BATCH_SIZE = symbol("com.microsoft:max-message-batch-size")
MOST_IN_BATCH = 4_500
"""The messages in a batch, in the Basic and Standard tiers; Azure/azure-service-bus issue 397."""


class PublisherLink(IncomingLink):
    """A sender to a queue or topic."""

    def __init__(self, session: LinkSession, attach: Attach, entity: Queue | Topic, max_message_size: int) -> None:
        super().__init__(session, attach, max_message_size)
        self._entity = entity

    def open(self) -> None:
        """Open the link with the most bytes that a batch may have, and grant credit."""
        limit = ulong(min(self._max_message_size, LARGEST_BATCH))
        self.send_attach(max_message_size=self._max_message_size, properties=map_([(_BATCH_SIZE, limit)]))
        self.session.emit_link_flow(self.handle, self._delivery_count, self._credit)

    def accept(self, message: bytes, message_format: int) -> None:
        """Publish a message, or a batch as a whole."""
        self._check_size(message, message_format)
        publish(self._entity, message, message_format)

    def _check_size(self, message: bytes, message_format: int) -> None:
        if message_format == BATCH_FORMAT and len(message) > LARGEST_BATCH:
            # Azure/azure-sdk-for-net issue 44261: a large message goes alone.
            raise LinkRefusal(
                NOT_ALLOWED,
                f"The link '{self.peer.name}' is force detached by the broker because publisher(link{self.handle}) "
                "received a batch message with no data in it. Detach origin: Publisher.",
            )

    def enlist(self, transaction: Transaction, message: bytes, message_format: int) -> None:
        """Publish a message, or a batch as a whole, when the transaction is committed."""
        self._check_size(message, message_format)
        contents = _contents(self._entity, message, message_format)
        parts = frozenset(part for part in map(self._part, contents) if part is not None)
        transaction.enlist(self.top_level, [replace(self._sending(contents), parts=parts)], sent=len(contents))

    def _part(self, content: Content) -> Part | None:
        """Return the partition of the transaction's entity that a message is on."""
        if self.top_level == self._entity.path.lower():
            return self._entity.incoming.numbers.part_for(content)
        via = self.session.connection.namespace.target(self.top_level)
        key = RuleProperties(content, 0, 0).system("ViaPartitionKey")
        return via.incoming.numbers.part_for(content, None if key is None else str(key.payload))

    def _sending(self, contents: list[Content]) -> Work:
        if self.top_level == self._entity.path.lower():
            return Work(partial(self._check, contents), partial(self._publish, contents))
        return self._transfer(contents, to=self._entity.path)

    def _transfer(self, contents: list[Content], to: str) -> Work:
        """Return the transfer of messages by the entity that the link's transactions are on."""
        namespace, via = self.session.connection.namespace, self.top_level
        return Work(
            partial(namespace.check_transfer, contents, to=to, via=via),
            partial(namespace.transfer, contents, to=to, via=via),
        )

    def _check(self, contents: list[Content]) -> None:
        entity = self._entity
        if self.session.connection.namespace.target(entity.path) is not entity:
            raise deleted(entity.path)
        entity.check(*contents)

    def _publish(self, contents: list[Content]) -> None:
        for content in _in_order_of_pumps(self._entity, contents):
            self._entity.incoming.accept(content)


class TransferLink(PublisherLink):
    """A sender to a destination via the queue or topic that the link is attached to."""

    def __init__(
        self, session: LinkSession, attach: Attach, entity: Queue | Topic, max_message_size: int, destination: str
    ) -> None:
        super().__init__(session, attach, entity, max_message_size)
        self._destination = destination

    def open(self) -> None:
        """Open the link with the destination that was asked for, and grant credit."""
        self.send_attach(max_message_size=self._max_message_size, properties=self.peer.properties)
        self.session.emit_link_flow(self.handle, self._delivery_count, self._credit)

    def accept(self, message: bytes, message_format: int) -> None:
        """Send a message, or a batch as a whole, to the destination."""
        self._check_size(message, message_format)
        sending = self._sending(_contents(self._entity, message, message_format))
        sending.check()
        sending.carry_out()

    def _sending(self, contents: list[Content]) -> Work:
        return self._transfer(contents, to=self._destination)


def publish(entity: Queue | Topic, message: bytes, message_format: int) -> None:
    """Publish a message to *entity*, or a batch as a whole; a Refusal if it does not accept it."""
    contents = _contents(entity, message, message_format)
    entity.check(*contents)
    accept = entity.incoming.accept
    for content in _in_order_of_pumps(entity, contents):
        accept(content)


def _in_order_of_pumps(entity: Queue | Topic, contents: list[Content]) -> list[Content]:
    """Return *contents* as two pumps of a topic without ordering copy them; Azure/azure-service-bus issue 562."""
    if isinstance(entity, Queue) or entity.config.support_ordering:
        return contents
    return contents[1::2] + contents[::2]


def _contents(entity: Queue | Topic, message: bytes, message_format: int) -> list[Content]:
    """Return the content of a message, or the contents of a batch; a Refusal for a batch that *entity* cannot take."""
    if message_format != BATCH_FORMAT:
        return [read_content(message)]
    encoded = read_batch(message)
    if len(encoded) > MOST_IN_BATCH:
        raise unprocessable()
    contents = [read_content(each) for each in encoded]
    if entity.config.enable_partitioning:
        _check_partition(contents, has_duplicate_detection=entity.config.requires_duplicate_detection)
    return contents


def _check_partition(contents: list[Content], *, has_duplicate_detection: bool) -> None:
    """
    Refuse a batch that a partitioned entity cannot store as a whole.

    Source: Azure/amqpnetlite issue 120; Azure/azure-sdk-for-python issues 21955, 36333.
    """
    refused = "Batching brokered messages with distinct {} is not supported for an entity with partitioning{} enabled."
    if has_duplicate_detection:
        what = "SessionId, PartitionKey, or MessageId", " and duplicate detection"
        raise Refusal(NOT_ALLOWED, refused.format(*what))
    if len({content.order_key for content in contents}) > 1:
        raise Refusal(NOT_ALLOWED, refused.format("SessionId or PartitionKey", ""))
