"""The messages of an entity, and how many were published at its site and not copied to the primary site."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass

from azure.servicebus.aio import ServiceBusClient

from shared.amqp.values import Malformed
from shared.azure.peek import peek_all
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import iso_time, visited_sites

type OpenClient = Callable[[], AbstractAsyncContextManager[ServiceBusClient]]

_DEAD_LETTERS = "/$DeadLetterQueue"


@dataclass(frozen=True)
class EntityContents:
    """
    The messages of one entity.

    Shape:  messages counts all, including locked, scheduled and deferred ones; local counts those whose repl-path does
            not contain the primary site.
    Units:  oldest and newest are the ISO 8601 enqueued times of local messages, None without local messages.
    """

    entity: str
    messages: int
    local: int
    oldest: str | None = None
    newest: str | None = None


async def inspect_entities(
    site: str, entities: Sequence[str], primary: str, open_client: OpenClient
) -> list[EntityContents]:
    """Contents at *entities* of *site* without taking anything; raises TargetUnavailable if that cannot be done."""
    async with open_client() as client:
        return [await _inspect_entity(client, Origin(site, entity), primary) for entity in entities]


async def check_access(site: str, entities: Sequence[str], open_client: OpenClient) -> None:
    """Peek at a few messages of each of *entities* of *site*; raises TargetUnavailable if that fails."""
    async with open_client() as client:
        for entity in entities:
            async with aclosing(peek_all(client, Origin(site, entity))) as contents:
                await anext(contents, None)


def dead_letter_queues(entities: Sequence[str]) -> list[str]:
    """Return the dead-letter queues of *entities*, without those that *entities* already names."""
    named = {entity.lower() for entity in entities}
    queues = [f"{entity}{_DEAD_LETTERS}" for entity in entities if "/$" not in entity]
    return [queue for queue in queues if queue.lower() not in named]


async def _inspect_entity(client: ServiceBusClient, place: Origin, primary: str) -> EntityContents:
    found = 0
    local: list[int | None] = []
    async for contents in peek_all(client, place, scheduled=True):
        for content in contents:
            found += 1
            enqueued, is_local = _read(content, place, primary)
            if is_local:
                local.append(enqueued)
    times = [iso_time(time) for time in local if time is not None]
    return EntityContents(place.entity, found, len(local), min(times, default=None), max(times, default=None))


def _read(content: bytes, place: Origin, primary: str) -> tuple[int | None, bool]:
    """Return the enqueued time of a message and whether it is local; one that cannot be parsed is local."""
    try:
        message = Message.received(content, place)
        is_local = primary not in visited_sites(message)
    except Malformed:
        return None, True
    return message.arrival.enqueued_time, is_local
