"""
The time to live of a copy.

Age is measured from the enqueued time: the message's own creation-time and absolute-expiry-time are overwritten by
Azure's Functions host and prove nothing. The enqueued time is of the source's clock and now of ours:
docs/decisions/0006 says what follows from that.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.message.message import Message

# The header's ttl is an unsigned 32-bit number of milliseconds; the service reads 0 as "the entity's default".
MAX_MILLISECONDS = 2**32 - 1
MIN_MILLISECONDS = 1

# The largest expected difference between the clocks of source and app.
CLOCK_SKEW = timedelta(seconds=5)
_SKEW_MILLISECONDS = round(CLOCK_SKEW.total_seconds() * 1000)


class Keep:
    """The copy gets the time to live of the original, counted from its arrival at the target."""

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
    """
    The copy lives for what is left of the original's life.

    With clocks that are apart by up to CLOCK_SKEW, a message that its source holds for alive is never withheld, what it
    gets is within CLOCK_SKEW of what is left by the source's clock, and is never more than it had.
    """

    def expires(self, message: Message, now: datetime) -> bool:
        """
        Set what is left of the life of *message*, or say that nothing is.

        A message without a life of its own (0 is none), or without an enqueued time, keeps what it has.
        """
        life = message.time_to_live
        enqueued = message.arrival.enqueued_time
        if not life or enqueued is None:
            return False
        left = life - (round(now.timestamp() * 1000) - enqueued)
        if left < MIN_MILLISECONDS:
            # The source has just handed it over, and so holds it for alive: our clock may be the one ahead.
            left += _SKEW_MILLISECONDS
        if left < MIN_MILLISECONDS:
            return True
        message.time_to_live = min(left, life)
        return False


type TimeToLive = Keep | Stamp | Remaining
