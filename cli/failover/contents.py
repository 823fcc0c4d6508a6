"""
The messages of entities and sites, and how many were published there and not copied to the primary site.

Nothing is taken: the messages are peeked.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from busway_clients.senders.error_kinds import is_unavailable
from cli.failover.configuration import Failover
from shared.errors import ConfigError, Problem, TargetUnavailable
from shared.message.metadata import iso_time, visited_sites
from shared.resend.peek import peek
from shared.resend.places import DEAD_LETTERS, Place


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
    entities = failover.file.entities
    named = {entity.lower() for entity in entities}
    queues = [f"{entity}{DEAD_LETTERS}" for entity in entities if "/$" not in entity]
    queues = [queue for queue in queues if queue.lower() not in named]
    found = {site: await _look(failover, site, queues) for site in sites}
    return {
        site: held if isinstance(held, str) else [entity for entity in held if entity.messages]
        for site, held in found.items()
    }


async def check_primary(failover: Failover) -> None:
    """Raise TargetUnavailable if the primary site cannot be read: applications must not be moved to it then."""
    primary = failover.file.primary
    try:
        for place in failover.places(primary, failover.file.entities):
            async with aclosing(peek(place, os.environ, most=1)) as messages:
                await anext(messages, None)
    except TargetUnavailable as error:
        raise TargetUnavailable(_why(primary, error)) from error


async def _look(failover: Failover, site: str, entities: Sequence[str]) -> Contents:
    primary = failover.path_name(failover.file.primary)
    try:
        return [await contents_of(place, primary, os.environ) for place in failover.places(site, entities)]
    except TargetUnavailable as error:
        return _why(site, error)


def _why(site: str, error: TargetUnavailable) -> str:
    # Without the advice of `peek`, which does not know whether the site answers.
    cannot = error.__cause__ if isinstance(error.__cause__, TargetUnavailable) else error
    if cannot.__cause__ is not None and is_unavailable(cannot.__cause__):
        return f"{site} does not answer: {cannot}"
    return f"{cannot}; {site} answers: check that the entity exists, and the right to listen"


async def contents_of(place: Place, primary: str, settings: Mapping[str, str]) -> EntityContents:
    """Return the contents of an entity; those that were not at the site *primary* are local. Raises as `peek`."""
    found = 0
    times: list[str] = []
    local = 0
    async with aclosing(peek(place, settings)) as messages:
        async for letter, _ in messages:
            found += 1
            # One that cannot be parsed is local.
            if letter.message is None or primary not in visited_sites(letter.message):
                local += 1
                times += [] if letter.enqueued_time is None else [iso_time(letter.enqueued_time)]
    return EntityContents(place.entity, found, local, min(times, default=None), max(times, default=None))
