"""
The time to live of a copy.

Age is measured from the enqueued time: the message's own creation-time and absolute-expiry-time are overwritten by
Azure's Functions host and prove nothing.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.message import Message

# The header's ttl is an unsigned 32-bit number of milliseconds; the service reads 0 as "the entity's default".
MAX_MILLISECONDS = 2**32 - 1
MIN_MILLISECONDS = 1


class Keep:
    """The copy lives as long as the original was meant to, counted anew from its arrival at the target."""

    def expires(self, message: Message, now: datetime) -> bool:  # noqa: ARG002 - the policies are called alike
        """Leave *message* as it is; nothing has expired."""
        return False


@dataclass(frozen=True)
class Stamp:
    """Every copy lives for the same time, as in active-passive replication."""

    life: timedelta

    def expires(self, message: Message, now: datetime) -> bool:  # noqa: ARG002 - the policies are called alike
        """Set the life of *message*; nothing has expired."""
        message.time_to_live = min(max(round(self.life.total_seconds() * 1000), MIN_MILLISECONDS), MAX_MILLISECONDS)
        return False


class Remaining:
    """The copy lives for what is left of the original's life."""

    def expires(self, message: Message, now: datetime) -> bool:
        """
        Set what is left of the life of *message*, or say that nothing is.

        A message without a life of its own, or without an enqueued time, keeps what it has. An age below zero, as two
        clocks can give it, counts as zero.
        """
        life = message.time_to_live
        enqueued = message.arrival.enqueued_time
        if life is None or enqueued is None:
            return False
        left = life - max(round(now.timestamp() * 1000) - enqueued, 0)
        if left < MIN_MILLISECONDS:
            return True
        message.time_to_live = left
        return False


type TimeToLive = Keep | Stamp | Remaining
