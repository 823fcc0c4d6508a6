"""What an entity holds that is to be deleted, by peeking too: the counts of the administration are seconds old."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cli.topology.model import Kind, Name
from shared.errors import TargetRefused, TargetUnavailable
from shared.resend.peek import peek
from shared.resend.places import DEAD_LETTERS, Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from azure.servicebus.management import (
        QueueProperties,
        QueueRuntimeProperties,
        ServiceBusAdministrationClient,
        SubscriptionProperties,
        SubscriptionRuntimeProperties,
    )

    type _Counts = QueueRuntimeProperties | SubscriptionRuntimeProperties

_TRANSFER = "/$Transfer"


def check_is_empty(
    client: "ServiceBusAdministrationClient", name: Name, namespace: Place, settings: "Mapping[str, str]"
) -> None:
    """Raise TargetRefused if a queue, topic or subscription of *namespace* has messages, or cannot be looked into."""
    first = name.parts[0]
    paths: list[str] = []
    if name.kind is Kind.QUEUE:
        paths += _checked(name, client.get_queue(first), client.get_queue_runtime_properties(first), first)
    else:
        wanted = name.parts[1:] or [subscription.name for subscription in client.list_subscriptions(first)]
        if name.kind is Kind.TOPIC:
            paths.append(first)  # its scheduled messages
        for each in wanted:
            counts = client.get_subscription_runtime_properties(first, each)
            path = f"{first}/Subscriptions/{each}"
            paths += _checked(name, client.get_subscription(first, each), counts, path)
    for path in paths:
        try:
            found = asyncio.run(_has_message(namespace._replace(entity=path), settings))
        except TargetUnavailable as error:
            raise TargetRefused(f"{name}: may hold messages: {error}") from error
        if found:
            raise _holds(name, "messages")


def _checked(
    name: Name, properties: "QueueProperties | SubscriptionProperties", counts: "_Counts", path: str
) -> Iterator[str]:
    """Yield the paths to peek at if the *counts* are of none; an entity that forwards cannot be peeked."""
    if (counts.total_message_count or 0) > 0:
        raise _holds(name, f"{counts.total_message_count} messages")
    if not properties.forward_to:
        yield path
    if not properties.forward_dead_lettered_messages_to:
        yield path + DEAD_LETTERS
    yield path + _TRANSFER + DEAD_LETTERS


async def _has_message(place: Place, settings: "Mapping[str, str]") -> bool:
    async with contextlib.aclosing(peek(place, settings, most=1)) as messages:
        return await anext(messages, None) is not None


def _holds(name: Name, what: str) -> TargetRefused:
    return TargetRefused(f"{name}: holds {what} (receive or delete those first, then run this again)")
