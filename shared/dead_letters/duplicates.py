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

type WindowOf = Callable[[Destination], timedelta | None]


def guarded(routing: Routing, window_of: WindowOf, now: datetime) -> Routing:
    """
    Return *routing*, with a reason instead of a destination that would drop the message.

    *window_of* returns the duplicate window of an entity, None if it detects none; it is called once for each entity.
    """
    windows: dict[Destination, timedelta | None] = {}

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
        if window is None or age > window:
            return destination
        return f"{destination} detects duplicates within {window} and would drop the copy: wait, or give it a new id"

    return route


def _has_seen(destination: Destination, letter: Letter) -> bool:
    """Return whether the message was in the destination before: in the queue, or in the topic of the subscription."""
    if letter.source is None:
        return False
    site, path = letter.source
    at = path.lower().find(SUBSCRIPTION)
    entity = path if at < 0 else path[:at]
    return (site, entity.lower()) == (destination.site, destination.entity.lower())
