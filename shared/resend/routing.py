"""
Where messages go that are sent again, and what would be lost there.

An entity with duplicate detection that gave a message up has seen its id, and would accept a copy with the same id and
drop it: the message would be lost. At any other entity, a copy that is dropped as a duplicate means that the message is
there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

from shared.ends.look_error import DoesNotExist
from shared.ends.service_bus.administration import LONGEST_DUPLICATE_WINDOW, duplicate_window
from shared.errors import BuswayError, ConfigError, Problem
from shared.resend.delivery import Routing
from shared.resend.letters import Letter
from shared.resend.places import SUBSCRIPTION, Destination, Place, destination_named, original
from shared.tasks.files import Configuration

type Window = timedelta | str | None
"""How long an entity remembers ids, None if it detects no duplicates; or why it takes no messages."""

type WindowOf = Callable[[Destination], Awaitable[Window]]


def routing_of(place: Place, configuration: Configuration, to: str | None, hint: str) -> Routing:
    """
    Return the routing of the messages of *place*: to CONNECTION/ENTITY, or if that is None to where they came from.

    *hint* is what to do if that is not known. Raises ConfigError.
    """
    if to is not None:
        destination = destination_named(to, configuration)

        async def there(_: Letter) -> Destination:
            return destination

        return there

    async def back(letter: Letter) -> Destination | str:
        if letter.source is None:
            return f"does not say where it came from: {hint}"
        site, path = letter.source
        found = original(path, site, configuration, prefer=place.alias)
        return f"{found}: {hint}" if isinstance(found, str) else found

    return back


def guarded(routing: Routing, window_of: WindowOf, now: datetime) -> Routing:
    """
    Return *routing*, with a reason instead of a destination that would drop the message as a duplicate.

    *window_of* is called once for each entity.
    """
    windows: dict[Destination, Window] = {}

    async def route(letter: Letter) -> Destination | str:
        destination = await routing(letter)
        if isinstance(destination, str) or not _has_seen(destination, letter):
            return destination
        seconds = letter.age(now)
        age = timedelta() if seconds is None else timedelta(seconds=seconds)
        if age > LONGEST_DUPLICATE_WINDOW:
            return destination
        if destination not in windows:
            windows[destination] = await window_of(destination)
        window = windows[destination]
        if isinstance(window, str):
            return window
        if window is None or age > window:
            return destination
        return f"{destination} detects duplicates within {window} and would drop the copy: wait, or give it a new id"

    return route


def duplicate_windows(configuration: Configuration, settings: Mapping[str, str], hint: str) -> WindowOf:
    """
    Return what asks the administration API for the duplicate window of a destination.

    It raises ConfigError with the *hint* if there is no answer. A missing entity is one: its messages stay, the others
    go.
    """

    async def window_of(destination: Destination) -> Window:
        connection = configuration.connections[destination.alias]
        if not connection.end.has_dead_letters:
            return None
        try:
            where = str(destination), destination.entity
            return await asyncio.to_thread(duplicate_window, connection.key, settings, *where)
        except DoesNotExist:
            return f"{destination} does not exist: create it, or choose another entity to send to"
        except BuswayError as error:
            what = f"it is not known whether it detects duplicates and would drop copies: {error}"
            raise ConfigError([Problem(str(destination), what, hint)]) from error

    return window_of


def _has_seen(destination: Destination, letter: Letter) -> bool:
    """Return whether the message was in the destination before: in the queue, or in the topic of the subscription."""
    if letter.source is None:
        return False
    site, path = letter.source
    at = path.lower().find(SUBSCRIPTION)
    entity = path if at < 0 else path[:at]
    return (site, entity.lower()) == (destination.site, destination.entity.lower())
