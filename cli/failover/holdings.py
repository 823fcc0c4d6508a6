"""What a site holds that was published there, and that nothing has carried to the primary site."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass

from azure.servicebus.aio import ServiceBusClient

from shared.amqp.values import Malformed
from shared.azure.peek import peek_all
from shared.message.message import Message, Origin
from shared.message.metadata import iso_time, visited_sites

type OpenClient = Callable[[], AbstractAsyncContextManager[ServiceBusClient]]

_DEAD_LETTERS = "/$DeadLetterQueue"


@dataclass(frozen=True)
class Holding:
    """
    What one entity holds.

    Shape:  all of its messages, locked, scheduled and deferred ones among them, and how many of them are local: those
            whose repl-path does not name the primary site.
    Units:  oldest and newest are the ISO 8601 times when local ones were enqueued, None where there are none.
    """

    entity: str
    messages: int
    local: int
    oldest: str | None = None
    newest: str | None = None


async def holdings(site: str, entities: Sequence[str], primary: str, open_client: OpenClient) -> list[Holding]:
    """Look at *entities* of *site* without taking anything; raises TargetUnavailable if that cannot be done."""
    async with open_client() as client:
        return [await _holding(client, Origin(site, entity), primary) for entity in entities]


async def answers(site: str, entities: Sequence[str], open_client: OpenClient) -> None:
    """Ask each of *entities* of *site* for a few messages; raises TargetUnavailable if one cannot be peeked."""
    async with open_client() as client:
        for entity in entities:
            async with aclosing(peek_all(client, Origin(site, entity))) as contents:
                await anext(contents, None)


def dead_letters(entities: Sequence[str]) -> list[str]:
    """Return the dead-letter queues of *entities* that are not among them."""
    named = {entity.lower() for entity in entities}
    queues = [f"{entity}{_DEAD_LETTERS}" for entity in entities if "/$" not in entity]
    return [queue for queue in queues if queue.lower() not in named]


async def _holding(client: ServiceBusClient, place: Origin, primary: str) -> Holding:
    found = 0
    local: list[int | None] = []
    async for contents in peek_all(client, place, scheduled=True):
        for content in contents:
            found += 1
            enqueued, is_local = _read(content, place, primary)
            if is_local:
                local.append(enqueued)
    times = [iso_time(time) for time in local if time is not None]
    return Holding(place.entity, found, len(local), min(times, default=None), max(times, default=None))


def _read(content: bytes, place: Origin, primary: str) -> tuple[int | None, bool]:
    """Return when a message arrived and whether it is local, which one is that cannot be read."""
    try:
        message = Message.received(content, place)
        is_local = primary not in visited_sites(message)
    except Malformed:
        return None, True
    return message.arrival.enqueued_time, is_local
