"""
Duplicate detection at the entity that gave a message up.

It has seen the id of the message, and would accept a copy with the same id and drop it: the message would be lost. At
any other entity, a copy that is dropped as a duplicate means that the message is there.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from shared.azure.administration import LONGEST_DUPLICATE_WINDOW
from shared.dead_letters.delivery import Routing
from shared.dead_letters.letters import Letter
from shared.dead_letters.places import SUBSCRIPTION, Destination

type Window = timedelta | str | None
"""How long an entity remembers ids, None if it detects no duplicates; or why it takes no messages."""

type WindowOf = Callable[[Destination], Window]


def guarded(routing: Routing, window_of: WindowOf, now: datetime) -> Routing:
    """
    Return *routing*, with a reason instead of a destination that would drop the message.

    *window_of* is called once for each entity.
    """
    windows: dict[Destination, Window] = {}

    def route(letter: Letter) -> Destination | str:
        destination = routing(letter)
        if isinstance(destination, str) or not _has_seen(destination, letter):
            return destination
        seconds = letter.age(now)
        age = timedelta() if seconds is None else timedelta(seconds=seconds)
        if age > LONGEST_DUPLICATE_WINDOW:
            return destination
        if destination not in windows:
            windows[destination] = window_of(destination)
        window = windows[destination]
        if isinstance(window, str):
            return window
        if window is None or age > window:
            return destination
        return f"{destination} detects duplicates within {window} and would drop the copy: wait, or give it a new id"

    return route


def missing(destination: Destination) -> str:
    """Return why nothing is sent to an entity that is not there: its messages stay, and the others go on."""
    return f"{destination} does not exist: create it, or choose another entity to send to"


def _has_seen(destination: Destination, letter: Letter) -> bool:
    """Return whether the message was in the destination before: in the queue, or in the topic of the subscription."""
    if letter.source is None:
        return False
    site, path = letter.source
    at = path.lower().find(SUBSCRIPTION)
    entity = path if at < 0 else path[:at]
    return (site, entity.lower()) == (destination.site, destination.entity.lower())
