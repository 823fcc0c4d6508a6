"""
The time to live of a copy.

Age is measured from the enqueued time: the message's own creation-time and absolute-expiry-time are overwritten by
Azure's Functions host and prove nothing. The enqueued time is from the source's clock, the current time from ours: see
docs/decisions/0006.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.amqp.sections import split
from shared.amqp.values import uint
from shared.message.arrival import Arrival, Origin
from shared.message.mapping import TIME_TO_LIVE
from shared.message.message import Message

MIN_MILLISECONDS = 1

# The largest expected difference between the clocks of source and app.
CLOCK_SKEW = timedelta(seconds=5)
# A copy that has waited for less is not encoded again.
_NOTICED_MILLISECONDS = 1000
_LONGEST_MILLISECONDS = 2**32 - 1
_UNKNOWN = Arrival(Origin("", ""))
_SKEW_MILLISECONDS = round(CLOCK_SKEW.total_seconds() * 1000)


class Keep:
    """The copy gets the time to live of the original, counted from its arrival at the target."""

    def expires(self, message: Message, now: datetime) -> bool:  # noqa: ARG002 - the policies are called alike
        """Leave *message* as it is; nothing has expired."""
        return False

    def end(self, message: Message, now: datetime) -> int | None:  # noqa: ARG002 - the policies are called alike
        """Return None: the copy lives as long as the target has it."""
        return None


@dataclass(frozen=True)
class Stamp:
    """Every copy lives for the same time, as in active-passive replication."""

    life: timedelta

    def expires(self, message: Message, now: datetime) -> bool:  # noqa: ARG002 - the policies are called alike
        """Set the time to live of *message*; nothing has expired."""
        message.time_to_live = max(round(self.life.total_seconds() * 1000), MIN_MILLISECONDS)
        return False

    def end(self, message: Message, now: datetime) -> int | None:  # noqa: ARG002 - the policies are called alike
        """Return None: the copy lives as long as the target has it."""
        return None


class Remaining:
    """
    The copy gets the remaining time to live of the original.

    If the clocks differ by at most CLOCK_SKEW, a message that has not expired at its source is never withheld. It gets
    the remaining time by the source's clock, plus or minus CLOCK_SKEW, and never more than it had.
    """

    def expires(self, message: Message, now: datetime) -> bool:
        """
        Set the remaining time to live of *message*; return whether it has expired.

        A message without a time to live, or without an enqueued time, is not changed. The default of the source's
        entity is not seen in its messages.
        """
        life = message.time_to_live
        enqueued = message.arrival.enqueued_time
        if life is None or enqueued is None:
            return False
        left = life - (round(now.timestamp() * 1000) - enqueued)
        if left < MIN_MILLISECONDS:
            # The source has just handed it over, and so holds it for alive: our clock may be the one ahead.
            left += _SKEW_MILLISECONDS
        if left < MIN_MILLISECONDS:
            return True
        message.time_to_live = min(left, life)
        return False

    def end(self, message: Message, now: datetime) -> int | None:
        """Return when the copy of *message* ends, in milliseconds since 1970, if `expires` has changed it *now*."""
        life = message.time_to_live
        if life is None or message.arrival.enqueued_time is None:
            return None
        return round(now.timestamp() * 1000) + life


type TimeToLive = Keep | Stamp | Remaining


def shortened(content: bytes, life: int) -> bytes:
    """
    Return an encoded message with a *life* in milliseconds: it has waited for its target.

    A difference of less than a second is left unless the life has ended, as is a life of more than 49.7 days.
    """
    message = Message(split(content), _UNKNOWN)
    present: object = message.time_to_live
    is_event = present is None
    if is_event:  # its life is stored; in a message that has its own, a property of this name is the application's
        stored = message.application_property(TIME_TO_LIVE)
        present = None if stored is None else stored.payload
    noticed = _NOTICED_MILLISECONDS if life > MIN_MILLISECONDS else 1
    if not isinstance(present, int) or not life + noticed <= present <= _LONGEST_MILLISECONDS:
        return content
    if is_event:
        message.set_properties({TIME_TO_LIVE: uint(life)})
    else:
        message.time_to_live = life
    return message.encode()
