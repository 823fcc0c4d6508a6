"""A message as a peek returns it, with the state that the service reports."""

from dataclasses import dataclass
from typing import Self

from shared.amqp import map_section, sections
from shared.amqp.values import Malformed
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message

_ACTIVE, _SCHEDULED = 0, 2


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """An encoded message, its state, and its sequence number and enqueued time where they can be read."""

    content: bytes
    arrival: Arrival | None
    state: object

    @classmethod
    def of(cls, content: bytes, origin: Origin) -> Self:
        """Read the annotations of the service; an unreadable message counts as active, without an arrival."""
        try:
            state = map_section.entry(sections.split(content).message_annotations, "x-opt-message-state")
        except Malformed:
            return cls(content, None, _ACTIVE)
        try:
            arrival = Message.received(content, origin).arrival
        except Malformed:
            arrival = None
        return cls(content, arrival, _ACTIVE if state is None else state.payload)

    @property
    def is_active(self) -> bool:
        """Whether a receiver would get it: it is neither scheduled nor deferred."""
        return self.state == _ACTIVE

    @property
    def is_scheduled(self) -> bool:
        """Whether it is scheduled for later; it then gets another sequence number."""
        return self.state == _SCHEDULED

    @property
    def sequence_number(self) -> int | None:
        """The sequence number, None where it cannot be read."""
        return None if self.arrival is None else self.arrival.sequence_number

    @property
    def enqueued_time(self) -> int | None:
        """When it was enqueued, in milliseconds since 1970 UTC, None where that cannot be read."""
        return None if self.arrival is None else self.arrival.enqueued_time
