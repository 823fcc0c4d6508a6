"""
Duplicate detection at the entity that gave a message up.

It has seen the id of the message, and would accept a copy with the same id and drop it: the message would be lost. At
any other entity, a copy that is dropped as a duplicate means that the message is there.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus.management import QueueProperties, TopicProperties

from cli.dead.delivery import Routing
from cli.dead.letters import Letter
from cli.dead.places import SUBSCRIPTION, Destination
from cli.topology.sites import Access, open_client
from local.broker.durations import parse_duration
from shared.azure.administration import translated
from shared.config.files import Configuration
from shared.errors import BuswayError, ConfigError, Problem

LONGEST_WINDOW = timedelta(days=7)
"""Of Service Bus."""

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
        if age > LONGEST_WINDOW:
            return destination
        if destination not in windows:
            windows[destination] = window_of(destination)
        window = windows[destination]
        if window is None or age > window:
            return destination
        return f"{destination} detects duplicates within {window} and would drop the copy: wait, or use --new-ids"

    return route


def window_by_administration(configuration: Configuration, access: Access) -> WindowOf:
    """Return a function that asks the administration API; it raises ConfigError if there is no answer."""

    def window_of(destination: Destination) -> timedelta | None:
        connection = configuration.connections[destination.alias]
        if connection.kind != "service-bus":
            return None
        try:
            with open_client(destination.alias, connection, access) as client:
                found: QueueProperties | TopicProperties
                try:
                    found = client.get_queue(destination.entity)
                except ResourceNotFoundError:
                    found = client.get_topic(destination.entity)
        except (AzureError, BuswayError) as error:
            reason = translated(error, str(destination)) if isinstance(error, AzureError) else error
            what = f"it is not known whether it detects duplicates and would drop copies: {reason}"
            hint = "--new-ids gives the copies other ids; --same-ids sends them as they are"
            raise ConfigError([Problem(str(destination), what, hint)]) from error
        window = found.duplicate_detection_history_time_window if found.requires_duplicate_detection else None
        return parse_duration(window) if isinstance(window, str) else window

    return window_of


def _has_seen(destination: Destination, letter: Letter) -> bool:
    """Return whether the message was in the destination before: in the queue, or in the topic of the subscription."""
    if letter.source is None:
        return False
    site, path = letter.source
    at = path.lower().find(SUBSCRIPTION)
    entity = path if at < 0 else path[:at]
    return (site, entity.lower()) == (destination.site, destination.entity.lower())
