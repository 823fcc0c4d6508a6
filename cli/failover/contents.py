"""
The messages of entities and sites, and how many were published there and not copied to the primary site.

Nothing is taken: the messages are peeked.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass

from azure.servicebus.aio import ServiceBusClient

from busway_clients.senders.error_kinds import is_unavailable
from cli.failover.configuration import Failover
from shared.amqp.values import Malformed
from shared.ends.service_bus.peek import peek_all
from shared.errors import ConfigError, Problem, TargetUnavailable
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import iso_time, visited_sites
from shared.resend.places import DEAD_LETTERS

type OpenClient = Callable[[], AbstractAsyncContextManager[ServiceBusClient]]


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


type Contents = Sequence[EntityContents] | str
"""The contents of the entities of a site, or why they are unknown."""


async def inspect_site(failover: Failover, site: str) -> Contents:
    """Return the contents of the entities of failover.yaml at *site*; raises ConfigError if it cannot be opened."""
    return await _look(failover, site, failover.file.entities)


async def inspect_all(failover: Failover, site: str, problems: list[Problem]) -> Contents:
    """Return the contents of *site*, dead letters last; problems with its configuration are added to *problems*."""
    try:
        look = await inspect_site(failover, site)
        if isinstance(look, str):
            return look
        dead = (await inspect_dead_letters(failover, [site]))[site]
    except ConfigError as error:
        problems += error.problems
        return str(error)
    return dead if isinstance(dead, str) else [*look, *dead]


async def inspect_dead_letters(failover: Failover, sites: Iterable[str]) -> dict[str, Contents]:
    """Return the contents of the dead-letter queues of these entities at *sites*, without empty ones."""
    queues = _dead_letter_queues(failover.file.entities)
    found = {site: await _look(failover, site, queues) for site in sites}
    return {
        site: held if isinstance(held, str) else [entity for entity in held if entity.messages]
        for site, held in found.items()
    }


async def check_primary(failover: Failover) -> None:
    """Raise TargetUnavailable if the primary site cannot be read: applications must not be moved to it then."""
    primary = failover.file.primary
    try:
        await _check_access(primary, failover.file.entities, lambda: failover.client(primary))
    except TargetUnavailable as error:
        raise TargetUnavailable(_why(primary, error)) from error


async def _look(failover: Failover, site: str, entities: Sequence[str]) -> Contents:
    primary = failover.path_name(failover.file.primary)
    try:
        return await inspect_entities(site, entities, primary, lambda: failover.client(site))
    except TargetUnavailable as error:
        return _why(site, error)


def _why(site: str, error: TargetUnavailable) -> str:
    if error.__cause__ is not None and is_unavailable(error.__cause__):
        return f"{site} does not answer: {error}"
    return f"{error}; {site} answers: check that the entity exists, and the right to listen"


async def inspect_entities(
    site: str, entities: Sequence[str], primary: str, open_client: OpenClient
) -> list[EntityContents]:
    """Contents at *entities* of *site* without taking anything; raises TargetUnavailable if that cannot be done."""
    async with open_client() as client:
        return [await _inspect_entity(client, Origin(site, entity), primary) for entity in entities]


async def _check_access(site: str, entities: Sequence[str], open_client: OpenClient) -> None:
    """Peek at a few messages of each of *entities* of *site*; raises TargetUnavailable if that fails."""
    async with open_client() as client:
        for entity in entities:
            async with aclosing(peek_all(client, Origin(site, entity))) as contents:
                await anext(contents, None)


def _dead_letter_queues(entities: Sequence[str]) -> list[str]:
    """Return the dead-letter queues of *entities*, without those that *entities* already names."""
    named = {entity.lower() for entity in entities}
    queues = [f"{entity}{DEAD_LETTERS}" for entity in entities if "/$" not in entity]
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
