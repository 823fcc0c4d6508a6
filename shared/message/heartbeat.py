"""
Heartbeats: canary messages that a task takes from its source and sends on, and that no application is to see.

A heartbeat has the mark with the name of its task, an id with the route and the time of sending, and always the same
body. A message with another body is not one, whatever its mark says: nothing that an application sends is withheld.
"""

import secrets
from typing import NamedTuple

from shared.amqp.sections import Sections
from shared.amqp.values import string
from shared.errors import MessageRejected
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.metadata import PATH

MARK = "busway-heartbeat"
"""The application property of every heartbeat: the name of its task."""
ENTITY = "busway-heartbeat"
"""The topic or hub that gets the heartbeats of a route whose own target cannot hide them."""
HIDING = f"[{MARK}] IS NULL"
"""The condition for the rules of applications."""
BODY = b"heartbeat"

_KEY = MARK.encode()
_PREFIX = f"{MARK}-"
_SESSION = MARK
_LIFE_MILLISECONDS = 10 * 60 * 1000
_PARTS, _MOST_DIGITS = 3, 15
_NOWHERE = Arrival(Origin("", ""))


class Heartbeat(NamedTuple):
    """One heartbeat: its task, the number of its route, and when it was sent, in milliseconds by the sender's clock."""

    task: str
    route: int
    sent: int

    def to_source(self, *, has_session: bool) -> Message:
        """Return the message for the source. It does not expire there: that would look like a loss."""
        message = self._message(_NOWHERE)
        if has_session:
            message.session_id = _SESSION
        return message

    def to_target(self, arrival: Arrival) -> Message:
        """Return the message for the target, as one from the source; of the received one it has only the *arrival*."""
        message = self._message(arrival)
        message.set_properties({PATH: string(arrival.origin.site)})
        if arrival.origin.partition is None:
            message.session_id = _SESSION
            message.time_to_live = _LIFE_MILLISECONDS
        return message

    def _message(self, arrival: Arrival) -> Message:
        message = Message(Sections(), arrival)
        message.body = BODY
        # The rest distinguishes the heartbeats of several tasks, which one entity may get at the same time.
        message.message_id = string(f"{_PREFIX}{self.route}-{self.sent}-{secrets.token_hex(4)}")
        message.set_properties({MARK: string(self.task)})
        return message


def heartbeat_in(message: Message) -> Heartbeat | None:
    """Return the heartbeat that *message* is, None for any other message."""
    # Nearly no message is one; faster than "in", see shared.message.metadata.
    if message.sections.application_properties.find(_KEY) < 0:
        return None
    try:
        mark, identity = message.application_property(MARK), message.envelope()[0]
        if mark is None or not isinstance(mark.payload, str) or identity is None or message.body != BODY:
            return None
    except MessageRejected:
        return None  # the step that reads it again reports what is wrong
    parts = identity.removeprefix(_PREFIX).split("-")
    if not identity.startswith(_PREFIX) or len(parts) != _PARTS or not all(map(_is_number, parts[:2])):
        return None
    return Heartbeat(mark.payload, int(parts[0]), int(parts[1]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
